//! M01: a cluster is not deleted together with its MariaDB.
//!
//! Refuses to delete a MariaDB that drives an adopted cluster with data, to give it an owner with which it would be deleted, or
//! to delete the definition `mariadbs.k8s.mariadb.com`, because every MariaDB is deleted with it. Deleting only the object
//! (`--cascade=orphan`) is allowed.
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

use super::MARIADB;
use engine::rule::{Finding, One, Review, Rule, Verb, View};
use engine::rules::owning;
use facts::galera::driver;
use objects::Kind;

pub(super) const RULE: Rule = Rule {
    id: "M01",
    name: "mariadb-end",
    judges: &[
        (MARIADB, &[Verb::Update, Verb::Delete], One(check)),
        (Kind::Definition, &[Verb::Delete], One(check)),
    ],
    depends_on_state: true,
    source: include_str!("end.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    owning::judge(&RULE, MARIADB, |it| driver::of(&it.workload), review, view)
}
