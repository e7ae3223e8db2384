//! The right to start a cluster that is down: whether a requested recovery may be granted, and what a granted one allows.
//!
//! | file | owns |
//! |---|---|
//! | `positions.rs` | where each member's data ends, and what would be lost by starting from it |
//!
//! Owns: [`refusal`], which decides whether the guard copies the request into a mark of its own. Nothing here starts a server:
//! the member's step script (`start-member.sh`) does, if the member's data ends at the position in the mark.

mod positions;

pub use positions::{DataEnd, DataLoss, MemberData, NewerData, best_member, data_loss, member_data};

use jiff::SignedDuration;

use facts::marks::recovery::Recovery;
use facts::view::condition::Condition;
use facts::view::{Cluster, Freshness, Member, PodFact, View};
use objects::Pod;

/// The time after the time limit of a recovery in which its members may still be restarted, because transfers take long.
const RECREATION_WINDOW: SignedDuration = SignedDuration::from_hours(6);

/// Returns why this recovery must not be granted, at all or for now; `None`: it may be granted.
pub fn refusal(requested: &Recovery, cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if view.freshness != Freshness::Current {
        return Some(format!("the state of the cluster is not known ({})", view.seen()));
    }
    if serves(cluster) {
        return Some(format!("cluster {} serves ({})", cluster.id.name, view.count(cluster)));
    }
    if let Some(other) = other_with_right(cluster, &requested.member) {
        return Some(format!(
            "{other} may still start the cluster, because an earlier recovery allowed it: delete its pod first"
        ));
    }
    let all = member_data(cluster, view);
    let Some(own) = all.iter().find(|it| it.member.name == requested.member) else {
        return Some(format!("{} is not a member of cluster {}", requested.member, cluster.id.name));
    };
    match &own.data_end {
        DataEnd::Position { position, .. } if **position == requested.position => {}
        data_end => return Some(format!("{} {data_end}, not at {}", requested.member, requested.position)),
    }
    let node = own.member.pod.as_deref().map_or("", |pod| &*pod.node);
    if let Some(wanted) = requested.node.as_deref().filter(|wanted| *wanted != node) {
        return Some(format!("the pod of {} is not on node {wanted}", requested.member));
    }
    let data_loss = data_loss(&all, own, cluster);
    match (data_loss.loss(), &requested.loss) {
        (None, _) => None,
        (Some(loss), Some(accepted)) if *accepted == loss => None,
        (Some(loss), _) => Some(format!("{data_loss}; starting here loses: {loss}")),
    }
}

/// Returns whether a member or the bootstrap node serves.
pub fn serves(cluster: &Cluster) -> bool {
    cluster.ready() > 0 || cluster.bootstrap.pods.iter().any(|pod| pod.ready)
}

/// Returns the granted recovery of this cluster, if its time limit has not passed.
pub fn recovery_under_way<'a>(cluster: &'a Cluster, view: &View<'_>) -> Option<&'a Recovery> {
    cluster.recovery().filter(|it| it.until > view.now)
}

/// Returns the recovery that lets a new pod of this name start the cluster. The state may have changed since the request was
/// verified: the first member may have served and crashed since, while another one continued.
pub fn recovery_started_by<'a>(cluster: &'a Cluster, pod: &str, view: &View<'_>) -> Option<&'a Recovery> {
    let named = recovery_under_way(cluster, view).filter(|it| it.member == pod && !serves(cluster));
    let current = view.of_namespace(&cluster.id.namespace).freshness == Freshness::Current;
    named
        .filter(|it| current && other_with_right(cluster, pod).is_none() && is_still_valid(it, cluster, view))
}

/// Returns the node on which this new pod has to start the cluster. Without a fixed node, a scheduler that keeps members apart
/// could give the node to a waiting pod of another member, and no node would be left for the member that has to start first.
pub fn node_to_start_on<'a>(cluster: &'a Cluster, pod: &Pod, view: &View<'_>) -> Option<&'a str> {
    let node = recovery_started_by(cluster, &pod.metadata.name, view)?.node.as_deref()?;
    let takes = view.node(node).is_some_and(|it| it.is_reachable() && it.accepts(&pod.spec));
    (takes && pod.spec.node_name.is_empty()).then_some(node)
}

/// Returns another member whose pod may start the cluster. Only one member may have the right.
fn other_with_right<'a>(cluster: &'a Cluster, besides: &str) -> Option<&'a str> {
    let held = |pod: &&PodFact| pod.name != besides && has_right_to_start(pod);
    cluster.pods().find(held).map(|pod| &*pod.name)
}

/// Returns whether the pod may start the cluster, or did so a moment ago.
pub fn has_right_to_start(pod: &PodFact) -> bool {
    pod.identity.as_deref().is_some_and(Recovery::is_permission)
}

/// Returns whether no other member has newer data than was known, or accepted, when the recovery was requested. The step script
/// checks the member's own position.
pub fn is_still_valid(requested: &Recovery, cluster: &Cluster, view: &View<'_>) -> bool {
    let mut all = member_data(cluster, view);
    let Some(own) = all.iter_mut().find(|it| it.member.name == requested.member) else { return false };
    own.data_end = DataEnd::Position { position: &requested.position, how: "", safe: false };
    let own = own.clone();
    let another_served = all.iter().any(|it| it.data_end == DataEnd::Served);
    !another_served && data_loss(&all, &own, cluster).loss() == requested.loss
}

/// Returns whether a recovery may recreate this pod: the pod of the member that has to start first and, once that member serves,
/// the pod of each member that waits for an address that no longer exists.
pub fn may_recreate(cluster: &Cluster, pod: &str, view: &View<'_>) -> bool {
    let (Some(recovery), Some(member)) = (cluster.recovery(), cluster.member(pod)) else { return false };
    let is_recent = view.now.duration_since(recovery.until) < RECREATION_WINDOW;
    let current = view.of_namespace(&cluster.id.namespace).freshness == Freshness::Current;
    if !current || member.ready() || !is_recent {
        return false;
    }
    let first_serves = cluster.member(&recovery.member).is_some_and(Member::ready);
    let starts_first = || !has_served(member) && recovery_started_by(cluster, pod, view).is_some();
    first_serves && waits_in_vain(member, cluster, view) || starts_first()
}

/// Returns whether the server runs and has joined since it started, but is not Ready: it may be a donor, or have lost contact a
/// moment ago.
pub fn has_served(member: &Member) -> bool {
    member.pod.as_deref().is_some_and(|pod| pod.running && pod.starting_since.is_none() && !pod.ready)
}

/// Returns whether the member has not joined since its server started, or is cut off. A member that serves does
/// not count, nor one that receives a copy, unless its donor is gone.
pub fn waits_in_vain(member: &Member, cluster: &Cluster, view: &View<'_>) -> bool {
    let condition = Condition::of(member, view);
    let cut_off = matches!(condition, Some(Condition::CutOff | Condition::Left));
    let copies = condition == Some(Condition::Transfer) && !donor_is_gone(cluster);
    !copies && (has_not_joined(member) || cut_off)
}

fn has_not_joined(member: &Member) -> bool {
    member.pod.as_deref().is_some_and(|pod| pod.starting_since.is_some() && !pod.ready)
}

/// Returns whether all other members started before the first one and none has joined: the donor of any transfer is gone. A
/// transfer without a donor takes minutes to fail.
fn donor_is_gone(cluster: &Cluster) -> bool {
    let Some(first) = cluster.recovery().and_then(|it| cluster.member(&it.member)).filter(|it| it.ready())
    else {
        return false;
    };
    let others = cluster.members.iter().filter(|member| member.name != first.name);
    others
        .filter(|member| member.pod.is_some())
        .all(|member| has_not_joined(member) && started_before(member, first))
}

/// Returns whether this member's server started before the other's, so that it may still use an old address of the other.
pub fn started_before(member: &Member, other: &Member) -> bool {
    let since =
        |member: &Member| member.pod.as_deref().and_then(|pod| pod.starting_since.or(pod.running_since));
    matches!((since(member), since(other)), (Some(own), Some(its)) if own < its)
}
