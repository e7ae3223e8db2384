//! What makes every member report where its data ends: its pod is created or re-created, or, if the pod does not run,
//! another pod reads the member's data.
//!
//! Must not know: which member will start first.

use std::sync::Arc;

use jiff::SignedDuration;

use super::steps::{REPORT_TIMEOUT, RecoveryOptions, RecoveryStep, SETTLE_TIME, has_lost_peers, restart};
use super::{by_hand, held_up};
use engine::grant::{DataEnd, MemberData, has_right_to_start, serves};
use facts::galera::start_report::{JoinPhase, StartReport};
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, PodFact, View};

/// The time after which a running server without a report is restarted, once. If a pod causes many Events, kubelets drop
/// its Events for minutes, so the report of a server that failed in the same pod before may be lost. A server that still
/// recovers from its crash looks the same.
const LOST_REPORT: SignedDuration = SignedDuration::from_secs(60);

/// The time within which a volume is detached from a node that does not answer, and attached to another.
const VOLUME_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// Returns what to do until every member has reported where its data ends.
pub(super) fn next(
    cluster: &Cluster,
    rows: &[MemberData<'_>],
    view: &View<'_>,
    options: &RecoveryOptions,
    unchanged: SignedDuration,
) -> Option<RecoveryStep> {
    let bound =
        |member: &Member| cluster.claims.iter().any(|claim| claim.ordinal == member.ordinal && claim.bound);
    if let Some(MemberData { member, .. }) =
        rows.iter().find(|row| row.member.pod.is_none() && bound(row.member))
    {
        if let Some(why) = by_hand::beside(cluster, view) {
            return Some(RecoveryStep::Cannot(why));
        }
        let why = "so that it reports where its data ends".to_owned();
        return Some(RecoveryStep::Create { member: member.name.clone(), ordinal: member.ordinal, why });
    }
    // A member that still has the permission of an earlier recovery might start a cluster beside the one of this recovery.
    let with_permission = cluster
        .members
        .iter()
        .find(|it| it.pod.as_deref().is_some_and(|pod| has_right_to_start(pod) && !pod.terminating));
    if let Some(member) = with_permission {
        return Some(restart(cluster, member, "so that it starts as an ordinary member".to_owned()));
    }
    if let Some(row) = rows.iter().find(|row| must_report_again(row, cluster, view, options, unchanged)) {
        return Some(restart(cluster, row.member, "so that it reports again where its data ends".to_owned()));
    }
    if let Some(step) = rows.iter().find_map(|row| read_step(row, rows, cluster, options, unchanged)) {
        return Some(step);
    }
    let serves_without_peers = |row: &&MemberData<'_>| {
        row.data_end == DataEnd::Served && has_lost_peers(row.member, cluster, view, unchanged)
    };
    let served = rows.iter().find(serves_without_peers);
    if let Some(row) = served {
        return Some(restart(cluster, row.member, "so that it reports where its data ends now".to_owned()));
    }
    let silent = rows.iter().find_map(|row| match &row.data_end {
        DataEnd::NotYetKnown(_) if row.member.does_not_run() && row.member.reader.is_none() => {
            Some(format!("{}: {}", row.member.name, held_up(cluster, row.member)))
        }
        data_end @ (DataEnd::NotYetKnown(_) | DataEnd::Served) => {
            Some(format!("{} {data_end}", row.member.name))
        }
        _ => None,
    });
    let is_being_asked = |row: &MemberData<'_>| {
        // The server itself is asked, which takes time after a crash.
        let runs = |pod: &Arc<PodFact>| pod.running && pod.step && !pod.stuck;
        // The volume may have to be attached to the pod's node.
        let volume_may_come =
            |reader: &Arc<PodFact>| !reader.stuck && !reader.node.is_empty() && unchanged < VOLUME_TIMEOUT;
        let Member { pod, reader, .. } = row.member;
        let runs = pod.iter().chain(reader).any(runs) || reader.as_ref().is_some_and(volume_may_come);
        row.data_end == DataEnd::Served || runs && matches!(row.data_end, DataEnd::NotYetKnown(_))
    };
    if let Some(silent) = silent.filter(|_| unchanged < REPORT_TIMEOUT || rows.iter().any(is_being_asked)) {
        return Some(RecoveryStep::Wait(silent));
    }
    let restored = rows.iter().find(|row| {
        matches!(
            row.member.pod.as_deref().and_then(PodFact::phase),
            Some(JoinPhase::Waits | JoinPhase::Receives)
        )
    });
    restored.filter(|_| unchanged < SETTLE_TIME).map(|row| {
        let name = &row.member.name;
        RecoveryStep::Wait(format!(
            "{name} has restored its last view: once all members of that view are back, they form the cluster by themselves"
        ))
    })
}

/// Returns whether the member is to report once more. This is done once, for a pod that existed when the person ran the
/// command: the report of a new pod counts. Either its server is not running: the cause of the step script's refusal may
/// be repaired since, and a kubelet may wait for minutes before it restarts a server that kept failing. Or its server
/// runs again, and its report was dropped.
fn must_report_again(
    row: &MemberData<'_>,
    cluster: &Cluster,
    view: &View<'_>,
    options: &RecoveryOptions,
    unchanged: SignedDuration,
) -> bool {
    let Some(pod) = row.member.pod.as_deref().filter(|pod| options.before.contains(&pod.uid)) else {
        return false;
    };
    let reachable = Condition::of(row.member, view) != Some(Condition::NodeAway);
    let stays = cluster
        .claims
        .iter()
        .filter(|claim| claim.ordinal == row.member.ordinal)
        .all(|claim| !claim.terminating);
    if pod.terminating || !reachable || !stays {
        return false;
    }
    let refused = !pod.running && matches!(pod.start_report.as_deref(), Some(StartReport::Refused(_)));
    let silent = matches!(row.data_end, DataEnd::NotYetKnown(_))
        && pod.step
        && pod.restarts > 0
        && !pod.lacks_an_image;
    refused || silent && unchanged >= if pod.running { LOST_REPORT } else { SETTLE_TIME }
}

/// Returns the step that lets another pod read this member's data, if its own pod does not run and another member could
/// start if this position were known. Only claims with a volume are read: a claim without one would get its volume
/// wherever the reader happens to run.
fn read_step(
    row: &MemberData<'_>,
    rows: &[MemberData<'_>],
    cluster: &Cluster,
    options: &RecoveryOptions,
    unchanged: SignedDuration,
) -> Option<RecoveryStep> {
    let member = row.member;
    let pod = member.pod.as_deref().filter(|pod| pod.step && !options.unreadable.contains(&pod.uid))?;
    let another_runs = rows.iter().any(|row| row.member.pod.is_some() && !row.member.does_not_run());
    let mut claims = cluster.claims.iter().filter(|claim| claim.ordinal == member.ordinal).peekable();
    let readable = claims.peek().is_some() && claims.all(|claim| claim.bound && !claim.terminating);
    let read = cluster.readers.iter().any(|it| it.reads.as_ref().is_some_and(|it| it.member == member.name));
    let silent = !read && matches!(row.data_end, DataEnd::NotYetKnown(_));
    let is_due = silent && another_runs && readable && member.does_not_run() && unchanged >= SETTLE_TIME;
    is_due.then(|| RecoveryStep::Read { member: member.name.clone(), uid: pod.uid.clone() })
}

/// Deletes a reader pod that is of no use: the cluster serves; the member's own pod runs by now, or was replaced; or the
/// reader failed before the person ran the command, and the cause may be repaired since.
pub(super) fn useless_reader(cluster: &Cluster, options: &RecoveryOptions) -> Option<RecoveryStep> {
    let useless = |reader: &&Arc<PodFact>| {
        let reads_for =
            cluster.members.iter().find(|it| it.reader.as_ref().is_some_and(|it| it.uid == reader.uid));
        let failed = reader.stuck || matches!(reader.start_report.as_deref(), Some(StartReport::Refused(_)));
        !reader.terminating
            && (serves(cluster) || reads_for.is_none() || failed && options.before.contains(&reader.uid))
    };
    let reader = cluster.readers.iter().find(useless)?;
    let member = reader.reads.as_ref().map(|it| it.member.clone())?;
    Some(RecoveryStep::StopReading { member, reader: reader.name.clone(), uid: reader.uid.clone() })
}
