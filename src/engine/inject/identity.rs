//! What a pod is told of its cluster's id: the gate at the pod (`start-member.sh`) and its readiness go by it.
//!
//! Owns: what a pod gets at its CREATE, and [`outdated`], for pods that run. Must not know: where the id comes from
//! (`plan/identity.rs`).

use std::borrow::Cow;

use super::{InjectTarget, Prospect, Start};
use crate::grant;
use facts::galera::identity::Identity;
use facts::galera::start::EntryPoint;
use facts::marks::overrides::Override;
use facts::marks::recovery::Recovery;
use facts::marks::{self, FOUNDS, FREE, NONE, UNKNOWN};
use facts::mode::Mode;
use facts::view::{Cluster, PodFact, View};
use objects::{Container, Meta, Pod};

/// The rule that refuses a second bootstrap: the gate at the pod follows its override and its mode.
pub const SECOND_BOOTSTRAP: &str = "G04";

/// At its CREATE. An override of G04 on the StatefulSet, or on a bootstrap node itself, lets it found the cluster anew.
pub(super) fn of<'a>(patient: &InjectTarget<'a>, server: &Container) -> Cow<'a, str> {
    match leads(patient, server) {
        Some(right) => right.into(),
        None => knows(patient, server).into(),
    }
}

/// The word by which its step starts a cluster that is down, once, if its data is still what the guard saw.
fn leads(patient: &InjectTarget<'_>, server: &Container) -> Option<String> {
    let InjectTarget { read, cluster, member, view, .. } = patient;
    let cluster = cluster.filter(|_| *member && begins_by_the_step(read, server))?;
    grant::leads(cluster, &read.metadata.name, view).map(Recovery::of_pod)
}

/// The node that a pod which starts its cluster goes back to.
pub(super) fn place<'a>(patient: &InjectTarget<'a>, server: &Container) -> Option<&'a str> {
    let InjectTarget { read, cluster, member, view, .. } = patient;
    let cluster = cluster.filter(|_| *member && begins_by_the_step(read, server))?;
    grant::place(cluster, read, view)
}

/// Its server does, when it is injected.
fn begins_by_the_step(read: &Pod, server: &Container) -> bool {
    let Prospect { start, .. } = Prospect::of(server, &read.metadata, &read.spec, None);
    start == Start::Prepended || EntryPoint::of(server) == EntryPoint::Step
}

fn knows<'a>(patient: &InjectTarget<'a>, server: &Container) -> &'a str {
    let InjectTarget { read, cluster, member, view, .. } = patient;
    let waives = |meta: &Meta| {
        let text = meta.mark(marks::OVERRIDE);
        text.and_then(|text| Override::read(text, view.now).ok())
            .is_some_and(|it| it.releases(SECOND_BOOTSTRAP))
    };
    // By its probes; a step in front of the server looks after the rest.
    let Prospect { kept, .. } = Prospect::of(server, &read.metadata, &read.spec, None);
    let tells = kept.is_none() || begins_by_the_step(read, server);
    let Some(cluster) = cluster.filter(|_| tells) else { return if *member { FREE } else { FOUNDS } };
    if waives(&cluster.workload.metadata) || !member && waives(&read.metadata) {
        return FOUNDS;
    }
    match cluster.identity() {
        _ if !asked(cluster, view) => FREE,
        None if cluster.has_no_identity() && gated(cluster, view) => NONE,
        // A first install begins as often as it has to.
        None if !member => FOUNDS,
        _ if !gated(cluster, view) => FOUNDS,
        Some(known) if !looks_old(cluster, known) => known.as_str(),
        _ => UNKNOWN,
    }
}

/// Where a second bootstrap is not refused, it is not refused at the pod either, and nobody needs to know.
pub fn asked(cluster: &Cluster, view: &View<'_>) -> bool {
    view.mode(SECOND_BOOTSTRAP, &cluster.id.namespace) == Mode::Enforce
}

/// Its pods are stopped from founding another. A single member that founds its cluster at every start parts from nobody.
fn gated(cluster: &Cluster, view: &View<'_>) -> bool {
    asked(cluster, view) && cluster.workload.replicas() > 1
}

/// Pods serve, and none of them is known to be in the cluster that is recorded: it may have been founded anew while the guard
/// was away.
fn looks_old(cluster: &Cluster, record: &Identity) -> bool {
    let mut serves = cluster.pods().filter(|pod| pod.ready).peekable();
    serves.peek().is_some() && serves.all(|pod| pod.identity.as_deref() != Some(record.as_str()))
}

/// How it is written down that a cluster has this id, or none.
pub fn mark(is: Option<&Identity>) -> &str {
    is.map_or(NONE, Identity::as_str)
}

/// What a pod is to know that told this id, or none, and the cluster is it.
pub fn heard<'i>(cluster: &Cluster, view: &View<'_>, is: Option<&'i Identity>) -> &'i str {
    if gated(cluster, view) { mark(is) } else { FREE }
}

/// The pods of a cluster. A bootstrap node is found by its label alone, so of two clusters of one label it is neither's.
pub fn pods<'a>(cluster: &'a Cluster, view: &View<'a>) -> impl Iterator<Item = &'a PodFact> {
    let shared = view.twin(cluster).is_some();
    cluster.pods().filter(move |pod| !shared || cluster.pod(&pod.name).is_some())
}

/// Pods that know another id than the cluster has, or are gated where nobody is, and what each is to know. One that has not
/// told which cluster it is in is asked first (`plan/identity.rs`), or it would stop being Ready over a record that is old.
pub fn outdated<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<(&'a PodFact, &'a str)> {
    let (asked, gated) = (asked(cluster, view), gated(cluster, view));
    let record = cluster.identity().map(Identity::as_str);
    let wants = |pod: &PodFact| match pod.identity.as_deref()? {
        // A right that nobody grants any more is taken back, before its server comes to use it.
        right if Recovery::is_right(right) => {
            let granted = grant::under_way(cluster, view).is_some_and(|it| it.member == pod.name);
            (!granted).then(|| record.unwrap_or(if asked { UNKNOWN } else { FREE }))
        }
        // Whose probes are of an earlier guard, and who has no step, tells nothing.
        FREE => (gated && pod.step).then_some(UNKNOWN),
        UNKNOWN | FOUNDS if asked => None,
        _ if !gated => Some(FREE),
        told => record.filter(|record| told != *record),
    };
    pods(cluster, view).filter(|pod| !pod.going).filter_map(|pod| Some((pod, wants(pod)?))).collect()
}

/// The guard could have written this on a pod.
pub(super) fn is_known(text: &str) -> bool {
    matches!(text, UNKNOWN | FOUNDS | FREE | NONE)
        || Identity::read(text).is_some()
        || Recovery::is_right(text)
}
