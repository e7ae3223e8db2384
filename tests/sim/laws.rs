//! The laws: what must hold after every event, in spite of everything that people, faults and late watches do.
//!
//! 1. With the guard's permission (which its leader needs, too), two members are never out at once, and the majority stays.
//! 2. No acknowledged row is lost, and there are never two Primary components.
//! 3. At rest the plan is done: it has no steps except a few announcements and attempts to record the cluster's id.
//! 4. Every refusal by the guard names an existing rule, and has a complete message.
//! 5. At rest every rollout of a configuration has ended. If it was stopped, all members run the good revision.
//!
//! Must not know: what caused a state. The guard is not responsible for what people do against its advice: from then on the story
//! is *excused* from the first two laws, for a named reason, and counted.

use gatera::rulebook;
use std::collections::BTreeMap;

use engine::rules;
use leader::plan::rollout::{self, RolloutStage};
use serde_json::Value;

use super::api::{Permission, Refusal};
use super::clock::{MINUTE, Millis, SECOND};
use super::controllers::ready;
use super::galera::{Alarm, Galera};
use super::leader::{ANNOUNCE, RECORD_IDENTITY};
use super::stage::Sim;
use super::store::ordinal;

/// The reasons that excuse a story after the guard allowed a request with a warning: it could not know that the request would
/// break a law. The removal that breaks the law excuses the story from then on.
pub mod warned {
    /// G14 allows a new template while the only member keeps failing, because it may correct the failure. If the member recovers
    /// by itself (a ConfigMap was corrected), the controller restarts it all the same, with no other member left to join.
    pub const ONLY_MEMBER_ROLLED: &str =
        "the only member recovered, and was restarted for a template that the guard had allowed";
    /// A StatefulSet that is recreated with another template, after it was deleted without its pods, restarts them, even if there
    /// is only one. Nothing in a pod shows that the template differs (G14).
    pub const ONLY_MEMBER_ADOPTED: &str = "a new StatefulSet adopted the only member, and restarted it";
    /// G07 does not refuse once the StatefulSet is gone and no container of its members runs.
    pub const CLAIM_LEFT_BEHIND: &str =
        "a claim that a StatefulSet left behind was deleted, against a warning";
}

#[derive(Default)]
pub struct Laws {
    broken: Option<String>,
    excused: Option<&'static str>,
    /// What permitted the deletion of a pod, by the pod's uid.
    permissions: BTreeMap<String, Permission>,
    /// Members that are out with the guard's permission, with the uid of the pod that was removed.
    out: BTreeMap<String, String>,
    /// Members that are out for another reason, each with the time at which it failed.
    failed: BTreeMap<String, Millis>,
    /// The steps that the leader tried, as `leader.rs` describes them.
    steps: Vec<(Millis, String)>,
    /// Whether the template of a StatefulSet with one member was changed; see [`warned`].
    only_member_changed: bool,
    /// Whether the StatefulSet was created again after rows had been acknowledged.
    pub recreated: bool,
    pub judged: u64,
    /// The number of pods that were created while no replica answered.
    pub uninjected: u64,
    refusals: BTreeMap<&'static str, u64>,
    removals: u64,
}

/// How long a failure may remain unnoticed by the guard: the node controller has to notice it first, and the view may be late.
const UNNOTICED: Millis = 60 * SECOND;

/// The number of announcements allowed per minute: the plan repeats one after each restart of a member that keeps crashing.
const ANNOUNCEMENTS_PER_MINUTE: u64 = 1;

impl Laws {
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    pub fn excused(&self) -> Option<&'static str> {
        self.excused
    }

    /// Excuses the story: from now on the guard is not responsible for the members and their data.
    pub fn excuse(&mut self, why: &'static str) {
        self.excused.get_or_insert(why);
    }

    fn break_law(&mut self, law: &str) {
        self.broken.get_or_insert(law.to_owned());
    }

    /// Breaks one of the first two laws, unless the story is excused.
    fn break_unless_excused(&mut self, law: &str) {
        if self.excused.is_none() {
            self.break_law(law);
        }
    }

    /// Notes that the template of a StatefulSet changes. The guard only warns about this while the only member keeps failing.
    pub fn note_template_change(&mut self, before: Option<&Value>, after: &Value) {
        let Some(before) = before else { return };
        let to = after["replicas"].as_i64();
        let changed = after.get("template").is_some_and(|it| *it != before["spec"]["template"]);
        self.only_member_changed |= changed && to == Some(1);
    }

    /// Notes what permitted the deletion of a member's pod; the first permission counts.
    pub fn removal_permitted(&mut self, pod: &str, uid: &str, permission: Permission) {
        if ordinal(pod) >= 0 {
            self.permissions.entry(uid.to_owned()).or_insert(permission);
        }
    }

    /// Judges the removal of a Synced member, whose pod begins to stop.
    pub fn judge_removal(&mut self, pod: &str, uid: &str, asked_for: i64, galera: &Galera, now: Millis) {
        let Some(permission) = self.permissions.get(uid).copied().filter(|_| galera.synced(pod)) else {
            return;
        };
        // No replica answered, the control plane gave up on the node, or the node was already unreachable.
        if matches!(permission, Permission::FailedOpen | Permission::NodeUnreachable) {
            return;
        }
        self.removals += 1;
        if permission == Permission::ByOverride {
            self.excuse("a member was removed by an override");
        }
        let other =
            self.out.iter().find(|(other, _)| *other != pod && (0..asked_for).contains(&ordinal(other)));
        if let Some((other, other_uid)) = other {
            let permissions = [permission, self.permissions[other_uid]];
            self.break_unless_excused(&format!(
                "law 1: {pod} is removed while {other} is out, both with the guard's permission ({permissions:?})"
            ));
        }
        // A member that has failed is still seen as Ready until its failure is noticed.
        let unnoticed = self.failed.values().any(|since| now - since < UNNOTICED);
        let last = !galera.servers.keys().any(|other| other != pod && galera.synced(other));
        if last && !unnoticed {
            let rolled = permission == Permission::TemplateRollout;
            match () {
                () if rolled && self.only_member_changed => self.excuse(warned::ONLY_MEMBER_ROLLED),
                () if rolled && self.recreated && asked_for == 1 => {
                    self.excuse(warned::ONLY_MEMBER_ADOPTED);
                }
                () => self.break_unless_excused(&format!(
                    "law 1: {pod} is removed with the guard's permission ({permission:?}), and no other member serves"
                )),
            }
        }
        self.out.insert(pod.to_owned(), uid.to_owned());
    }

    /// Notes that a member fails for a reason other than a removal that the guard permitted.
    pub fn member_failed(&mut self, pod: &str, now: Millis) {
        self.failed.insert(pod.to_owned(), now);
    }

    /// Notes the members that are back, and checks that no row is lost and that there is one Primary component at most.
    pub fn check_rows(&mut self, galera: &Galera, asked_for: impl Fn(&str) -> bool) {
        let server = |pod: &str| galera.servers.get(pod);
        self.out.retain(|pod, uid| match server(pod) {
            Some(it) if it.uid == *uid => true,
            Some(_) => !galera.synced(pod),
            None => asked_for(pod),
        });
        self.failed.retain(|pod, _| !galera.synced(pod));
        let kept = galera.disks.values().filter(|it| it.complete).map(|it| it.rows).max().unwrap_or_default();
        if kept < galera.acknowledged {
            let law = format!(
                "law 2: row {} was acknowledged, but the last row on a complete disk is {kept}",
                galera.acknowledged
            );
            self.break_unless_excused(&law);
        }
        if galera.components.len() > 1 {
            self.break_unless_excused("law 2: there are two Primary components");
        }
    }

    pub fn judge_alarm(&mut self, alarm: &Alarm, galera: &Galera) {
        match alarm {
            Alarm::Founded { by, rows } if *rows < galera.acknowledged => {
                let law = format!("law 2: {by} founds a cluster with {rows} of {} rows", galera.acknowledged);
                self.break_unless_excused(&law);
            }
            Alarm::Founded { .. } => {}
            Alarm::LostPrimary { of } => {
                let no_failure =
                    galera.isolated.is_empty() && of.iter().all(|pod| !self.failed.contains_key(pod));
                if no_failure && of.iter().any(|pod| self.out.contains_key(pod)) {
                    self.break_unless_excused(&format!(
                        "law 1: the majority of {of:?} is lost with the guard's permission: none of them had failed"
                    ));
                }
            }
            // Only members without the step script do this. They were created while no replica answered; G19 warns about them.
            Alarm::Uncompared { .. } => {
                self.excuse("members without the step script formed a component without comparing positions");
            }
        }
    }

    pub fn check_refusal(&mut self, refusal: &Refusal) {
        let Some(rule) = refusal.rule else { return };
        *self.refusals.entry(rule).or_default() += 1;
        let known = rulebook().rule(rule).is_some() || rule == rules::UNREADABLE;
        if !known
            || !refusal.message.starts_with(&format!("[{rule}] "))
            || refusal.message.lines().count() < 3
        {
            self.break_law(&format!(
                "law 4: {rule} is not a rule, or refuses with an incomplete message: {}",
                refusal.message
            ));
        }
    }

    /// Notes a step that the leader tried.
    pub fn step_done(&mut self, now: Millis, step: &str) {
        self.steps.push((now, step.to_owned()));
    }

    /// Summarizes a story in numbers.
    pub fn tally(&self) -> String {
        format!(
            "{} requests judged, {} members removed, {} steps, refusals by rule {:?}",
            self.judged,
            self.removals,
            self.steps.len(),
            self.refusals
        )
    }
}

impl Sim {
    /// Checks the laws for the time of rest, which began at `since`.
    pub fn check_laws_at_rest(&mut self, since: Millis) {
        let late: Vec<_> =
            self.laws.steps.iter().filter(|(at, _)| *at >= since).map(|(_, it)| it.clone()).collect();
        let (announcements, steps): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|it| it.starts_with(ANNOUNCE));
        let minutes = (self.agenda.now - since) / MINUTE;
        // A member that does not report its cluster's id is asked less and less often.
        let done: Vec<_> = steps.iter().filter(|it| *it != RECORD_IDENTITY).collect();
        let calm = self.asked_for().filter(|replicas| *replicas > 0).is_some_and(|replicas| {
            let members = self.members();
            i64::try_from(members.len()) == Ok(replicas) && members.iter().all(|it| ready(it))
                // A member that was created while no guard ran does not report its cluster's id. The leader looks for the report
                // every ten minutes until the member is replaced.
                && self.containers.values().all(|container| container.proves_synced)
        });
        if !done.is_empty()
            || steps.len() > 3
            || announcements.len() as u64 > ANNOUNCEMENTS_PER_MINUTE * minutes
        {
            self.laws.break_law(&format!(
                "law 3: in {minutes} minutes of rest the leader tried {steps:?} and published {announcements:?}"
            ));
        } else if calm
            && self.galera.components.len() == 1
            && self.galera.isolated.is_empty()
            && !steps.is_empty()
        {
            self.laws.break_law(&format!(
                "law 3: all members are Ready, but the leader still tried steps: {steps:?}"
            ));
        }
        if calm && self.galera.components.len() == 1 && self.galera.isolated.is_empty() {
            self.check_rollouts_ended();
        }
    }

    /// Checks that no rollout is in progress, and that after a stopped one all members with a snapshot run the good revision.
    fn check_rollouts_ended(&mut self) {
        let (index, now) = (self.guard.leader, self.agenda.now);
        let broken = self.guard.with_view(index, now, |view| {
            let cluster = view.world.clusters().next()?;
            let stage = rollout::stage(cluster, view);
            let good = cluster.rollout.as_ref().map(|note| &note.good);
            let runs = cluster.members.iter().filter_map(|it| it.pod.as_ref()?.revision.as_ref());
            match stage {
                RolloutStage::Rolls(says, _) | RolloutStage::Stopped(says, Some(_)) => {
                    Some(format!("law 5: a rollout does not end: {says}"))
                }
                // A single member is never restarted.
                RolloutStage::Stopped(..) if cluster.members.len() == 1 => None,
                RolloutStage::Stopped(..) if runs.clone().any(|it| Some(it) != good) => {
                    Some("law 5: a rollout was stopped, but not all members run the good revision".to_owned())
                }
                _ => None,
            }
        });
        if let Some(law) = broken {
            self.laws.break_law(&law);
        }
    }
}
