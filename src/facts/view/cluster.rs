//! One cluster: a Galera StatefulSet with its members, their claims and the bootstrap node beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::beside::{self, Bootstrap};
use super::claim::{self, MemberClaim};
use super::{Facts, Id, PodFact, RolloutRecord, State};
use crate::galera::identity::Identity;
use crate::galera::start_report::{JoinPhase, StartReport};
use crate::galera::{adopt, server};
use crate::marks;
use crate::marks::recovery::Recovery;
use crate::revision::{self, Revision, UnknownRevision};
use objects::{Container, PodSpec, Workload};

/// A member that should exist.
#[derive(Clone, Debug)]
pub struct Member {
    pub ordinal: i64,
    /// The name of its pod, whether or not the pod exists.
    pub name: String,
    pub pod: Option<Arc<PodFact>>,
    /// A pod that reads its data, because its own pod has never run.
    pub reader: Option<Arc<PodFact>>,
}

impl Member {
    /// Returns whether the member is Ready, and not being deleted.
    pub fn ready(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.ready)
    }

    /// Returns whether the member is starting: its pod exists and may become Ready by waiting.
    pub fn starting(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| !pod.ready && !pod.terminating && !pod.stuck)
    }

    /// Returns whether the pod has never run because no node takes it, or because nothing can be started in it.
    pub fn does_not_run(&self) -> bool {
        let held_up = |pod: &PodFact| pod.node.is_empty() || pod.stuck || pod.lacks_an_image;
        self.pod.as_deref().is_some_and(|pod| !pod.has_run && !pod.terminating && held_up(pod))
    }

    /// Returns whether the member served, is not Ready now, and does not receive a state transfer.
    fn has_stopped_serving(&self) -> bool {
        self.pod
            .as_ref()
            .is_some_and(|pod| !pod.ready && pod.seen.is_some_and(|phase| phase != JoinPhase::Receives))
    }

    /// Returns whether the member reported that it receives a state transfer.
    pub(super) fn receives(&self) -> bool {
        self.pod.as_ref().filter(|pod| !pod.ready).and_then(|pod| pod.phase()) == Some(JoinPhase::Receives)
    }

    /// Returns why the member is not Ready, in a few words.
    pub fn trouble(&self) -> Option<&'static str> {
        match &self.pod {
            None => Some("does not exist"),
            Some(pod) if pod.terminating => Some("is being deleted"),
            Some(pod) if pod.ready => None,
            Some(pod) if !pod.has_run && pod.held_up_by.is_some() => Some("cannot start"),
            Some(pod) if pod.stuck => Some("keeps failing"),
            Some(_) => Some("is not Ready yet"),
        }
    }
}

/// A Galera StatefulSet with everything that belongs to it.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Namespace and name of the StatefulSet.
    pub id: Id,
    /// The StatefulSet; if it is gone, as its pods show it.
    pub workload: Arc<Workload>,
    /// Whether the StatefulSet was deleted while its members still run: nothing replaces them.
    pub orphaned: bool,
    /// The members that should exist, by ordinal.
    pub members: Vec<Member>,
    /// Pods of the StatefulSet beyond its replicas: they are leaving.
    pub leaving: Vec<Arc<PodFact>>,
    /// Pods that read, or have read, the data of members.
    pub readers: Vec<Arc<PodFact>>,
    /// All claims made from its templates.
    pub claims: Vec<MemberClaim>,
    pub bootstrap: Bootstrap,
    /// The votes of Ready arbitrators, which hold no data.
    pub arbitrators: i64,
    /// The revision that a server would read from its ConfigMaps if it started now.
    pub live: Result<Revision, UnknownRevision>,
    /// The record of its rollout.
    pub rollout: Option<RolloutRecord>,
    identity: Option<Identity>,
    recovery: Option<Box<Recovery>>,
}

impl Cluster {
    /// Returns the claims of members that are gone. They are kept, with their data.
    pub fn left_claims(&self) -> impl Iterator<Item = &MemberClaim> {
        self.claims.iter().filter(|claim| self.members.iter().all(|member| member.ordinal != claim.ordinal))
    }

    /// Returns the number of members that the cluster had when it was stopped; `None`: its claims do not record it.
    pub fn stopped_members(&self) -> Option<i64> {
        self.claims.iter().filter_map(|claim| Some(claim.stopped.as_ref()?.of)).max()
    }

    /// Returns whether its claims outlive its StatefulSet.
    pub fn keeps_claims(&self) -> bool {
        let policy = &self.workload.spec.persistent_volume_claim_retention_policy;
        // An owner that the policy set on a claim stays if the policy changes while no pod exists.
        policy.when_deleted != "Delete" && !self.claims.iter().any(|claim| claim.owned)
    }

    /// Returns whether it was stopped in order, and none of its pods exists.
    pub fn is_stopped(&self) -> bool {
        self.workload.replicas() == 0 && self.pods().next().is_none() && self.stopped_members().is_some()
    }

    pub(super) fn gather(id: Id, workload: Arc<Workload>, facts: &Facts) -> Self {
        // If the template itself carries the mark, its pods carry it whether or not they were injected, and it proves
        // nothing.
        let mark_proves_nothing = workload.spec.template.metadata.mark(marks::INJECTED).is_some();
        let without_false_proof = |pod: &Arc<PodFact>| {
            if mark_proves_nothing && pod.verified {
                Arc::new(PodFact { verified: false, ..PodFact::clone(pod) })
            } else {
                Arc::clone(pod)
            }
        };
        let mut pods: BTreeMap<&str, Arc<PodFact>> =
            facts.pods_of(&id).map(|pod| (&*pod.name, without_false_proof(pod))).collect();
        let claims = claim::of(&id, &workload, facts);
        let readers: Vec<_> = facts.readers_of(&id).map(Arc::clone).collect();
        // A mistyped number of replicas must not cost a billion entries: members beyond this bound are not tracked.
        let members = workload.ordinals().take(MOST_MEMBERS).map(|ordinal| {
            let name = format!("{}-{ordinal}", id.name);
            let pod = pods.remove(&*name);
            let reader = pod.as_deref().and_then(|pod| reader(pod, &readers, &claims, ordinal));
            Member { ordinal, name, pod, reader }
        });
        let members = members.collect();
        // While the StatefulSet exists, a pod that it does not own is not leaving, although it is named like a member.
        let gone = !facts.stateful_sets.contains_key(&id);
        let leaving = pods.into_values().filter(|pod| gone || pod.orphan_of.is_none()).collect();
        let (bootstrap, arbitrators) = beside::of(&id, &workload, facts);
        let identity = workload.metadata.mark(marks::IDENTITY).and_then(Identity::read);
        let live = live(&id, &workload, facts);
        let rollout = workload.metadata.mark(marks::CONFIGURATION).and_then(RolloutRecord::read);
        let recovery = recovery(&workload).map(Box::new);
        Self {
            id,
            workload,
            orphaned: gone,
            members,
            leaving,
            readers,
            claims,
            bootstrap,
            arbitrators,
            live,
            rollout,
            identity,
            recovery,
        }
    }

    /// Returns the name of the cluster in its pods' labels, by which the objects of a bootstrap node refer to it.
    pub fn instance(&self) -> Option<&str> {
        adopt::instance(&self.workload.spec.template.metadata.labels)
    }

    /// Returns whether members hold or held data: the mark says so, a member is Ready, or, without a mark, a claim is
    /// Bound. If the StatefulSet was deleted, there is no mark; if it also had no claim templates, pods that have run
    /// hold the data.
    pub fn has_data(&self) -> bool {
        let without_claims = self.orphaned && self.workload.spec.volume_claim_templates.is_empty();
        let holds_data =
            |member: &Member| without_claims && member.pod.as_ref().is_some_and(|pod| pod.has_run);
        match self.workload.metadata.mark(marks::DATA) {
            Some("none") => self.ready() > 0,
            Some(_) => true,
            None => {
                let claimed = self.claims.iter().any(|claim| claim.bound);
                self.ready() > 0 || claimed || self.members.iter().any(holds_data)
            }
        }
    }

    /// Returns the pod template's spec, and the server in it.
    pub fn server(&self) -> Option<(&PodSpec, &Container)> {
        let template = &self.workload.spec.template;
        Some((&template.spec, server::of(template)?))
    }

    /// Returns its identity, if that is recorded.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Returns the recovery that was requested and that the guard confirmed; it may have ended.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_deref()
    }

    /// Returns whether it is known to have no identity: its members formed it without comparing their data.
    pub fn has_no_identity(&self) -> bool {
        self.workload.metadata.mark(marks::IDENTITY) == Some(marks::NONE)
    }

    /// Returns all its pods that exist: members, those that leave, and the bootstrap node.
    pub fn pods(&self) -> impl Iterator<Item = &PodFact> {
        let members = self.members.iter().filter_map(|member| member.pod.as_ref());
        members.chain(&self.leaving).chain(&self.bootstrap.pods).map(Arc::as_ref)
    }

    /// Returns one of its pods that exist, member or leaving.
    pub fn pod(&self, name: &str) -> Option<&PodFact> {
        let members = self.members.iter().filter_map(|member| member.pod.as_ref());
        members.chain(&self.leaving).find(|pod| pod.name == name).map(Arc::as_ref)
    }

    /// Returns the member with a pod of this name.
    pub fn member(&self, pod: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == pod)
    }

    /// Returns members that are not Ready, with the start that each reported.
    pub fn start_reports(&self) -> impl Iterator<Item = (&str, &StartReport)> {
        let unready = self.members.iter().filter(|member| !member.ready());
        unready.filter_map(|member| Some((&*member.name, member.pod.as_ref()?.start_report.as_deref()?)))
    }

    /// Returns the number of Ready members.
    pub fn ready(&self) -> usize {
        self.members.iter().filter(|member| member.ready()).count()
    }

    /// Returns Ready members without a valid mark of injection: their Ready does not prove Synced.
    pub fn unverified(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.pod.as_ref().is_some_and(|pod| pod.ready && !pod.verified))
    }

    /// Returns whether its controller is about to replace pods by those of a newer template, or whether that is unknown.
    /// The status of the StatefulSet does not show all of these pods: after a rollout that was undone half-way, and
    /// after the adoption of pods of an earlier StatefulSet, it counts only the pods of one template.
    pub fn rolls(&self) -> bool {
        self.workload.rolls() || self.members.iter().any(|member| self.is_to_be_replaced(member))
    }

    /// Returns what [`Self::rolls`] will return once this member has been re-created, so that its controller does not have
    /// to replace it any more.
    pub fn rolls_without(&self, member: &Member) -> bool {
        let is_another = |it: &Member| it.ordinal != member.ordinal && self.is_to_be_replaced(it);
        self.workload.rolls() || self.members.iter().any(is_another)
    }

    fn is_to_be_replaced(&self, member: &Member) -> bool {
        let reached = member.ordinal >= self.workload.first_updated_ordinal();
        reached && member.pod.as_ref().is_some_and(|pod| !pod.terminating && self.is_earlier(pod))
    }

    /// Returns whether this pod was created from a template other than the newest.
    pub fn is_earlier(&self, pod: &PodFact) -> bool {
        let newest = &*self.workload.status.update_revision;
        ![&*pod.template, newest].contains(&"") && pod.template != newest
    }

    /// Returns whether the pod of `later` is created only when `member`, which is not Ready and comes before it, has
    /// become Ready.
    pub fn waits_for(&self, later: &Member, member: &Member) -> bool {
        let comes_later = later.pod.is_none() && later.ordinal > member.ordinal;
        comes_later && !member.ready() && !self.workload.parallel() && !self.orphaned
    }

    /// Returns whether this member is Ready or becomes so by waiting: its pod starts, or is created when the one before
    /// it is Ready.
    fn will_be_ready(&self, member: &Member) -> bool {
        member.ready() || member.starting() || member.pod.is_none() && self.is_created_in_turn(member)
    }

    /// Returns whether the pod of this member is created in turn: a member before it starts, and each one before it
    /// is Ready, starting or not created yet.
    pub(super) fn is_created_in_turn(&self, member: &Member) -> bool {
        let mut before = self.members.iter().take_while(|earlier| earlier.ordinal < member.ordinal);
        !self.workload.parallel()
            && before.clone().any(Member::starting)
            && before.all(|earlier| earlier.ready() || earlier.starting() || earlier.pod.is_none())
    }

    /// Returns the state, which is true only if the facts are current.
    pub fn state(&self) -> State {
        let none_leaves = self.leaving.is_empty();
        let is_complete = none_leaves && !self.members.is_empty() && self.members.iter().all(Member::ready);
        let all_will_be_ready = || {
            none_leaves
                && self
                    .members
                    .iter()
                    .all(|member| self.will_be_ready(member) && !member.has_stopped_serving())
        };
        match (self.has_data(), self.ready()) {
            _ if is_complete && (self.has_no_identity() || self.orphaned) => State::Degraded,
            _ if is_complete => State::Healthy,
            (false, _) => State::Forming,
            (true, 0) if self.is_stopped() => State::Stopped,
            (true, 0) => State::Down,
            _ if !all_will_be_ready() => State::Degraded,
            _ if self.members.iter().any(Member::receives) => State::Transfer,
            _ => State::Joining,
        }
    }

    /// Returns "3 of 3 members Synced", or how many are Ready if that does not prove Synced; for a stopped cluster, how many
    /// members it had, and since when.
    pub fn count(&self) -> String {
        let records = self.claims.iter().filter_map(|claim| claim.stopped.as_ref());
        if let (true, Some(members), Some(last)) =
            (self.is_stopped(), self.stopped_members(), records.max_by_key(|record| record.since))
        {
            let by = if last.by.is_empty() { String::new() } else { format!(" by {}", last.by) };
            return format!("its {members} members were stopped in order at {}{by}", last.since);
        }
        let word = if self.unverified().next().is_some() { "Ready (not proven Synced)" } else { "Synced" };
        format!("{} of {} members {word}", self.ready(), self.workload.replicas())
    }

    /// Returns the count, and the first problem: a member that is not Ready, a pod that is leaving, or a missing identity
    /// or StatefulSet.
    pub fn describe(&self) -> String {
        let mut text = self.count();
        if let Some((member, trouble)) =
            self.members.iter().find_map(|member| Some((member, member.trouble()?)))
        {
            let _ = write!(text, ", {} {trouble}", member.name);
        } else if let Some(pod) = self.leaving.first() {
            let _ = write!(text, ", {} is leaving", pod.name);
        } else if self.has_no_identity() {
            text.push_str(", without an identity");
        } else if self.orphaned {
            text.push_str(", without a StatefulSet");
        }
        text
    }
}

/// The largest number of members that are tracked: more than any Galera cluster has.
const MOST_MEMBERS: usize = 1000;

/// Returns the recovery that a person requested and the guard confirmed with the same text: neither annotation counts alone.
fn recovery(workload: &Workload) -> Option<Recovery> {
    let (requested, confirmed) =
        (workload.metadata.mark(marks::RECOVER)?, workload.metadata.mark(marks::RECOVERY)?);
    Recovery::of(confirmed).ok().filter(|_| requested == confirmed)
}

/// Returns the pod that reads the data for exactly this pod, unless this pod has run: then the data may have changed
/// since. The reader must have a claim of this member, and none of another.
fn reader(
    pod: &PodFact,
    readers: &[Arc<PodFact>],
    claims: &[MemberClaim],
    ordinal: i64,
) -> Option<Arc<PodFact>> {
    let own_claims: Vec<_> =
        claims.iter().filter(|claim| claim.ordinal == ordinal).map(|claim| &claim.name).collect();
    let is_of_another =
        |name: &String| claims.iter().any(|claim| claim.ordinal != ordinal && claim.name == *name);
    let is_reader = |candidate: &&Arc<PodFact>| {
        candidate.reads.as_ref().is_some_and(|reads| {
            let reads_this_pod = reads.member == pod.name && reads.uid == pod.uid;
            reads_this_pod
                && own_claims.iter().any(|claim| reads.claims.contains(claim))
                && !reads.claims.iter().any(is_of_another)
        })
    };
    readers.iter().find(is_reader).filter(|_| !pod.has_run).map(Arc::clone)
}

/// Returns the revision that its servers would read now.
fn live(id: &Id, workload: &Workload, facts: &Facts) -> Result<Revision, UnknownRevision> {
    let template = &workload.spec.template;
    let sources = server::of(template).map(|server| revision::sources(&template.spec, server));
    let sources = sources.unwrap_or_default();
    let contents = |name: &str| facts.contents.get(&Id::new(&id.namespace, name)).map(AsRef::as_ref);
    Revision::of(&sources, contents).map_err(|problem| facts.with_cause(&id.namespace, problem))
}
