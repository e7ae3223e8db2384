//! When members restart with a changed configuration: first one, then the others, one at a time.
//!
//! Owns: [`stage`], how far a rollout is (`rollout/turn.rs`: which member is next; `rollout/back.rs`: when a rollout is
//! given up, and the way back; `engine/snapshot.rs`: what a snapshot is). Must not know: clients; how a pod gets its revision
//! (`inject/configuration.rs`). The first member to start with a revision is the canary: the others follow only when it
//! is healthy; if it is not, all members go back to the revision that was good. The record on the StatefulSet names
//! that revision and the canary; what is due next follows from it and from what pods run, so a new leader continues
//! where the last one stopped. Members are never deleted: they are evicted, and each eviction is judged like any other.

mod back;
mod turn;

use std::time::Duration;

use super::{Announcement, LeaderStep};
use facts::galera::driver;
use facts::revision::Revision;
use facts::view::{Candidate, Cluster, Member, RolloutRecord, RolloutRequest, State, View};

/// The time for which a new configuration must not change before a rollout begins: Helm and kubectl apply a ConfigMap
/// before the StatefulSet that belongs to it.
const QUIET_PERIOD: Duration = Duration::from_secs(10);

/// The time for which the canary is watched: a member with a new configuration may still fail once it serves.
const CANARY_PERIOD: Duration = Duration::from_secs(10);

/// The maximum number of changed options that a message names; the others are counted.
const MAX_NAMED: usize = 4;

const TEMPLATE_ROLLS: &str = "a rollout of the StatefulSet is under way";
const PAUSED: &str = "paused by annotation gatera.dev/rollout; `gatera rollout resume` continues it";
const ODD_REQUEST: &str =
    "annotation gatera.dev/rollout has an unknown value; `gatera rollout resume` removes it";
const BEGAN: &str = "RollingOut";
const DONE: &str = "RolledOut";
/// The Event reason of a rollout that was given up.
pub const STOPPED: &str = "RolloutStopped";
/// The Event reason of a rollout that something holds up.
pub const WAITS: &str = "RolloutWaits";

/// How far the rollout of a cluster's configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutStage {
    /// The guard does not manage the cluster's configuration.
    Absent,
    /// All members run the revision that they should.
    Settled,
    /// The rollout does not continue by itself, for this reason.
    Held(String),
    /// The rollout continues when something else ends, which is named here.
    Waits(String),
    /// The rollout continues: what is being done, and the next step unless it only waits.
    Rolls(String, Option<Box<LeaderStep>>),
    /// The rollout was given up: why, and the next step of the way back.
    Stopped(String, Option<Box<LeaderStep>>),
}

impl RolloutStage {
    /// The names of the stages in metrics, in order.
    pub const NAMES: [&str; 6] = ["absent", "settled", "held", "waits", "rolls", "stopped"];

    /// Returns the name of the stage in metrics.
    pub fn name(&self) -> &'static str {
        let [absent, settled, held, waits, rolls, stopped] = Self::NAMES;
        match self {
            Self::Absent => absent,
            Self::Settled => settled,
            Self::Held(_) => held,
            Self::Waits(_) => waits,
            Self::Rolls(..) => rolls,
            Self::Stopped(..) => stopped,
        }
    }

    pub(super) fn step(self) -> Option<LeaderStep> {
        match self {
            Self::Rolls(_, step) | Self::Stopped(_, step) => step.map(|step| *step),
            Self::Absent | Self::Settled | Self::Held(_) | Self::Waits(_) => None,
        }
    }
}

/// A new record of the rollout, and the Events that are published before it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Configure {
    /// The generation of the StatefulSet: if the StatefulSet changes, this is another step.
    pub generation: i64,
    /// The record that is written on the StatefulSet.
    pub record: RolloutRecord,
    pub events: Vec<Announcement>,
    /// The step must be due for this long before it is carried out.
    pub patience: Duration,
}

/// Returns how far this cluster's rollout is.
pub fn stage<'a>(cluster: &'a Cluster, view: &View<'a>) -> RolloutStage {
    if cluster.orphaned {
        return RolloutStage::Held("its StatefulSet is gone".to_owned());
    }
    if driver::of(&cluster.workload).is_some() {
        return RolloutStage::Absent;
    }
    if let Some(why) = super::only_observes(cluster, view) {
        return if cluster.rollout.is_some() { RolloutStage::Held(why) } else { RolloutStage::Absent };
    }
    match back::earlier_template_step(cluster, view) {
        None => configuration_stage(cluster, view),
        Some((says, None)) => match configuration_stage(cluster, view) {
            stage @ (RolloutStage::Rolls(_, Some(_)) | RolloutStage::Stopped(..) | RolloutStage::Held(_)) => {
                stage
            }
            // Nothing else is done meanwhile.
            _ => RolloutStage::Rolls(says, None),
        },
        Some((says, step)) => RolloutStage::Rolls(says, step),
    }
}

fn configuration_stage<'a>(cluster: &'a Cluster, view: &View<'a>) -> RolloutStage {
    let Some(record) = &cluster.rollout else { return first_record(cluster, view) };
    let rollout = Rollout { cluster, view, record };
    match (&record.next, rollout.wanted()) {
        // A member that fails is restarted even while something holds up the others.
        (Some(next), Err(why)) => rollout.unready_stage(&next.revision).unwrap_or(RolloutStage::Held(why)),
        (None, Err(why)) => rollout.return_to_good(true).unwrap_or(RolloutStage::Held(why)),
        (Some(next), Ok(wanted)) if next.revision == wanted => rollout.proceed(next),
        (Some(_), Ok(wanted)) => rollout.redirect_to(&wanted),
        (None, Ok(wanted)) if wanted == record.good => rollout.good_stage(),
        (None, Ok(wanted)) => rollout.begin(&wanted),
    }
}

/// Returns the stage that writes the first record: the revision that most members run counts as good, or else the one that
/// they would start with.
fn first_record<'a>(cluster: &'a Cluster, view: &View<'a>) -> RolloutStage {
    // Only members that serve count: one that fails may fail because of what it runs.
    let serving =
        cluster.members.iter().filter_map(|it| it.pod.as_ref().filter(|pod| pod.ready && pod.verified));
    let revisions = || serving.clone().filter_map(|pod| pod.revision.as_ref());
    let count = |revision: &Revision| revisions().filter(|it| *it == revision).count();
    let kept = revisions().filter(|it| view.is_kept(&cluster.id.namespace, it));
    let good = match (kept.max_by_key(|it| count(it)), &cluster.live) {
        (Some(most_run), _) => most_run,
        (None, Ok(live)) if live.is_empty() => return RolloutStage::Absent,
        (None, Ok(live)) => live,
        (None, Err(unknown)) => return RolloutStage::Held(unknown.to_string()),
    };
    let record = RolloutRecord::settled(good.clone());
    Rollout { cluster, view, record: &record }.settle("recording which configuration members run", good)
}

fn evict(member: &Member, patience: Duration) -> Option<Box<LeaderStep>> {
    let pod = member.pod.as_ref().filter(|pod| !pod.terminating)?;
    let (pod, uid) = (pod.name.clone(), pod.uid.clone());
    Some(Box::new(LeaderStep::Evict { pod, uid, patience }))
}

struct Rollout<'a, 'v> {
    cluster: &'a Cluster,
    view: &'v View<'a>,
    record: &'a RolloutRecord,
}

impl Rollout<'_, '_> {
    /// Returns the revision that members are to run, or why it is unknown or not allowed.
    fn wanted(&self) -> Result<Revision, String> {
        let live = match &self.cluster.live {
            Ok(live) if live.is_empty() => {
                return Err("no ConfigMap holds an option file any more".to_owned());
            }
            Ok(live) => live,
            Err(unknown) => return Err(unknown.to_string()),
        };
        match RolloutRequest::of(&self.cluster.workload.metadata) {
            None | Some(RolloutRequest::Retry(_)) => Ok(live.clone()),
            Some(RolloutRequest::Paused) => Err(PAUSED.to_owned()),
            Some(RolloutRequest::Invalid) => Err(ODD_REQUEST.to_owned()),
            Some(RolloutRequest::Keep { instead_of, .. }) if instead_of != *live => Ok(live.clone()),
            Some(RolloutRequest::Keep { revision, .. }) if !revision.has_sources_of(live) => Err(format!(
                "annotation gatera.dev/rollout asks for {revision}, but members do not read all of its ConfigMaps"
            )),
            Some(RolloutRequest::Keep { revision, .. }) => {
                let gone = format!(
                    "annotation gatera.dev/rollout asks for {revision}, but no snapshot of it is kept"
                );
                Some(revision).filter(|it| self.is_kept(it)).ok_or(gone)
            }
        }
    }

    fn is_kept(&self, revision: &Revision) -> bool {
        self.view.is_kept(&self.cluster.id.namespace, revision)
    }

    fn is_given_up(&self, revision: &Revision) -> bool {
        self.record.has_given_up(revision, &self.cluster.workload.metadata)
    }

    fn runs(member: &Member) -> Option<&Revision> {
        member.pod.as_ref()?.revision.as_ref()
    }

    fn all_run(&self, revision: &Revision) -> bool {
        let members = &self.cluster.members;
        !members.is_empty() && members.iter().all(|it| it.ready() && Self::runs(it) == Some(revision))
    }

    /// Returns how long a restarted member must be Ready before the next one restarts.
    fn min_ready_time(&self) -> Duration {
        Duration::from_secs(self.cluster.workload.spec.min_ready_seconds.into())
    }

    /// Returns the stage that writes this record, and an Event with this reason and text.
    fn write(
        &self,
        says: impl Into<String>,
        record: RolloutRecord,
        event: Option<(&'static str, String)>,
        patience: Duration,
    ) -> RolloutStage {
        let generation = self.cluster.workload.metadata.generation;
        let events = event.map(|(reason, note)| Announcement { reason, note }).into_iter().collect();
        let step = Configure { generation, record, events, patience };
        RolloutStage::Rolls(says.into(), Some(Box::new(LeaderStep::Configure(Box::new(step)))))
    }

    /// Returns the stage that records this revision as the good one.
    fn settle(&self, says: &str, good: &Revision) -> RolloutStage {
        self.write(says, RolloutRecord::settled(good.clone()), None, Duration::ZERO)
    }

    /// Names the options that this revision changes, for messages.
    fn changes(&self, revision: &Revision) -> String {
        let all = self.view.differences(self.cluster, &self.record.good, revision);
        match all.len() {
            0 => "the changed files".to_owned(),
            1..=MAX_NAMED => all.join(", "),
            more => format!("{} and {} more", all[..MAX_NAMED].join(", "), more - MAX_NAMED),
        }
    }

    /// Returns the stage of a rollout whose wanted revision is already the good one.
    fn good_stage(&self) -> RolloutStage {
        if let Some(back) = self.return_to_good(false) {
            return back;
        }
        let live = self.cluster.live.as_ref().ok().filter(|live| **live == self.record.good);
        // Equal revisions may be spelled in two ways; snapshots are named by the spelling in the record.
        let lacks_snapshot = || self.view.lacks_snapshot(&self.cluster.id.namespace, &self.record.good);
        match live.filter(|_| lacks_snapshot()) {
            // The revision that failed is not wanted any more.
            _ if self.record.stopped.is_some() => {
                self.settle("clearing the record of the configuration that failed", &self.record.good)
            }
            Some(live) => self.settle("creating a missing snapshot again", live),
            None => RolloutStage::Settled,
        }
    }

    /// Begins a rollout, because a new revision is wanted.
    fn begin(&self, wanted: &Revision) -> RolloutStage {
        if self.is_given_up(wanted) {
            let why = self.record.stopped.iter().map(|it| it.why.clone()).collect::<String>();
            return self.return_to_good(false).unwrap_or(RolloutStage::Stopped(why, None));
        }
        // All members run it: the template changed with it, or no member held data yet.
        if self.all_run(wanted) && !self.cluster.rolls() {
            return self.complete(wanted);
        }
        match self.view.state(self.cluster) {
            State::Forming => return self.settle("no member holds data yet", wanted),
            // Members would otherwise start with the old revision and change to the new one, one by one.
            State::Stopped => {
                return self.settle("its members are stopped, and will all start with it", wanted);
            }
            _ => {}
        }
        let Some(first) = self.next_for(wanted) else {
            let rolls = self.cluster.rolls() && self.all_run(wanted);
            return if rolls {
                RolloutStage::Waits(TEMPLATE_ROLLS.to_owned())
            } else {
                RolloutStage::Held(self.hold_reason())
            };
        };
        if let Some(why) = self.wait_reason(first) {
            return RolloutStage::Waits(why);
        }
        let (names, name) = (self.changes(wanted), &first.name);
        let event = format!(
            "{names}: {name} restarts with the new configuration, then the others, one at a time ({wanted})"
        );
        let next = Candidate { canary: Some(first.ordinal), ..Candidate::of(wanted) };
        let record = RolloutRecord { next: Some(next), stopped: None, ..self.record.clone() };
        self.write(format!("{names}: {name} restarts first"), record, Some((BEGAN, event)), QUIET_PERIOD)
    }

    /// Redirects a rollout that is under way, because another revision is wanted now.
    fn redirect_to(&self, wanted: &Revision) -> RolloutStage {
        let any_unproven = self.cluster.members.iter().any(|it| self.runs_unproven(it));
        let first = self.next_for(wanted).filter(|_| any_unproven && *wanted != self.record.good);
        let next = first.map(|first| Candidate { canary: Some(first.ordinal), ..Candidate::of(wanted) });
        let record = RolloutRecord { next, ..self.record.clone() };
        self.write("the configuration changed again", record, None, QUIET_PERIOD)
    }

    /// Continues a rollout that is under way.
    fn proceed(&self, next: &Candidate) -> RolloutStage {
        let revision = &next.revision;
        let runs_it = |it: &&Member| Self::runs(it) == Some(revision);
        let canary =
            next.canary.and_then(|canary| self.cluster.members.iter().find(|it| it.ordinal == canary));
        match (self.unready_stage(revision), canary.filter(|it| !runs_it(it) && turn::fails(it))) {
            // A member that is still starting does not hold up a canary that fails with another revision.
            (Some(RolloutStage::Rolls(_, None)), Some(fails)) => return self.restart(fails, revision),
            (Some(unready), _) => return unready,
            (None, _) => {}
        }
        match canary {
            // The canary is healthy: other members that restart now may take the revision, too.
            Some(member) if runs_it(&member) => {
                let next = Candidate { canary: None, ..next.clone() };
                let record = RolloutRecord { next: Some(next), ..self.record.clone() };
                let says = format!(
                    "{} is Ready with {}, and is watched for some seconds",
                    member.name,
                    self.changes(revision)
                );
                return self.write(says, record, None, CANARY_PERIOD.max(self.min_ready_time()));
            }
            Some(member) => return self.restart(member, revision),
            None if next.canary.is_some() => return self.redirect_to(revision),
            None => {}
        }
        if self.all_run(revision) {
            return self.complete(revision);
        }
        match self.next_for(revision) {
            Some(member) => self.restart(member, revision),
            None => RolloutStage::Held(self.hold_reason()),
        }
    }

    fn restart(&self, member: &Member, revision: &Revision) -> RolloutStage {
        let count = self.cluster.members.iter().filter(|it| Self::runs(it) == Some(revision)).count();
        let says = format!("{} of {} run with {}", count, self.cluster.members.len(), self.changes(revision));
        if let Some(why) = self.wait_reason(member) {
            let says = format!("{says}; {why}");
            return if self.cluster.members.len() == 1 {
                RolloutStage::Held(says)
            } else {
                RolloutStage::Rolls(says, None)
            };
        }
        let name = &member.name;
        let unrevised = member.pod.as_ref().filter(|pod| pod.revision.is_none());
        match (unrevised, self.record.next.as_ref().and_then(|next| next.healed.as_ref())) {
            // The pod was created without the guard. It is re-created once; if that does not help, another restart
            // would not help either.
            (Some(pod), Some((healed, uid))) if healed == name && *uid != pod.uid => {
                let why = format!("{name} starts without a snapshot of its configuration");
                self.give_up(revision, why.clone(), why, Duration::ZERO)
            }
            (Some(pod), healed) if healed.is_none_or(|(healed, _)| healed != name) => {
                let next = self
                    .record
                    .next
                    .clone()
                    .map(|next| Candidate { healed: Some((name.clone(), pod.uid.clone())), ..next });
                let record = RolloutRecord { next, ..self.record.clone() };
                self.write(format!("{says}; {name} restarts next"), record, None, Duration::ZERO)
            }
            _ => RolloutStage::Rolls(
                format!("{says}; {name} restarts next"),
                evict(member, if turn::fails(member) { Duration::ZERO } else { self.min_ready_time() }),
            ),
        }
    }

    fn complete(&self, revision: &Revision) -> RolloutStage {
        let event =
            format!("all {} members run {} ({revision})", self.cluster.members.len(), self.changes(revision));
        let record = RolloutRecord::settled(revision.clone());
        self.write("every member runs the new configuration", record, Some((DONE, event)), Duration::ZERO)
    }
}
