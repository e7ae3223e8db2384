//! G03: a whole cluster is not stopped by deleting its StatefulSet or namespace.
//!
//! Refuses to delete the StatefulSet of a cluster that has data, and a namespace with such a cluster or with the claims of one
//! that `gatera stop` stopped; and to give either an owner (`metadata.ownerReferences`) with which it would be deleted, or
//! which hands the cluster to another operator. Deleting only the StatefulSet object (`--cascade=orphan`) is allowed while all
//! members are Ready, or stopped in order, with a warning that says what to do next.
//!
//! # Why
//!
//! When a StatefulSet is deleted, its pods are deleted too, in no guaranteed order. Members
//! that stop at the same moment are all marked `safe_to_bootstrap: 0`, so none may start first afterwards. With a
//! namespace the claims are deleted too, and with them the data.
//!
//! # Example
//!
//! ```text
//! $ helm uninstall galera
//! [G03] StatefulSet db/galera: deleting it stops every member at once (3 of 3 members Synced, seen now)
//! ```
//!
//! The deletion of everything else that the cluster uses is refused as well (G10), so that an uninstall is not half done. Helm
//! hides these messages unless it is called with `--debug`; an Event on each object has them (`kubectl get events`). The
//! release is then marked "uninstalling", and upgrades fail: `helm rollback NAME REVISION` repairs it.
//!
//! # What to do instead
//!
//! * To change a field that Kubernetes does not let you change: with all members Ready, `kubectl delete statefulset NAME
//!   --cascade=orphan`, then apply the new StatefulSet within minutes. The pods keep running. Selector, serviceName and the
//!   names of the claim templates must stay, or the new StatefulSet does not find pods and claims. Without the StatefulSet its
//!   members still count as the cluster: members and objects that they need must not be deleted, and every rule compares the
//!   new StatefulSet with what the members run.
//! * To remove a cluster temporarily: `gatera stop NAME -n NS`, then uninstall; its claims stay. Install it again under the same
//!   name, and `gatera start NAME -n NS` starts it from its claims.
//! * To remove a cluster permanently: take a backup, annotate its StatefulSet with the override of G03, then uninstall. That
//!   override also covers everything the cluster uses, but not the claims (G07).
//!
//! # Exceptions
//!
//! `kubectl annotate statefulset NAME "gatera.dev/override=G03 until=2026-12-01T10:00:00Z reason=…"`, for an hour at
//! most; for a namespace, the same annotation on the Namespace. On the StatefulSet it also covers the deletion of
//! everything the cluster uses, except its claims.

use super::owners;
use crate::exceptions::confirmation;
use crate::rule::{Finding, One, Review, Rule, UNTIL_SEEN, Verb, Verdict, View, and_more};
use facts::view::{Cluster, Freshness, State, is_cluster, is_cluster_by_template};
use facts::way_out::{CommandLine, WayOut, say};
use objects::{Kind, Object, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G03",
    name: "whole-cluster-stop",
    judges: &[
        (Kind::StatefulSet, &[Verb::Create, Verb::Update, Verb::Report], One(owned)),
        (Kind::StatefulSet, &[Verb::Delete], One(deleted)),
        (Kind::Namespace, &[Verb::Update], One(namespace_owned)),
        (Kind::Namespace, &[Verb::Delete], One(namespace)),
    ],
    depends_on_state: true,
    source: include_str!("whole_stop.rs"),
};

fn deleted(review: &Review, view: &View<'_>) -> Option<Finding> {
    match view.cluster(&review.namespace, &review.name) {
        Some(cluster) if !cluster.orphaned => stateful_set(cluster, review, view),
        _ => not_seen_yet(review, view),
    }
}

/// Returns a finding about an owner with which the namespace would be deleted.
fn namespace_owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    // Without the old namespace no owner is known to be added.
    review.old.as_ref()?;
    let added = owners::added(review, view)?;
    Some(added.finding(&namespace(review, view)?, review, view))
}

fn stateful_set(cluster: &Cluster, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, name) = (&cluster.id.namespace, &cluster.id.name);
    let old = review.old.as_ref().map(Object::meta);
    if old.is_some_and(objects::Meta::is_terminating) || !may_hold_data(cluster, view) {
        return None;
    }
    let stopped = view.state(cluster) == State::Stopped;
    if stopped && (review.options.orphans() || cluster.keeps_claims()) {
        let says = "its members are stopped already, and their claims stay".to_owned();
        let instead =
            say("to start it again, apply it under the same name, then ").run(cluster.start_command());
        return Some(finding(Verdict::Warn, says, instead));
    }
    if review.options.orphans() {
        if let Some(waits) = member_missing(cluster, review, view) {
            return Some(waits);
        }
        let says = "its pods keep running, but a pod that is lost is not created again".to_owned();
        let instead = "apply the new StatefulSet within minutes, with the same selector, serviceName and claim templates";
        return Some(finding(Verdict::Warn, says, instead));
    }
    let orphan = CommandLine::new(format!("kubectl -n {ns} delete statefulset {name} --cascade=orphan"));
    let permanently = say("to remove the cluster permanently: take a backup, then ")
        .and(confirmation(review, RULE.id, view));
    if stopped {
        let says = format!("its claims are deleted with it ({})", view.count(cluster));
        let instead = say("to keep the data: ").run(orphan).or(permanently);
        let why = "it owns them, or persistentVolumeClaimRetentionPolicy.whenDeleted is Delete, and the data of stopped members is nowhere else";
        return Some(RULE.deny("", says, why, instead));
    }
    let says = format!("deleting it stops every member at once ({})", view.count(cluster));
    let pause = say("to remove it temporarily: ").run(cluster.stop_command()).say(", then delete it");
    let change =
        say("to change a fixed field, with all members Ready: ").run(orphan).say(", then apply the new one");
    let instead = change.or(pause).or(permanently);
    Some(finding(Verdict::Deny, says, instead))
}

/// Returns a finding if a member is missing: without the StatefulSet it is not created, and one that fails is not replaced.
fn member_missing(cluster: &Cluster, review: &Review, view: &View<'_>) -> Option<Finding> {
    let why = "without its StatefulSet nothing starts the missing member, and the next one that fails is not replaced either";
    let (verdict, instead) = match view.state(cluster) {
        State::Healthy | State::Forming => return None,
        State::Unknown => (Verdict::Unknown, UNTIL_SEEN.into()),
        state => {
            let first = say("make all members Ready first: ");
            let first = match state {
                State::Down => first.run(cluster.recover_command()),
                _ => first.run(cluster.status_command()).say(" shows what each needs"),
            };
            let allow = confirmation(review, RULE.id, view);
            (Verdict::Wait, first.or(say("if the new StatefulSet is meant to repair them: ").and(allow)))
        }
    };
    let says = format!(
        "until the new StatefulSet exists, a pod that is lost is not replaced, and not all members are Ready ({})",
        view.describe(cluster)
    );
    Some(RULE.finding(verdict, "", says, why, instead))
}

/// Returns a finding about a StatefulSet that the view does not show yet: it may have taken over running members.
fn not_seen_yet(review: &Review, view: &View<'_>) -> Option<Finding> {
    let old = review.change::<Workload>().old?;
    let counts = !review.options.orphans() && is_cluster(old, view.adoption());
    let may_run = view.members_run(&review.namespace, &review.name) || view.freshness != Freshness::Current;
    let says = "gatera has not seen it yet, and deleting it may stop running members";
    (counts && may_run).then(|| RULE.unknown("", says, WHY, view))
}

fn namespace(review: &Review, view: &View<'_>) -> Option<Finding> {
    let mut clusters: Vec<_> =
        view.clusters_in(&review.name).filter(|cluster| may_hold_data(cluster, view)).collect();
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    let Some(first) = clusters.first() else {
        return of_a_stopped_cluster(review, view).or_else(|| unseen(review, view));
    };
    let others = and_more(clusters.len() - 1);
    let says = format!(
        "it holds cluster {}{others} ({}), and deleting the namespace deletes the data",
        first.id.name,
        view.count(first)
    );
    let instead = say("take a backup and move the applications that use the database, then ")
        .and(confirmation(review, RULE.id, view));
    Some(RULE.deny("", says, WHY_NAMESPACE, instead))
}

/// Returns a finding if the view is partial: a StatefulSet of this namespace may be among the objects that are not kept.
fn unseen(review: &Review, view: &View<'_>) -> Option<Finding> {
    let view = view.of_namespace(&review.name);
    let says = "it is not known whether it holds a cluster";
    (view.freshness == Freshness::Partial).then(|| RULE.unknown("", says, WHY_NAMESPACE, &view))
}

const WHY_NAMESPACE: &str =
    "everything in a namespace is deleted with it, in no order: members, claims and the data on them";

/// Returns a finding about the claims of a stopped cluster whose StatefulSet is gone.
fn of_a_stopped_cluster(review: &Review, view: &View<'_>) -> Option<Finding> {
    let mut claims = view.waiting_claims(&review.name);
    let (first, others) = (claims.next()?, and_more(claims.count()));
    let says = format!(
        "it holds claim {}{others} of a stopped cluster ({}), and deleting the namespace deletes the data",
        first.metadata.name,
        view.seen()
    );
    let instead = start_again(review, RULE.id, view);
    Some(RULE.deny("", says, WHY_NAMESPACE, instead))
}

/// Returns the advice for claims of a stopped cluster whose StatefulSet is gone; it ends with the override of this rule.
pub(super) fn start_again(review: &Review, rule: &str, view: &View<'_>) -> WayOut {
    say("to start the cluster again: apply its StatefulSet under the same name, then ")
        .run(CommandLine::new(format!("gatera start NAME -n {}", review.namespace)))
        .or("to delete the data, take a backup first, then ")
        .and(confirmation(review, rule, view))
}

/// Returns a finding about an owner with which the StatefulSet would be deleted, or which hands it to another operator.
fn owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Some(Object::StatefulSet(new)) = &review.new else { return None };
    let (added, says) = match &review.old {
        Some(Object::StatefulSet(old)) => {
            let cluster =
                view.cluster(&review.namespace, &review.name).filter(|it| may_hold_data(it, view))?;
            let added = owners::added(review, view).or_else(|| owners::new_operator(old, new, view))?;
            (added, format!("so would the whole cluster ({})", view.count(cluster)))
        }
        _ => {
            let starts = is_cluster_by_template(new, view.adoption())
                && view.claims_of(&review.namespace, new).iter().any(|claim| claim.bound);
            let added = owners::added(review, view).filter(|_| starts)?;
            (added, "so would the members that start from its claims".to_owned())
        }
    };
    Some(added.finding(&finding(Verdict::Deny, says, ""), review, view))
}

/// Returns whether the cluster holds data, or may.
fn may_hold_data(cluster: &Cluster, view: &View<'_>) -> bool {
    cluster.has_data() || view.state(cluster) == State::Unknown
}

const WHY: &str = "members that stop together are all marked as unsafe to bootstrap: the cluster would need a manual \
    bootstrap, and a wrong choice loses data";

fn finding(verdict: Verdict, says: String, instead: impl Into<WayOut>) -> Finding {
    RULE.finding(verdict, "", says, WHY, instead)
}
