//! G19: a server that was not stopped in order starts from where its data is.
//!
//! Warns of a template whose server would start without knowing its position after a crash. Refuses nothing. Where no change of
//! the manifest helps, as with Bitnami's image, it is said when the cluster is installed, and not by every `gatera check`.
//!
//! # Why
//!
//! A member's position is the number of the last transaction that it has. After a crash it stands only in InnoDB's files, and
//! `mariadbd` itself does not look there: on a host `mysqld_safe` or systemd does, in a container nobody. Members that start without it find each
//! other by their last view and form the cluster again without comparing what they have. It was measured: all servers
//! killed at once, one of them a few rows behind; 4 seconds later every pod was Ready, and the rows that one lacked differed
//! from then on. And the cluster has lost its identity: its history is one of zeros, into which nobody can join any more
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
//! Leave `command` out, or let it begin with `docker-entrypoint.sh` or `mariadbd`: then gatera puts its step
//! (`start-member.sh`) in front when the pod is created. It asks the server for its position with the server's own arguments
//! (`--wsrep-recover`), hands it over with `--wsrep-start-position`, and stays the server's parent (root without the capability
//! KILL could not signal it: then the step becomes the server). Where the image is not known,
//! `gatera.dev/profile: official` says that it starts as the official one. A command of your own can start the server
//! through `mysqld_safe`, or through the step that charts/galera carries. For Bitnami's image there is no step yet: compare
//! the members' tables after all of them crashed, and look at `wsrep_cluster_state_uuid`. A pod that was made while the guard was
//! away has no step until it is made anew (not if that shows zeros: `gatera explain G04`). `gatera.dev/start: keep` leaves the command alone.
//!
//! # What is on disk
//!
//! With `innodb_flush_log_at_trx_commit` at 2 the last second of commits is with the operating system, at 0 with the server. At 2 a
//! server that is killed loses nothing; a machine that loses power does. The position that is recovered is what the disk has, so
//! members compare what they really have, and whoever has less copies it from the others. If all machines fail at once,
//! commits of the last second may be on no disk, although clients were told that they are safe: 1 is the value that survives that.
//!
//! # How to waive it
//!
//! It is only a warning. `gatera.dev/override: "G19 until=2026-12-01T10:00:00Z reason=…"` on the StatefulSet silences it for an
//! hour, the settings file for good: `modes: {G19: off}`.

use super::template;
use crate::inject::{Prospect, Start};
use crate::rule::{Rule, WRITTEN};
use crate::verdict::{Findings, Verdict};
use facts::review::{Origin, Review};
use facts::view::View;
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "G19",
    name: "start",
    touches: &[(Kind::StatefulSet, WRITTEN)],
    depends_on_state: false,
    source: include_str!("start.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((template, server)) = template::of(review.new.as_ref(), view) else { return Findings::new() };
    let Some(Object::StatefulSet(set)) = &review.new else { return Findings::new() };
    let claims = set.spec.volume_claim_templates.iter().map(|claim| &*claim.metadata.name);
    let Start::Blind { why, instead, lasts } =
        Prospect::of(server, &template.metadata, &template.spec, claims).start
    else {
        return Findings::new();
    };
    if lasts && matches!(review.origin, Origin::Check | Origin::Audit) {
        return Findings::new();
    }
    let says = format!("after a crash container {} starts without knowing its position: {why}", server.name);
    let finding = RULE.finding(
        Verdict::Warn,
        format!("spec.template.spec.containers[{}].command", server.name),
        says,
        "members without a position form their cluster again without comparing what they \
         have: after a power failure rows may be on some of them only, and every pod is Ready",
        instead,
    );
    vec![finding]
}
