//! Services that lead to the members of two clusters: a client would write to either of them.
//!
//! Must not know: budgets, which G14 judges.

use super::{RULE, SELECTOR, leads_to};
use crate::verdict::{Finding, Findings, Verdict};
use facts::review::Review;
use facts::view::{Cluster, View};
use objects::{Kind, Service, Workload};

const WHY: &str = "a connection through it reaches a member of either cluster at random: data written to one is missing in the other";

/// Returns a finding about a Service whose selector leads to two of these clusters.
pub(super) fn by_selector(service: &Service, led_to: &[&Cluster], view: &View<'_>) -> Option<Finding> {
    let [one, other, ..] = led_to else { return None };
    let verdict = led_to.iter().find_map(|cluster| verdict(service, cluster, view))?;
    let (one, other) = (&one.id.name, &other.id.name);
    Some(RULE.finding(
        verdict,
        SELECTOR,
        format!("it leads to the members of two clusters, {one} and {other}"),
        WHY,
        "select by a label that only the members of one cluster have, and create another Service for the other cluster",
    ))
}

/// Returns findings about a cluster whose members would be selected by the Services of another one.
pub(super) fn by_labels(review: &Review, new: &Workload, view: &View<'_>) -> Findings {
    let ns = &*review.namespace;
    if review.origin.judges_each(Kind::Service) {
        return Findings::new();
    }
    let labels = &new.spec.template.metadata.labels;
    let found = view.services_for(ns, labels).filter(|it| it.selects(labels)).filter_map(|service| {
        let others = view.clusters_for(ns, &service.spec.selector);
        let other = others.filter(|it| it.id.name != review.name).find(|it| service.selects(it.member_labels()))?;
        let verdict = verdict(service, other, view)?;
        let (name, other) = (&service.metadata.name, &other.id.name);
        Some(RULE.finding(
            verdict,
            format!("spec.template.metadata.labels: Service {name}"),
            format!("Service {name}, which leads to cluster {other}, would lead to its members as well"),
            WHY,
            format!(
                "give the pod template another value of a label that Service {name} selects by ({}), and create its own Services",
                service.spec.selector.keys().map(|key| &**key).collect::<Vec<_>>().join(", ")
            ),
        ))
    });
    found.collect()
}

/// Returns the severity; `None`: the Service does not lead to the database port.
fn verdict(service: &Service, cluster: &Cluster, view: &View<'_>) -> Option<Verdict> {
    let (spec, server) = cluster.server()?;
    let clients = view.ports(&cluster.id.namespace, spec, server).clients.unwrap_or(super::DEFAULT_PORT);
    service.spec.ports.iter().find(|it| leads_to(it, server) == Some(clients))?;
    // A headless Service gives each member its own name.
    Some(if service.headless() { Verdict::Warn } else { Verdict::Deny })
}
