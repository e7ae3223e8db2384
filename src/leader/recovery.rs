//! The recovery of a cluster that is down: what `gatera recover` does next.
//!
//! | file | owns |
//! |---|---|
//! | `steps.rs` | what `gatera recover` does next |
//! | `asking.rs` | what makes every member report where its data ends |
//! | `choosing.rs` | which member starts the cluster, once all have reported |
//! | `by_hand.rs` | clusters whose servers do not start by the step script: no pods are created for them |
//! | `pod.rs` | the pod of a member, as its StatefulSet would make it |
//! | `reader.rs` | a pod that reads the data of a member whose own pod does not run |
//!
//! Owns [`way_back`], the one command that `status` and an audit name. `grant.rs` decides whether a recovery may be granted.

mod asking;
mod by_hand;
mod choosing;
mod pod;
mod reader;
mod steps;

pub use by_hand::starts_by_the_step;
pub use pod::{at_revision, member_pod};
pub use reader::{NoReader, reader_pod};
pub use steps::{RecoveryOptions, RecoveryStep, next, next_in_turn};

use engine::grant::serves;
use facts::view::{Cluster, Member, State, View};
use facts::way_out::{WayOut, run};

/// Returns the one command that recovers a cluster without a Ready member, and what the command would do.
pub fn way_back(cluster: &Cluster, view: &View<'_>) -> Option<WayOut> {
    let (start, recover) = (cluster.start_command(), cluster.recover_command());
    match view.state(cluster) {
        _ if cluster.orphaned => Some(
            "apply the StatefulSet again as it was (kubectl apply, helm upgrade): it adopts its pods again"
                .into(),
        ),
        State::Stopped => Some(run(start).say(
            ", which compares where each member's data ends with what was recorded at the stop, and starts the newest first",
        )),
        State::Down if !serves(cluster) => Some(run(recover).say(match by_hand::why(cluster) {
            Some(why) => format!(", which prints the steps by hand and creates no pods ({why})"),
            None => format!(
                ", which finds out where each member's data ends and starts the cluster from the newest; it asks first{}",
                newest(cluster).unwrap_or_default()
            ),
        })),
        _ => None,
    }
}

/// Returns which member has the newest data, if every member reported its position and all are in the same history.
fn newest(cluster: &Cluster) -> Option<String> {
    let known: Vec<_> = cluster
        .start_reports()
        .filter_map(|(name, note)| Some((name, note.position()?, note.is_compared())))
        .collect();
    let highest = known.iter().map(|(_, position, _)| position.seqno).max()?;
    if known.len() < cluster.members.len() || known.iter().any(|(_, it, _)| it.id != known[0].1.id) {
        return None;
    }
    let have = known.iter().filter(|(_, it, _)| it.seqno == highest);
    // Where DDL was under way, a table may be half changed and Galera does not compare the position: of members with the
    // same position, the others are better.
    let whole = have.clone().any(|(_, _, compared)| *compared);
    let have: Vec<_> = have.filter(|(_, _, compared)| *compared || !whole).map(|(name, ..)| *name).collect();
    Some(format!(" (as reported, the newest is on {}: seqno {highest})", have.join(", ")))
}

/// Returns a text which says that the pod of this member does not run, with the reason that Kubernetes gives.
fn held_up(cluster: &Cluster, member: &Member) -> String {
    let (ns, name) = (&cluster.id.namespace, &member.name);
    let says = member.pod.as_deref().and_then(|pod| pod.held_up_by.as_deref());
    let why = says.map_or_else(|| format!("kubectl -n {ns} describe pod {name} shows why"), str::to_owned);
    format!("its pod does not run: {why}")
}
