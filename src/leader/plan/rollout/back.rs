//! When a rollout is given up, and the way back: to the previous configuration, and out of a template that was
//! reverted.
//!
//! Must not know: how a rollout continues (`plan/rollout.rs`).

use std::time::Duration;

use super::super::bootstrap::{self, BootstrapStage};
use super::super::{Announcement, LeaderStep};
use super::turn::fails;
use super::{Rollout, RolloutStage, STOPPED, WAITS, evict};
use facts::galera::start_report::JoinPhase;
use facts::marks::RECOVER;
use facts::revision::Revision;
use facts::view::{Cluster, GivenUpRevision, Member, PodFact, RolloutRecord, RolloutRequest, View};

/// The time for which a member must keep failing before its revision is given up: longer than one failed start, which
/// happens to a joiner. It is the length of the second back-off of a container that fails.
const FAILING_TIME: Duration = Duration::from_secs(20);
/// The number of restarts after which a member counts as failing: a joiner may restart a few times on a busy node.
const MAX_RESTARTS: i64 = 5;
/// The time without progress after which a pod hangs.
const HANGING_TIME: Duration = facts::view::HANGS_AFTER.unsigned_abs();
/// The time for which the replacement of a pod with an earlier template must be due. With `Parallel` the StatefulSet
/// controller itself replaces a broken pod of a template that is no longer wanted, and also one whose phase is Failed.
/// With `OrderedReady` it waits until that pod is Ready, without a limit (still in Kubernetes 1.36).
const REPLACEMENT_DELAY: Duration = Duration::from_secs(30);

impl Rollout<'_, '_> {
    /// Returns the stage of a member that started with the new revision and is not Ready, if there is one. A member
    /// that fails takes precedence over one that waits.
    pub(super) fn unready_stage(&self, revision: &Revision) -> Option<RolloutStage> {
        let unready = || {
            let members = self.cluster.members.iter();
            members.filter(|it| Self::runs(it) == Some(revision) && !it.ready())
        };
        unready()
            .find(|it| fails(it))
            .or_else(|| unready().next())
            .map(|member| self.member_stage(member, revision))
    }

    fn member_stage(&self, member: &Member, revision: &Revision) -> RolloutStage {
        let (names, name) = (self.changes(revision), &member.name);
        if member.pod.as_ref().is_some_and(|pod| pod.lacks_an_image) {
            let says = format!("{name} cannot start with {names}, because its image is not available");
            let pod = format!("kubectl -n {} describe pod {name}", self.cluster.id.namespace);
            let event = format!(
                "{says}: {pod} shows why; no other member restarts until the image is there or the change is reverted"
            );
            let event = LeaderStep::Announce(Announcement { reason: WAITS, note: event });
            return RolloutStage::Rolls(says, Some(Box::new(event)));
        }
        let starts = format!("{name} starts with {names}");
        let Some((does, patience)) = member.pod.as_ref().and_then(|pod| trouble(pod)) else {
            return RolloutStage::Rolls(starts, None);
        };
        // While no member serves, no configuration lets a member become Ready.
        if patience == HANGING_TIME && self.cluster.ready() == 0 {
            return RolloutStage::Rolls(starts, None);
        }
        let ended = member.pod.as_ref().and_then(|pod| pod.ended());
        let ended = ended.map(|ended| format!(" ({ended})")).unwrap_or_default();
        let why = format!("{name} {does} with {names}{ended}");
        // At first, every start looks like one that hangs.
        let says = if patience == HANGING_TIME { starts } else { why.clone() };
        self.give_up(revision, says, why, patience)
    }

    /// Gives the revision up: no other member starts with it, and those that did go back.
    pub(super) fn give_up(
        &self,
        revision: &Revision,
        says: String,
        why: String,
        patience: Duration,
    ) -> RolloutStage {
        let event = format!(
            "{why}: it returns to the previous configuration, and no other member restarts; its log is lost with its pod unless logs are collected; correct {}, or revert the change ({revision})",
            revision.config_maps()
        );
        let retried = RolloutRequest::of(&self.cluster.workload.metadata).and_then(RolloutRequest::retry);
        let stopped = GivenUpRevision { revision: revision.clone(), why, retried };
        let record = RolloutRecord { good: self.record.good.clone(), next: None, stopped: Some(stopped) };
        self.write(says, record, Some((STOPPED, event)), patience)
    }

    /// Restarts members that run a revision which is neither good nor wanted, first those that are not Ready. If `only_failing`,
    /// restarts no others than those that fail.
    pub(super) fn return_to_good(&self, only_failing: bool) -> Option<RolloutStage> {
        let good = &self.record.good;
        if self.record.next.is_some() {
            return None;
        }
        let rolls = self.cluster.rolls();
        let is_live = |it: Option<&Revision>| self.cluster.live.as_ref().ok() == it;
        // A person who also changed the template wants members to start with both changes, except for members that the
        // new template does not reach.
        let newest = &self.cluster.workload.status.update_revision;
        let given_up = self.cluster.live.as_ref().is_ok_and(|live| self.is_given_up(live));
        let is_intended =
            |it: &Member| rolls && !given_up && it.pod.as_ref().is_some_and(|pod| pod.template == *newest);
        // A pod that was created without the guard reads the live ConfigMap, which was given up.
        let other = self.cluster.live.as_ref().is_ok_and(|live| live != good);
        let reads_live = |it: &Member| Self::runs(it).is_none() && other && fails(it) && !is_intended(it);
        let must_return = |it: &Member| {
            self.runs_unproven(it) && (!rolls || fails(it) && !(is_intended(it) && is_live(Self::runs(it))))
        };
        let is_returned = |it: &&Member| (must_return(it) || reads_live(it)) && (!only_failing || fails(it));
        if !self.is_kept(good) {
            let why = format!("members cannot return to {good}, because no snapshot of it is kept");
            return self
                .cluster
                .members
                .iter()
                .any(|it| is_returned(&it))
                .then_some(RolloutStage::Stopped(why, None));
        }
        let members = || self.cluster.members.iter().rev().filter(is_returned);
        let member = members().find(|it| !it.ready()).or_else(|| members().next())?;
        let why = self.record.stopped.as_ref().map(|it| format!("{}; ", it.why)).unwrap_or_default();
        Some(match self.need_of_others(member) {
            Some(waits) => RolloutStage::Stopped(
                format!("{why}{} returns to the previous configuration later: {waits}", member.name),
                None,
            ),
            None => RolloutStage::Stopped(
                format!("{why}{} returns to the previous configuration", member.name),
                evict(member, Duration::ZERO),
            ),
        })
    }
}

/// Replaces a pod that is not Ready and was created from an earlier template: the StatefulSet controller waits until that
/// pod is Ready, even if that template was reverted. The pod is replaced when it keeps failing, or when it hangs.
pub(super) fn earlier_template_step(
    cluster: &Cluster,
    view: &View<'_>,
) -> Option<(String, Option<Box<LeaderStep>>)> {
    let workload = &cluster.workload;
    // Replacing a pod does not help if it would be created from the same template again.
    let gets_another =
        |it: &Member| it.ordinal >= workload.first_updated_ordinal() && workload.creates_newest(it.ordinal);
    let unready = |pod: &PodFact| !pod.ready && !pod.terminating && cluster.is_earlier(pod);
    let member =
        cluster.members.iter().find(|it| gets_another(it) && it.pod.as_deref().is_some_and(unready))?;
    let pod = member.pod.as_ref().filter(|_| workload.is_observed() && cluster.leaving.is_empty())?;
    // The other members must be Ready; those behind it may be missing, because they are created only when it is Ready.
    let mut others = cluster.members.iter().filter(|it| it.ordinal != member.ordinal);
    if cluster.ready() == 0 || !others.all(|it| it.ready() || cluster.waits_for(it, member)) {
        return None;
    }
    let (ns, name, minutes) = (&cluster.id.namespace, &pod.name, HANGING_TIME.as_secs() / 60);
    let says = match (
        pod.stuck && !pod.running,
        pod.hangs(view.now) && nothing_else_is_under_way(cluster, view),
    ) {
        (true, _) => format!("{name} keeps failing with an earlier template and is replaced"),
        (false, true) => format!("{name} does not become Ready with an earlier template and is replaced"),
        (false, false) if pod.phase() == Some(JoinPhase::Receives) => {
            let says = format!(
                "{name} was created from an earlier template and receives a state transfer: the guard waits for it"
            );
            return Some((says, None));
        }
        (false, false) => {
            let at_once = format!("; to replace it now: kubectl -n {ns} delete pod {name}");
            // While other members are to be replaced as well, G02 refuses that.
            let at_once = if cluster.rolls_without(member) { String::new() } else { at_once };
            let says = format!(
                "{name} was created from an earlier template and is not Ready: after {minutes} minutes without progress it is replaced{at_once}"
            );
            return Some((says, None));
        }
    };
    Some((says, evict(member, REPLACEMENT_DELAY)))
}

/// Returns whether a running server may be ended: the others are known to serve, and neither another part of the guard
/// nor a person changes the cluster.
fn nothing_else_is_under_way(cluster: &Cluster, view: &View<'_>) -> bool {
    let bootstrap =
        matches!(bootstrap::stage(cluster, view), BootstrapStage::Kept(_) | BootstrapStage::Going(..));
    let unproven = |it: &Member| it.pod.as_ref().is_some_and(|pod| pod.ready && !pod.verified);
    !bootstrap
        && !cluster.has_no_identity()
        && cluster.workload.metadata.mark(RECOVER).is_none()
        && view.reservations.other_leaving(cluster, "").is_none()
        && !cluster.members.iter().any(unproven)
}

/// Returns what is wrong with the server of a pod that is not Ready, and how long that may last; `None`: the server makes
/// progress, or the pod is being deleted.
fn trouble(pod: &PodFact) -> Option<(&'static str, Duration)> {
    match pod.phase() {
        _ if pod.terminating => None,
        _ if pod.restarts >= MAX_RESTARTS => Some(("keeps failing", Duration::ZERO)),
        _ if pod.stuck && !pod.running => Some(("keeps failing", FAILING_TIME)),
        Some(JoinPhase::Receives) => None,
        _ => Some(("does not become Ready", HANGING_TIME)),
    }
}
