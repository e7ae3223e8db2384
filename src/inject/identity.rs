//! What a pod is told of its cluster's id: the gate at the pod (`start-member.sh`) and its readiness go by it.
//!
//! Owns: [`of`], at a pod's CREATE, and [`outdated`], for pods that run. Must not know: where the id comes from
//! (`plan/identity.rs`).

use super::{Patient, Start};
use crate::galera::identity::Identity;
use crate::galera::start::Front;
use crate::marks::{self, FOUNDS, FREE, UNKNOWN};
use crate::object::{Container, Meta};
use crate::overrides::Override;
use crate::rules::SECOND_BOOTSTRAP;
use crate::verdict::Mode;
use crate::view::{Cluster, PodFact, View};

/// At its CREATE. An override of G04 on the StatefulSet, or on a bootstrap node itself, lets it found the cluster anew.
pub(super) fn of<'a>(patient: &Patient<'a>, server: &Container) -> &'a str {
    let Patient { read, cluster, member, view, .. } = patient;
    let waives = |meta: &Meta| {
        let text = meta.mark(marks::OVERRIDE);
        text.and_then(|text| Override::read(text, view.now).ok())
            .is_some_and(|it| it.releases(SECOND_BOOTSTRAP))
    };
    let tells =
        matches!(Front::of(server), Front::Step) || Start::of(server, &read.metadata) == Start::Prepended;
    let Some(cluster) = cluster.filter(|_| tells) else { return if *member { FREE } else { FOUNDS } };
    if waives(&cluster.workload.metadata) || !member && waives(&read.metadata) {
        return FOUNDS;
    }
    match cluster.identity() {
        _ if !gated(cluster, view) => FREE,
        Some(known) => known.as_str(),
        // A first install begins as often as it has to.
        None if !member => FOUNDS,
        None => UNKNOWN,
    }
}

/// Its pods are stopped from founding another. A single member that founds its cluster at every start parts from nobody;
/// and where a second bootstrap is not refused, it is not refused at the pod either.
pub fn gated(cluster: &Cluster, view: &View<'_>) -> bool {
    cluster.workload.replicas() > 1 && view.mode(SECOND_BOOTSTRAP, &cluster.id.namespace) == Mode::Enforce
}

/// Pods that know another id than the cluster has, or are gated where nobody is, and what each is to know. One that has not
/// told which cluster it is in is asked first (`plan/identity.rs`), or it would stop being Ready over a record that is old.
pub fn outdated<'c>(cluster: &'c Cluster, view: &View<'_>) -> Vec<(&'c PodFact, &'c str)> {
    let (gated, record) = (gated(cluster, view), cluster.identity().map(Identity::as_str));
    let wants = |pod: &PodFact| match pod.identity.as_deref()? {
        FREE => gated.then_some(UNKNOWN),
        _ if !gated => Some(FREE),
        UNKNOWN | FOUNDS => None,
        told => record.filter(|record| told != *record),
    };
    cluster.pods().filter(|pod| !pod.going).filter_map(|pod| Some((pod, wants(pod)?))).collect()
}

/// The guard could have written this on a pod.
pub(super) fn is_known(text: &str) -> bool {
    matches!(text, UNKNOWN | FOUNDS | FREE) || Identity::read(text).is_some()
}
