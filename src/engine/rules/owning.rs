//! The deletion of a custom resource that owns all objects of a cluster, for the packs of operators.
//!
//! Must not know: any pack.

use super::owners;
use crate::exceptions::confirmation;
use crate::rule::{Finding, Operation, Review, Rule, UNTIL_SEEN, Verdict, View, and_more};
use facts::galera::driver;
use facts::view::{Cluster, Freshness, State};
use facts::way_out::{CommandLine, say};
use objects::{Kind, Object, Owner};

/// Judges a request that deletes an object of this kind, or all objects of this kind, together with the clusters that they own,
/// and a request that adds an owner with which the object would be deleted. `owner` returns a cluster's owner of this kind.
pub fn judge(
    rule: &Rule,
    kind: Kind,
    owner: impl Fn(&Cluster) -> Option<&Owner>,
    review: &Review,
    view: &View<'_>,
) -> Option<Finding> {
    let (all, added) = match &review.old {
        _ if review.operation == Operation::Update => (false, Some(owners::added(review, view)?)),
        // Orphaning the dependents of a definition still deletes its objects, and what those own.
        Some(Object::Definition(it)) if it.metadata.name == format!("{}.{}", kind.plural(), kind.group()) => {
            (true, None)
        }
        Some(Object::Definition(_)) => return None,
        Some(it) if it.meta().is_terminating() || review.options.orphans() => return None,
        _ => (false, None),
    };
    let (ns, object) = (&review.namespace, &review.name);
    let is_owned =
        |it: &&Cluster| owner(it).is_some_and(|owner| all || it.id.namespace == *ns && owner.name == *object);
    let may_hold_data = |it: &&Cluster| it.has_data() || view.state(it) == State::Unknown;
    // `gatera stop` stops no cluster that an operator drives.
    let is_driven = |it: &Cluster| driver::of(&it.workload).is_some();
    let is_kept_stopped =
        |it: &&Cluster| !is_driven(it) && view.state(it) == State::Stopped && it.keeps_claims();
    let mut clusters: Vec<_> =
        view.clusters().filter(|it| is_owned(it) && may_hold_data(it) && !is_kept_stopped(it)).collect();
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    let (kind, confirmed) = (kind.name(), confirmation(review, rule.id, view));
    let (verdict, says, instead) = match &clusters[..] {
        [] if view.freshness == Freshness::Current => return None,
        [] => {
            let says = format!("clusters may be deleted with it ({})", view.seen());
            (Verdict::Unknown, says, UNTIL_SEEN.into())
        }
        [first, others @ ..] if all => {
            let (first, others) = (&first.id, and_more(others.len()));
            let says = format!("deleting it deletes every {kind}, and with them cluster {first}{others}");
            let keep = format!("to keep the clusters: delete each {kind} with --cascade=orphan first");
            let remove = say("to remove them permanently: take backups, then ").and(confirmed);
            (Verdict::Deny, says, say(keep).or(remove))
        }
        [first, ..] => {
            let says = format!("deleting it deletes cluster {} ({})", first.id.name, view.describe(first));
            let orphan = format!("kubectl -n {ns} delete {} {object} --cascade=orphan", kind.to_lowercase());
            let keep = say("to keep the cluster without its operator: ").run(CommandLine::new(orphan));
            let pause = say("to remove it temporarily: ").run(first.stop_command()).say(", then delete it");
            let stops = first.keeps_claims() && !is_driven(first);
            let keep = if stops { keep.or(pause) } else { keep };
            let remove = say("to remove the cluster permanently: take a backup, then ").and(confirmed);
            (Verdict::Deny, says, keep.or(remove))
        }
    };
    let why = format!(
        "the {kind} of a cluster owns all of its objects: the garbage collector deletes members, Services and configuration at once, and no \
         rule can stop it"
    );
    let found = rule.finding(verdict, "", says, why, instead);
    Some(added.map(|it| it.finding(&found, review, view)).unwrap_or(found))
}
