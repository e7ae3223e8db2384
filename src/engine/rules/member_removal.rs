//! Departures: which member goes, if a review is allowed.
//!
//! Not a rule: what rules need to know of each other's answers. Deletion, eviction, a smaller number of replicas and a
//! template that rolls each take a member away, and of two that are judged at the same moment only one may. Before such a
//! review is allowed its member is reserved (`reserve.rs`). A review about an object that is not the one in the view reserves
//! nothing: it may be made up. (An eviction names no uid, so a made-up one can make others wait.)

use super::one_at_a_time;
use crate::exceptions::Exceptions;
use crate::exemptions::{self, users};
use crate::verdict::{Decision, Finding, Verdict};
use facts::mode::Mode;
use facts::review::{Operation, Origin, Review};
use facts::view::{Cluster, Id, View};
use objects::{Kind, Object, Workload};

/// A member that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRemoval {
    /// Its cluster.
    pub cluster: Id,
    /// Its pod.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// The rule that judges such departures.
    pub rule: &'static str,
}

/// The member that this review takes away, if it is a real one and is allowed.
pub fn member_removal(review: &Review, view: &View<'_>) -> Option<MemberRemoval> {
    let taken_over = view.taken_over(review);
    let review = taken_over.as_ref().unwrap_or(review);
    let judged = review.origin == Origin::Validating
        && !review.dry_run
        && !users::passes(&review.user, review.operation, review.kind)
        && !exemptions::is_exempt(review, view);
    let (cluster, pod, rule) = match review.kind {
        Kind::Pod if judged => {
            (view.cluster_of_pod(&review.namespace, &review.name)?, deleted(review)?, "G02")
        }
        Kind::StatefulSet if judged => {
            let cluster = view.cluster(&review.namespace, &review.name)?;
            let (ordinal, rule) = stopped(review, &cluster.workload)?;
            (cluster, format!("{}-{ordinal}", review.name), rule)
        }
        _ => return None,
    };
    let uid = &cluster.member(&pod)?.pod.as_ref().filter(|pod| !pod.going)?.uid;
    let known = if review.kind == Kind::Pod { uid } else { &cluster.workload.metadata.uid };
    let real = |old: &Object| review.takes_over || old.meta().uid == *known;
    let counts = review.old.as_ref().is_none_or(real) && view.mode(rule, &review.namespace) != Mode::Off;
    counts.then(|| MemberRemoval { cluster: cluster.id.clone(), pod, uid: uid.clone(), rule })
}

/// The pod that this deletion or eviction asks to go, or whose server this resize restarts.
fn deleted(review: &Review) -> Option<String> {
    let asked = review.operation == Operation::Delete
        || review.subresource == "eviction"
        || one_at_a_time::restarts_its_server(review);
    let goes_already = review.objects().any(|object| object.meta().going());
    (asked && !goes_already).then(|| review.name.clone())
}

/// The first member that a StatefulSet's controller stops because of this change.
fn stopped(review: &Review, now: &Workload) -> Option<(i64, &'static str)> {
    match (review.old.as_ref()?, review.new.as_ref()?) {
        (Object::Scale(old), Object::Scale(new)) if new.spec.replicas < old.spec.replicas => {
            Some((now.ordinals().start + old.spec.replicas - 1, "G01"))
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

/// The member that a changed template, or one that was held back, reaches first.
pub(super) fn first_to_roll(old: &Workload, new: &Workload) -> Option<i64> {
    let changed = old.spec.template.fingerprint != new.spec.template.fingerprint;
    let from = new.reaches_from();
    let goes_on = new.spec.update_strategy.holds_back() < old.spec.update_strategy.holds_back();
    let last = new.ordinals().end - 1;
    ((changed || goes_on) && from <= last && new.replicas() > 0).then_some(last)
}

/// How a rollout of the template that hangs is held, so that its StatefulSet restarts nobody meanwhile.
pub(super) fn hold(cluster: &Cluster) -> String {
    let Cluster { id, workload, .. } = cluster;
    let held = workload.replicas();
    let patch = format!(r#"{{"spec":{{"updateStrategy":{{"rollingUpdate":{{"partition":{held}}}}}}}}}"#);
    format!(
        "hold it first: kubectl -n {} patch statefulset {} --patch '{patch}', then repeat the command, and set the partition back when all \
         members are Ready",
        id.namespace, id.name
    )
}

/// It could not be reserved: refused, unless somebody takes the responsibility.
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
        "without a reservation another replica of gatera could let a second member go at the same moment, and the members \
         that are left may be no majority",
        "repeat the command in a minute; /readyz of gatera (port 8080) says whether it hears the API server",
    );
    let exceptions = Exceptions::of(review, view, &mut Decision::default());
    let mode = view.mode(member_removal.rule, &review.namespace);
    decision.add(finding, mode, false, exceptions.by(member_removal.rule, review));
    decision.sort();
}
