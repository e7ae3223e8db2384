//! The ordinals of a StatefulSet, which identify its members.

use super::deny;
use crate::verdict::Finding;
use facts::galera::quorum::floor_of_one_step;
use facts::view::{Cluster, Member, State, View};
use objects::Workload;

/// Returns a finding if a StatefulSet takes over running members and would stop too many of them.
pub(super) fn stranded(new: &Workload, cluster: &Cluster) -> Option<Finding> {
    let stays = |member: &&Member| member.pod.as_ref().is_some_and(|pod| !pod.terminating);
    let running: Vec<_> = cluster.members.iter().filter(stays).map(|it| it.ordinal).collect();
    let (lowest, highest) = (running.iter().min()?, running.iter().max()?);
    let (from, requested) = (running.len(), new.ordinals());
    let kept = running.iter().filter(|ordinal| requested.contains(ordinal)).count();
    // If no member is Ready, each may have the newest data.
    let enough = if cluster.ready() == 0 { count(from) } else { floor_of_one_step(count(from)).max(1) };
    (count(kept) < enough).then(|| {
        deny(
            format!(
                "{} replicas from ordinal {} would keep {kept} of the {from} members that now run without a StatefulSet",
                new.replicas(),
                requested.start
            ),
            "a StatefulSet takes over the pods of its name and stops those beyond its replicas",
            format!(
                "write replicas: {} and ordinals.start: {lowest}, and change them in steps afterwards",
                highest - lowest + 1
            ),
        )
    })
}

/// Returns a finding if a change of the ordinals replaces members: some leave, and the new ones are empty.
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
        "ordinals identify the members: the new ones start empty and need a donor, and each one that leaves is missing \
         for the majority",
        format!(
            "keep spec.ordinals.start at {}; to renumber, move it by at most {}, each time with all members Ready",
            before.start,
            (old.replicas() - floor).max(0)
        ),
    ))
}

fn count(members: usize) -> i64 {
    i64::try_from(members).unwrap_or(i64::MAX)
}
