//! K05: a cluster outlives the Instance that it came from.
//!
//! Refuses to delete an Instance that owns a cluster with data, to give it an owner with which it would be deleted, and to delete
//! the definition `instances.kudo.dev`, with which all of them go.
//! Deleting only the object (`--cascade=orphan`) is left alone, and so is the Instance of a cluster that `gatera stop` has
//! stopped, if its StatefulSet leaves its claims behind.
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
//! # Exceptions
//!
//! Annotate the Instance, or the definition, for an hour at most: `gatera.dev/override: "K05 until=TIME reason=…"`. Claims are kept all the
//! same (G07), unless their StatefulSet takes them along (`whenDeleted: Delete`).

use super::INSTANCE;
use engine::exceptions::confirmation;
use engine::rule::{Rule, UNTIL_SEEN, Verb};
use engine::rules::owners;
use engine::verdict::{Finding, Findings, Verdict};
use facts::review::{Operation, Review};
use facts::view::{Cluster, Freshness, State, View};
use objects::{Kind, Object, Owner};

pub(super) const RULE: Rule = Rule {
    id: "K05",
    name: "kudo-end",
    touches: &[(INSTANCE, &[Verb::Update, Verb::Delete]), (Kind::Definition, &[Verb::Delete])],
    source: include_str!("end.rs"),
    check,
};

/// The definition of all Instances.
const DEFINITION: &str = "instances.kudo.dev";
const WHY: &str = "KUDO's Instance owns what was made for it: members stop all at once, and Services and configuration go with them; the \
                   garbage collector asks nobody";

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation == Operation::Update {
        let owned =
            owners::added(review, view).and_then(|it| Some(it.finding(&of_one(review, view)?, review, view)));
        return owned.into_iter().collect();
    }
    if review.operation != Operation::Delete {
        return Findings::new();
    }
    let found = match &review.old {
        Some(it) if it.kind() == INSTANCE => {
            (!it.meta().going() && !review.options.orphans()).then(|| of_one(review, view)).flatten()
        }
        // Whoever leaves the dependents of a definition behind deletes its objects all the same, and what those own.
        Some(Object::Definition(it)) if it.metadata.name == DEFINITION => of_all(review, view),
        _ => None,
    };
    found.into_iter().collect()
}

fn of_one(review: &Review, view: &View<'_>) -> Option<Finding> {
    let ns = &review.namespace;
    let of_it = |it: &Cluster, owner: &Owner| it.id.namespace == *ns && owner.name == review.name;
    let going = going(view, of_it);
    let Some(first) = going.first() else { return unknown(view) };
    let name = &first.id.name;
    let says = format!("cluster {name} goes with it ({})", view.describe(first));
    let pause = format!("to have it gone for a while: gatera stop {name} -n {ns}, then delete it; ");
    let instead = format!(
        "to have the cluster without KUDO: kubectl -n {ns} delete instance {} --cascade=orphan; {}to remove the cluster for good: take a \
         backup, then {}",
        review.name,
        if first.keeps_claims() { &pause } else { "" },
        confirmation(review, RULE.id, view)
    );
    Some(RULE.finding(Verdict::Deny, "", says, WHY, instead))
}

fn of_all(review: &Review, view: &View<'_>) -> Option<Finding> {
    let going = going(view, |_, _| true);
    let Some(first) = going.first() else { return unknown(view) };
    let others = match going.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let says = format!("every Instance goes with it, and cluster {}{others} with those", first.id);
    let instead = format!(
        "to have the clusters without KUDO: delete each Instance with --cascade=orphan first; to remove them for good: take backups, then {}",
        confirmation(review, RULE.id, view)
    );
    Some(RULE.finding(Verdict::Deny, "", says, WHY, instead))
}

/// The clusters with something to lose that go with such an Instance.
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

/// None is known, which says little while nothing is heard.
fn unknown(view: &View<'_>) -> Option<Finding> {
    let says = format!("clusters may go with it ({})", view.seen());
    (view.freshness != Freshness::Current).then(|| RULE.finding(Verdict::Unknown, "", says, WHY, UNTIL_SEEN))
}
