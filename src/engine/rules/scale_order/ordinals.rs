//! Which ordinals a StatefulSet has: members are known by them.

use super::deny;
use crate::verdict::Finding;
use facts::galera::quorum::floor_of_one_step;
use facts::view::{Cluster, Member, State, View};
use objects::Workload;

/// The members that run while their StatefulSet is gone are taken over, and those that it does not ask for are stopped.
pub(super) fn stranded(new: &Workload, cluster: &Cluster) -> Option<Finding> {
    let stays = |member: &&Member| member.pod.as_ref().is_some_and(|pod| !pod.going);
    let there: Vec<_> = cluster.members.iter().filter(stays).map(|it| it.ordinal).collect();
    let (lowest, highest) = (there.iter().min()?, there.iter().max()?);
    let (from, asked) = (there.len(), new.ordinals());
    let kept = there.iter().filter(|ordinal| asked.contains(ordinal)).count();
    // Of members that are down each may have the newest data.
    let enough = if cluster.ready() == 0 { count(from) } else { floor_of_one_step(count(from)).max(1) };
    (count(kept) < enough).then(|| {
        deny(
            format!(
                "{} replicas from ordinal {} keep {kept} of the {from} members that are there without a StatefulSet",
                new.replicas(),
                asked.start
            ),
            "a StatefulSet takes over the pods of its name and stops those that it does not ask for",
            format!(
                "write replicas: {} and ordinals from {lowest}, and change them in steps afterwards",
                highest - lowest + 1
            ),
        )
    })
}

/// Other ordinals are other members: some leave, and those that come are empty.
pub(super) fn renumbered(
    old: &Workload,
    new: &Workload,
    cluster: Option<&Cluster>,
    view: &View<'_>,
) -> Option<Finding> {
    let (before, after) = (old.ordinals(), new.ordinals());
    let kept = (before.end.min(after.end) - before.start.max(after.start)).max(0);
    let leaving = old.replicas() - kept;
    if before.start == after.start || leaving <= 0 || cluster.is_some_and(|it| !it.has_data()) {
        return None;
    }
    let floor = floor_of_one_step(old.replicas());
    if kept >= floor && cluster.is_some_and(|it| view.state(it) == State::Healthy) {
        return None;
    }
    let state = cluster.map(|it| format!(" ({})", view.describe(it))).unwrap_or_default();
    Some(deny(
        format!(
            "ordinals from {} instead of {} replace {leaving} of {} members{state}",
            after.start,
            before.start,
            old.replicas()
        ),
        "members are known by their ordinals: those that come are empty and ask each other, and those that go take their \
         part of the majority with them",
        format!(
            "leave spec.ordinals.start at {}; to renumber, move it by {} at most, each time with all members Ready",
            before.start,
            (old.replicas() - floor).max(0)
        ),
    ))
}

fn count(members: usize) -> i64 {
    i64::try_from(members).unwrap_or(i64::MAX)
}
