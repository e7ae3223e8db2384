//! Whether the other members can do without the one that is removed.
//!
//! Must not know: what happens to the member itself and to its data (`one_at_a_time.rs`).

use super::super::member_removal::pause_rollout;
use super::{LeavingMember, finding};
use crate::rule::{Finding, Findings, Operation, UNTIL_SEEN, Verdict};
use facts::view::condition::{self, Condition};
use facts::view::{Id, Member, PodFact, State, transfer};
use facts::way_out::{CommandLine, WayOut, run, say};

impl LeavingMember<'_> {
    /// Returns findings if another member is missing, so that this one is needed.
    pub(super) fn others_are_needed(&self) -> Option<Findings> {
        let why = "a member that is not Ready counts as lost for the majority, and it may be receiving its data from this one";
        let ready = || run(self.cluster.wait_command()).say(", then repeat the command");
        let unknown = |says: &str, seen: String| {
            Some(vec![finding(Verdict::Unknown, format!("{says} ({seen})"), why, UNTIL_SEEN)])
        };
        let wait = |says: String, instead: WayOut| Some(vec![finding(Verdict::Wait, says, why, instead)]);
        match self.view.state(self.cluster) {
            State::Forming => return None,
            State::Unknown => {
                return unknown("it is not known whether the other members are Ready", self.view.seen());
            }
            _ if self.is_unseen() => {
                return unknown("gatera has not seen this pod yet", self.seen());
            }
            State::Down | State::Stopped => return Some(vec![self.none_is_ready()]),
            State::Healthy | State::Joining | State::Transfer | State::Degraded => {}
        }
        if let Some((other, seconds)) = self.view.reservations.other_leaving(self.cluster, &self.member.name)
        {
            let says = format!("{other} was allowed to leave {seconds}s ago ({})", self.seen());
            return wait(says, ready().or(self.restart_of_all()));
        }
        let lasting = |member| Condition::of(member, self.view).filter(|it| it.lasts());
        if let Some((says, instead)) = self.rollout_goes_on() {
            return wait(says, instead);
        }
        if let Some(pod) = self.cluster.leaving.first() {
            return wait(
                format!("{} is still leaving ({})", pod.name, self.seen()),
                "repeat the command when it is gone".into(),
            );
        }
        let (other, trouble) = self.those_that_stay().find_map(|other| Some((other, other.trouble()?)))?;
        if let (Some(own), Some(its)) = (lasting(self.member), lasting(other)) {
            let says = format!("{} {} ({})", other.name, its.description(), self.seen());
            let vain = say(format!("neither becomes Ready by waiting: this one {}", own.description()));
            let this = say("with the override of G02 on this pod: ").and(self.again());
            let other = format!("wait until it is Ready, then {}", other.name);
            return wait(says, vain.then(this).then(other));
        }
        if let Some(found) = self.on_a_switched_off_node(other) {
            return Some(vec![found]);
        }
        let is_going = other.pod.as_ref().is_some_and(|pod| pod.terminating);
        if other.starting() || is_going {
            let instead =
                transfer::way_out_if_hanging(self.cluster, other, self.view.now).unwrap_or_else(ready);
            let instead = if is_going { instead.or(self.restart_of_all()) } else { instead };
            return wait(format!("{} {trouble} ({})", other.name, self.seen()), instead);
        }
        let says = format!("{} {trouble} ({})", other.name, self.seen());
        let known = condition::way_out_of(other, self.cluster, self.view);
        let instead = known.unwrap_or_else(|| run(self.cluster.status_command()));
        Some(vec![finding(Verdict::Deny, says, why, instead)])
    }

    /// Returns the command that restarts every member in turn. A repeated deletion of all pods begins with the same pod again.
    fn restart_of_all(&self) -> WayOut {
        if self.cluster.workload.spec.update_strategy.on_delete()
            || self.review.operation != Operation::Delete
        {
            return WayOut::default();
        }
        let Id { namespace, name } = &self.cluster.id;
        let restart = format!("kubectl -n {namespace} rollout restart statefulset {name}");
        say("to restart every member in turn, with all members Ready: ").run(CommandLine::new(restart))
    }

    /// Returns the other members, except those whose pods are not created before this one is Ready.
    fn those_that_stay(&self) -> impl Iterator<Item = &Member> {
        self.others().filter(|other| !self.cluster.waits_for(other, self.member))
    }

    /// Returns a finding if the node of another member has the out-of-service taint: its pod never becomes Ready.
    fn on_a_switched_off_node(&self, other: &Member) -> Option<Finding> {
        let name = &other.name;
        let node = &other.pod.as_ref()?.node;
        self.view.node(node).filter(|it| it.out_of_service())?;
        Some(finding(
            Verdict::Wait,
            format!("{name} is on node {node}, which is out of service ({})", self.seen()),
            "a member that is gone counts as lost for the majority",
            run(self.cluster.wait_command())
                .say(format!(
                    ", while {name} is created on another node. If its volume exists on {node} only, bring that node back, or delete \
                     the claim: "
                ))
                .page("G07"),
        ))
    }

    /// Returns the text and the way out of a finding if a rollout is under way: its controller restarts the next member as soon
    /// as all are Ready, without regard to this deletion.
    fn rollout_goes_on(&self) -> Option<(String, WayOut)> {
        let id = &self.cluster.id;
        let Self { cluster, member, .. } = *self;
        // Waiting does not help a late member that has an earlier template.
        let in_vain = |pod: &PodFact| cluster.is_earlier(pod) && pod.is_late(self.view.now);
        let is_in_vain = member.pod.as_deref().is_some_and(in_vain);
        if is_in_vain || !cluster.rolls_without(member) || !self.those_that_stay().all(Member::ready) {
            return None;
        }
        let (ns, name, seen) = (&id.namespace, &id.name, self.seen());
        if self.is_ready() {
            return Some((
                format!(
                    "a rollout of StatefulSet {name} is under way and restarts the next member by itself ({seen})"
                ),
                run(CommandLine::new(format!("kubectl -n {ns} rollout status statefulset {name}")))
                    .say(", and repeat the command when it is done"),
            ));
        }
        self.member.starting().then(|| {
            (
                format!("it is not Ready yet, and as soon as it is, the rollout of StatefulSet {name} restarts the next member ({seen})"),
                say("wait until it is Ready").or(say("if it hangs, ").and(pause_rollout(self.cluster))),
            )
        })
    }

    fn none_is_ready(&self) -> Finding {
        let known = condition::way_out_of(self.member, self.cluster, self.view);
        finding(
            Verdict::Deny,
            format!("no member of its cluster is Ready, and its server runs ({})", self.seen()),
            "members that lost contact form the cluster again by themselves if all members of their last view reach each other; one that \
             is restarted may lose that view",
            known
                .unwrap_or_default()
                .or(say("wait some minutes; if they have not formed the cluster by then, start it from its newest data: ")
                    .run(self.cluster.recover_command()))
                .then(self.cluster.status_command())
                .say(" shows what each member does"),
        )
    }
}
