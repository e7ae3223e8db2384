//! The right to start a cluster that is down: whether a recovery that a person asks for may be granted, and what follows from one that
//! is granted.
//!
//! | file | owns |
//! |---|---|
//! | `positions.rs` | where each member's data ends, and what would be lost by starting from it |
//!
//! Owns [`verify`], by which the guard repeats what was asked for in a mark of its own, or does not. Nothing here starts a server: the
//! member's step does, at its start, if its data is what the mark says (`start-member.sh`).

mod positions;

pub use positions::{DataEnd, DataLoss, MemberData, Newer, best, rows, stake};

use jiff::SignedDuration;

use facts::marks::recovery::Recovery;
use facts::view::condition::Condition;
use facts::view::{Cluster, Freshness, Member, PodFact, View};
use objects::Pod;

/// Transfers take their time. What nobody took off after that has been forgotten.
const LEFT_OVER: SignedDuration = SignedDuration::from_hours(6);

/// Why this is not to be done, or not now; nothing: it is true.
pub fn verify(asked: &Recovery, cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if view.freshness != Freshness::Current {
        return Some(format!("the state of the cluster is not known ({})", view.seen()));
    }
    if serves(cluster) {
        return Some(format!("cluster {} serves ({})", cluster.id.name, view.count(cluster)));
    }
    if let Some(other) = holds_a_right(cluster, &asked.member) {
        return Some(format!(
            "{other} was given the right to start the cluster and may still do so: its pod has to be made anew first"
        ));
    }
    let rows = rows(cluster, view);
    let Some(row) = rows.iter().find(|row| row.member.name == asked.member) else {
        return Some(format!("{} is not a member of cluster {}", asked.member, cluster.id.name));
    };
    match &row.told {
        DataEnd::Position { position, .. } if **position == asked.position => {}
        told => return Some(format!("{} {told}, not at {}", asked.member, asked.position)),
    }
    let there = row.member.pod.as_deref().map_or("", |pod| &*pod.node);
    if let Some(node) = asked.node.as_deref().filter(|node| *node != there) {
        return Some(format!("the pod of {} is not on node {node}", asked.member));
    }
    let stake = stake(&rows, row, cluster);
    match (stake.loss(), &asked.loss) {
        (None, _) => None,
        (Some(loss), Some(accepted)) if *accepted == loss => None,
        (Some(loss), _) => Some(format!("{stake}; starting here loses: {loss}")),
    }
}

/// A member does, or the bootstrap node.
pub fn serves(cluster: &Cluster) -> bool {
    cluster.ready() > 0 || cluster.bootstrap.pods.iter().any(|pod| pod.ready)
}

/// The recovery that may be finished now.
pub fn under_way<'a>(cluster: &'a Cluster, view: &View<'_>) -> Option<&'a Recovery> {
    cluster.recovery().filter(|it| it.until > view.now)
}

/// The recovery by which a new pod of this name may start first. What was verified when it was asked for may be over: the
/// first one may have served since, and fallen, and another one gone on.
pub fn leads<'a>(cluster: &'a Cluster, pod: &str, view: &View<'_>) -> Option<&'a Recovery> {
    let named = under_way(cluster, view).filter(|it| it.member == pod && !serves(cluster));
    let current = view.of_namespace(&cluster.id.namespace).freshness == Freshness::Current;
    named.filter(|it| current && holds_a_right(cluster, pod).is_none() && still_true(it, cluster, view))
}

/// The node that this pod goes back to, because it starts the cluster. Between two pods of one name a scheduler that keeps members apart
/// gives the place to another member's pod that waits for one, and then no node takes the one that has to start first.
pub fn place<'a>(cluster: &'a Cluster, pod: &Pod, view: &View<'_>) -> Option<&'a str> {
    let node = leads(cluster, &pod.metadata.name, view)?.node.as_deref()?;
    let takes = view.node(node).is_some_and(|it| it.answers() && it.takes(&pod.spec));
    (takes && pod.spec.node_name.is_empty()).then_some(node)
}

/// Another one than this, whose pod may start the cluster. What is granted to one is taken from all others.
fn holds_a_right<'a>(cluster: &'a Cluster, besides: &str) -> Option<&'a str> {
    let held = |pod: &&PodFact| pod.name != besides && has_a_right(pod);
    cluster.pods().find(held).map(|pod| &*pod.name)
}

/// It may start the cluster, or did a moment ago.
pub fn has_a_right(pod: &PodFact) -> bool {
    pod.identity.as_deref().is_some_and(Recovery::is_right)
}

/// Of the others nobody has more than was known, or accepted, when it was asked for. Where its own data ends its step will see.
pub fn still_true(asked: &Recovery, cluster: &Cluster, view: &View<'_>) -> bool {
    let mut rows = rows(cluster, view);
    let Some(own) = rows.iter_mut().find(|row| row.member.name == asked.member) else { return false };
    own.told = DataEnd::Position { position: &asked.position, how: "", safe: false };
    let own = own.clone();
    let gone_on = rows.iter().any(|row| row.told == DataEnd::Served);
    !gone_on && stake(&rows, &own, cluster).loss() == asked.loss
}

/// It may be made anew, because a recovery is under way: the one that is to start first, and once that serves whoever waits in
/// vain for an address that is no longer there.
pub fn restarts(cluster: &Cluster, pod: &str, view: &View<'_>) -> bool {
    let (Some(recovery), Some(member)) = (cluster.recovery(), cluster.member(pod)) else { return false };
    let lately = view.now.duration_since(recovery.until) < LEFT_OVER;
    let current = view.of_namespace(&cluster.id.namespace).freshness == Freshness::Current;
    if !current || member.ready() || !lately {
        return false;
    }
    let first_serves = cluster.member(&recovery.member).is_some_and(Member::ready);
    let leads = || !has_served(member) && leads(cluster, pod, view).is_some();
    first_serves && waits_in_vain(member, cluster, view) || leads()
}

/// Its server runs, and has joined since it started: it may be giving a copy, or have lost the others a moment ago.
pub fn has_served(member: &Member) -> bool {
    member.pod.as_deref().is_some_and(|pod| pod.running && pod.began.is_none() && !pod.ready)
}

/// It has not joined since its server started, or is cut off. Whoever serves somebody, or copies, is none of these.
pub fn waits_in_vain(member: &Member, cluster: &Cluster, view: &View<'_>) -> bool {
    let condition = Condition::of(member, view);
    let cut_off = matches!(condition, Some(Condition::CutOff | Condition::Left));
    let copies = condition == Some(Condition::Transfer) && !copies_from_nobody(cluster);
    !copies && (has_not_joined(member) || cut_off)
}

fn has_not_joined(member: &Member) -> bool {
    member.pod.as_deref().is_some_and(|pod| pod.began.is_some() && !pod.ready)
}

/// Everybody but the first one began before it, and none of them has joined: from whomever they copied, that one is gone. A transfer
/// that has nobody at its other end takes minutes to notice.
fn copies_from_nobody(cluster: &Cluster) -> bool {
    let Some(first) = cluster.recovery().and_then(|it| cluster.member(&it.member)).filter(|it| it.ready())
    else {
        return false;
    };
    let others = cluster.members.iter().filter(|member| member.name != first.name);
    others
        .filter(|member| member.pod.is_some())
        .all(|member| has_not_joined(member) && came_before(member, first))
}

/// The server of this one runs for longer: an address that it knows of the other one may be gone.
pub fn came_before(member: &Member, other: &Member) -> bool {
    let since = |member: &Member| member.pod.as_deref().and_then(|pod| pod.began.or(pod.since));
    matches!((since(member), since(other)), (Some(own), Some(its)) if own < its)
}
