//! Findings about claims that are deleted, get an owner with which they would be deleted, or lose the finalizer that keeps them.
//!
//! Must not know: the volumes of a template (`member_data.rs`).

use super::super::{owners, whole_stop};
use super::{RULE, WHY, finding};
use crate::exemptions::users;
use crate::rule::{APPLY_AGAIN, Finding, Findings, Operation, Review, UNTIL_SEEN, Verdict, View};
use facts::marks;
use facts::marks::stopped::StopRecord;
use facts::view::{Cluster, Freshness, State};
use facts::way_out::{CommandLine, say};
use objects::{Claim, PROTECTION, ordinal};

pub(super) fn deleted(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, name) = (&*review.namespace, &*review.name);
    let Some(cluster) = view.clusters_of_claim(ns, name).next() else {
        return of_a_stopped_cluster(review, view)
            .or_else(|| unseen(view))
            .or_else(|| left_over(review, view));
    };
    if !cluster.has_data() && view.state(cluster) == State::Forming {
        // An install that never formed a cluster: the claim is empty.
        return None;
    }
    let ordinal = cluster.claims.iter().find(|claim| claim.name == name)?.ordinal;
    let seen = view.count(cluster);
    if let Some(member) = cluster.members.iter().find(|member| member.ordinal == ordinal) {
        let says = format!("it holds the data of member {} ({seen})", member.name);
        let until = view.example_override_end();
        let instead = match view.state(cluster) {
            _ if cluster.orphaned => APPLY_AGAIN.into(),
            State::Down => say("keep it: no member is Ready, so it may hold the newest data")
                .then("start the cluster with ")
                .run(cluster.recover_command()),
            _ => {
                let annotate = CommandLine::new(format!("kubectl -n {ns} annotate pvc {name}"));
                let pod = &member.name;
                let copy_again =
                    say(format!("to let {pod} copy everything again while all others are Ready: "))
                        .run(annotate.arg(format!("gatera.dev/override=G07 until={until} reason=…")))
                        .say(", then ")
                        .run(CommandLine::new(format!("kubectl -n {ns} delete pvc {name} --wait=false")));
                let restart = CommandLine::new(format!("kubectl -n {ns} delete pod {pod}"));
                match member.pod {
                    Some(_) => copy_again.say(" (it is deleted with its pod), then ").run(restart),
                    None => copy_again,
                }
            }
        };
        return Some(finding(Verdict::Deny, String::new(), says, instead));
    }
    let says = format!(
        "it holds the data of former member {}-{ordinal}, which a scale-down removed ({seen})",
        cluster.id.name
    );
    let (verdict, instead) = match view.state(cluster) {
        State::Healthy => (
            Verdict::Warn,
            "keep it only if you want to scale up faster later; deleting it loses nothing else",
        ),
        State::Unknown => (Verdict::Unknown, UNTIL_SEEN),
        State::Joining | State::Transfer => (Verdict::Wait, "repeat the command when all members are Ready"),
        _ => (Verdict::Deny, "make all members Ready first: until then it may hold the newest data"),
    };
    Some(finding(verdict, String::new(), says, instead))
}

/// Returns a finding if `gatera stop` stopped the member and the StatefulSet was deleted: the data is kept for a restart.
fn of_a_stopped_cluster(review: &Review, view: &View<'_>) -> Option<Finding> {
    let claim = view.waiting_claims(&review.namespace).find(|claim| claim.metadata.name == review.name)?;
    let stopped = claim.metadata.mark(marks::STOPPED).and_then(StopRecord::read);
    let of = stopped.map_or_else(String::new, |record| format!(" (1 of {}, on {})", record.of, record.since));
    let says = format!(
        "it holds the data of a member that was stopped{of}; the cluster needs it to start again ({})",
        view.seen()
    );
    let instead = whole_stop::start_again(review, RULE.id, view).say(", then delete the claim");
    let why = "the members of a cluster that was stopped in order start again from their claims; the volume is deleted together \
               with its claim";
    Some(RULE.deny("", says, why, instead))
}

/// Returns a finding if the view is partial: the claim's StatefulSet may be among the objects that are not kept.
fn unseen(view: &View<'_>) -> Option<Finding> {
    let says = "it is not known whether a member keeps its data on it";
    (view.freshness == Freshness::Partial).then(|| RULE.unknown("", says, WHY, view))
}

/// Returns a warning if the StatefulSet is deleted and only its claims are left of the database.
fn left_over(review: &Review, view: &View<'_>) -> Option<Finding> {
    let left = view.left_over_claims_with(&review.namespace, &review.name)?;
    let says = format!(
        "no StatefulSet uses it any more; it is one of {} claims that hold this database",
        left.len()
    );
    let instead = "apply the StatefulSet again to use this data, or make sure that there is a backup before you delete it";
    Some(finding(Verdict::Warn, String::new(), says, instead))
}

/// Returns findings about a written claim that could be deleted later without a request that is judged.
pub(super) fn written(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = review.change::<Claim>().new else { return Findings::new() };
    let owned = owners::added(review, view).and_then(|added| {
        let deletion = deleted(review, view).or_else(|| new_member_claim(review, new, view))?;
        Some(added.finding(&deletion, review, view))
    });
    owned.into_iter().chain(unprotected(review, new, view)).collect()
}

/// Returns the finding for the deletion of a new claim, if it has the name of a member's claim or the labels of Galera.
fn new_member_claim(review: &Review, new: &Claim, view: &View<'_>) -> Option<Finding> {
    let of_member = |cluster: &Cluster| {
        let mut templates = cluster.workload.spec.volume_claim_templates.iter();
        templates.any(|template| {
            let pod = review.name.strip_prefix(&*template.metadata.name).and_then(|it| it.strip_prefix('-'));
            pod.is_some_and(|pod| ordinal(pod, &cluster.id.name).is_some())
        })
    };
    let is_galeras = view.adoption().adopts(&new.metadata.labels)
        || new.metadata.mark(marks::STOPPED).is_some()
        || view.clusters_in(&review.namespace).any(of_member);
    let says = "it is a claim of a member and may hold its data".to_owned();
    (review.operation == Operation::Create && is_galeras)
        .then(|| finding(Verdict::Deny, String::new(), says, ""))
}

/// Returns a finding if the claim is being deleted, and the finalizer that keeps it while a pod uses it is removed.
fn unprotected(review: &Review, new: &Claim, view: &View<'_>) -> Option<Finding> {
    let old = review.change::<Claim>().old?;
    let removed = old.metadata.is_terminating() && old.metadata.protected && !new.metadata.protected;
    if !removed || users::may_remove_finalizer(&review.user) {
        return None;
    }
    let uses = |pod: &&str| review.name.strip_suffix(pod).is_some_and(|template| template.ends_with('-'));
    let pods = view.clusters_in(&review.namespace).flat_map(Cluster::pods).map(|pod| &*pod.name);
    let (ns, seen) = (&review.namespace, view.seen());
    // Claim `data-b-a-0` belongs to pod `b-a-0`, not to `a-0`.
    let (verdict, says, instead) = match pods.filter(uses).max_by_key(|pod| pod.len()) {
        Some(pod) => (
            Verdict::Deny,
            format!(
                "it is being deleted, and only the finalizer {PROTECTION} still protects the data of pod {pod} ({seen})"
            ),
            say("keep the finalizer: Kubernetes removes it when the pod is gone")
                .or(format!("to let {pod} copy everything again while all others are Ready: "))
                .run(CommandLine::new(format!("kubectl -n {ns} delete pod {pod}"))),
        ),
        None if view.freshness == Freshness::Current => return None,
        None => (
            Verdict::Unknown,
            format!("it is being deleted, and a server may still use it ({seen})"),
            UNTIL_SEEN.into(),
        ),
    };
    let why = "without the finalizer the volume is deleted while the server still writes to it, and the member loses its data";
    Some(RULE.finding(verdict, "metadata.finalizers", says, why, instead))
}
