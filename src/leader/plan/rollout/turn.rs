//! Which member restarts next, and why none does now.
//!
//! Must not know: which configuration members restart with, or why.

use super::super::bootstrap::{self, BootstrapStage};
use super::Rollout;
use facts::revision::Revision;
use facts::view::{Member, PodFact};

impl<'a> Rollout<'a, '_> {
    /// Returns the next member to start with this revision: one that fails already, or else one that was created without
    /// the guard, or else the one with the highest ordinal.
    pub(super) fn next_for(&self, revision: &Revision) -> Option<&'a Member> {
        let held_back = self.cluster.workload.first_updated_ordinal();
        let other = |it: &&Member| Self::runs(it) != Some(revision) && it.ordinal >= held_back;
        let members = || self.cluster.members.iter().rev().filter(other);
        let with =
            |is: &dyn Fn(&PodFact) -> bool| members().find(|it| it.pod.as_ref().is_some_and(|pod| is(pod)));
        with(&|pod| pod.stuck).or_else(|| with(&|pod| !pod.verified)).or_else(|| members().next())
    }

    /// Returns why this member does not restart now; `None`: it may. All others must be healthy. The member itself may fail,
    /// or run a revision that is not good.
    pub(super) fn wait_reason(&self, member: &Member) -> Option<String> {
        let may_be_unready = fails(member) || self.runs_unproven(member);
        let waits = !member.ready() && !may_be_unready;
        waits.then(|| self.cluster.describe()).or_else(|| self.need_of_others(member))
    }

    /// Returns whether the member runs a revision that is not known to be good.
    pub(super) fn runs_unproven(&self, member: &Member) -> bool {
        Self::runs(member).is_some_and(|it| *it != self.record.good)
    }

    /// Returns why the cluster needs this member now, whether it is Ready or not. A member that fails is not needed.
    pub(super) fn need_of_others(&self, member: &Member) -> Option<String> {
        let Self { cluster, view, .. } = self;
        if fails(member) {
            return None;
        }
        if cluster.has_no_identity() {
            return Some(
                "the cluster has no identity, so a member that restarts could not join again: see gatera explain G04"
                    .to_owned(),
            );
        }
        let workload = &cluster.workload;
        let mut others = cluster.members.iter().filter(|it| it.ordinal != member.ordinal);
        let complete = i64::try_from(cluster.members.len()) == Ok(workload.replicas());
        if !complete || !cluster.leaving.is_empty() || !others.clone().all(Member::ready) {
            return Some(cluster.describe());
        }
        if cluster.rolls() {
            return Some(super::TEMPLATE_ROLLS.to_owned());
        }
        if let BootstrapStage::Kept(_) | BootstrapStage::Going(..) = bootstrap::stage(cluster, view) {
            return Some("the bootstrap node still exists".to_owned());
        }
        if let Some((pod, _)) = view.reservations.other_leaving(cluster, "") {
            return Some(format!("{pod} was allowed to leave moments ago"));
        }
        if cluster.members.len() == 1 {
            return Some("the cluster has only one member, so a restart would stop it".to_owned());
        }
        let unproven = others.find(|it| it.pod.as_ref().is_some_and(|pod| !pod.verified))?;
        Some(format!(
            "{} is Ready, but nothing proves that it is Synced: `gatera status` shows what to do",
            unproven.name
        ))
    }

    /// Returns why the remaining members do not restart, after all others have.
    pub(super) fn hold_reason(&self) -> String {
        if self.cluster.workload.spec.update_strategy.on_delete() {
            "its updateStrategy is OnDelete, so a member restarts only when you delete its pod".to_owned()
        } else {
            format!(
                "members below {} are held back by the partition of its updateStrategy",
                self.cluster.workload.first_updated_ordinal()
            )
        }
    }
}

/// Returns whether the server keeps failing, or does not even start. Other containers of its pod do not count.
pub(super) fn fails(member: &Member) -> bool {
    member.pod.as_ref().is_some_and(|pod| pod.stuck && !pod.running && !pod.terminating)
}
