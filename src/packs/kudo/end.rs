//! K05: a cluster is not deleted together with its Instance.
//!
//! Refuses to delete an Instance that owns a cluster with data, to give it an owner with which it would be deleted, or to delete
//! the CustomResourceDefinition `instances.kudo.dev`, with which all Instances are deleted. Deleting only the Instance
//! (`--cascade=orphan`) is allowed, and so is deleting the Instance of a cluster that `gatera stop` has stopped, if its
//! StatefulSet keeps its claims. `--cascade=orphan` does not help for the CustomResourceDefinition.
//!
//! # Why
//!
//! The Instance owns everything that KUDO creates. When it is deleted, the garbage collector also deletes the StatefulSet, all
//! members at once, the Services and the configuration, and no rule can stop that. `kubectl kudo uninstall` deletes the Instance,
//! and removing KUDO itself (`kubectl kudo init --dry-run --output yaml | kubectl delete -f -`) deletes all Instances, without
//! asking.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo uninstall --instance galera
//! [K05] Instance db/galera: deleting it deletes cluster galera-galera (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! * To keep the cluster without KUDO: `kubectl -n NS delete instance INSTANCE --cascade=orphan`. Everything keeps running.
//! * To remove it temporarily: `gatera stop CLUSTER -n NS`, where CLUSTER is the name of the StatefulSet, then uninstall. Its
//!   claims stay, unless the StatefulSet deletes them (`whenDeleted: Delete`): then the deletion is still refused.
//! * To remove it permanently: take a backup, set the override (below), uninstall.
//!
//! # Exceptions
//!
//! Annotate the Instance, or the definition, for an hour at most: `gatera.dev/override: "K05 until=TIME reason=…"`. Claims
//! are still kept (G07), unless their StatefulSet deletes them (`whenDeleted: Delete`).

use super::INSTANCE;
use engine::rule::{Finding, One, Review, Rule, Verb, View};
use engine::rules::owning;
use facts::view::Cluster;
use objects::{Kind, Owner};

pub(super) const RULE: Rule = Rule {
    id: "K05",
    name: "kudo-end",
    judges: &[
        (INSTANCE, &[Verb::Update, Verb::Delete], One(check)),
        (Kind::Definition, &[Verb::Delete], One(check)),
    ],
    depends_on_state: true,
    source: include_str!("end.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    owning::judge(&RULE, INSTANCE, instance, review, view)
}

/// Returns the Instance that owns this cluster.
fn instance(cluster: &Cluster) -> Option<&Owner> {
    cluster.workload.metadata.controller().filter(|owner| owner.is_of("kudo.dev", "Instance"))
}
