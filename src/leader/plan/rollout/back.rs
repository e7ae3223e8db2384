//! When a rollout is given up, and the way back: to the configuration before, and out of a template that was taken back.
//!
//! Must not know: how a rollout goes on (`plan/rollout.rs`).

use std::time::Duration;

use super::super::{Announcement, Step, bootstrap};
use super::turn::fails;
use super::{Rollout, STOPPED, Stage, WAITS};
use facts::galera::start_report::JoinPhase;
use facts::marks::RECOVER;
use facts::revision::Revision;
use facts::view::{Cluster, Member, PodFact, RolloutRecord, RolloutRequest, Stopped, View};

/// Longer than one failed start, which happens to a member that joins: the second pause of a container that fails.
const FAILS: Duration = Duration::from_secs(20);
/// Whoever joins may start anew a few times, on a busy node.
const MANY: i64 = 5;
/// Without a sign of progress.
const HANGS: Duration = facts::view::HANGS.unsigned_abs();
/// With `Parallel` the StatefulSet controller replaces a broken pod of a template that nobody wants any more by itself, and so
/// it does with one whose phase is Failed. With `OrderedReady` it waits for ever until that pod is Ready (1.36, too).
const REPLACED: Duration = Duration::from_secs(30);

impl Rollout<'_, '_> {
    /// A member that started with the new revision and is not Ready, if there is one; one that fails before one that waits.
    pub(super) fn ill_of(&self, revision: &Revision) -> Option<Stage> {
        let ill = || {
            let members = self.cluster.members.iter();
            members.filter(|it| Self::runs(it) == Some(revision) && !it.ready())
        };
        ill().find(|it| fails(it)).or_else(|| ill().next()).map(|member| self.is_ill(member, revision))
    }

    fn is_ill(&self, member: &Member, revision: &Revision) -> Stage {
        let (names, name) = (self.names(revision), &member.name);
        if member.pod.as_ref().is_some_and(|pod| pod.lacks_an_image) {
            let says = format!("{name} has no image to start from with {names}");
            let pod = format!("kubectl -n {} describe pod {name}", self.cluster.id.namespace);
            let told = format!(
                "{says}: {pod} says why; no other member restarts until it is there, or the change is taken back"
            );
            let told = Step::Announce(Announcement::about(self.cluster, WAITS, told));
            return Stage::Rolls(says, Some(Box::new(told)));
        }
        let starts = || Stage::Rolls(format!("{name} starts with {names}"), None);
        let Some((does, patience)) = member.pod.as_ref().and_then(|pod| trouble(pod)) else {
            return starts();
        };
        // While nobody serves nobody becomes Ready, with whatever configuration.
        if patience == HANGS && self.cluster.ready() == 0 {
            return starts();
        }
        let ended = member.pod.as_ref().and_then(|pod| pod.ended());
        let ended = ended.map(|ended| format!(" ({ended})")).unwrap_or_default();
        match self.gives_up(revision, format!("{name} {does} with {names}{ended}"), patience) {
            // That is how everybody begins.
            Stage::Rolls(_, step) if patience == HANGS => {
                Stage::Rolls(format!("{name} starts with {names}"), step)
            }
            stage => stage,
        }
    }

    /// Nobody else starts with this revision, and whoever did goes back.
    pub(super) fn gives_up(&self, revision: &Revision, why: String, patience: Duration) -> Stage {
        let told = format!(
            "{why}: it goes back to the configuration before, and no other member restarts; its log goes with its pod, and is left only where \
             logs are collected; change {}, or take the change back ({revision})",
            revision.config_maps()
        );
        let retried = RolloutRequest::of(&self.cluster.workload.metadata).and_then(RolloutRequest::retry);
        let stopped = Stopped { revision: revision.clone(), why: why.clone(), retried };
        let note = RolloutRecord { good: self.note.good.clone(), next: None, stopped: Some(stopped) };
        let told = Announcement::about(self.cluster, STOPPED, told);
        Stage::Rolls(why, Some(self.write(note, Some(told), patience)))
    }

    /// Members that run something that is neither good nor wanted go back, those that fail first.
    pub(super) fn put_back(&self, only_ill: bool) -> Option<Stage> {
        let good = &self.note.good;
        if self.note.next.is_some() {
            return None;
        }
        let rolls = self.cluster.rolls();
        let is_live = |it: Option<&Revision>| self.cluster.live.as_ref().ok() == it;
        // Whoever changed the template, too, means both; those that it has not reached are not meant.
        let newest = &self.cluster.workload.status.update_revision;
        let given_up = self.cluster.live.as_ref().is_ok_and(|live| self.is_given_up(live));
        let is_meant =
            |it: &Member| rolls && !given_up && it.pod.as_ref().is_some_and(|pod| pod.template == *newest);
        // Made without the guard, it reads what was given up.
        let other = self.cluster.live.as_ref().is_ok_and(|live| live != good);
        let reads_live = |it: &Member| Self::runs(it).is_none() && other && fails(it) && !is_meant(it);
        let strays = |it: &Member| {
            self.is_astray(it) && (!rolls || fails(it) && !(is_meant(it) && is_live(Self::runs(it))))
        };
        let astray = |it: &&Member| (strays(it) || reads_live(it)) && (!only_ill || fails(it));
        if !self.is_kept(good) {
            let why = format!("there is no copy of {good} to go back to");
            return self.cluster.members.iter().any(|it| astray(&it)).then_some(Stage::Stopped(why, None));
        }
        let members = || self.cluster.members.iter().rev().filter(astray);
        let member = members().find(|it| !it.ready()).or_else(|| members().next())?;
        let why = self.note.stopped.as_ref().map(|it| format!("{}; ", it.why)).unwrap_or_default();
        Some(match self.others_need(member) {
            Some(waits) => {
                Stage::Stopped(format!("{why}{} goes back when it may: {waits}", member.name), None)
            }
            None => Stage::Stopped(
                format!("{why}{} goes back to the configuration before", member.name),
                self.evict(member, Duration::ZERO),
            ),
        })
    }
}

/// A pod that is not Ready and was made from an earlier template: its StatefulSet controller waits until it is, even where
/// that template was taken back. It is made again from the newest: at once if it keeps failing, else when it hangs.
pub(super) fn of_an_earlier_template(
    cluster: &Cluster,
    view: &View<'_>,
) -> Option<(String, Option<Box<Step>>)> {
    let workload = &cluster.workload;
    // One that comes back with the template that it has is not helped by that.
    let gets_another =
        |it: &Member| it.ordinal >= workload.reaches_from() && workload.makes_newest(it.ordinal);
    let ill = |pod: &PodFact| !pod.ready && !pod.going && cluster.is_earlier(pod);
    let member = cluster.members.iter().find(|it| gets_another(it) && it.pod.as_deref().is_some_and(ill))?;
    let pod = member.pod.as_ref().filter(|_| workload.is_observed() && cluster.leaving.is_empty())?;
    // The others have to do without it; those behind it are not even made before it is Ready.
    let mut others = cluster.members.iter().filter(|it| it.ordinal != member.ordinal);
    if cluster.ready() == 0 || !others.all(|it| it.ready() || cluster.waits_for(it, member)) {
        return None;
    }
    let (ns, name, minutes) = (&cluster.id.namespace, &pod.name, HANGS.as_secs() / 60);
    let says = match (pod.stuck && !pod.running, pod.hangs(view.now) && nothing_else_goes_on(cluster, view)) {
        (true, _) => format!("{name} keeps failing with an earlier template, and is replaced"),
        (false, true) => format!("{name} does not become Ready with an earlier template, and is replaced"),
        (false, false) if pod.doing() == Some(JoinPhase::Receives) => {
            let says =
                format!("{name} was made from an earlier template, and receives a copy: it is waited for");
            return Some((says, None));
        }
        (false, false) => {
            let at_once = format!("; to replace it now: kubectl -n {ns} delete pod {name}");
            // While others are to be replaced as well, G02 refuses that.
            let at_once = if cluster.rolls_without(member) { String::new() } else { at_once };
            let says = format!(
                "{name} is not Ready, and was made from an earlier template: if it stands still for {minutes} minutes it is \
                 replaced{at_once}"
            );
            return Some((says, None));
        }
    };
    let (id, pod, uid) = (cluster.id.clone(), name.clone(), pod.uid.clone());
    Some((says, Some(Box::new(Step::Evict { id, pod, uid, patience: REPLACED }))))
}

/// A server that runs is ended only where the others are known to serve, and where no other part of the guard, and no person, is at
/// work on the cluster.
fn nothing_else_goes_on(cluster: &Cluster, view: &View<'_>) -> bool {
    let bootstrap =
        matches!(bootstrap::stage(cluster, view), bootstrap::Stage::Kept(_) | bootstrap::Stage::Going(..));
    let unproven = |it: &Member| it.pod.as_ref().is_some_and(|pod| pod.ready && !pod.verified);
    !bootstrap
        && !cluster.has_no_identity()
        && cluster.workload.metadata.mark(RECOVER).is_none()
        && view.reservations.besides(cluster, "").is_none()
        && !cluster.members.iter().any(unproven)
}

/// What a pod that is not Ready does, and how long it may; `None`: it makes progress, or something else is the matter.
fn trouble(pod: &PodFact) -> Option<(&'static str, Duration)> {
    match pod.doing() {
        _ if pod.going => None,
        _ if pod.restarts >= MANY => Some(("keeps failing", Duration::ZERO)),
        _ if pod.stuck && !pod.running => Some(("keeps failing", FAILS)),
        Some(JoinPhase::Receives) => None,
        _ => Some(("does not become Ready", HANGS)),
    }
}
