//! R14: a database in the cloud outlives a careless command.
//!
//! Refuses to delete an Rds whose instance is in the cloud, the namespace that it is in, and the definition `rdss.otc.mcsps.de`, with which
//! all of them go. Warns where no `status.id` says that there is an instance.
//!
//! # Why
//!
//! The operator deletes the instance with the Rds. It takes a last backup first, and that works only while the instance is ACTIVE;
//! otherwise, and while the operator is down, the Rds goes and the instance stays, without a backup, and costs: there is no finalizer.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete rds orders
//! [R14] Rds shop/orders: its instance in the cloud is deleted with it, after a last backup
//! ```
//!
//! # What to do instead
//!
//! Take a backup of your own, wait until the status is ACTIVE, and confirm. An instance that is FAILED never gets there: confirm, and
//! delete it in the cloud. To keep the instance, empty `status.id` first (R12).
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "R14 until=TIME reason=…"`. That is the confirmation. On a
//! Namespace it is one for all that are in it: what the control plane then deletes is not held up.

use std::collections::BTreeSet;

use super::{RDS, Rds, until_active};
use engine::exceptions::confirmation;
use engine::rule::{Rule, Verb};
use engine::rules::unlisted::unlisted;
use engine::verdict::{Finding, Findings, Verdict};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "R14",
    name: "rds-end",
    touches: &[
        (RDS, &[Verb::Delete]),
        (Kind::Definition, &[Verb::Delete]),
        (Kind::Namespace, &[Verb::Delete]),
    ],
    source: include_str!("end.rs"),
    check,
};

/// The definition of all of them.
const DEFINITION: &str = "rdss.otc.mcsps.de";

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation != Operation::Delete || view.settings.is_rds_operator(&review.user) {
        return Findings::new();
    }
    let lists = match &review.old {
        Some(Object::Definition(it)) => it.metadata.name == DEFINITION,
        old => matches!(old, Some(Object::Namespace(_))) && view.named(RDS, &review.name).next().is_none(),
    };
    if lists && let Some(unknown) = unlisted(&RULE, RDS, review, view) {
        // Most namespaces have none: a pack that cannot be listed must not keep all of them.
        let verdict = if review.kind == Kind::Namespace { Verdict::Warn } else { unknown.verdict };
        return vec![Finding { verdict, ..unknown }];
    }
    if let Some(rds) = review.old.as_ref().and_then(Object::custom) {
        return vec![of_one(rds, review, view)];
    }
    match &review.old {
        Some(Object::Definition(it)) if it.metadata.name == DEFINITION && !view.has_none(RDS) => {
            vec![of_all(review, view)]
        }
        Some(Object::Namespace(_)) => of_namespace(review, view).into_iter().collect(),
        _ => Findings::new(),
    }
}

/// Confirmed, it is done: so the backup comes first.
fn instead(review: &Review, view: &View<'_>) -> String {
    format!("take a backup of your own; then {}, and again", confirmation(review, RULE.id, view))
}

fn of_one(rds: &Rds, review: &Review, view: &View<'_>) -> Finding {
    let Review { namespace, name, .. } = review;
    if rds.status.id.is_empty() {
        let says = "status.id is not set: no instance is deleted, and no last backup is made";
        let why =
            "an instance that is being made, or whose id was taken out here, stays in the cloud and costs";
        let instead = format!("look in the cloud for an instance called {namespace}_{name}");
        return RULE.finding(Verdict::Warn, "status.id", says, why, instead);
    }
    if rds.status.active() {
        let says = "its instance in the cloud is deleted with it, after a last backup";
        let why = "the operator does not ask first; while it is down there is no last backup, and the instance stays and costs";
        return RULE.finding(Verdict::Deny, "status.id", says, why, instead(review, view));
    }
    let says = format!(
        "its instance stays in the cloud, without an Rds: the status is {}, not ACTIVE",
        rds.status.words()
    );
    let why = "without a last backup, which fails while the instance is not ACTIVE, the operator deletes nothing, and the \
               instance goes on costing";
    let active = until_active(rds, review);
    let instead = if rds.status.stuck() {
        let confirmed = confirmation(review, RULE.id, view);
        format!("{active}; if it is to go: {confirmed}, and again, then delete it in the cloud")
    } else {
        format!("{active}; then take a backup of your own")
    };
    RULE.finding(Verdict::Deny, "status.status", says, why, instead)
}

/// What may have an instance: all but those whose operator has noted none.
fn has_none(object: &Object) -> bool {
    object.custom::<Rds>().is_some_and(|it| it.status.id.is_empty())
}

fn of_all(review: &Review, view: &View<'_>) -> Finding {
    let all = view.how_many(RDS);
    let count = all - view.kept_anywhere(RDS).filter(|it| has_none(it)).count();
    if all == 0 {
        let says = format!("it is not known whether there is an Rds ({})", view.seen());
        let why = "Kubernetes deletes the objects of a definition with it, and the operator their instances";
        return RULE.finding(Verdict::Unknown, "metadata.name", says, why, instead(review, view));
    }
    if count == 0 {
        return without_instances(&format!(
            "every Rds in every namespace goes with it ({all}, {})",
            view.seen()
        ));
    }
    let says = format!(
        "every Rds in every namespace goes with it, and the instance of each that has one ({count}, {})",
        view.seen()
    );
    let why = "Kubernetes deletes the objects of a definition with it, and the operator deletes the instances in the cloud";
    RULE.finding(Verdict::Deny, "metadata.name", says, why, instead(review, view))
}

fn without_instances(gone: &str) -> Finding {
    let says = format!("{gone}, and none has a status.id");
    let why = "an instance that is being made, or whose id was taken out here, stays in the cloud and costs";
    let instead = "look in the cloud for instances of their names, NAMESPACE_NAME";
    RULE.finding(Verdict::Warn, "status.id", says, why, instead)
}

fn of_namespace(review: &Review, view: &View<'_>) -> Option<Finding> {
    let without: BTreeSet<_> =
        view.kept(RDS, &review.name).filter(|it| has_none(it)).map(|it| &*it.meta().name).collect();
    let mut all = view.named(RDS, &review.name).filter(|it| !without.contains(it));
    let Some(first) = all.next() else {
        let one = without.first()?;
        return Some(without_instances(&format!("it holds {} Rds ({one}, {})", without.len(), view.seen())));
    };
    let others = match all.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let says = format!(
        "it holds Rds {first}{others} ({}), and the instance in the cloud goes with each",
        view.seen()
    );
    let why = "everything in a namespace goes with it, and the operator deletes the instances in the cloud";
    Some(RULE.finding(Verdict::Deny, "", says, why, instead(review, view)))
}
