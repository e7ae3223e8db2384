//! M01: a cluster is not deleted together with its MariaDB.
//!
//! Refuses to delete a MariaDB that drives an adopted cluster with data, and to delete the definition `mariadbs.k8s.mariadb.com`, with
//! which all are deleted. Deleting only the object (`--cascade=orphan`) is allowed.
//!
//! # Why
//!
//! The MariaDB owns everything that its operator creates: with it the StatefulSet and all its members at once, the Services and the
//! configuration are deleted. The garbage collector does this, and no rule can stop it. Removing the operator with its definitions (the
//! Helm value `crds.enabled`) does the same to every MariaDB.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete mariadb galera
//! [M01] MariaDB db/galera: deleting it deletes cluster galera (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! * To keep the cluster without its operator: `kubectl delete mariadb NAME --cascade=orphan`. Everything keeps running, and is no longer
//!   managed: no operator recovers it.
//! * To remove it permanently: take a backup, confirm, delete. The claims stay unless `storage.pvcRetentionPolicy` deletes them.
//!
//! # Exceptions
//!
//! Annotate the MariaDB, or the definition, for an hour at most: `gatera.dev/override: "M01 until=TIME reason=…"`.

use super::{MARIADB, driven};
use engine::exceptions::confirmation;
use engine::rule::Check::One;
use engine::rule::{Rule, UNTIL_SEEN, Verb};
use engine::verdict::{Finding, Verdict};
use facts::galera::driver;
use facts::review::Review;
use facts::view::{Cluster, Freshness, State, View};
use facts::way_out::{Command, say};
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "M01",
    name: "mariadb-end",
    judges: &[(MARIADB, &[Verb::Delete], One(check)), (Kind::Definition, &[Verb::Delete], One(check))],
    depends_on_state: true,
    source: include_str!("end.rs"),
};

const DEFINITION: &str = "mariadbs.k8s.mariadb.com";
const WHY: &str = "a MariaDB owns all objects of its cluster: the garbage collector deletes members, Services and configuration at once, \
                   and no rule can stop it";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let of_all = match &review.old {
        Some(Object::Definition(it)) => (it.metadata.name == DEFINITION).then_some(true)?,
        Some(it) if it.meta().going() || review.options.orphans() => return None,
        _ => false,
    };
    let lives = |it: &&Cluster| it.has_data() || view.state(it) == State::Unknown;
    let mut all = view.clusters().filter(|it| driver::of(&it.workload).is_some());
    let Some(first) = (if of_all { all.find(lives) } else { driven(review, view).filter(lives) }) else {
        let says = format!("clusters may be deleted with it ({})", view.seen());
        let unknown = view.freshness != Freshness::Current;
        return unknown.then(|| RULE.finding(Verdict::Unknown, "", says, WHY, UNTIL_SEEN));
    };
    let (says, keep) = if of_all {
        (
            format!("deleting it deletes every MariaDB, and with them cluster {}", first.id),
            say("to keep the clusters: delete each MariaDB with --cascade=orphan first"),
        )
    } else {
        let orphan =
            format!("kubectl -n {} delete mariadb {} --cascade=orphan", review.namespace, review.name);
        (
            format!("deleting it deletes cluster {} ({})", first.id.name, view.describe(first)),
            say("to keep the cluster without its operator: ").run(Command::new(orphan)),
        )
    };
    let end = say("to remove it permanently: take a backup, then ").and(confirmation(review, RULE.id, view));
    Some(RULE.finding(Verdict::Deny, "", says, WHY, keep.or(end)))
}
