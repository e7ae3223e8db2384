//! The next step of `gatera passwd`: a pure function of what was observed, called again after every look at the
//! cluster, as for `gatera stop`.
//!
//! MariaDB accepts both passwords from before the Secret changes until everything that reads the Secret has restarted;
//! only then does MariaDB stop accepting the other password. So each password that a reader holds is accepted at all
//! times. Nothing is remembered between two looks: a command that was killed continues where it was when you run it
//! again, and a change is reversed by the same steps with the other target.

#[cfg(test)]
mod search;

use std::collections::BTreeSet;

use facts::galera::accounts::{Account, Password};
use facts::galera::driver;
use facts::marks::RECOVER;
use facts::view::condition;
use facts::view::{Cluster, Member, State, View};
use jiff::{SignedDuration, Timestamp};

/// The time after a write of the Secret within which a new pod may still get the earlier value: its kubelet may not
/// have seen the write, and two API servers may disagree about the time.
pub const KUBELET_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// One of the two passwords of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichPassword {
    Old,
    New,
}

impl WhichPassword {
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

/// A change of a password: the account, the key of the Secret that holds its password, and both passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordChange {
    pub account: String,
    pub secret: String,
    pub key: String,
    pub old: Password,
    pub new: Password,
    pub underway: Option<Underway>,
}

impl PasswordChange {
    #[must_use]
    pub fn password(&self, which: WhichPassword) -> &Password {
        match which {
            WhichPassword::Old => &self.old,
            WhichPassword::New => &self.new,
        }
    }
}

/// The progress of a change that is under way, as the command's own Secret records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// The password that remains at the end.
    pub target: WhichPassword,
    /// An id that differs for each change, and changes when a change is reversed.
    pub turn: String,
    /// Whether the Secret may have been written, so that a reader may hold the new password.
    pub touched: bool,
    /// Whether all readers hold the target, and MariaDB is about to stop accepting the other password: the change can no
    /// longer be reversed.
    pub sealed: bool,
}

/// The state of the Secret's key that members read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretState {
    /// The password that the key holds; `None`: neither of the two.
    pub holds: Option<WhichPassword>,
    /// The turn in which this command wrote the Secret, and when.
    pub written: Option<(String, Timestamp)>,
}

/// The account as one member has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountOnMember {
    pub member: String,
    /// The account at each of its hosts.
    pub accounts: Vec<Account>,
    /// Whether a client in the member's pod logs in with the old and with the new password.
    pub logs_in: [bool; 2],
}

/// A pod that reads the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadingPod {
    pub name: String,
    pub created: Timestamp,
    /// Kind and name of the workload whose restart replaces the pod; `None`: no workload does.
    pub workload: Option<(String, String)>,
}

/// What one look showed, from which the next step follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Why nothing may be done at the moment.
    pub not_now: Option<String>,
    pub change: PasswordChange,
    pub secret_state: SecretState,
    pub members: Vec<AccountOnMember>,
    pub readers: Vec<ReadingPod>,
}

/// The next step of a change, for `gatera passwd` to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordStep {
    Wait(String),
    Cannot(String),
    /// Record both passwords in a Secret of the command's own.
    Begin,
    /// Let the account accept both passwords: clauses of `ALTER USER`.
    AcceptBoth(Vec<String>),
    /// Write the target to the Secret.
    Write,
    /// Restart these workloads, because these pods may hold the other password.
    Restart {
        workloads: BTreeSet<(String, String)>,
        pods: Vec<String>,
    },
    /// Every reader holds the target, and both passwords are accepted.
    Both,
    /// Record that MariaDB is about to stop accepting the other password.
    Seal,
    /// Let the account accept the target only.
    End(Vec<String>),
    /// Remove the mark and the command's own Secret.
    Finish,
}

/// Returns the next step.
pub fn next(observed: &Observed, now: Timestamp) -> PasswordStep {
    if let Some(why) = &observed.not_now {
        return PasswordStep::Wait(why.clone());
    }
    if let Some(why) = observed.obstacle() {
        return PasswordStep::Cannot(why);
    }
    let Some(underway) = &observed.change.underway else { return PasswordStep::Begin };
    let target = underway.target;
    if target == WhichPassword::Old && !underway.touched && !underway.sealed {
        // No reader ever held the new password. The account is written even if no member accepts that password: another
        // run's statement that adds it may still arrive, and it changes nothing if the account was written since.
        return PasswordStep::End(observed.clauses(&[target]));
    }
    let written_at =
        observed.secret_state.written.as_ref().filter(|(turn, _)| *turn == underway.turn).map(|(_, at)| *at);
    let written = observed.secret_state.holds == Some(target) && (written_at.is_some() || underway.sealed);
    let stale_readers = written_at.map_or_else(Vec::new, |at| {
        observed.readers.iter().filter(|it| it.created <= at + KUBELET_DELAY).collect()
    });
    let (all_hold_it, other) = (written && stale_readers.is_empty(), target.other());
    if !observed.accepts(target) || !all_hold_it && !observed.accepts(other) {
        PasswordStep::AcceptBoth(observed.clauses(&[target, other]))
    } else if !written {
        PasswordStep::Write
    } else if !all_hold_it {
        restart(&stale_readers, written_at, now)
    } else if !underway.sealed && observed.accepts(other) {
        PasswordStep::Both
    } else if !underway.sealed {
        PasswordStep::Seal
    } else if observed.accepted_anywhere(other) {
        PasswordStep::End(observed.clauses(&[target]))
    } else {
        PasswordStep::Finish
    }
}

fn restart(stale_readers: &[&ReadingPod], written_at: Option<Timestamp>, now: Timestamp) -> PasswordStep {
    // A pod that is created now may get the earlier value as well.
    if written_at.is_some_and(|at| now <= at + KUBELET_DELAY) {
        return PasswordStep::Wait("kubelets need a few seconds to see the change of the Secret".to_owned());
    }
    let workloads: BTreeSet<_> = stale_readers.iter().filter_map(|pod| pod.workload.clone()).collect();
    let pods = stale_readers.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    if workloads.is_empty() {
        let names = pods.join(", ");
        return PasswordStep::Wait(format!(
            "no controller restarts {names}, and each may still use the other password: delete it, and create it again if you need it"
        ));
    }
    PasswordStep::Restart { workloads, pods }
}

impl Observed {
    /// Returns the accounts on one member that the Secret's readers use: those that accept one of the two passwords.
    fn accounts_of_readers<'a>(
        &'a self,
        on_member: &'a AccountOnMember,
    ) -> impl Iterator<Item = &'a Account> {
        on_member.accounts.iter().filter(|it| self.passwords().iter().any(|password| it.accepts(password)))
    }

    fn passwords(&self) -> [&Password; 2] {
        [&self.change.old, &self.change.new]
    }

    /// Returns whether every member accepts this password. If clients in a member's pod can log in at all, one must have
    /// logged in with it.
    fn accepts(&self, which: WhichPassword) -> bool {
        let member_accepts = |on_member: &AccountOnMember| {
            let logs_in = on_member.logs_in[which as usize] || on_member.logs_in == [false; 2];
            self.accounts_of_readers(on_member).all(|it| it.accepts(self.change.password(which))) && logs_in
        };
        self.members.iter().all(member_accepts)
    }

    fn accepted_anywhere(&self, which: WhichPassword) -> bool {
        let password = self.change.password(which);
        self.members.iter().any(|on_member| on_member.accounts.iter().any(|it| it.accepts(password)))
    }

    /// Returns the clauses by which the account accepts these passwords, at each of its hosts.
    fn clauses(&self, which: &[WhichPassword]) -> Vec<String> {
        let passwords: Vec<_> = which.iter().map(|it| self.change.password(*it)).collect();
        let accounts = self.members.iter().flat_map(|on_member| self.accounts_of_readers(on_member));
        let clause = |it: &Account| it.accepting(&self.change.account, &passwords, self.passwords());
        accounts.map(clause).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns why the password cannot be changed. Waiting does not help.
    fn obstacle(&self) -> Option<String> {
        let user = &self.change.account;
        self.members.iter().find_map(|on_member| {
            let AccountOnMember { member, .. } = on_member;
            if self.accounts_of_readers(on_member).next().is_none() {
                return Some(format!(
                    "{member} does not accept the password of {user} that the Secret holds: set that password in MariaDB first, or write the one that MariaDB has to the Secret (gatera explain G12)"
                ));
            }
            self.accounts_of_readers(on_member).find_map(|it| {
                let besides = it.accepts_besides(self.passwords())?;
                let host = &it.host;
                Some(format!(
                    "on {member}, {user} at host {host} also accepts {besides}, so clients could still log in that way after the change: remove that method from the account first"
                ))
            })
        })
    }
}

/// Returns why the password of this cluster cannot be changed in its current state. Waiting does not help.
pub fn state_obstacle(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if let Some(owner) = driver::of(&cluster.workload) {
        return Some(format!(
            "{owner} drives it, and its operator applies what a Secret holds: change the password in the Secret, which needs the label {}/watch",
            driver::GROUP
        ));
    }
    match view.state(cluster) {
        _ if cluster.workload.metadata.mark(RECOVER).is_some() => {
            Some(format!("a recovery is under way; to continue it: {}", cluster.recover_command()))
        }
        State::Forming => {
            Some("no member has held data yet: wait until its first install is complete".to_owned())
        }
        State::Stopped => Some(format!("it is stopped; to start it: {}", cluster.start_command())),
        State::Down => Some(format!("no member is Ready; recover it first: {}", cluster.recover_command())),
        _ => None,
    }
}

/// Returns what a change waits for: members are restarted and queried only while all are Ready.
pub fn wait_reason(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let stuck = |it: &Member| it.pod.as_ref().is_some_and(|pod| pod.stuck);
    if view.state(cluster) == State::Unknown
        || !cluster.members.iter().all(Member::ready)
        || !cluster.leaving.is_empty()
    {
        let only_rolls = cluster.rolls() && !cluster.members.iter().any(stuck);
        let conditions = if only_rolls { Vec::new() } else { condition::diagnoses(cluster, view) };
        let ways_out: Vec<_> = conditions.iter().map(ToString::to_string).collect();
        return Some([&[view.describe(cluster)][..], &ways_out].concat().join("; "));
    }
    let candidate = cluster.rollout.as_ref().and_then(|record| record.next.as_ref());
    match cluster.bootstrap.pods.first() {
        _ if cluster.rolls() => {
            Some(format!("a rollout of its template is under way ({})", view.count(cluster)))
        }
        _ if candidate.is_some() => Some("a rollout of its configuration is under way".to_owned()),
        Some(pod) => Some(format!(
            "bootstrap pod {} still exists; the guard removes it when no member needs it",
            pod.name
        )),
        None => None,
    }
}

/// Returns why a restart would not reach all members, and what would.
pub fn unreached_by_restart(cluster: &Cluster) -> Option<&'static str> {
    let spec = &cluster.workload.spec;
    if spec.update_strategy.on_delete() {
        Some("its update strategy is OnDelete: delete its pods yourself, one at a time")
    } else if cluster.workload.first_updated_ordinal() > spec.ordinals.start {
        Some("its update strategy has a partition: members below it restart when the partition is removed")
    } else {
        None
    }
}
