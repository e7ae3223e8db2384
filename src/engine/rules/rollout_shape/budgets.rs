//! The part of G14 about disruption budgets: how many members a drain may evict.

use super::super::owners;
use super::RULE;
use crate::verdict::{Finding, Findings};
use facts::review::{Change, Review};
use facts::view::{Cluster, View};
use facts::way_out::say;
use objects::{Budget, Kind, Labels, Workload};

pub(super) fn check(review: &Review, view: &View<'_>) -> Findings {
    let Change { old, new } = review.change::<Budget>();
    let added = owners::added(review, view);
    let no_longer_protected = |was: Option<&Budget>, is: Option<&Budget>| {
        let before = was.into_iter().flat_map(|was| view.clusters_protected(&review.namespace, was));
        let lost = before.filter(|cluster| !is.is_some_and(|is| is.protects(cluster.member_labels())));
        lost.filter_map(|cluster| unprotected(review, cluster, is.is_none(), view)).collect::<Findings>()
    };
    let mut findings: Findings = new.into_iter().flat_map(|new| changed(review, old, new, view)).collect();
    findings.extend(no_longer_protected(old, new));
    // The budget would be deleted together with the added owner.
    if let Some(added) = &added {
        let deletion = no_longer_protected(new, None).into_iter();
        findings.extend(deletion.map(|it| added.finding(&it, review, view)));
    }
    findings
}

/// The clusters that a budget selects, and the number of their members together.
struct ProtectedClusters {
    names: Vec<String>,
    members: i64,
}

impl ProtectedClusters {
    /// Returns the clusters that this budget selects, including the one that the request creates.
    fn by(ns: &str, budget: &Budget, created: Option<&Workload>, view: &View<'_>) -> Self {
        let known = view.clusters_protected(ns, budget).map(|it| &*it.workload);
        let known = known.filter(|it| created.is_none_or(|new| new.metadata.name != it.metadata.name));
        let created = created.filter(|it| budget.protects(&it.spec.template.metadata.labels));
        let all = known.chain(created);
        let (names, members): (Vec<_>, Vec<_>) =
            all.map(|it| (it.metadata.name.clone(), it.replicas())).unzip();
        Self { names, members: members.into_iter().fold(0, i64::saturating_add) }
    }
}

/// Returns findings about a written budget.
fn changed(review: &Review, old: Option<&Budget>, new: &Budget, view: &View<'_>) -> Findings {
    let protected = ProtectedClusters::by(&review.namespace, new, None, view);
    let mut findings = written(&protected, new);
    // A fault that existed before is softened. One that becomes worse is not: with another field, it is a new finding.
    if old.is_some_and(|old| old.evictable(protected.members) < new.evictable(protected.members)) {
        findings.iter_mut().filter(|it| it.field != POLICY_FIELD).for_each(|it| it.field = "spec".into());
    }
    findings
}

/// Returns findings about budgets that were created before the StatefulSet whose members they select.
pub(super) fn created_before(review: &Review, new: &Workload, view: &View<'_>) -> Findings {
    if review.origin.judges_each(Kind::Budget) {
        return Findings::new();
    }
    let labels = &new.spec.template.metadata.labels;
    let budgets = view.budgets_for(&review.namespace, labels).filter(|budget| budget.protects(labels));
    let findings = budgets.flat_map(|budget| {
        let name = &budget.metadata.name;
        let protected = ProtectedClusters::by(&review.namespace, budget, Some(new), view);
        written(&protected, budget).into_iter().map(move |finding| Finding {
            says: format!("PodDisruptionBudget {name}: {}", finding.says),
            instead: say(format!("in PodDisruptionBudget {name}: ")).and(finding.instead),
            field: format!("spec.template.metadata.labels: {name} {}", finding.field),
            ..finding
        })
    });
    findings.collect()
}

/// Returns warnings about budgets that allow more evictions at once when a cluster has more members.
pub(super) fn outgrown(review: &Review, labels: &Labels, from: i64, to: i64, view: &View<'_>) -> Findings {
    if to <= from {
        return Findings::new();
    }
    let budgets = view.budgets_for(&review.namespace, labels).filter(|budget| budget.protects(labels));
    let findings = budgets.filter_map(|budget| {
        let members = ProtectedClusters::by(&review.namespace, budget, None, view).members;
        let (before, after) = (budget.evictable(members)?, budget.evictable(members - from + to)?);
        (before < 2 && after >= 2).then(|| {
            let name = &budget.metadata.name;
            let says = format!("with {to} members PodDisruptionBudget {name} allows {after} evictions at once; with {from} it allowed {before}");
            RULE.warn("spec.replicas", says, WHY_ONE_AT_A_TIME, format!("write maxUnavailable: 1 in PodDisruptionBudget {name}"))
        })
    });
    findings.collect()
}

const WHY_ONE_AT_A_TIME: &str =
    "members that are drained together count as crashed, and the rest may not be a majority";

const POLICY_FIELD: &str = "spec.unhealthyPodEvictionPolicy";

/// Returns findings about what a budget says for the clusters that it selects.
fn written(protected: &ProtectedClusters, budget: &Budget) -> Findings {
    if protected.names.is_empty() {
        return Findings::new();
    }
    let members = protected.members;
    let name = match &protected.names[..] {
        [one] => format!("cluster {one}"),
        several => format!("clusters {}", several.join(" and ")),
    };
    let field =
        if budget.spec.max_unavailable.is_some() { "spec.maxUnavailable" } else { "spec.minAvailable" };
    let number = match budget.evictable(members) {
        Some(count @ 2..) if members >= 2 => Some(RULE.deny(
            field,
            format!("it allows eviction of {} of {members} members of {name} at once", count.min(members)),
            WHY_ONE_AT_A_TIME,
            "write maxUnavailable: 1",
        )),
        Some(..=0) if members > 0 => Some(RULE.warn(
            field,
            format!("it allows no eviction of members of {name}, so a drain never ends"),
            "an administrator who must empty a node then deletes the pods, which no budget prevents",
            "write maxUnavailable: 1",
        )),
        _ => None,
    };
    let policy = (budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow").then(|| {
        RULE.warn(
            POLICY_FIELD,
            "AlwaysAllow lets a drain evict a member that is still joining",
            "a member that is joining is not Ready; if it is evicted, its copy of the data is incomplete and starts again",
            "leave unhealthyPodEvictionPolicy out",
        )
    });
    let several_clusters = (protected.names.len() > 1).then(|| {
        RULE.warn(
            "spec.selector",
            format!("it is one budget for the members of {name} together"),
            "while a member of one cluster is missing, it allows no eviction from the other, and a number that is right for one cluster is wrong for both together",
            "select by a label that only the members of one cluster have, and create another budget for the other cluster",
        )
    });
    number.into_iter().chain(several_clusters).chain(policy).collect()
}

/// Returns a finding if the last budget of a running cluster is deleted, or selects other pods.
fn unprotected(review: &Review, cluster: &Cluster, deleted: bool, view: &View<'_>) -> Option<Finding> {
    let labels = &cluster.workload.spec.template.metadata.labels;
    let another = view
        .budgets_for(&review.namespace, labels)
        .any(|it| it.metadata.name != review.name && it.protects(labels));
    let runs = cluster.members.iter().any(|member| member.pod.is_some());
    if another || !runs || cluster.workload.metadata.is_terminating() {
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
    Some(RULE.deny(
        field,
        says,
        "without a budget a drain evicts all members on its node at once while the guard does not answer",
        "create its replacement first (maxUnavailable: 1, labels that every member has)",
    ))
}
