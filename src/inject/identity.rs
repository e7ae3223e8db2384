//! What a pod is told of its cluster's id: the gate at the pod (`start-member.sh`) and its readiness go by it.
//!
//! Owns: [`of`], at a pod's CREATE, and [`outdated`], for pods that run. Must not know: where the id comes from
//! (`plan/identity.rs`).

use super::Patient;
use crate::galera::identity::Identity;
use crate::marks::{self, FOUNDS, UNKNOWN};
use crate::object::Meta;
use crate::overrides::Override;
use crate::rules::SECOND_BOOTSTRAP;
use crate::verdict::Mode;
use crate::view::{Cluster, PodFact, View};

/// At its CREATE. An override of G04 on the pod or on its StatefulSet lets it found the cluster anew.
pub(super) fn of<'a>(patient: &Patient<'a>) -> &'a str {
    let Patient { read, cluster, view, .. } = patient;
    let Some(known) = cluster.and_then(|cluster| gated(cluster, view)) else { return UNKNOWN };
    let waives = |meta: &Meta| {
        let text = meta.mark(marks::OVERRIDE);
        text.and_then(|text| Override::read(text, view.now).ok())
            .is_some_and(|it| it.releases(SECOND_BOOTSTRAP))
    };
    let released = waives(&read.metadata) || cluster.is_some_and(|it| waives(&it.workload.metadata));
    if released { FOUNDS } else { known.as_str() }
}

/// The id by which its pods are gated. A single member that founds its cluster at every start parts from nobody; and where
/// a second bootstrap is not refused, it is not refused at the pod either.
fn gated<'a>(cluster: &'a Cluster, view: &View<'_>) -> Option<&'a Identity> {
    let enforced = view.mode(SECOND_BOOTSTRAP, &cluster.id.namespace) == Mode::Enforce;
    cluster.identity().filter(|_| enforced && cluster.workload.replicas() > 1)
}

/// Pods that know another id than the cluster has, or none. One that founds is left alone until it has: what it founded is
/// recorded first.
pub fn outdated<'c>(cluster: &'c Cluster, view: &View<'_>) -> Vec<(&'c PodFact, &'c Identity)> {
    let Some(known) = gated(cluster, view) else { return Vec::new() };
    let wants = |pod: &&PodFact| match pod.identity.as_deref() {
        None | Some(FOUNDS) => false,
        Some(told) => !pod.going && told != known.as_str(),
    };
    cluster.pods().filter(wants).map(|pod| (pod, known)).collect()
}

/// The guard could have written this on a pod.
pub(super) fn is_known(text: &str) -> bool {
    matches!(text, UNKNOWN | FOUNDS) || Identity::read(text).is_some()
}
