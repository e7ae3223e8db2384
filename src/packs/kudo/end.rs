//! K05: a cluster is not deleted together with its Instance.
//!
//! Refuses to delete an Instance that owns a cluster with data, to give it an owner with which it would be deleted, and to delete
//! the definition `instances.kudo.dev`, with which all Instances are deleted.
//! Deleting only the object (`--cascade=orphan`) is allowed, and so is deleting the Instance of a cluster that `gatera stop` has
//! stopped, if its StatefulSet keeps its claims.
//!
//! # Why
//!
//! The Instance owns everything that KUDO creates: with it the StatefulSet and all its members at once, the Services and the
//! configuration are deleted. The garbage collector does this, and no rule can stop it. `kubectl kudo uninstall` and removing KUDO itself
//! (`kubectl kudo init --dry-run --output yaml | kubectl delete -f -`) do exactly that, without a question.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo uninstall --instance galera
//! [K05] Instance db/galera: cluster galera-galera would be deleted with it (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! * To keep the cluster without KUDO: `kubectl delete instance NAME --cascade=orphan`. Everything keeps running.
//! * To remove it temporarily: `gatera stop NAME -n NS`, then uninstall; its claims stay.
//! * To remove it permanently: take a backup, confirm, uninstall.
//!
//! # Exceptions
//!
//! Annotate the Instance, or the definition, for an hour at most: `gatera.dev/override: "K05 until=TIME reason=…"`. Claims are still
//! kept (G07), unless their StatefulSet deletes them (`whenDeleted: Delete`).

use super::INSTANCE;
use engine::exceptions::confirmation;
use engine::rule::Check::One;
use engine::rule::{Rule, UNTIL_SEEN, Verb};
use engine::rules::owners;
use engine::verdict::{Finding, Verdict};
use facts::review::{Operation, Review};
use facts::view::{Cluster, Freshness, State, View};
use facts::way_out::{Command, say};
use objects::{Kind, Object, Owner};

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

/// The name of the definition of all Instances.
const DEFINITION: &str = "instances.kudo.dev";
const WHY: &str = "KUDO's Instance owns all objects of the cluster: the garbage collector deletes members, Services and configuration at \
                   once, and no rule can stop it";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    if review.operation == Operation::Update {
        let owned =
            owners::added(review, view).and_then(|it| Some(it.finding(&of_one(review, view)?, review, view)));
        return owned;
    }
    if review.operation != Operation::Delete {
        return None;
    }
    match &review.old {
        Some(it) if it.kind() == INSTANCE => {
            (!it.meta().going() && !review.options.orphans()).then(|| of_one(review, view)).flatten()
        }
        // Orphaning the dependents of a definition still deletes its objects, and what those own.
        Some(Object::Definition(it)) if it.metadata.name == DEFINITION => of_all(review, view),
        _ => None,
    }
}

fn of_one(review: &Review, view: &View<'_>) -> Option<Finding> {
    let ns = &review.namespace;
    let of_it = |it: &Cluster, owner: &Owner| it.id.namespace == *ns && owner.name == review.name;
    let going = going(view, of_it);
    let Some(first) = going.first() else { return unknown(view) };
    let name = &first.id.name;
    let says = format!("deleting it deletes cluster {name} ({})", view.describe(first));
    let orphan = format!("kubectl -n {ns} delete instance {} --cascade=orphan", review.name);
    let keep = say("to keep the cluster without KUDO: ").run(Command::new(orphan));
    let pause = say("to remove it temporarily: ").run(first.stop_command()).say(", then delete it");
    let end = say("to remove the cluster permanently: take a backup, then ");
    let instead = if first.keeps_claims() { keep.or(pause) } else { keep };
    let instead = instead.or(end.and(confirmation(review, RULE.id, view)));
    Some(RULE.finding(Verdict::Deny, "", says, WHY, instead))
}

fn of_all(review: &Review, view: &View<'_>) -> Option<Finding> {
    let going = going(view, |_, _| true);
    let Some(first) = going.first() else { return unknown(view) };
    let others = match going.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let says = format!("deleting it deletes every Instance, and with them cluster {}{others}", first.id);
    let end = say("to remove them permanently: take backups, then ");
    let instead = say("to keep the clusters without KUDO: delete each Instance with --cascade=orphan first")
        .or(end.and(confirmation(review, RULE.id, view)));
    Some(RULE.finding(Verdict::Deny, "", says, WHY, instead))
}

/// Returns the clusters with data that would be deleted with such an Instance.
fn going<'a>(view: &View<'a>, with: impl Fn(&Cluster, &Owner) -> bool) -> Vec<&'a Cluster> {
    let goes = |it: &&Cluster| {
        let owner = it.workload.metadata.controller().filter(|owner| owner.is_of("kudo.dev", "Instance"));
        owner.is_some_and(|owner| with(it, owner))
    };
    let lives = |it: &&Cluster| it.has_data() || view.state(it) == State::Unknown;
    let waits = |it: &&Cluster| view.state(it) == State::Stopped && it.keeps_claims();
    let mut going: Vec<_> = view.clusters().filter(|it| goes(it) && lives(it) && !waits(it)).collect();
    going.sort_by(|a, b| a.id.cmp(&b.id));
    going
}

/// Returns a finding if no cluster is known, but the view is not current.
fn unknown(view: &View<'_>) -> Option<Finding> {
    let says = format!("clusters may be deleted with it ({})", view.seen());
    (view.freshness != Freshness::Current).then(|| RULE.finding(Verdict::Unknown, "", says, WHY, UNTIL_SEEN))
}
