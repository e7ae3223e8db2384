//! G19: after a crash a server starts from the position of its data.
//!
//! Warns about a template whose server would start without knowing its position after a crash. Refuses nothing.
//!
//! # Why
//!
//! A member's position is the number of the last transaction that it has. After a crash it is only in InnoDB's files, and
//! `mariadbd` itself does not read it: on a host `mysqld_safe` or systemd does, in a container no program does. Members that
//! start without it find each other by their last view and form the cluster again without comparing their data. Measured: all
//! servers were killed at once, one of them a few rows behind; 4 seconds later every pod was Ready, and that member never got
//! those rows. The cluster also loses its identity, which becomes zeros, and no member can join it any more
//! (`gatera explain G04`).
//!
//! # Example
//!
//! ```text
//! containers:
//! - name: mariadb
//!   command: [sh, -c, "sleep 5; exec docker-entrypoint.sh mariadbd"]     # gatera cannot see what this starts
//! ```
//!
//! # What to do instead
//!
//! Leave `command` out, or begin it with `docker-entrypoint.sh` or `mariadbd`: then gatera adds its step script
//! (`start-member.sh`) when the pod is created. The script runs the server with its own arguments and `--wsrep-recover` to find
//! the position, passes it on with `--wsrep-start-position`, and stays the server's parent process (except where root has no
//! capability KILL and could not signal the server: then the server replaces the script). For an unknown image,
//! `gatera.dev/profile: official` says that it starts like the official one. A command of your own can start the server through
//! `mysqld_safe`, or through the step script in charts/galera. In Bitnami's image the last `exec` of its `run.sh` starts the
//! server through the step script, by a file that bash reads before each script (`BASH_ENV`). A pod that was created while the
//! guard was down has no step script until it is recreated (do not recreate it if the UUID is zeros: `gatera explain G04`).
//! `gatera.dev/start: keep` leaves the command as it is.
//!
//! # What is on disk
//!
//! With `innodb_flush_log_at_trx_commit` at 2 the commits of the last second are in the operating system's memory, at 0 in the
//! server's. At 2 a server that is killed loses nothing, but a machine that loses power does. The recovered position is that of
//! the data on disk, so members compare their real data, and a member with less copies it from the others. If all machines fail
//! at once, commits of the last second may be on no disk, although clients got a confirmation: only the value 1 survives that.
//!
//! # Exceptions
//!
//! It is only a warning. `gatera.dev/override: "G19 until=2026-12-01T10:00:00Z reason=…"` on the StatefulSet suspends it for an
//! hour, and `modes: {G19: off}` in the settings file turns it off.

use super::template;
use crate::inject::{PlannedInjection, StartMethod};
use crate::rule::{Finding, Findings, OfTemplates, Review, Rule, View, WRITTEN};
use objects::{Kind, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G19",
    name: "start",
    judges: &[(Kind::StatefulSet, WRITTEN, OfTemplates(check))],
    depends_on_state: false,
    source: include_str!("start.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    blind(review, view).into_iter().collect()
}

fn blind(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (template, server) = template::of(review.new.as_ref(), view)?;
    let set = review.change::<Workload>().new?;
    let claims = set.spec.volume_claim_templates.iter().map(|claim| &*claim.metadata.name);
    let StartMethod::Blind { why, instead } =
        PlannedInjection::of(server, &template.metadata, &template.spec, claims).start
    else {
        return None;
    };
    let says = format!("after a crash container {} starts without knowing its position: {why}", server.name);
    Some(RULE.warn(
        format!("spec.template.spec.containers[{}].command", server.name),
        says,
        "members without a position form their cluster again without comparing their data: \
         after a power failure some rows may exist on some members only, although every pod is Ready",
        instead,
    ))
}
