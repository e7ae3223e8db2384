//! Removals: which member stops if a request is allowed.
//!
//! Not a rule: G01, G02 and G14 judge removals. A deletion, an eviction, a resize that restarts the server, fewer replicas and a
//! changed template each remove a member, and of two such requests at the same moment only one may be allowed. So the member is
//! reserved before the request is allowed (`reserve.rs`). A request about an object that differs from the one in the view
//! reserves nothing: it may be forged. (An eviction names no uid, so a forged one can make others wait.)

use super::one_at_a_time;
use crate::exceptions::Exceptions;
use crate::exemptions::{self, users};
use crate::verdict::{Decision, Finding, Verdict};
use facts::mode::Mode;
use facts::review::{Operation, Origin, Review};
use facts::view::{Cluster, Id, View};
use facts::way_out::{CommandLine, WayOut, edit, say};
use objects::{Kind, Object, Workload};

/// A member that is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRemoval {
    pub cluster: Id,
    pub pod: String,
    pub uid: String,
    /// The rule that judges this kind of removal.
    pub rule: &'static str,
}

/// Returns the member that this request removes if it is allowed; none for a dry run, an exempt request or a rule that is off.
pub fn member_removal(review: &Review, view: &View<'_>) -> Option<MemberRemoval> {
    let taken_over = view.taken_over(review);
    let review = taken_over.as_ref().unwrap_or(review);
    let judged = review.origin == Origin::Validating
        && !review.dry_run
        && !users::is_exempt(&review.user, review.operation, review.kind)
        && !exemptions::is_exempt(review, view);
    let (cluster, pod, rule) = match review.kind {
        Kind::Pod if judged => {
            (view.cluster_of_pod(&review.namespace, &review.name)?, removed_pod(review)?, "G02")
        }
        Kind::StatefulSet if judged => {
            let cluster = view.cluster(&review.namespace, &review.name)?;
            let (ordinal, rule) = stopped_ordinal(review, &cluster.workload)?;
            (cluster, format!("{}-{ordinal}", review.name), rule)
        }
        _ => return None,
    };
    let uid = &cluster.member(&pod)?.pod.as_ref().filter(|pod| !pod.terminating)?.uid;
    let known = if review.kind == Kind::Pod { uid } else { &cluster.workload.metadata.uid };
    let is_known = |old: &Object| review.takes_over || old.meta().uid == *known;
    let counts = review.old.as_ref().is_none_or(is_known) && view.mode(rule, &review.namespace) != Mode::Off;
    counts.then(|| MemberRemoval { cluster: cluster.id.clone(), pod, uid: uid.clone(), rule })
}

/// Returns the pod that a request deletes or evicts, or whose server a resize restarts.
fn removed_pod(review: &Review) -> Option<String> {
    let ends = review.operation == Operation::Delete
        || review.subresource == "eviction"
        || one_at_a_time::restarts_its_server(review);
    let terminating = review.objects().any(|object| object.meta().is_terminating());
    (ends && !terminating).then(|| review.name.clone())
}

/// Returns the first member that the StatefulSet controller stops because of this change.
fn stopped_ordinal(review: &Review, current: &Workload) -> Option<(i64, &'static str)> {
    match (review.old.as_ref()?, review.new.as_ref()?) {
        (Object::Scale(old), Object::Scale(new)) if new.spec.replicas < old.spec.replicas => {
            Some((current.ordinals().start + old.spec.replicas - 1, "G01"))
        }
        (Object::StatefulSet(old), Object::StatefulSet(new)) => {
            let last = old.ordinals().end - 1;
            if new.ordinals() != old.ordinals() && !new.ordinals().contains(&last) {
                return Some((last, "G01"));
            }
            first_to_roll(old, new).map(|ordinal| (ordinal, "G14"))
        }
        _ => None,
    }
}

/// Returns the first member that gets a changed template, or one that a partition held back.
pub(super) fn first_to_roll(old: &Workload, new: &Workload) -> Option<i64> {
    let changed = old.spec.template.fingerprint != new.spec.template.fingerprint;
    let from = new.first_updated_ordinal();
    let continues = new.spec.update_strategy.held_back() < old.spec.update_strategy.held_back();
    let last = new.ordinals().end - 1;
    ((changed || continues) && from <= last && new.replicas() > 0).then_some(last)
}

/// Returns the command that pauses a template rollout that hangs, so that its StatefulSet restarts no other member meanwhile.
pub(super) fn pause_rollout(cluster: &Cluster) -> WayOut {
    let Cluster { id, workload, .. } = cluster;
    let held = workload.replicas();
    let patch = format!(r#"{{"spec":{{"updateStrategy":{{"rollingUpdate":{{"partition":{held}}}}}}}}}"#);
    let command =
        CommandLine::new(format!("kubectl -n {} patch statefulset {} --patch", id.namespace, id.name));
    say("hold it first: ")
        .and(edit(
            command.arg(patch),
            format!("write partition: {held} under spec.updateStrategy.rollingUpdate"),
        ))
        .say(", then repeat the command, and set the partition back when all members are Ready")
}

/// Refuses a request whose removal could not be reserved, unless an exception suspends the rule.
pub fn refuse_unreserved(
    member_removal: &MemberRemoval,
    problem: &str,
    review: &Review,
    view: &View<'_>,
    decision: &mut Decision,
) {
    let finding = Finding::new(
        member_removal.rule,
        Verdict::Unknown,
        "",
        format!("gatera could not reserve {} at the API server: {problem}", member_removal.pod),
        "without a reservation another replica of gatera could allow the removal of a second member at the same moment, and \
         the remaining members may not be a majority",
        "repeat the command in a minute; /readyz of gatera (port 8080) says whether it can reach the API server",
    );
    let exceptions = Exceptions::of(review, view, &mut Decision::default());
    let mode = view.mode(member_removal.rule, &review.namespace);
    decision.add(finding, mode, false, exceptions.for_rule(member_removal.rule, review));
    decision.sort();
}
