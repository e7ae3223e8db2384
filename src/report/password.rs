//! A change of a password as text: what will be done, what is being done, and where the new password is. No password is
//! ever printed.

use std::collections::BTreeSet;
use std::mem;

use facts::view::Cluster;
use facts::way_out::CommandLine;
use leader::password::{Observed, PasswordChange, PasswordStep, WhichPassword};
use objects::visible;

/// A change of a password that a person is asked to confirm.
pub struct PasswordProposal<'a> {
    pub observed: &'a Observed,
    /// Whether the person gave the new password.
    pub given: bool,
    /// Whether `--abort` was given.
    pub goes_back: bool,
    /// Whether `--keep-old` was given.
    pub keeps_old: bool,
    pub step: &'a PasswordStep,
}

/// Returns what the whole change will do, and its next step.
pub fn proposal(cluster: &Cluster, it: &PasswordProposal<'_>) -> String {
    let PasswordChange { account, secret, key, underway, .. } = &it.observed.change;
    let back = it.goes_back || underway.as_ref().is_some_and(|it| it.target == WhichPassword::Old);
    let target = match (back, it.given) {
        (true, _) => "the old one again",
        (false, true) => "the one that you gave",
        (false, false) => "a random one",
    };
    let (kept, other) = if back { ("old", "new") } else { ("new", "old") };
    let under_way = match (it.goes_back, underway) {
        (true, _) => "; the change that is under way is reversed",
        (false, Some(_)) => "; a change is under way, and continues where it stopped",
        (false, None) => "",
    };
    let last = if it.keeps_old {
        "The command stops here: both stay valid until you run it again without --keep-old.".to_owned()
    } else {
        format!(
            "MariaDB stops accepting the {other} one. Clients that have it from elsewhere can then no longer log in."
        )
    };
    let next = if it.goes_back {
        String::new()
    } else {
        format!("next step: {}\n", step_text(it.step, account, None))
    };
    let readers: BTreeSet<_> = it
        .observed
        .readers
        .iter()
        .map(|pod| match &pod.workload {
            Some((kind, name)) => format!("{kind} {name}"),
            None => format!("pod {} (which you delete yourself)", pod.name),
        })
        .collect();
    let text = format!(
        "{} ({})\nThe password of {account} becomes {target}{under_way}:\n\
         1. MariaDB accepts the old and the new one.\n\
         2. The {kept} one is written to key {key} of Secret {secret}.\n\
         3. The workloads that read that key restart: {}.\n\
         4. {last}\n{next}",
        cluster.id,
        cluster.count(),
        readers.into_iter().collect::<Vec<_>>().join(", ")
    );
    text.lines().map(|line| visible(line) + "\n").collect()
}

/// Returns the line that reports this step; `held_back` is why a restart does not reach some members.
pub fn step_text(step: &PasswordStep, account: &str, held_back: Option<&str>) -> String {
    let text = match step {
        PasswordStep::Wait(what) => format!("waiting: {what}"),
        PasswordStep::Cannot(why) => why.clone(),
        PasswordStep::Begin => "recording the old and the new password in a separate Secret".to_owned(),
        PasswordStep::AcceptBoth(_) => {
            format!("MariaDB: changing {account} to accept the old and the new password")
        }
        PasswordStep::Write => "writing the password to the Secret".to_owned(),
        PasswordStep::Restart { workloads, pods } => {
            let workloads: Vec<_> = workloads.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
            let held_back = held_back.map(|why| format!("; {why}")).unwrap_or_default();
            format!(
                "restarting {}; still to be replaced: {}{held_back}",
                workloads.join(", "),
                pods.join(", ")
            )
        }
        PasswordStep::Both | PasswordStep::Seal => {
            "recording that the other password is about to end: from then on, --abort is not possible"
                .to_owned()
        }
        PasswordStep::End(_) => format!("MariaDB: changing {account} to reject the other password"),
        PasswordStep::Finish => "removing the mark on the Secret, and the separate Secret".to_owned(),
    };
    visible(&text)
}

/// Returns a key that differs only if there is progress: the text of a wait may change while nothing happens.
pub fn step_key(step: &PasswordStep, says: &str) -> String {
    let kind = format!("{:?}", mem::discriminant(step));
    if matches!(step, PasswordStep::Wait(_)) { kind } else { kind + says }
}

/// Returns the message that the password cannot be changed; `own` is the separate Secret of a change that is under way.
pub fn cannot(cluster: &Cluster, why: &str, own: Option<&str>) -> String {
    let own = own.map(|own| {
        let delete = CommandLine::new(format!("kubectl -n {} delete secret {own}", cluster.id.namespace));
        format!(
            "\nSecret {own} keeps the old and the new password of the change under way; delete it only if every member accepts the \
             password in the account's Secret: {delete}"
        )
    });
    let text = format!("the password cannot be changed: {why}{}", own.unwrap_or_default());
    text.lines().map(|line| visible(line) + "\n").collect()
}

/// Returns the line that is printed when `--abort` begins.
pub fn going_back(account: &str) -> String {
    visible(&format!("going back to the old password of {account}"))
}

/// Returns why no other change can begin; `account` is the one whose password is being changed.
pub fn other_account_is_under_way(account: &str) -> String {
    format!("a change of the password of {account} is under way: finish it first (--user {account})\n")
}

/// Returns why no other password is accepted for the change that is under way.
pub fn other_password_is_under_way(account: &str) -> String {
    format!(
        "a change to another password of {account} is under way: run this without --stdin to finish it, or with --abort to undo it\n"
    )
}

pub fn nothing_to_abort(cluster: &Cluster) -> String {
    format!("no password change of {} is under way, so there is nothing to abort\n", cluster.id)
}

pub fn too_late(cluster: &Cluster, account: &str) -> String {
    format!(
        "it is too late for --abort and --keep-old: the old password of {account} has ended, or is about to\n\
         to finish the change: {0}\nto change it again afterwards, run the same command once more\n",
        cluster.passwd_command(account)
    )
}

/// Returns the last lines of a run with `--keep-old`.
pub fn both_accepted(cluster: &Cluster, account: &str) -> String {
    format!(
        "MariaDB accepts the old and the new password of {account}, and everything that reads the Secret has the new one\n\
         to end the old one: {}\nto go back: {}\n",
        cluster.passwd_command(account),
        cluster.passwd_command(account).arg("--abort")
    )
}

/// Returns the last lines of a finished change.
pub fn finished(cluster: &Cluster, change: &PasswordChange) -> String {
    let PasswordChange { account, secret, key, underway, .. } = change;
    let is_old = underway.as_ref().is_some_and(|it| it.target == WhichPassword::Old);
    let which = if is_old { "old" } else { "new" };
    let show = CommandLine::new(format!("kubectl -n {} get secret {secret}", cluster.id.namespace))
        .arg(format!("--template={{{{index .data \"{key}\" | base64decode}}}}"));
    format!("{}: MariaDB accepts only the {which} password of {account}\nto see it: {show}\n", cluster.id)
}
