//! The part of G14 about disruption budgets: how many members a drain may take.

use super::super::owners;
use super::{deny, warn};
use crate::object::{Budget, Kind, Object, Workload};
use crate::review::Review;
use crate::verdict::{Finding, Findings};
use crate::view::{Cluster, View};

pub(super) fn check(review: &Review, view: &View<'_>) -> Findings {
    let budget = |object: &'_ Option<Object>| match object {
        Some(Object::Budget(budget)) => Some(budget.clone()),
        _ => None,
    };
    let (old, new) = (budget(&review.old), budget(&review.new));
    let added = owners::added(review, view);
    let judge = |cluster| {
        let mut found = judged(review, cluster, old.as_ref(), new.as_ref(), view);
        // With such an owner it goes, too.
        if let Some(added) = &added {
            let end = judged(review, cluster, new.as_ref(), None, view).into_iter();
            found.extend(end.map(|it| added.finding(&it, review, view)));
        }
        found
    };
    view.clusters_in(&review.namespace).flat_map(judge).collect()
}

fn judged(
    review: &Review,
    cluster: &Cluster,
    old: Option<&Budget>,
    new: Option<&Budget>,
    view: &View<'_>,
) -> Findings {
    let protects = |budget: &&Budget| budget.protects(&cluster.workload.spec.template.metadata.labels);
    match (old.filter(protects), new.filter(protects)) {
        (None, Some(new)) => written(&cluster.id.name, cluster.workload.replicas(), new),
        (Some(old), Some(new)) => {
            let mut found = written(&cluster.id.name, cluster.workload.replicas(), new);
            // What was too much before may stay, and not become more.
            let members = cluster.workload.replicas();
            if old.lets_go(members) < new.lets_go(members) {
                found.iter_mut().filter(|it| it.field != POLICY).for_each(|it| it.field = "spec".into());
            }
            found
        }
        (Some(_), None) => unprotected(review, cluster, new.is_none(), view).into_iter().collect(),
        (None, None) => Findings::new(),
    }
}

/// Budgets that were there before the StatefulSet whose members they are about.
pub(super) fn waited_for(review: &Review, new: &Workload, view: &View<'_>) -> Findings {
    if review.origin.judges_each(Kind::Budget) {
        return Findings::new();
    }
    let labels = &new.spec.template.metadata.labels;
    let about = view.budgets_in(&review.namespace).filter(|budget| budget.protects(labels));
    let found = about.flat_map(|budget| {
        let name = &budget.metadata.name;
        written(&review.name, new.replicas(), budget).into_iter().map(move |finding| Finding {
            says: format!("PodDisruptionBudget {name}: {}", finding.says),
            instead: format!("in PodDisruptionBudget {name}: {}", finding.instead),
            field: format!("spec.template.metadata.labels: {name} {}", finding.field),
            ..finding
        })
    });
    found.collect()
}

const POLICY: &str = "spec.unhealthyPodEvictionPolicy";

/// What a budget breaks by itself.
fn written(name: &str, members: i64, budget: &Budget) -> Findings {
    let field =
        if budget.spec.max_unavailable.is_some() { "spec.maxUnavailable" } else { "spec.minAvailable" };
    let number = match budget.lets_go(members) {
        Some(count @ 2..) if members >= 2 => Some(deny(
            field,
            format!("it lets {} of {members} members of cluster {name} go at once", count.min(members)),
            "members that are drained together count as crashed, and what is left may be no majority",
            "write maxUnavailable: 1".into(),
        )),
        Some(..=0) if members > 0 => Some(warn(
            field,
            format!("it lets no member of cluster {name} go, so a drain waits for ever"),
            "whoever must empty a node then deletes the pods, which no budget prevents",
            "write maxUnavailable: 1".into(),
        )),
        _ => None,
    };
    let always = (budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow").then(|| {
        warn(
            POLICY,
            "AlwaysAllow lets a drain throw out a member that is still joining".into(),
            "a member that is joining is not Ready; interrupted, it has half a database and begins anew",
            "leave unhealthyPodEvictionPolicy out".into(),
        )
    });
    number.into_iter().chain(always).collect()
}

/// The last budget of a cluster that runs goes, or turns to other pods.
fn unprotected(review: &Review, cluster: &Cluster, deleted: bool, view: &View<'_>) -> Option<Finding> {
    let labels = &cluster.workload.spec.template.metadata.labels;
    let another =
        view.budgets_in(&review.namespace).any(|it| it.metadata.name != review.name && it.protects(labels));
    let runs = cluster.members.iter().any(|member| member.pod.is_some());
    if another || !runs || cluster.workload.metadata.going() {
        return None;
    }
    let name = &cluster.id.name;
    let (field, says) = if deleted {
        (
            "",
            format!(
                "it is the only budget that protects the members of cluster {name} ({})",
                view.describe(cluster)
            ),
        )
    } else {
        (
            "spec.selector",
            format!("it no longer protects the members of cluster {name}, and no other budget does"),
        )
    };
    Some(deny(
        field,
        says,
        "without a budget a drain takes all members from its node at once, whenever the guard is not there to answer",
        "make the budget that replaces it first (maxUnavailable: 1, labels that every member has)".into(),
    ))
}
