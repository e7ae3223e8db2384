//! G05: the bootstrap node stays until every member can do without it.
//!
//! Refuses to delete, evict, stop or restart the bootstrap node, and to delete its Service and ConfigMap, while a member
//! still joins.
//!
//! # Why
//!
//! During a first install the bootstrap node is the only one that has the database. A member that copies it loses its
//! half copy when the node goes, and finds nobody to ask again. Afterwards the node still counts as a member: with one
//! member joined, its sudden end leaves that one without a majority. Its data is on no volume, so a restart founds yet
//! another, empty cluster.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete deployment galera-bootstrap
//! [G05] Deployment db/galera-bootstrap: galera-2 is not Ready yet (2 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Wait. When all members are Ready, gatera takes the node's name out of their address and removes the Deployment, the
//! Service and the ConfigMap, in that order; nobody restarts. `gatera status` and an Event on the StatefulSet say what it
//! waits for. Then take these objects out of what you apply: what is applied again stays, at 0 replicas.
//!
//! Gatera waits as long as Ready does not prove a member Synced. Members that started before gatera came are taken over by
//! restarting them one at a time: `kubectl delete pod NAME`, and wait until it is Ready. Where no restart can help
//! (`gatera.dev/readiness: keep`, an image that is not known) look for yourself, then delete Deployment, Service and
//! ConfigMap in that order. A bootstrap node that is a pod without a Deployment is left to you too. The name of the
//! Service may stay in a ConfigMap: a name that does not resolve is skipped, as long as members are listed too. An install
//! that does not get anywhere (no member starts) may be deleted at any time.
//!
//! A bootstrap node that was killed while the first member copied from it may come back without a majority: it waits for that member,
//! which has nothing yet. `gatera status` then names it as CUT-OFF, and its pod may be deleted: its Deployment makes a new one, which
//! members join. What was written into the old one is lost, so gatera does not do it by itself.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G05 until=2026-12-01T10:00:00Z reason=…"`; the
//! override of G03 on the cluster's StatefulSet releases it too.

use crate::rule::{Rule, UNTIL_SEEN, Verb};
use crate::verdict::{Finding, Findings, Verdict};
use facts::review::{Operation, Review};
use facts::view::{Cluster, Member, State, View, transfer};
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "G05",
    name: "bootstrap-needed",
    touches: &[
        (Kind::Deployment, &[Verb::Update, Verb::Delete, Verb::Scale]),
        (Kind::Pod, &[Verb::Delete, Verb::Evict]),
        (Kind::Service, &[Verb::Delete]),
        (Kind::ConfigMap, &[Verb::Delete]),
    ],
    depends_on_state: true,
    source: include_str!("bootstrap_needed.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let ends = match &review.new {
        _ if review.operation == Operation::Delete || review.subresource == "eviction" => true,
        Some(Object::Scale(new)) => new.spec.replicas == 0,
        Some(Object::Deployment(new)) => restarts(review, new),
        _ => false,
    };
    let cluster = ends.then(|| bootstrapped_with(review, view)).flatten();
    cluster.and_then(|cluster| still_needed(review, cluster, view)).into_iter().collect()
}

/// An edit that stops the bootstrap node, or replaces it by another empty one.
fn restarts(review: &Review, new: &objects::Workload) -> bool {
    let Some(Object::Deployment(old)) = &review.old else { return false };
    old.replicas() > 0
        && (new.replicas() == 0 || old.spec.template.fingerprint != new.spec.template.fingerprint)
}

/// The cluster whose bootstrap node this object is a part of, while that node is there.
fn bootstrapped_with<'a>(review: &Review, view: &View<'a>) -> Option<&'a Cluster> {
    let (ns, name) = (&*review.namespace, &*review.name);
    let mut there = view.clusters_in(ns).filter(|cluster| !cluster.bootstrap.pods.is_empty());
    match review.kind {
        Kind::Deployment => there.find(|it| it.bootstrap.deployments.iter().any(|own| own == name)),
        Kind::Pod => there.find(|it| it.bootstrap.pods.iter().any(|own| own.name == name)),
        Kind::Service => there.find(|it| view.bootstrap_service(it) == Some(name)),
        Kind::ConfigMap => there.find(|it| view.bootstrap_reads(it, name)),
        _ => None,
    }
}

fn still_needed(review: &Review, cluster: &Cluster, view: &View<'_>) -> Option<Finding> {
    let ns = &cluster.id.namespace;
    let hangs = cluster.members.iter().find_map(|it| transfer::hangs(cluster, it, view.now));
    let wait = hangs.unwrap_or_else(|| format!("{}, then repeat the command", cluster.wait_command()));
    let stranded = transfer::stranded(cluster, view.now);
    let (verdict, says, instead) = match view.state(cluster) {
        State::Healthy => return None,
        // Without an identity, or without its StatefulSet: no bootstrap node mends that.
        State::Degraded
            if (cluster.has_no_identity() || cluster.left) && cluster.members.iter().all(Member::ready) =>
        {
            return None;
        }
        State::Unknown => (
            Verdict::Unknown,
            "it is not known whether all members are Ready".to_owned(),
            UNTIL_SEEN.to_owned(),
        ),
        // Nobody depends on it: an install that failed may be taken away.
        State::Forming if !cluster.members.iter().any(Member::starting) => return None,
        State::Forming if stranded.is_some_and(|pod| review.kind == Kind::Pod && pod.name == review.name) => {
            return None;
        }
        State::Forming | State::Joining | State::Transfer => {
            let wait = stranded.map_or(wait, |pod| transfer::way_out(cluster, pod));
            (Verdict::Wait, trouble(cluster), wait)
        }
        State::Degraded | State::Down | State::Stopped => {
            let instead = format!("kubectl -n {ns} describe pods (why are they not Ready?), then {wait}");
            (Verdict::Deny, trouble(cluster), instead)
        }
    };
    Some(RULE.finding(
        verdict,
        "",
        format!("{says} ({})", view.count(cluster)),
        "until every member is Synced, the bootstrap node may be the only one with the whole \
         database, and it counts for the majority",
        instead,
    ))
}

fn trouble(cluster: &Cluster) -> String {
    let first = cluster.members.iter().find_map(|member| Some((member, member.trouble()?)));
    first.map_or_else(
        || "a member is leaving".to_owned(),
        |(member, trouble)| format!("{} {trouble}", member.name),
    )
}
