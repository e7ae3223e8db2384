//! What makes every member tell where its data ends: pods are made, made anew, or stand in for one that does not run.
//!
//! Must not know: who will start first.

use std::sync::Arc;

use jiff::SignedDuration;

use super::steps::{PATIENCE, SETTLED, Step, Want, has_lost_the_others, restart};
use super::{by_hand, held_up};
use engine::grant::{DataEnd, MemberData, has_a_right, serves};
use facts::galera::start_report::{JoinPhase, StartReport};
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, PodFact, View};

/// A server that fell before in the same pod may have told long ago: of a pod that made many Events kubelets drop the next ones, for
/// minutes. That it still recovers from its crash looks the same; it begins anew, once.
const UNHEARD: SignedDuration = SignedDuration::from_secs(60);

/// A volume that is taken from a node which does not answer takes less.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_mins(10);

/// Until every member told where its data ends.
pub(super) fn next(
    cluster: &Cluster,
    rows: &[MemberData<'_>],
    view: &View<'_>,
    want: &Want,
    still: SignedDuration,
) -> Option<Step> {
    let bound =
        |member: &Member| cluster.claims.iter().any(|claim| claim.ordinal == member.ordinal && claim.bound);
    if let Some(MemberData { member, .. }) =
        rows.iter().find(|row| row.member.pod.is_none() && bound(row.member))
    {
        if let Some(why) = by_hand::beside(cluster, view) {
            return Some(Step::Cannot(why));
        }
        let why = "so that it tells where its data ends".to_owned();
        return Some(Step::Create { member: member.name.clone(), ordinal: member.ordinal, why });
    }
    // Whoever still has the right of an earlier recovery might use it beside the next.
    let with_a_right =
        cluster.members.iter().find(|it| it.pod.as_deref().is_some_and(|pod| has_a_right(pod) && !pod.going));
    if let Some(member) = with_a_right {
        return Some(restart(cluster, member, "so that it starts as an ordinary member".to_owned()));
    }
    if let Some(row) = rows.iter().find(|row| is_asked_again(row, cluster, view, want, still)) {
        return Some(restart(
            cluster,
            row.member,
            "so that it is asked again where its data ends".to_owned(),
        ));
    }
    if let Some(step) = rows.iter().find_map(|row| is_to_be_read(row, rows, cluster, want, still)) {
        return Some(step);
    }
    let lost = |row: &&MemberData<'_>| {
        row.told == DataEnd::Served && has_lost_the_others(row.member, cluster, view, still)
    };
    let served = rows.iter().find(lost);
    if let Some(row) = served {
        return Some(restart(cluster, row.member, "so that it tells where its data ends now".to_owned()));
    }
    let silent = rows.iter().find_map(|row| match &row.told {
        DataEnd::NotYet(_) if row.member.does_not_run() && row.member.reader.is_none() => {
            Some(format!("{}: {}", row.member.name, held_up(cluster, row.member)))
        }
        told @ (DataEnd::NotYet(_) | DataEnd::Served) => Some(format!("{} {told}", row.member.name)),
        _ => None,
    });
    let asked = |row: &MemberData<'_>| {
        // The server itself is asked, which takes its time after a crash.
        let runs = |pod: &Arc<PodFact>| pod.running && pod.step && !pod.stuck;
        // Its volume may have to come to its node.
        let comes = |reader: &Arc<PodFact>| !reader.stuck && !reader.node.is_empty() && still < ON_ITS_WAY;
        let Member { pod, reader, .. } = row.member;
        let runs = pod.iter().chain(reader).any(runs) || reader.as_ref().is_some_and(comes);
        row.told == DataEnd::Served || runs && matches!(row.told, DataEnd::NotYet(_))
    };
    if let Some(silent) = silent.filter(|_| still < PATIENCE || rows.iter().any(asked)) {
        return Some(Step::Wait(silent));
    }
    let forms = rows.iter().find(|row| {
        matches!(
            row.member.pod.as_deref().and_then(PodFact::doing),
            Some(JoinPhase::Waits | JoinPhase::Receives)
        )
    });
    forms.filter(|_| still < SETTLED).map(|row| {
        let name = &row.member.name;
        Step::Wait(format!(
            "{name} has restored its last view: if all of that are back, they form the cluster by themselves"
        ))
    })
}

/// Its pod was there when the person asked, and its server is not started at the moment: what its step refused may have been mended
/// since, and a server that fell again and again before it told anything is let rest by its kubelet for minutes. Or it runs again,
/// and what it told is not heard. Once: of a new pod what it says counts.
fn is_asked_again(
    row: &MemberData<'_>,
    cluster: &Cluster,
    view: &View<'_>,
    want: &Want,
    still: SignedDuration,
) -> bool {
    let Some(pod) = row.member.pod.as_deref().filter(|pod| want.before.contains(&pod.uid)) else {
        return false;
    };
    let reachable = Condition::of(row.member, view) != Some(Condition::NodeAway);
    let stays =
        cluster.claims.iter().filter(|claim| claim.ordinal == row.member.ordinal).all(|claim| !claim.going);
    if pod.going || !reachable || !stays {
        return false;
    }
    let refused = !pod.running && matches!(pod.start_note.as_deref(), Some(StartReport::Refused(_)));
    let silent =
        matches!(row.told, DataEnd::NotYet(_)) && pod.step && pod.restarts > 0 && !pod.lacks_an_image;
    refused || silent && still >= if pod.running { UNHEARD } else { SETTLED }
}

/// Its pod does not run, and somebody else's does, who could start if it is known what this one has. Only of volumes that are there:
/// a claim without one would get its volume where the reader happens to be.
fn is_to_be_read(
    row: &MemberData<'_>,
    rows: &[MemberData<'_>],
    cluster: &Cluster,
    want: &Want,
    still: SignedDuration,
) -> Option<Step> {
    let member = row.member;
    let pod = member.pod.as_deref().filter(|pod| pod.step && !want.unreadable.contains(&pod.uid))?;
    let others = rows.iter().any(|row| row.member.pod.is_some() && !row.member.does_not_run());
    let mut claims = cluster.claims.iter().filter(|claim| claim.ordinal == member.ordinal).peekable();
    let there = claims.peek().is_some() && claims.all(|claim| claim.bound && !claim.going);
    let read = cluster.readers.iter().any(|it| it.reads.as_ref().is_some_and(|it| it.member == member.name));
    let silent = !read && matches!(row.told, DataEnd::NotYet(_));
    let reads = silent && others && there && member.does_not_run() && still >= SETTLED;
    reads.then(|| Step::Read { member: member.name.clone(), uid: pod.uid.clone() })
}

/// A pod that reads what a member has, and is of no use: somebody serves; the member's own pod runs by now, or is another one; or it
/// could not read it before the person asked, and that may have been mended.
pub(super) fn no_longer_read(cluster: &Cluster, want: &Want) -> Option<Step> {
    let useless = |reader: &&Arc<PodFact>| {
        let reads =
            cluster.members.iter().find(|it| it.reader.as_ref().is_some_and(|it| it.uid == reader.uid));
        let failed = reader.stuck || matches!(reader.start_note.as_deref(), Some(StartReport::Refused(_)));
        !reader.going && (serves(cluster) || reads.is_none() || failed && want.before.contains(&reader.uid))
    };
    let reader = cluster.readers.iter().find(useless)?;
    let member = reader.reads.as_ref().map(|it| it.member.clone())?;
    Some(Step::StopReading { member, reader: reader.name.clone(), uid: reader.uid.clone() })
}
