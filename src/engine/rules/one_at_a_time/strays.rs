//! Members that no StatefulSet asks for: beyond the replicas, or without their StatefulSet.
//!
//! Must not know: when other members may be removed (`one_at_a_time.rs`).

use super::{RULE, cluster_of, finding, is_late};
use crate::rule::{APPLY_AGAIN, Finding, Review, Verdict, View};
use facts::view::{Cluster, Freshness, Id, PodFact, State};
use facts::way_out::say;

/// Returns a finding if such a member must not be removed now.
pub(super) fn judge(review: &Review, shown: Option<&PodFact>, view: &View<'_>) -> Option<Finding> {
    let of_an_unseen_one = || shown.and_then(|pod| of_a_cluster_not_seen(pod, review, view));
    beyond(review, shown, view).or_else(of_an_unseen_one)
}

/// Returns a finding about a pod beyond the replicas. The change that caused this was judged; the controller deletes the pod when
/// all others are Ready, which they may never be without it.
fn beyond(review: &Review, shown: Option<&PodFact>, view: &View<'_>) -> Option<Finding> {
    let cluster = cluster_of(review, shown, view)?;
    let listed = cluster.leaving.iter().find(|pod| pod.name == review.name);
    let pod = shown.or(listed.map(AsRef::as_ref)).filter(|pod| !pod.terminating)?;
    if listed.is_none() || is_unknown(cluster, view) {
        return not_seen_yet(pod, cluster, view);
    }
    let serves = pod.ready && cluster.has_data();
    let reserved = view.reservations.other_leaving(cluster, &pod.name).map(|(other, _)| other.to_owned());
    let absent = || cluster.members.iter().find(|it| !it.ready()).map(|it| it.name.clone());
    let other = reserved.or_else(absent).filter(|_| serves)?;
    Some(finding(
        Verdict::Wait,
        format!(
            "it still serves although the StatefulSet has fewer replicas, and {other} is not Ready ({})",
            view.count(cluster)
        ),
        "a member that starts has to join one that serves, and this may be the last one that does",
        say("wait: its controller deletes it when all others are Ready")
            .then(cluster.status_command())
            .say(format!(" shows what {other} needs")),
    ))
}

const NOT_SEEN: &str =
    "a member that is not Ready counts as lost for the majority, and another may have been allowed to leave";

/// Returns a finding about a pod that was created moments ago, by a StatefulSet with more replicas than the view shows.
fn not_seen_yet(pod: &PodFact, cluster: &Cluster, view: &View<'_>) -> Option<Finding> {
    let may_serve = pod.running && (cluster.has_data() || is_unknown(cluster, view));
    let says = format!("gatera has not seen this pod of cluster {} yet", cluster.id.name);
    may_serve.then(|| RULE.unknown("", &says, NOT_SEEN, view))
}

/// Returns a finding about a pod of a StatefulSet that a late view does not hold: it may be a cluster.
fn of_a_cluster_not_seen(pod: &PodFact, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (kind, owner) = pod.owner.as_ref()?;
    let seen = view.world.facts().stateful_sets.contains_key(&Id::new(&review.namespace, owner));
    let may_be = kind == "StatefulSet" && !seen && pod.server && pod.running && !pod.terminating;
    // The view holds only adopted pods.
    let held = view.world.facts().pod(&Id::new(&review.namespace, &pod.name)).is_some();
    let says = format!("gatera has not seen StatefulSet {owner} yet");
    (may_be && (held || view.freshness != Freshness::Current))
        .then(|| RULE.unknown("", &says, NOT_SEEN, view))
}

fn is_unknown(cluster: &Cluster, view: &View<'_>) -> bool {
    view.state(cluster) == State::Unknown
}

/// Returns a finding about a member whose StatefulSet is gone: nothing starts it again.
pub(super) fn left_behind(review: &Review, shown: Option<&PodFact>, view: &View<'_>) -> Option<Finding> {
    // The StatefulSet orphans its pods before it is deleted itself.
    let left = |it: &&Cluster| {
        it.orphaned || it.workload.metadata.is_terminating() && it.pods().any(|pod| pod.orphan_of.is_some())
    };
    let cluster = cluster_of(review, shown, view).filter(left)?;
    let stays = |pod: &&PodFact| pod.running && !pod.terminating;
    shown.or(cluster.pod(&review.name)).filter(|pod| stays(pod) || is_late(shown, view))?;
    let others =
        cluster.pods().filter(|pod| pod.orphan_of.is_some() && pod.name != review.name).filter(stays).count();
    Some(finding(
        Verdict::Deny,
        format!(
            "its StatefulSet is gone, so nothing would replace it (other members without it: {others}, {})",
            view.seen()
        ),
        "a member that is not started again is lost for the majority, and after the last one has stopped you must find out which \
         may start first",
        say(APPLY_AGAIN).then("then repeat the command"),
    ))
}
