//! M03: the replicas of a MariaDB keep a majority at every step.
//!
//! Refuses to change the replicas of an adopted cluster while a member that stays is not Ready, or to remove its majority in one
//! step, in the MariaDB or with `kubectl scale mariadb`.
//!
//! # Why
//!
//! The operator sets the replicas of the StatefulSet at once, and the members that are removed stop together. If fewer than a
//! majority stay, they stop answering; then the operator finds the cluster unhealthy, scales it to 0 and recovers it. A change of
//! the replicas also changes the configuration of every member, so all of them are restarted.
//!
//! # Example
//!
//! ```text
//! $ kubectl scale mariadb galera --replicas=1
//! [M03] MariaDB db/galera: 5 -> 1 replicas would leave 1 of 5 members; 3 is the next step
//! ```
//!
//! # What to do instead
//!
//! Go down in steps (7, 5, then 3), and wait between them until all members are Ready.
//!
//! # Exceptions
//!
//! Annotate the MariaDB, for an hour at most: `gatera.dev/override: "M03 until=TIME reason=…"`, and change `spec.replicas` in the
//! MariaDB: `kubectl scale` carries no annotation. The guard judges what the operator then does to a majority, too (G01).

use super::{MARIADB, MariaDb, driven};
use engine::rule::{Finding, One, Review, Rule, Verb, Verdict, View};
use facts::galera::quorum::floor_of_one_step;
use facts::view::Member;
use facts::way_out::run;
use objects::Scale;

pub(super) const RULE: Rule = Rule {
    id: "M03",
    name: "mariadb-replicas",
    judges: &[(MARIADB, &[Verb::Update], One(written)), (MARIADB, &[Verb::Scale], One(scaled))],
    depends_on_state: true,
    source: include_str!("replicas.rs"),
};

fn written(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<MariaDb>()?;
    // The definition's schema refuses a value that is not a number.
    let [from, to] = [old, new].map(|it| it.spec.replicas.look().parse().ok());
    changed(from?, to?, review, view)
}

fn scaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<Scale>()?;
    changed(old.spec.replicas, new.spec.replicas, review, view)
}

fn changed(from: i64, to: i64, review: &Review, view: &View<'_>) -> Option<Finding> {
    let cluster = driven(review, view).filter(|it| from != to && it.has_data())?;
    let finding = |verdict, says: String, why: &str, instead| {
        Some(RULE.finding(verdict, "spec.replicas", format!("{from} -> {to} replicas{says}"), why, instead))
    };
    let floor = floor_of_one_step(from);
    // The operator accepts only odd numbers, from three on.
    let step = (floor..from).find(|it| it % 2 == 1 && *it >= 3);
    if to < floor {
        let (least, instead) = match step {
            Some(step) => (
                format!("; {step} is the next step"),
                format!("go down to {step}, wait until all members are Ready, then continue").into(),
            ),
            None => (String::new(), "keep at least three members".into()),
        };
        let says = format!(" would leave {to} of {from} members{least}");
        let why = "members that are stopped together can count as crashed together, and the rest is not a majority: it stops answering \
                   queries";
        return finding(Verdict::Deny, says, why, instead);
    }
    // If the cluster shrinks, only the members that stay count: removing one that is not Ready may be the way out.
    let first = cluster.workload.ordinals().start;
    let remains = |member: &&Member| member.ordinal < first + to;
    let all_ready = cluster.members.iter().filter(remains).all(Member::ready);
    let why = if to < from {
        "a member that is removed may be the only one with all data, and every member that stays is restarted for the new number"
    } else {
        "a new member copies from one that is Ready, and every member is restarted for the new number"
    };
    let instead = run(cluster.wait_command()).say(", then repeat the command");
    let says = format!(": a member is not Ready ({})", view.describe(cluster));
    if all_ready { None } else { finding(Verdict::Deny, says, why, instead) }
}
