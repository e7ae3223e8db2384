//! Which member starts the cluster, once every member has reported where its data ends.
//!
//! Must not know: what happens to that member next.

use super::held_up;
use super::steps::{RecoveryOptions, RecoveryStep};
use engine::grant::{DataLoss, MemberData, best_member, data_loss};
use facts::view::{Cluster, Member};

/// Chooses the newest member, or the one that the person names.
pub(super) fn next(cluster: &Cluster, rows: &[MemberData<'_>], options: &RecoveryOptions) -> RecoveryStep {
    let best = best_member(rows, cluster);
    let chosen = match &options.from {
        None => best,
        Some(name) => {
            match rows.iter().find(|row| row.member.name == *name || row.member.ordinal.to_string() == *name)
            {
                None => {
                    return RecoveryStep::Cannot(format!(
                        "it has no member {name}; `gatera status` lists its members"
                    ));
                }
                row => row,
            }
        }
    };
    let why_not = |member: &Member| format!("{}: {}", member.name, held_up(cluster, member));
    match chosen {
        Some(MemberData { member, .. }) if member.does_not_run() => {
            return RecoveryStep::Cannot(why_not(member));
        }
        None if rows.iter().all(|row| row.member.does_not_run()) => {
            return RecoveryStep::Cannot(
                rows.iter().map(|row| why_not(row.member)).collect::<Vec<_>>().join("; "),
            );
        }
        _ => {}
    }
    let Some(row) = chosen else {
        let why = rows.iter().map(|row| format!("{} {}", row.member.name, row.data_end)).collect();
        return RecoveryStep::Refuse { data_loss: DataLoss::Unknown(why), from: None };
    };
    let data_loss = data_loss(rows, row, cluster);
    let accepted =
        data_loss.loss().is_none_or(|loss| options.from.is_some() && options.loss.as_ref() == Some(&loss));
    match row.data_end.position() {
        Some(position) if accepted => {
            let (member, node) = (row.member.name.clone(), node_to_keep(cluster, row.member));
            RecoveryStep::Ask { member, at: position.clone(), node, loss: data_loss.loss() }
        }
        position => {
            // If there are two histories, the longer one need not be the right one: a person has to decide.
            let histories = || rows.iter().filter_map(|row| row.data_end.position()).map(|it| &it.id);
            let is_clear = cluster.identity().is_some()
                || options.from.is_some()
                || histories().all(|id| Some(id) == histories().next());
            RecoveryStep::Refuse {
                data_loss,
                from: position.filter(|_| is_clear).map(|_| row.member.name.clone()),
            }
        }
    }
}

/// Returns the node that would be given to another member's pending pod as soon as this member's pod is deleted.
fn node_to_keep(cluster: &Cluster, member: &Member) -> Option<String> {
    let waits = |it: &Member| it.pod.as_deref().is_some_and(|pod| pod.node.is_empty() && !pod.terminating);
    let node = &member.pod.as_deref()?.node;
    let contested = cluster.members.iter().any(|it| it.name != member.name && waits(it));
    (contested && !node.is_empty()).then(|| node.clone())
}
