//! G05: the bootstrap node stays until every member can do without it.
//!
//! Refuses to delete, evict, stop or restart the bootstrap node, and to delete its Service and ConfigMap, while a member
//! is not Ready.
//!
//! # Why
//!
//! During a first install only the bootstrap node has the database. If the node stops while a member copies from it, the
//! partial copy is lost and there is no other donor. Afterwards the node still counts as a member: if only one other
//! member has joined, a sudden stop leaves that member without a majority. The node has no volume, so a restart creates
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
//! Wait. When all members are Ready, gatera removes the node's name from their address and deletes the Deployment, the
//! Service and the ConfigMap, in that order; no member restarts. `gatera status` and an Event on the StatefulSet say what
//! it waits for. Then remove these objects from your manifests: a Deployment that is applied again stays at 0 replicas.
//!
//! Gatera waits while Ready does not prove that a member is Synced. Members that started before gatera was installed have
//! to be restarted one at a time: `kubectl delete pod NAME`, then wait until it is Ready. Where a restart cannot help
//! (`gatera.dev/readiness: keep`, an unknown image), check the members yourself, then delete Deployment, Service and
//! ConfigMap in that order. Gatera does not remove a bootstrap node that is a pod without a Deployment either: delete the pod,
//! its Service and its ConfigMap. The name of the Service may stay in a ConfigMap: a name that does not resolve is skipped, as
//! long as members are listed too. An install in which no member starts may be deleted at any time.
//!
//! A bootstrap node that was killed while the first member copied from it may restart without a majority: it waits for that
//! member, which has no data yet. `gatera status` then shows it as CUT-OFF, and you may delete its pod: the Deployment creates
//! a new one, which members join. What was written to the old pod is lost, so gatera does not do this by itself.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G05 until=2026-12-01T10:00:00Z reason=…"`; the
//! override of G03 on the cluster's StatefulSet covers it too.

use crate::rule::{Finding, One, Review, Rule, UNTIL_SEEN, Verb, Verdict, View};
use facts::view::{Cluster, Member, State, transfer};
use facts::way_out::{CommandLine, run};
use objects::{Kind, Scale, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G05",
    name: "bootstrap-needed",
    judges: &[
        (Kind::Deployment, &[Verb::Update], One(updated)),
        (Kind::Deployment, &[Verb::Scale], One(scaled)),
        (Kind::Deployment, &[Verb::Delete], One(check)),
        (Kind::Pod, &[Verb::Delete, Verb::Evict], One(check)),
        (Kind::Service, &[Verb::Delete], One(check)),
        (Kind::ConfigMap, &[Verb::Delete], One(check)),
    ],
    depends_on_state: true,
    source: include_str!("bootstrap_needed.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    still_needed(review, bootstrapped_with(review, view)?, view)
}

/// Returns a finding about an edit that stops the bootstrap node, or replaces it by another, empty one.
fn updated(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<Workload>()?;
    let restarts = new.replicas() == 0 || old.spec.template.fingerprint != new.spec.template.fingerprint;
    check(review, view).filter(|_| old.replicas() > 0 && restarts)
}

fn scaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let new = review.change::<Scale>().new?;
    check(review, view).filter(|_| new.spec.replicas == 0)
}

/// Returns the cluster whose bootstrap node this object belongs to, while that node exists.
fn bootstrapped_with<'a>(review: &Review, view: &View<'a>) -> Option<&'a Cluster> {
    let (ns, name) = (&*review.namespace, &*review.name);
    let mut bootstrapped =
        view.clusters_named_by(review.kind, ns, name).filter(|cluster| !cluster.bootstrap.pods.is_empty());
    match review.kind {
        Kind::Deployment => bootstrapped.find(|it| it.bootstrap.deployments.iter().any(|own| own == name)),
        Kind::Pod => bootstrapped.find(|it| it.bootstrap.pods.iter().any(|own| own.name == name)),
        Kind::Service => bootstrapped.find(|it| view.bootstrap_service(it) == Some(name)),
        Kind::ConfigMap => bootstrapped.find(|it| view.bootstrap_reads(it, name)),
        _ => None,
    }
}

fn still_needed(review: &Review, cluster: &Cluster, view: &View<'_>) -> Option<Finding> {
    let ns = &cluster.id.namespace;
    let hangs = cluster.members.iter().find_map(|it| transfer::way_out_if_hanging(cluster, it, view.now));
    let wait = hangs.unwrap_or_else(|| run(cluster.wait_command()).say(", then repeat the command"));
    let stranded = transfer::stranded_bootstrap_pod(cluster, view.now);
    let (verdict, says, instead) = match view.state(cluster) {
        State::Healthy => return None,
        // A bootstrap node cannot help a cluster without an identity or without its StatefulSet.
        State::Degraded
            if (cluster.has_no_identity() || cluster.orphaned)
                && cluster.members.iter().all(Member::ready) =>
        {
            return None;
        }
        State::Unknown => {
            (Verdict::Unknown, "it is not known whether all members are Ready".to_owned(), UNTIL_SEEN.into())
        }
        // No member depends on the node: an install that failed may be deleted.
        State::Forming if !cluster.members.iter().any(Member::starting) => return None,
        State::Forming if stranded.is_some_and(|pod| review.kind == Kind::Pod && pod.name == review.name) => {
            return None;
        }
        State::Forming | State::Joining | State::Transfer => {
            let wait = stranded.map_or(wait, |pod| transfer::way_out(cluster, pod));
            (Verdict::Wait, trouble(cluster), wait)
        }
        State::Degraded | State::Down | State::Stopped => {
            let describe = run(CommandLine::new(format!("kubectl -n {ns} describe pods")));
            let instead = describe.say(" (it shows why they are not Ready), then ").and(wait);
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
