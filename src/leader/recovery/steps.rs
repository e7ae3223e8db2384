//! What `gatera recover` does next: a pure function of the view, asked again after every look.
//!
//! Nothing is remembered between two looks, so a command that was killed goes on where it was, and two people do the same
//! thing twice. First every member is to tell where its data ends; then one is chosen and asked for; then that one is made
//! anew and starts the cluster; then the others, one at a time. The StatefulSet's fields stay as they are.

use jiff::SignedDuration;

use super::{asking, by_hand, choosing, held_up};
use crate::stop;
use engine::grant::{DataLoss, came_before, has_served, rows, serves, still_true, waits_in_vain};
use facts::galera::start_report::StartReport;
use facts::marks::RECOVER;
use facts::marks::recovery::Recovery;
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, View};

/// Whoever told nothing for so long will not.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_secs(90);
/// Members whose last view is complete form the cluster again in less.
pub(super) const SETTLED: SignedDuration = SignedDuration::from_secs(20);
/// Whoever makes nodes when pods wait for one takes less.
const FOR_A_NODE: SignedDuration = SignedDuration::from_mins(5);

/// What a person wants.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// From this member, whoever else has newer data.
    pub from: Option<String>,
    /// And so much may be lost by it.
    pub loss: Option<String>,
    /// As many members as there were before `gatera stop`, also where some of them serve.
    pub all: bool,
    /// Pods, by uid, that were there when the person asked: what their step refused may have been mended since.
    pub before: Vec<String>,
    /// Pods, by uid, whose data no other pod can read, as was tried.
    pub unreadable: Vec<String>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the cluster serves.
    Serves,
    /// Nothing for the moment.
    Wait(String),
    /// Set the replicas to what they were before `gatera stop`.
    Scale {
        /// How many.
        to: i64,
    },
    /// Make the pod of this member: its StatefulSet would make it only after those before it are Ready.
    Create {
        /// The member.
        member: String,
        /// Its number.
        ordinal: i64,
        /// What for.
        why: String,
    },
    /// Have the data of this member read by a pod that does nothing else, because its own does not run.
    Read {
        /// The member.
        member: String,
        /// Its pod, which does not run.
        uid: String,
    },
    /// Delete a pod that read what this member has: it could not, or the member's own pod runs by now.
    StopReading {
        /// The member.
        member: String,
        /// The pod that reads.
        reader: String,
        /// It, by uid.
        uid: String,
    },
    /// Make this member's pod anew.
    Restart {
        /// The member.
        member: String,
        /// Its pod as it is.
        uid: String,
        /// What for.
        why: String,
    },
    /// Ask for a start from this member.
    Ask {
        /// The member.
        member: String,
        /// What is asked for, but for its end.
        at: facts::galera::start_report::Position,
        /// The node that its new pod goes back to, where another member's pod waits for one.
        node: Option<String>,
        /// What is accepted.
        loss: Option<String>,
    },
    /// It cannot be proven that nothing is lost.
    Refuse {
        /// Why.
        stake: DataLoss,
        /// Who would start all the same, if that is accepted.
        from: Option<String>,
    },
    /// It cannot be done at all.
    Cannot(String),
    /// Its servers do not start by the step, for this reason: a person starts it.
    ByHand(&'static str),
    /// What was asked for is taken back, for this reason; then anew.
    TakeBack(String),
    /// Everybody is Ready who can be: what was asked for is taken off.
    Finish {
        /// Who stays away.
        without: Vec<String>,
    },
}

/// What comes next. `still` is how long nothing of what members told has changed.
pub fn next(cluster: &Cluster, view: &View<'_>, want: &Want, still: SignedDuration) -> Step {
    if let Some(step) = asking::no_longer_read(cluster, want) {
        return step;
    }
    if let Some(recovery) = cluster.recovery() {
        return led(cluster, recovery, view, still);
    }
    if let Some(asked) = cluster.workload.metadata.mark(RECOVER) {
        return Step::TakeBack(format!(
            "the guard has not verified this request ({asked}); it may have been down when it was written"
        ));
    }
    let fewer = cluster.stopped_members().filter(|count| *count > cluster.workload.replicas());
    if let Some(first) = cluster.members.iter().find(|member| member.ready()) {
        // A recovery may have been taken back when the first one served already.
        return left_behind(cluster, first, view, still)
            .or_else(|| want.all.then(|| all_of_it(cluster, fewer)).flatten())
            .unwrap_or(Step::Serves);
    }
    if serves(cluster) {
        return Step::Serves;
    }
    if let Some(why) = by_hand::why(cluster).filter(|_| cluster.has_data()) {
        return stop::loses_data(cluster, view).map_or(Step::ByHand(why), Step::Cannot);
    }
    match fewer {
        Some(_) if want.all && !cluster.leaving.is_empty() => {
            return Step::Wait("members are still leaving".to_owned());
        }
        Some(to) if want.all => return Step::Scale { to },
        Some(_) if cluster.members.is_empty() => {
            return Step::Cannot(format!("it was stopped in order: {} starts it", cluster.start_command()));
        }
        None if cluster.members.is_empty() => {
            let why = "it has 0 replicas, and nothing on its claims tells how many it had: set them to what they were, with the override \
                       of G01 (gatera explain G01), and run this again";
            return Step::Cannot(why.to_owned());
        }
        _ => {}
    }
    if !cluster.has_data() {
        let why =
            "none of its members ever held data: it is a first install, which waits for its bootstrap node";
        return Step::Cannot(why.to_owned());
    }
    if let Some(why) = strays(cluster, view) {
        return Step::Cannot(why);
    }
    let rows = rows(cluster, view);
    asking::next(cluster, &rows, view, want, still).unwrap_or_else(|| choosing::next(cluster, &rows, want))
}

/// Members that serve another cluster, as far as they know. Whoever started this one beside it would have two that reach each other.
fn strays(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let elsewhere = cluster.members.iter().filter(|it| Condition::of(it, view) == Some(Condition::Elsewhere));
    let names = elsewhere.map(|it| &*it.name).collect::<Vec<_>>();
    if names.is_empty() {
        return None;
    }
    let (are, names) = (if names.len() == 1 { "is" } else { "are" }, names.join(", "));
    Some(format!(
        "{names} {are} Synced in another cluster than the recorded one, and may hold rows that the others lack: gatera explain G04, \
         \"A member in another cluster\", tells how the tables are compared, and how the right one stays"
    ))
}

/// A stop that was not gone through with is taken back, and so is the record of one that is over.
fn all_of_it(cluster: &Cluster, fewer: Option<i64>) -> Option<Step> {
    if cluster.claims.iter().all(|claim| claim.stopped.is_none()) {
        return None;
    }
    let settled = cluster.leaving.is_empty() && cluster.members.iter().all(Member::ready);
    Some(match fewer {
        _ if !settled => Step::Wait(cluster.describe()),
        // All would copy what they lack at the same moment.
        Some(_) if cluster.workload.parallel() => Step::Scale { to: cluster.workload.replicas() + 1 },
        Some(to) => Step::Scale { to },
        None => Step::Finish { without: Vec::new() },
    })
}

/// With the guard's word: the first one, then the others.
fn led(cluster: &Cluster, recovery: &Recovery, view: &View<'_>, still: SignedDuration) -> Step {
    let Some(first) = cluster.member(&recovery.member) else {
        return Step::TakeBack(format!("{} is not a member of it any more", recovery.member));
    };
    if first.ready() {
        return others(cluster, first, view, still);
    }
    if serves(cluster) {
        return Step::TakeBack("the cluster serves without it".to_owned());
    }
    if recovery.until <= view.now {
        return Step::TakeBack(format!("it ended at {}", recovery.until));
    }
    if let Some(why) = by_hand::why(cluster) {
        return Step::TakeBack(format!("its servers do not start by gatera's step any more ({why})"));
    }
    let why = || "it starts the cluster".to_owned();
    let Some(pod) = first.pod.as_deref() else {
        let (member, ordinal) = (first.name.clone(), first.ordinal);
        return if still_true(recovery, cluster, view) {
            Step::Create { member, ordinal, why: why() }
        } else {
            gone_on()
        };
    };
    let carries = pod.identity.as_ref() == Some(&recovery.of_pod());
    let told = pod.start_note.as_deref();
    // It led once, and fell: its step does not do so again, but a new pod may, if nobody has gone on since.
    let fell = pod.restarts > 0 && told.is_some_and(|note| note.position().is_some());
    match told {
        _ if pod.going => Step::Wait(format!("{} is being deleted", first.name)),
        _ if first.does_not_run() && waited_enough(first, view, still) => Step::TakeBack(format!(
            "{} was to start the cluster, and {}",
            first.name,
            held_up(cluster, first)
        )),
        _ if Condition::of(first, view) == Some(Condition::NodeAway) => {
            let (name, node) = (&first.name, &pod.node);
            Step::TakeBack(format!("{name} was to start the cluster, and its node {node} does not answer"))
        }
        _ if has_served(first) && !has_lost_the_others(first, cluster, view, still) => {
            Step::Wait(format!("{} has started the cluster, and is not Ready at the moment", first.name))
        }
        _ if has_served(first) => {
            Step::TakeBack(format!("{} has started the cluster, and lost the others since", first.name))
        }
        Some(StartReport::Refused(why)) if carries => {
            Step::TakeBack(format!("{} was not started: {why}", first.name))
        }
        Some(note) if fell && note.position() != Some(&recovery.position) => gone_on(),
        _ if (!carries || fell) && !still_true(recovery, cluster, view) => gone_on(),
        _ if !carries || fell => restart(cluster, first, why()),
        _ if first.does_not_run() => {
            Step::Wait(format!("{} is to start the cluster, and {}", first.name, held_up(cluster, first)))
        }
        _ => Step::Wait(format!("{} starts the cluster from {}", first.name, recovery.position)),
    }
}

/// A node may have to be made for it. How long it waits for one it says itself, whatever the others do meanwhile.
fn waited_enough(member: &Member, view: &View<'_>, still: SignedDuration) -> bool {
    match member.pod.as_deref() {
        Some(pod) if pod.node.is_empty() => {
            let waits = pod.unready.map(|since| view.now.duration_since(since));
            waits.unwrap_or_default().max(still) >= FOR_A_NODE
        }
        _ => still >= PATIENCE,
    }
}

/// Whoever served and is not Ready may be giving a copy, which is seen by nobody: that may last longer.
pub(super) fn has_lost_the_others(
    member: &Member,
    cluster: &Cluster,
    view: &View<'_>,
    still: SignedDuration,
) -> bool {
    let alone = matches!(Condition::of(member, view), Some(Condition::CutOff | Condition::Left));
    let copies = |other: &Member| Condition::of(other, view) == Some(Condition::Transfer);
    still >= SETTLED && (alone || still >= PATIENCE && !cluster.members.iter().any(copies))
}

fn gone_on() -> Step {
    Step::TakeBack("members have gone on since, or are away: all of them are looked at anew".to_owned())
}

/// The first one serves; each of the others in turn, until all are Ready that can be.
fn others(cluster: &Cluster, first: &Member, view: &View<'_>, still: SignedDuration) -> Step {
    let Some(member) = next_in_turn(cluster, view, still) else {
        let away = cluster.members.iter().filter(|member| !member.ready());
        return Step::Finish { without: away.map(|member| member.name.clone()).collect() };
    };
    left_behind(cluster, first, view, still).unwrap_or_else(|| {
        let name = &member.name;
        let lower = |other: &&Member| other.ordinal < member.ordinal && !other.ready();
        match &member.pod {
            // Its StatefulSet would wait for the one that stays away.
            None if cluster.members.iter().any(|other| lower(&other)) && !cluster.workload.parallel() => {
                let why = format!("so that it joins {}", first.name);
                Step::Create { member: name.clone(), ordinal: member.ordinal, why }
            }
            None => Step::Wait(format!("{name} is made by its StatefulSet")),
            Some(_) if member.does_not_run() => Step::Wait(format!("{name}: {}", held_up(cluster, member))),
            Some(_) => {
                let does = Condition::of(member, view).map_or("is not Ready yet", Condition::says);
                Step::Wait(format!("{name} {does}"))
            }
        }
    })
}

/// The lowest that is not Ready and can become so: nobody waits for a node that does not answer, for somebody who is in another
/// cluster, or for a claim that is lost. A pod that does not run comes last, and not for long.
pub fn next_in_turn<'a>(cluster: &'a Cluster, view: &View<'_>, still: SignedDuration) -> Option<&'a Member> {
    let comes = |member: &&Member| !member.ready() && !stays_away(cluster, member, view);
    let mut all = cluster.members.iter().filter(comes);
    let held_up = all.clone().next().filter(|_| still < PATIENCE);
    all.find(|member| !member.does_not_run()).or(held_up)
}

/// Its node does not answer, it is in another cluster, or it has neither a pod nor a claim.
fn stays_away(cluster: &Cluster, member: &Member, view: &View<'_>) -> bool {
    let bound = cluster.claims.iter().any(|claim| claim.ordinal == member.ordinal && claim.bound);
    let claimless =
        member.pod.is_none() && !bound && !cluster.workload.spec.volume_claim_templates.is_empty();
    claimless || matches!(Condition::of(member, view), Some(Condition::NodeAway | Condition::Elsewhere))
}

/// The next in turn, if it looks for addresses that are gone: it started before the first one did, or it fell and rests; or if it is
/// about to copy, and nothing comes in. Whoever has served, and lost the others a moment ago, may find them again.
fn left_behind(cluster: &Cluster, first: &Member, view: &View<'_>, still: SignedDuration) -> Option<Step> {
    let member = next_in_turn(cluster, view, still)?;
    let pod = member.pod.as_deref().filter(|pod| !pod.going)?;
    let rests = !pod.running && pod.restarts > 0;
    // Its donor may be busy with another one.
    let copies = cluster.members.iter().any(|it| Condition::of(it, view) == Some(Condition::Transfer));
    let stalls = Condition::of(member, view) == Some(Condition::Stalled) && !copies;
    let led = cluster.recovery().is_some() && (rests || stalls);
    let vain = waits_in_vain(member, cluster, view) && (came_before(member, first) || led);
    let settled = !has_served(member) || still >= SETTLED;
    (vain && settled).then(|| restart(cluster, member, format!("so that it finds {}", first.name)))
}

/// Its pod is made anew, if its data stays.
pub(super) fn restart(cluster: &Cluster, member: &Member, why: String) -> Step {
    let name = &member.name;
    let Some(pod) = member.pod.as_deref() else { return Step::Wait(format!("{name} has no pod")) };
    let mut claims = cluster.claims.iter().filter(|claim| claim.ordinal == member.ordinal).peekable();
    if claims.peek().is_none() {
        return Step::Cannot(format!(
            "{name} keeps its data on no claim of its own: what it has would go with its pod"
        ));
    }
    if let Some(claim) = claims.find(|claim| claim.going) {
        let claim = &claim.name;
        return Step::Cannot(format!(
            "claim {claim} is being deleted, and goes with its pod: copy what is on it first"
        ));
    }
    Step::Restart { member: name.clone(), uid: pod.uid.clone(), why }
}
