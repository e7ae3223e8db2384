//! Services that lead to the members of two clusters: a client would write now to the one, now to the other.
//!
//! Must not know: budgets, which are G14's.

use super::{RULE, SELECTOR, leads_to, members};
use crate::verdict::{Finding, Findings, Verdict};
use facts::review::Review;
use facts::view::{Cluster, View};
use objects::{Kind, Service, Workload};

const WHY: &str = "a connection through it reaches a member of either cluster at random: what is written to the one is missing in the other";

/// This Service does.
pub(super) fn by_selector(ns: &str, service: &Service, view: &View<'_>) -> Option<Finding> {
    let led_to: Vec<_> =
        view.clusters_for(ns, &service.spec.selector).filter(|it| service.selects(members(it))).collect();
    let [one, other, ..] = led_to[..] else { return None };
    let verdict = led_to.iter().find_map(|cluster| verdict(ns, service, cluster, view))?;
    let (one, other) = (&one.id.name, &other.id.name);
    Some(RULE.finding(
        verdict,
        SELECTOR,
        format!("it leads to the members of two clusters, {one} and {other}"),
        WHY,
        "select by a label that only the members of one have, and make a second Service for the other",
    ))
}

/// The members of this cluster would come behind Services of another one.
pub(super) fn by_labels(review: &Review, new: &Workload, view: &View<'_>) -> Findings {
    let ns = &*review.namespace;
    if review.origin.judges_each(Kind::Service) {
        return Findings::new();
    }
    let labels = &new.spec.template.metadata.labels;
    let found = view.services_in(ns).filter(|it| it.selects(labels)).filter_map(|service| {
        let others = view.clusters_for(ns, &service.spec.selector);
        let other = others.filter(|it| it.id.name != review.name).find(|it| service.selects(members(it)))?;
        let verdict = verdict(ns, service, other, view)?;
        let (name, other) = (&service.metadata.name, &other.id.name);
        Some(RULE.finding(
            verdict,
            format!("spec.template.metadata.labels: Service {name}"),
            format!("Service {name}, which leads to cluster {other}, would lead to its members as well"),
            WHY,
            format!(
                "give the pod template another value of a label that Service {name} selects by ({}), and make Services of its own",
                service.spec.selector.keys().map(|key| &**key).collect::<Vec<_>>().join(", ")
            ),
        ))
    });
    found.collect()
}

/// How bad that is; `None`: it leads to no port of a database.
fn verdict(ns: &str, service: &Service, cluster: &Cluster, view: &View<'_>) -> Option<Verdict> {
    let (spec, server) = cluster.server()?;
    let clients = view.ports(ns, spec, server).clients.unwrap_or(super::USUAL_PORT);
    service.spec.ports.iter().find(|it| leads_to(it, server) == Some(clients))?;
    // Of names each member has its own.
    Some(if service.headless() { Verdict::Warn } else { Verdict::Deny })
}
