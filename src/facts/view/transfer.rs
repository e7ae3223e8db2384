//! State transfers that do not end, and a bootstrap node without a majority: two reasons why an installation can hang.
//!
//! Must not know: rules, formats. The reports of servers' probes come from Events, so nothing here is a proof: ways
//! out name what a user can look at. Two rules let a pod be deleted because of it (G02, G05): at worst, a transfer starts again,
//! or a new bootstrap node takes the place of the one before.

use jiff::{SignedDuration, Timestamp};

use super::condition::{Condition, Diagnosis};
use super::{Cluster, Member, PodFact};
use crate::galera::start_report::JoinPhase;
use crate::way_out::{CommandLine, WayOut, run, say};

/// The time that a transfer of any size may take, because servers have to start and disks are slow at first.
const TIME_FOR_ANY_COPY: SignedDuration = SignedDuration::from_hours(1);
/// Beyond that time, a transfer may take as long as all data of a full claim takes at this speed, in bytes per second: half
/// the speed of one slow disk.
const BYTES_A_SECOND: u64 = 50_000_000;
/// The time within which a starting server passes through a state.
const STATE_PASSED_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// Returns why the transfer that this member receives may never end, with the way out; `None`: it still has time, or there is
/// no transfer.
pub fn way_out_if_hanging(cluster: &Cluster, member: &Member, now: Timestamp) -> Option<WayOut> {
    let pod = member.pod.as_deref().filter(|_| member.receives())?;
    let since = pod.starting_since.or(pod.unready_since)?;
    // A donor that was killed starts again in its pod, but its joiner still waits for the rest of the first copy.
    let is_restarted_donor = |it: &&PodFact| {
        let may_be_donor = !it.stuck && it.phase() != Some(JoinPhase::Receives);
        it.uid != pod.uid
            && it.running
            && may_be_donor
            && it.restarts > 0
            && it.running_since.is_some_and(|at| at > since)
    };
    let lasts = now.duration_since(since);
    let why = match cluster.pods().find(is_restarted_donor) {
        Some(donor) => format!("the server of {} was started again after this copy began", donor.name),
        None if lasts > time_limit(cluster) => {
            let lasts = SignedDuration::from_mins(lasts.as_mins());
            match claimed_bytes(cluster) / 1_000_000_000 {
                0 => format!("this copy has lasted {lasts:#}"),
                size => format!("this copy has lasted {lasts:#}, longer than {size} GB should take"),
            }
        }
        None => return None,
    };
    let (ns, name) = (&cluster.id.namespace, &member.name);
    let restart = say("if not: ").run(CommandLine::new(format!("kubectl -n {ns} delete pod {name}")));
    let logs = run(CommandLine::new(format!("kubectl -n {ns} logs {name} --tail=20")));
    Some(
        logs.say(format!(" shows whether data still arrives ({why})"))
            .then(restart.say(" restarts the copy")),
    )
}

/// Returns what to do about the transfer that this member receives.
pub(super) fn way_out_while_copying(cluster: &Cluster, member: &Member, now: Timestamp) -> WayOut {
    let usual = || say("wait: a copy takes time, and no other member may leave until it is complete");
    way_out_if_hanging(cluster, member, now).unwrap_or_else(usual)
}

/// Returns how long a transfer may take.
fn time_limit(cluster: &Cluster) -> SignedDuration {
    let seconds = i64::try_from(claimed_bytes(cluster) / BYTES_A_SECOND).unwrap_or(i64::MAX);
    TIME_FOR_ANY_COPY.saturating_add(SignedDuration::from_secs(seconds))
}

/// Returns the size of a member's claims, in bytes.
fn claimed_bytes(cluster: &Cluster) -> u64 {
    let templates = cluster.workload.spec.volume_claim_templates.iter();
    templates.filter_map(|it| it.spec.resources.requests.get("storage")?.bytes()).fold(0, u64::saturating_add)
}

/// Returns the bootstrap node's pod, if its server waits for others of its last view, and no member has data: then
/// nothing that it waits for can appear, and it holds no more than the members were about to copy.
pub fn stranded_bootstrap_pod(cluster: &Cluster, now: Timestamp) -> Option<&PodFact> {
    let waits = |pod: &&PodFact| {
        let lasts = pod
            .starting_since
            .or(pod.unready_since)
            .is_some_and(|since| now.duration_since(since) > STATE_PASSED_WITHIN);
        pod.bootstrap
            && pod.running
            && !pod.ready
            && !pod.terminating
            && pod.phase() == Some(JoinPhase::Waits)
            && lasts
    };
    let mut pods = cluster.bootstrap.pods.iter().map(AsRef::as_ref).filter(|_| !cluster.has_data());
    pods.find(waits)
}

/// Returns what to do about a stranded bootstrap node.
pub fn way_out(cluster: &Cluster, founder: &PodFact) -> WayOut {
    let again =
        if founder.owner.is_some() { "its Deployment makes" } else { "apply its manifest again: it makes" };
    run(CommandLine::new(format!("kubectl -n {} delete pod {}", cluster.id.namespace, founder.name))).say(format!(
        ": no member has data yet, so {again} a new bootstrap node, which members join; rows that were written into this one are \
         lost with it"
    ))
}

/// Returns the stranded bootstrap node as a condition of the cluster.
pub(super) fn diagnosis(cluster: &Cluster, now: Timestamp) -> Option<Diagnosis> {
    let founder = stranded_bootstrap_pod(cluster, now)?;
    let instead = way_out(cluster, founder);
    Some(Diagnosis { condition: Condition::CutOff, members: vec![founder.name.clone()], instead })
}
