//! K05: a cluster outlives the Instance that it came from.
//!
//! Refuses to delete an Instance that owns a cluster with data, and the definition `instances.kudo.dev`, with which all of them go.
//! Deleting only the object (`--cascade=orphan`) is left alone, and so is the Instance of a cluster that `gatera stop` has stopped.
//!
//! # Why
//!
//! What KUDO makes is owned by its Instance: with that go the StatefulSet and all its members at once, the Services, the configuration. The
//! garbage collector does it, which no rule holds up. `kubectl kudo uninstall` and removing KUDO itself (`kubectl kudo init --dry-run
//! --output yaml | kubectl delete -f -`) do just that, and ask nobody.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo uninstall --instance galera
//! [K05] Instance db/galera: cluster galera-galera goes with it (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! * To have the cluster without KUDO: `kubectl delete instance NAME --cascade=orphan`. Everything goes on running.
//! * To have it gone for a while: `gatera stop NAME -n NS`, then uninstall; its claims stay.
//! * To remove it for good: take a backup, confirm, uninstall.
//!
//! # How to waive it
//!
//! Annotate the Instance, or the definition, for an hour at most: `gatera.dev/override: "K05 until=TIME reason=…"`. Claims are kept all the
//! same (G07).

use crate::object::{Kind, Object};
use crate::packs::confirmation;
use crate::review::{Operation, Review};
use crate::rules::{Rule, UNTIL_SEEN, Verb};
use crate::verdict::{Findings, Verdict};
use crate::view::{Cluster, Freshness, State, View};

pub(super) const RULE: Rule = Rule {
    id: "K05",
    name: "kudo-end",
    touches: &[(Kind::Instance, &[Verb::Delete]), (Kind::Definition, &[Verb::Delete])],
    source: include_str!("end.rs"),
    check,
};

/// The definition of all Instances.
const DEFINITION: &str = "instances.kudo.dev";
const WHY: &str = "KUDO's Instance owns what was made for it: members stop all at once, and Services and configuration go with them; the \
                   garbage collector asks nobody";

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation != Operation::Delete {
        return Findings::new();
    }
    let of_one = match &review.old {
        Some(Object::Instance(it)) if !it.metadata.going() && !review.options.orphans() => true,
        // Whoever leaves the dependents of a definition behind deletes its objects all the same, and what those own.
        Some(Object::Definition(it)) if it.metadata.name == DEFINITION => false,
        _ => return Findings::new(),
    };
    let goes = |it: &Cluster| {
        let owner = it.workload.metadata.controller().filter(|owner| owner.is_of("kudo.dev", "Instance"));
        owner.is_some_and(|owner| !of_one || it.id.namespace == review.namespace && owner.name == review.name)
    };
    let current = view.freshness == Freshness::Current;
    let lives = |it: &Cluster| it.has_data() || view.state(it) == State::Unknown;
    let stopped = |it: &Cluster| it.is_stopped() && current;
    let mut going: Vec<_> = view.clusters().filter(|it| goes(it) && lives(it) && !stopped(it)).collect();
    going.sort_by(|a, b| a.id.cmp(&b.id));
    let release = confirmation(review, RULE.id, view);
    let Some(first) = going.first() else {
        let says = format!("clusters may go with it ({})", view.seen());
        let unknown = || RULE.finding(Verdict::Unknown, "", says, WHY, UNTIL_SEEN);
        return (!current).then(unknown).into_iter().collect();
    };
    let name = &first.id.name;
    let (says, instead) = if of_one {
        let ns = &review.namespace;
        let says = format!("cluster {name} goes with it ({})", view.describe(first));
        let instead = format!(
            "to have the cluster without KUDO: kubectl -n {ns} delete instance {} --cascade=orphan; to have it gone for a while: gatera stop \
             {name} -n {ns}, then delete it; to remove the cluster for good: take a backup, then {release}",
            review.name
        );
        (says, instead)
    } else {
        let others = match going.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let says = format!(
            "every Instance goes with it, and cluster {}/{name}{others} with those",
            first.id.namespace
        );
        let instead = format!(
            "to have the clusters without KUDO: delete each Instance with --cascade=orphan first; to remove them for good: take backups, \
             then {release}"
        );
        (says, instead)
    };
    vec![RULE.finding(Verdict::Deny, "", says, WHY, instead)]
}
