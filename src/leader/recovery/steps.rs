//! What `gatera recover` does next: a pure function of the view, called again after every look.
//!
//! Nothing is remembered between two looks, so a command that was interrupted continues where it stopped, and two people who
//! run it at the same time take the same steps. First every member reports where its data ends; then one is chosen and
//! requested; then its pod is re-created and starts the cluster; then the others, one at a time. The StatefulSet's fields
//! stay as they are.

use jiff::SignedDuration;

use super::{asking, by_hand, choosing, held_up};
use crate::stop;
use engine::grant::{
    DataLoss, has_served, is_still_valid, member_data, serves, started_before, waits_in_vain,
};
use facts::galera::driver;
use facts::galera::start_report::StartReport;
use facts::marks::RECOVER;
use facts::marks::recovery::Recovery;
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, View};

/// The time after which a member that has reported nothing is no longer expected to report.
pub(super) const REPORT_TIMEOUT: SignedDuration = SignedDuration::from_secs(90);
/// The time within which members whose last view is complete form the cluster again.
pub(super) const SETTLE_TIME: SignedDuration = SignedDuration::from_secs(20);
/// The time within which an autoscaler adds a node for a pending pod.
const NODE_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// What the person who runs the command wants.
#[derive(Clone, Debug, Default)]
pub struct RecoveryOptions {
    /// The member to start from, even if another one has newer data.
    pub from: Option<String>,
    /// The loss that the person accepts, as [`DataLoss::loss`] spells it.
    pub loss: Option<String>,
    /// Start as many members as there were before `gatera stop`, even if some of them serve.
    pub all: bool,
    /// The uids of the pods that existed when the command began: why their step script refused may be repaired since.
    pub before: Vec<String>,
    /// The uids of the pods whose data no other pod could read.
    pub unreadable: Vec<String>,
}

/// The next step of a recovery, for `gatera recover` to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// Nothing: the cluster serves.
    Serves,
    Wait(String),
    /// Set the replicas to the number before `gatera stop`.
    Scale {
        to: i64,
    },
    /// Create the pod of this member: its StatefulSet would create it only after those before it are Ready.
    Create {
        member: String,
        ordinal: i64,
        why: String,
    },
    /// Let another pod read the data of this member, because its own pod does not run.
    Read {
        member: String,
        /// The member's pod, which does not run.
        uid: String,
    },
    /// Delete a reader pod: it could not read the data, or the member's own pod runs by now.
    StopReading {
        member: String,
        reader: String,
        /// The uid of the reader pod.
        uid: String,
    },
    /// Re-create this member's pod.
    Restart {
        member: String,
        /// The uid of its present pod.
        uid: String,
        why: String,
    },
    /// Request a start from this member.
    Ask {
        member: String,
        /// The position to start from.
        at: facts::galera::start_report::Position,
        /// The node that its new pod returns to, if another member's pod is pending.
        node: Option<String>,
        /// The loss that was accepted.
        loss: Option<String>,
    },
    /// Refuse: it cannot be proven that nothing is lost.
    Refuse {
        data_loss: DataLoss,
        /// The member that would start if the loss is accepted.
        from: Option<String>,
    },
    /// The recovery cannot be done at all, for this reason.
    Cannot(String),
    /// The servers do not start by the step script, for this reason: a person starts the cluster.
    ByHand(&'static str),
    /// Take the request back, for this reason, and start again.
    TakeBack(String),
    /// Remove the request: all members that can be Ready are.
    Finish {
        /// Members that stay away.
        without: Vec<String>,
    },
}

/// Returns the next step. `unchanged` is the time since the members' reports last changed.
pub fn next(
    cluster: &Cluster,
    view: &View<'_>,
    options: &RecoveryOptions,
    unchanged: SignedDuration,
) -> RecoveryStep {
    if let Some(step) = asking::useless_reader(cluster, options) {
        return step;
    }
    if let Some(owner) = driver::of(&cluster.workload) {
        return RecoveryStep::Cannot(format!(
            "{owner} drives it, and its operator recovers it; its field spec.galera.recovery.forceClusterBootstrapInPod chooses the member that \
             starts first"
        ));
    }
    if let Some(recovery) = cluster.recovery() {
        return after_grant(cluster, recovery, view, unchanged);
    }
    if let Some(request) = cluster.workload.metadata.mark(RECOVER) {
        return RecoveryStep::TakeBack(format!(
            "the guard has not verified this request ({request}); it may have been down when it was written"
        ));
    }
    let former_replicas = cluster.stopped_members().filter(|count| *count > cluster.workload.replicas());
    if let Some(first) = cluster.members.iter().find(|member| member.ready()) {
        // A recovery may have been taken back although its first member already served.
        return left_behind(cluster, first, view, unchanged)
            .or_else(|| options.all.then(|| after_stop(cluster, former_replicas)).flatten())
            .unwrap_or(RecoveryStep::Serves);
    }
    if serves(cluster) {
        return RecoveryStep::Serves;
    }
    if let Some(why) = by_hand::why(cluster).filter(|_| cluster.has_data()) {
        return stop::loses_data(cluster, view).map_or(RecoveryStep::ByHand(why), RecoveryStep::Cannot);
    }
    match former_replicas {
        Some(_) if options.all && !cluster.leaving.is_empty() => {
            return RecoveryStep::Wait("members are still leaving".to_owned());
        }
        Some(to) if options.all => return RecoveryStep::Scale { to },
        Some(_) if cluster.members.is_empty() => {
            return RecoveryStep::Cannot(format!(
                "it was stopped by gatera stop; to start it: {}",
                cluster.start_command()
            ));
        }
        None if cluster.members.is_empty() => {
            let why = "it has 0 replicas, and its claims do not record how many it had: scale it to the former number, which needs the override of G01 (gatera explain G01), then run this again";
            return RecoveryStep::Cannot(why.to_owned());
        }
        _ => {}
    }
    if !cluster.has_data() {
        let why = "there is nothing to recover, because no member has ever held data: it is a first install, which waits for its bootstrap node";
        return RecoveryStep::Cannot(why.to_owned());
    }
    if let Some(why) = members_elsewhere(cluster, view) {
        return RecoveryStep::Cannot(why);
    }
    let rows = member_data(cluster, view);
    asking::next(cluster, &rows, view, options, unchanged)
        .unwrap_or_else(|| choosing::next(cluster, &rows, options))
}

/// Returns why members that serve another cluster forbid a recovery: if this cluster is started beside that one, the two
/// can reach each other.
fn members_elsewhere(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let elsewhere = cluster.members.iter().filter(|it| Condition::of(it, view) == Some(Condition::Elsewhere));
    let names = elsewhere.map(|it| &*it.name).collect::<Vec<_>>();
    if names.is_empty() {
        return None;
    }
    let (are, names) = (if names.len() == 1 { "is" } else { "are" }, names.join(", "));
    Some(format!(
        "{names} {are} Synced in another cluster than the recorded one, and may hold rows that the others lack: gatera explain G04, \
         \"A member in another cluster\", explains how to compare the tables and keep the right one"
    ))
}

/// Returns the step that undoes an unfinished stop, or that removes the records of a stop that was undone.
fn after_stop(cluster: &Cluster, former_replicas: Option<i64>) -> Option<RecoveryStep> {
    if cluster.claims.iter().all(|claim| claim.stopped.is_none()) {
        return None;
    }
    let settled = cluster.leaving.is_empty() && cluster.members.iter().all(Member::ready);
    Some(match former_replicas {
        _ if !settled => RecoveryStep::Wait(cluster.describe()),
        // Otherwise all added members would copy what they lack at the same time.
        Some(_) if cluster.workload.parallel() => RecoveryStep::Scale { to: cluster.workload.replicas() + 1 },
        Some(to) => RecoveryStep::Scale { to },
        None => RecoveryStep::Finish { without: Vec::new() },
    })
}

/// Returns the next step of a recovery that the guard allowed: first its member is started, then the others.
fn after_grant(
    cluster: &Cluster,
    recovery: &Recovery,
    view: &View<'_>,
    unchanged: SignedDuration,
) -> RecoveryStep {
    let Some(first) = cluster.member(&recovery.member) else {
        return RecoveryStep::TakeBack(format!("{} is not a member any more", recovery.member));
    };
    if first.ready() {
        return after_first(cluster, first, view, unchanged);
    }
    if serves(cluster) {
        return RecoveryStep::TakeBack("the cluster serves without it".to_owned());
    }
    if recovery.until <= view.now {
        return RecoveryStep::TakeBack(format!("the request expired at {}", recovery.until));
    }
    if let Some(why) = by_hand::why(cluster) {
        return RecoveryStep::TakeBack(format!(
            "its servers no longer start by gatera's step script ({why})"
        ));
    }
    let why = || "so that it starts the cluster".to_owned();
    let Some(pod) = first.pod.as_deref() else {
        let (member, ordinal) = (first.name.clone(), first.ordinal);
        return if is_still_valid(recovery, cluster, view) {
            RecoveryStep::Create { member, ordinal, why: why() }
        } else {
            members_changed()
        };
    };
    let has_mark = pod.identity.as_ref() == Some(&recovery.permission());
    let report = pod.start_report.as_deref();
    // The member started the cluster once and failed: its step script does not start it again, but a new pod may, if no
    // other member has continued since.
    let failed = pod.restarts > 0 && report.is_some_and(|report| report.position().is_some());
    match report {
        _ if pod.terminating => RecoveryStep::Wait(format!("{} is being deleted", first.name)),
        _ if first.does_not_run() && waited_enough(first, view, unchanged) => RecoveryStep::TakeBack(
            format!("{} was to start the cluster, but {}", first.name, held_up(cluster, first)),
        ),
        _ if Condition::of(first, view) == Some(Condition::NodeAway) => {
            let (name, node) = (&first.name, &pod.node);
            RecoveryStep::TakeBack(format!(
                "{name} was to start the cluster, but its node {node} does not answer"
            ))
        }
        _ if has_served(first) && !has_lost_peers(first, cluster, view, unchanged) => RecoveryStep::Wait(
            format!("{} has started the cluster, but is not Ready at the moment", first.name),
        ),
        _ if has_served(first) => RecoveryStep::TakeBack(format!(
            "{} started the cluster, but has lost the other members since",
            first.name
        )),
        Some(StartReport::Refused(why)) if has_mark => {
            RecoveryStep::TakeBack(format!("{} was not started: {why}", first.name))
        }
        Some(report) if failed && report.position() != Some(&recovery.position) => members_changed(),
        _ if (!has_mark || failed) && !is_still_valid(recovery, cluster, view) => members_changed(),
        _ if !has_mark || failed => restart(cluster, first, why()),
        _ if first.does_not_run() => RecoveryStep::Wait(format!(
            "{} is to start the cluster, but {}",
            first.name,
            held_up(cluster, first)
        )),
        _ => RecoveryStep::Wait(format!("{} starts the cluster from {}", first.name, recovery.position)),
    }
}

/// Returns whether this member has been waited for long enough. A node may have to be added for its pod; the status of
/// the pod shows how long it has been pending, independently of the other members.
fn waited_enough(member: &Member, view: &View<'_>, unchanged: SignedDuration) -> bool {
    match member.pod.as_deref() {
        Some(pod) if pod.node.is_empty() => {
            let waits = pod.unready_since.map(|since| view.now.duration_since(since));
            waits.unwrap_or_default().max(unchanged) >= NODE_TIMEOUT
        }
        _ => unchanged >= REPORT_TIMEOUT,
    }
}

/// Returns whether a member that served has lost its peers. A member that is not Ready may instead be a donor, which
/// nothing shows, so it is given more time unless it is known to be alone.
pub(super) fn has_lost_peers(
    member: &Member,
    cluster: &Cluster,
    view: &View<'_>,
    unchanged: SignedDuration,
) -> bool {
    let is_alone = matches!(Condition::of(member, view), Some(Condition::CutOff | Condition::Left));
    let receives = |other: &Member| Condition::of(other, view) == Some(Condition::Transfer);
    unchanged >= SETTLE_TIME
        && (is_alone || unchanged >= REPORT_TIMEOUT && !cluster.members.iter().any(receives))
}

fn members_changed() -> RecoveryStep {
    RecoveryStep::TakeBack(
        "members have changed since then, or do not answer: all of them are examined again".to_owned(),
    )
}

/// Returns the step that brings back the next member, once the first one serves, until all that can be Ready are.
fn after_first(
    cluster: &Cluster,
    first: &Member,
    view: &View<'_>,
    unchanged: SignedDuration,
) -> RecoveryStep {
    let Some(member) = next_in_turn(cluster, view, unchanged) else {
        let away = cluster.members.iter().filter(|member| !member.ready());
        return RecoveryStep::Finish { without: away.map(|member| member.name.clone()).collect() };
    };
    left_behind(cluster, first, view, unchanged).unwrap_or_else(|| {
        let name = &member.name;
        let lower = |other: &&Member| other.ordinal < member.ordinal && !other.ready();
        match &member.pod {
            // The StatefulSet would wait for the member that stays away.
            None if cluster.members.iter().any(|other| lower(&other)) && !cluster.workload.parallel() => {
                let why = format!("so that it joins {}", first.name);
                RecoveryStep::Create { member: name.clone(), ordinal: member.ordinal, why }
            }
            None => RecoveryStep::Wait(format!("its StatefulSet has to create {name}")),
            Some(_) if member.does_not_run() => {
                RecoveryStep::Wait(format!("{name}: {}", held_up(cluster, member)))
            }
            Some(_) => {
                let does = Condition::of(member, view).map_or("is not Ready yet", Condition::description);
                RecoveryStep::Wait(format!("{name} {does}"))
            }
        }
    })
}

/// Returns the lowest member that is not Ready and can become so: not one whose node does not answer, whose claim is
/// lost, or which is in another cluster. A member whose pod does not run comes last, and only until `REPORT_TIMEOUT` is over.
pub fn next_in_turn<'a>(
    cluster: &'a Cluster,
    view: &View<'_>,
    unchanged: SignedDuration,
) -> Option<&'a Member> {
    let can_join = |member: &&Member| !member.ready() && !stays_away(cluster, member, view);
    let mut all = cluster.members.iter().filter(can_join);
    let held_up = all.clone().next().filter(|_| unchanged < REPORT_TIMEOUT);
    all.find(|member| !member.does_not_run()).or(held_up)
}

/// Returns whether the member cannot join: its node does not answer, it is in another cluster, or it has neither a pod
/// nor a claim.
fn stays_away(cluster: &Cluster, member: &Member, view: &View<'_>) -> bool {
    let bound = cluster.claims.iter().any(|claim| claim.ordinal == member.ordinal && claim.bound);
    let claimless =
        member.pod.is_none() && !bound && !cluster.workload.spec.volume_claim_templates.is_empty();
    claimless || matches!(Condition::of(member, view), Some(Condition::NodeAway | Condition::Elsewhere))
}

/// Restarts the next member in turn if it waits in vain: it started before the first member did and looks for addresses
/// that are gone; or, in a recovery, it is in back-off, or is to receive a state transfer and nothing arrives. A member
/// that served and lost its peers a moment ago may find them again.
fn left_behind(
    cluster: &Cluster,
    first: &Member,
    view: &View<'_>,
    unchanged: SignedDuration,
) -> Option<RecoveryStep> {
    let member = next_in_turn(cluster, view, unchanged)?;
    let pod = member.pod.as_deref().filter(|pod| !pod.terminating)?;
    let in_back_off = !pod.running && pod.restarts > 0;
    // Its donor may be busy with another joiner.
    let transfers = cluster.members.iter().any(|it| Condition::of(it, view) == Some(Condition::Transfer));
    let stalls = Condition::of(member, view) == Some(Condition::Stalled) && !transfers;
    let hangs_in_recovery = cluster.recovery().is_some() && (in_back_off || stalls);
    let hangs = waits_in_vain(member, cluster, view) && (started_before(member, first) || hangs_in_recovery);
    let settled = !has_served(member) || unchanged >= SETTLE_TIME;
    (hangs && settled).then(|| restart(cluster, member, format!("so that it finds {}", first.name)))
}

/// Re-creates the pod of this member, if its data stays.
pub(super) fn restart(cluster: &Cluster, member: &Member, why: String) -> RecoveryStep {
    let name = &member.name;
    let Some(pod) = member.pod.as_deref() else { return RecoveryStep::Wait(format!("{name} has no pod")) };
    let mut claims = cluster.claims.iter().filter(|claim| claim.ordinal == member.ordinal).peekable();
    if claims.peek().is_none() {
        return RecoveryStep::Cannot(format!(
            "{name} has no claim of its own for its data, which would be lost with its pod"
        ));
    }
    if let Some(claim) = claims.find(|claim| claim.terminating) {
        let claim = &claim.name;
        return RecoveryStep::Cannot(format!(
            "claim {claim} is being deleted and is lost with its pod: copy its data first"
        ));
    }
    RecoveryStep::Restart { member: name.clone(), uid: pod.uid.clone(), why }
}
