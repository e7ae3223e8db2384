//! R14: a database in the cloud survives a careless command.
//!
//! Refuses to delete an Rds with an instance in the cloud, its namespace, or the definition `rdss.otc.mcsps.de`, because every
//! Rds is deleted with it. Only warns if no `status.id` shows that there is an instance.
//!
//! # Why
//!
//! The operator deletes the instance together with the Rds. It takes a last backup first, which works only while the instance is
//! ACTIVE. Otherwise, and while the operator is down, the Rds is deleted, but the instance stays without a backup and keeps costing
//! money, because no finalizer makes the Rds wait.
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
//! Take a backup of your own, wait until the status is ACTIVE, and confirm. An instance that is FAILED never becomes ACTIVE: confirm,
//! and delete the instance in the cloud. To keep the instance, empty `status.id` first (R12).
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "R14 until=TIME reason=…"`. This is the confirmation. On a
//! Namespace it counts for every Rds in it, because the control plane's deletions are not judged.

use std::collections::BTreeSet;

use super::{RDS, Rds, until_active};
use engine::exceptions::confirmation;
use engine::rule::{Finding, One, Review, Rule, Verb, Verdict, View, and_more};
use engine::rules::unlisted::unlisted;
use facts::way_out::{WayOut, say};
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "R14",
    name: "rds-end",
    judges: &[
        (RDS, &[Verb::Delete], One(check)),
        (Kind::Definition, &[Verb::Delete], One(check)),
        (Kind::Namespace, &[Verb::Delete], One(check)),
    ],
    depends_on_state: true,
    source: include_str!("end.rs"),
};

/// The name of the CustomResourceDefinition of Rds.
const DEFINITION: &str = "rdss.otc.mcsps.de";
const WHY_WITHOUT_ID: &str = "an instance that is being created, or whose id was removed here, stays in the cloud and keeps costing money";
const WHY_WITH_DEFINITION: &str = "Kubernetes deletes the objects of a definition with it, and the operator deletes the instances in the cloud";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let unknown = || unlisted(&RULE, RDS, review, view);
    match review.old.as_ref().filter(|_| !view.settings.is_rds_operator(&review.user))? {
        Object::Definition(it) if it.metadata.name == DEFINITION => {
            unknown().or_else(|| (!view.has_none(RDS)).then(|| definition_deleted(review, view)))
        }
        // Most namespaces have no Rds: a kind that cannot be listed must not prevent their deletion.
        Object::Namespace(_) => {
            namespace_deleted(review, view).or_else(|| Some(Finding { verdict: Verdict::Warn, ..unknown()? }))
        }
        old => old.get::<Rds>().map(|rds| rds_deleted(rds, review, view)),
    }
}

/// Returns the advice, with the backup first, because the confirmed deletion is final.
fn instead(review: &Review, view: &View<'_>) -> WayOut {
    let confirmed = say("then ").and(confirmation(review, RULE.id, view));
    say("take a backup of your own").then(confirmed.say(", and repeat the command"))
}

fn rds_deleted(rds: &Rds, review: &Review, view: &View<'_>) -> Finding {
    let Review { namespace, name, .. } = review;
    if rds.status.id.is_empty() {
        let says = "status.id is not set: no instance is deleted, and no last backup is taken";
        let instead = format!("look in the cloud for an instance called {namespace}_{name}");
        return RULE.warn("status.id", says, WHY_WITHOUT_ID, instead);
    }
    if rds.status.is_active() {
        let says = "its instance in the cloud is deleted with it, after a last backup";
        let why = "the operator does not ask first; while it is down there is no last backup, and the instance stays and keeps costing money";
        return RULE.deny("status.id", says, why, instead(review, view));
    }
    let says = format!(
        "its instance would stay in the cloud without a backup, because the status is {}, not ACTIVE",
        rds.status.description()
    );
    let why = "the operator deletes an instance only after a last backup, which fails while the instance is not ACTIVE; the \
               instance then keeps costing money";
    let active = until_active(rds, review);
    let instead = if rds.status.is_stuck() {
        let confirmed = say("to delete it anyway: ").and(confirmation(review, RULE.id, view));
        active.or(confirmed.say(", repeat the command, then delete the instance in the cloud"))
    } else {
        active.then("then take a backup of your own, and repeat the command, which then needs a confirmation")
    };
    RULE.deny("status.status", says, why, instead)
}

/// Returns whether this is an Rds without a `status.id`, which would show that it has an instance.
fn has_no_id(object: &Object) -> bool {
    object.get::<Rds>().is_some_and(|it| it.status.id.is_empty())
}

fn definition_deleted(review: &Review, view: &View<'_>) -> Finding {
    let all = view.resource_count(RDS);
    let with_instance = all - view.resources_anywhere(RDS).filter(|it| has_no_id(it)).count();
    if all == 0 {
        let says = format!("it is not known whether there is an Rds ({})", view.seen());
        return RULE.finding(
            Verdict::Unknown,
            "metadata.name",
            says,
            WHY_WITH_DEFINITION,
            instead(review, view),
        );
    }
    if with_instance == 0 {
        return without_instances(&format!(
            "deleting it deletes every Rds in every namespace ({all}, {})",
            view.seen()
        ));
    }
    let says = format!(
        "deleting it deletes every Rds in every namespace and their instances in the cloud ({with_instance}, {})",
        view.seen()
    );
    RULE.deny("metadata.name", says, WHY_WITH_DEFINITION, instead(review, view))
}

fn without_instances(deleted: &str) -> Finding {
    let says = format!("{deleted}, but none has a status.id");
    let instead = "look in the cloud for instances with their names, NAMESPACE_NAME";
    RULE.warn("status.id", says, WHY_WITHOUT_ID, instead)
}

fn namespace_deleted(review: &Review, view: &View<'_>) -> Option<Finding> {
    let without_id: BTreeSet<_> =
        view.resources(RDS, &review.name).filter(|it| has_no_id(it)).map(|it| &*it.meta().name).collect();
    let mut others = view.resource_names(RDS, &review.name).filter(|it| !without_id.contains(it));
    let Some(first) = others.next() else {
        let (one, count) = (without_id.first()?, without_id.len());
        return Some(without_instances(&format!("it holds {count} Rds ({one}, {})", view.seen())));
    };
    let more = and_more(others.count());
    let says = format!(
        "it holds Rds {first}{more} ({}), and deleting the namespace also deletes their instances in the cloud",
        view.seen()
    );
    let why =
        "everything in a namespace is deleted with it, and the operator deletes the instances in the cloud";
    Some(RULE.deny("", says, why, instead(review, view)))
}
