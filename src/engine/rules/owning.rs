//! The deletion of a custom resource that owns all objects of a cluster, for the packs of operators.
//!
//! Must not know: any pack.

use super::owners;
use crate::exceptions::confirmation;
use crate::rule::{Rule, UNTIL_SEEN, and_more};
use crate::verdict::{Finding, Verdict};
use facts::galera::driver;
use facts::review::{Operation, Review};
use facts::view::{Cluster, Freshness, State, View};
use facts::way_out::{CommandLine, say};
use objects::{Kind, Object, Owner};

/// Judges a request that deletes an object of this kind, or all of them, together with the clusters that they own. `owner` returns
/// the object of this kind that owns a cluster.
pub fn judge(
    rule: &Rule,
    kind: Kind,
    owner: impl Fn(&Cluster) -> Option<&Owner>,
    review: &Review,
    view: &View<'_>,
) -> Option<Finding> {
    if review.operation == Operation::Update {
        let added = owners::added(review, view)?;
        return Some(added.finding(&clusters_deleted(rule, kind, owner, false, review, view)?, review, view));
    }
    let all = match &review.old {
        // Orphaning the dependents of a definition still deletes its objects, and what those own.
        Some(Object::Definition(it)) if it.metadata.name == format!("{}.{}", kind.plural(), kind.group()) => {
            true
        }
        Some(Object::Definition(_)) => return None,
        Some(it) if it.meta().is_terminating() || review.options.orphans() => return None,
        _ => false,
    };
    clusters_deleted(rule, kind, owner, all, review, view)
}

/// Returns a finding about the clusters with data that would be deleted: those of one object, or all.
fn clusters_deleted(
    rule: &Rule,
    kind: Kind,
    owner: impl Fn(&Cluster) -> Option<&Owner>,
    all: bool,
    review: &Review,
    view: &View<'_>,
) -> Option<Finding> {
    let (ns, object) = (&review.namespace, &review.name);
    let is_owned =
        |it: &&Cluster| owner(it).is_some_and(|owner| all || it.id.namespace == *ns && owner.name == *object);
    let may_hold_data = |it: &&Cluster| it.has_data() || view.state(it) == State::Unknown;
    // `gatera stop` stops no cluster that an operator drives.
    let is_driven = |it: &Cluster| driver::of(&it.workload).is_some();
    let is_kept_stopped =
        |it: &&Cluster| !is_driven(it) && view.state(it) == State::Stopped && it.keeps_claims();
    let why = format!(
        "the {} of a cluster owns all of its objects: the garbage collector deletes members, Services and configuration at once, and no \
         rule can stop it",
        kind.name()
    );
    let mut clusters: Vec<_> =
        view.clusters().filter(|it| is_owned(it) && may_hold_data(it) && !is_kept_stopped(it)).collect();
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    let Some(first) = clusters.first() else {
        let says = format!("clusters may be deleted with it ({})", view.seen());
        let unknown = view.freshness != Freshness::Current;
        return unknown.then(|| rule.finding(Verdict::Unknown, "", says, why, UNTIL_SEEN));
    };
    let confirmed = confirmation(review, rule.id, view);
    let (says, instead) = if all {
        let others = and_more(clusters.len() - 1);
        let keep = format!("to keep the clusters: delete each {} with --cascade=orphan first", kind.name());
        (
            format!("deleting it deletes every {}, and with them cluster {}{others}", kind.name(), first.id),
            say(keep).or(say("to remove them permanently: take backups, then ").and(confirmed)),
        )
    } else {
        let orphan =
            format!("kubectl -n {ns} delete {} {object} --cascade=orphan", kind.name().to_lowercase());
        let keep = say("to keep the cluster without its operator: ").run(CommandLine::new(orphan));
        let pause = say("to remove it temporarily: ").run(first.stop_command()).say(", then delete it");
        let stops = first.keeps_claims() && !is_driven(first);
        let keep = if stops { keep.or(pause) } else { keep };
        (
            format!("deleting it deletes cluster {} ({})", first.id.name, view.describe(first)),
            keep.or(say("to remove the cluster permanently: take a backup, then ").and(confirmed)),
        )
    };
    Some(rule.finding(Verdict::Deny, "", says, why, instead))
}
