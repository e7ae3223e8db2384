//! The cluster id in a pod's annotation, on which the step script (`start-member.sh`) and the readiness probe depend.
//!
//! Owns: the value at a pod's CREATE, and [`outdated_values`] for running pods. Must not know: where the id comes from
//! (`plan/identity.rs`).

use std::borrow::Cow;

use super::InjectTarget;
use crate::grant;
use facts::galera::identity::Identity;
use facts::marks::overrides::Override;
use facts::marks::recovery::Recovery;
use facts::marks::{self, FOUNDS, FREE, NONE, UNKNOWN};
use facts::mode::Mode;
use facts::view::{Cluster, PodFact, View};
use objects::Meta;

/// The rule that refuses a second bootstrap. The step script follows its override and its mode.
pub const SECOND_BOOTSTRAP: &str = "G04";

/// Returns the value at a pod's CREATE. An override of G04 on the StatefulSet, or on the pod of a bootstrap node itself, allows
/// the pod to create the cluster again.
pub(super) fn value_for_new_pod<'a>(target: &InjectTarget<'a>) -> Cow<'a, str> {
    let InjectTarget { typed, view, .. } = target;
    let started = |cluster| grant::recovery_started_by(cluster, &typed.metadata.name, view);
    match target.cluster_to_start().and_then(started) {
        // The step script starts a cluster that is down with this value, once, if its position has not changed.
        Some(recovery) => recovery.permission().into(),
        None => value_from_view(target).into(),
    }
}

fn value_from_view<'a>(target: &InjectTarget<'a>) -> &'a str {
    let InjectTarget { typed, cluster, member, view, .. } = target;
    let is_excepted = |meta: &Meta| {
        let text = meta.mark(marks::OVERRIDE);
        text.and_then(|text| Override::read(text, view.now).ok())
            .is_some_and(|it| it.suspends(SECOND_BOOTSTRAP))
    };
    // The probes or the step script report the cluster id.
    let reports = target.planned.keeps_probes.is_none() || target.starts_with_step_script();
    let Some(cluster) = cluster.filter(|_| reports) else { return if *member { FREE } else { FOUNDS } };
    if is_excepted(&cluster.workload.metadata) || !member && is_excepted(&typed.metadata) {
        return FOUNDS;
    }
    match cluster.identity() {
        _ if !is_enforced(cluster, view) => FREE,
        None if cluster.has_no_identity() && is_gated(cluster, view) => NONE,
        // A first install may start several times.
        None if !member => FOUNDS,
        _ if !is_gated(cluster, view) => FOUNDS,
        Some(known) if !record_looks_old(cluster, known) => known.as_str(),
        _ => UNKNOWN,
    }
}

/// Returns whether G04 is enforced. If it is not, the step script does not need the cluster id either.
pub fn is_enforced(cluster: &Cluster, view: &View<'_>) -> bool {
    view.mode(SECOND_BOOTSTRAP, &cluster.id.namespace) == Mode::Enforce
}

/// Returns whether the step script keeps the pods from creating another cluster. A single member may create its cluster at every
/// start, but the first of several stopped members may not, because another one may have newer data.
fn is_gated(cluster: &Cluster, view: &View<'_>) -> bool {
    let members = cluster.stopped_members().unwrap_or(0).max(cluster.workload.replicas());
    is_enforced(cluster, view) && members > 1
}

/// Returns whether pods serve, but none of them is known to be in the recorded cluster: the cluster may have been created again
/// while the guard was down.
fn record_looks_old(cluster: &Cluster, record: &Identity) -> bool {
    let mut serves = cluster.pods().filter(|pod| pod.ready).peekable();
    serves.peek().is_some() && serves.all(|pod| pod.identity.as_deref() != Some(record.as_str()))
}

/// Returns the value of the mark for a cluster with this id, or without an id.
pub fn mark_value(id: Option<&Identity>) -> &str {
    id.map_or(NONE, Identity::as_str)
}

/// Returns the value for a pod that reported the id of its cluster, or that the cluster has none.
pub fn reported_value<'i>(cluster: &Cluster, view: &View<'_>, id: Option<&'i Identity>) -> &'i str {
    if is_gated(cluster, view) { mark_value(id) } else { FREE }
}

/// Returns the pods of a cluster. A bootstrap node is found only by its label, so it belongs to none of two clusters with the
/// same label.
pub fn pods<'a>(cluster: &'a Cluster, view: &View<'a>) -> impl Iterator<Item = &'a PodFact> {
    let shared = view.twin(cluster).is_some();
    cluster.pods().filter(move |pod| !shared || cluster.pod(&pod.name).is_some())
}

/// Returns the pods whose value is out of date, each with the new one. A pod that has not reported its cluster has to report it
/// first (`plan/identity.rs`), or an old record would make it unready.
pub fn outdated_values<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<(&'a PodFact, &'a str)> {
    let (enforced, gated) = (is_enforced(cluster, view), is_gated(cluster, view));
    let record = cluster.identity().map(Identity::as_str);
    let new_value = |pod: &PodFact| match pod.identity.as_deref()? {
        // A right that is no longer granted is removed before the server uses it.
        right if Recovery::is_permission(right) => {
            let granted = grant::recovery_under_way(cluster, view).is_some_and(|it| it.member == pod.name);
            (!granted).then(|| record.unwrap_or(if enforced { UNKNOWN } else { FREE }))
        }
        // A pod with the probes of an earlier guard and without the step script reports no id.
        FREE => (gated && pod.step).then_some(UNKNOWN),
        UNKNOWN | FOUNDS if enforced => None,
        _ if !gated => Some(FREE),
        current => record.filter(|record| current != *record),
    };
    pods(cluster, view)
        .filter(|pod| !pod.terminating)
        .filter_map(|pod| Some((pod, new_value(pod)?)))
        .collect()
}

/// Returns whether the guard could have written this value.
pub(super) fn is_known(text: &str) -> bool {
    matches!(text, UNKNOWN | FOUNDS | FREE | NONE)
        || Identity::read(text).is_some()
        || Recovery::is_permission(text)
}
