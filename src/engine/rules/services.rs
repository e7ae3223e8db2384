//! G16: the Services of a cluster lead to its members, and members find each other before they are Ready.
//!
//! Refuses a change of a Service or of the pod template's labels after which the Service no longer selects its members, and a
//! selector with a label that the template has and the running members do not have yet. Refuses a governing Service
//! (`spec.serviceName`) that is not headless, whether it is created before or after its cluster, and the removal of its
//! `publishNotReadyAddresses`. Warns if it is created without that field, or does not select the members of a new cluster, and
//! if a client Service would also lead to the bootstrap node, or leads to a port on which no server listens. Refuses a client
//! Service that leads to the members of two clusters, by its selector or by the labels of a new cluster; warns if it is
//! headless. Also refuses a change of labels after which a disruption budget no longer selects the members.
//!
//! # Why
//!
//! Every member has a name below the governing Service, and the others look it up while it joins, before it is Ready. Without
//! `publishNotReadyAddresses` that name does not exist yet: no donor can send the joiner its data, and with some images every
//! member that finds no other creates a cluster of its own. A client Service that selects by the instance label alone also
//! leads to the bootstrap node, which will be removed. A selector that matches nothing is not an error for Kubernetes: the
//! Service is empty, and the budget protects no pod. Both select by the labels of pods: labels that were added to a template
//! later (with `updateStrategy: OnDelete`, a partition, or a rollout that has not begun) are on no pod yet.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch service galera-hs --patch='{"spec": {"publishNotReadyAddresses": false}}'
//! [G16] Service db/galera-hs: publishNotReadyAddresses is removed from the governing Service of cluster galera
//! ```
//!
//! # What to do instead
//!
//! Governing Service: `clusterIP: None`, `publishNotReadyAddresses: true`, a selector of labels that every member has.
//! Client Service: a selector that the bootstrap node does not match, such as `app: galera` beside the instance label.
//! To rename labels, create the new Service first (both may exist), move the clients, then delete the old one. A client
//! Service may be changed to select another cluster of the namespace.
//!
//! # Exceptions
//!
//! Annotate the Service or the StatefulSet, for an hour at most:
//! `gatera.dev/override: "G16 until=2026-12-01T10:00:00Z reason=…"`.

mod shared;

use crate::rule::{All, Change, Finding, Findings, Review, Rule, Verdict, View, WRITTEN};
use facts::galera::adopt;
use facts::galera::ports::DEFAULT_PORT;
use facts::view::{Cluster, POD_NAME_LABEL, PodFact, is_cluster};
use facts::way_out::{CommandLine, WayOut, edit, run, say};
use objects::{Container, Kind, Labels, Service, ServicePort, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G16",
    name: "services",
    judges: &[(Kind::Service, WRITTEN, All(service)), (Kind::StatefulSet, WRITTEN, All(stateful_set))],
    depends_on_state: true,
    source: include_str!("services.rs"),
};

const SELECTOR: &str = "spec.selector";
const PUBLISH: &str = "spec.publishNotReadyAddresses";

fn service(review: &Review, view: &View<'_>) -> Findings {
    let (ns, Change { old, new: Some(new) }) = (&*review.namespace, review.change::<Service>()) else {
        return Findings::new();
    };
    let mut found = written(ns, new, view);
    if let Some(old) = old {
        found.extend(view.clusters_in(ns).filter_map(|cluster| {
            taken_away(cluster, old, new, view).or_else(|| too_early(cluster, old, new, view))
        }));
    }
    found
}

fn stateful_set(review: &Review, view: &View<'_>) -> Findings {
    match review.change::<Workload>() {
        Change { old: None, new: Some(new) } if is_cluster(new, view.adoption()) => {
            let governed = governed(&review.namespace, new, view).into_iter();
            governed.chain(shared::by_labels(review, new, view)).collect()
        }
        Change { old: Some(old), new: Some(new) } if is_cluster(old, view.adoption()) => {
            relabelled(review, old, new, view)
        }
        _ => Findings::new(),
    }
}

/// Returns findings about the new Service alone.
fn written(ns: &str, service: &Service, view: &View<'_>) -> Findings {
    let governed = view.governed_by(ns, &service.metadata.name);
    let led_to = view.clusters_for(ns, &service.spec.selector);
    let led_to: Vec<_> = led_to.filter(|it| service.selects(it.member_labels())).collect();
    let others = led_to.iter().filter(|it| !governs(service, it));
    let governed = governed.into_iter().filter_map(|cluster| not_headless(cluster, service));
    let others = others.flat_map(|cluster| {
        to_bootstrap(cluster, service, view).into_iter().chain(to_no_port(cluster, service, view))
    });
    let shared = shared::by_selector(service, &led_to, view);
    governed.chain(others).chain(unpublished(service, &led_to, view)).chain(shared).collect()
}

fn governs(service: &Service, cluster: &Cluster) -> bool {
    cluster.workload.spec.service_name == service.metadata.name
}

fn not_headless(cluster: &Cluster, service: &Service) -> Option<Finding> {
    (!service.headless()).then(|| {
        RULE.deny(
            "spec.clusterIP",
            format!("the governing Service of cluster {} is not headless", cluster.id.name),
            "only a headless Service gives every member a name; an address for all leads to a \
             random member",
            "set clusterIP: None, and create a second Service for clients",
        )
    })
}

/// Returns a warning about a governing Service without `publishNotReadyAddresses`. It is judged by its selector, because it is
/// usually created before its cluster. A Service that does not govern its members may publish only Ready ones.
fn unpublished(service: &Service, led_to: &[&Cluster], view: &View<'_>) -> Option<Finding> {
    let selector = &service.spec.selector;
    let of_members = match led_to {
        [] => view.adoption().adopts(selector) && !adopt::is_bootstrap(selector),
        _ => led_to.iter().any(|cluster| governs(service, cluster)),
    };
    (of_members && service.headless() && !service.spec.publish_not_ready_addresses).then(|| {
        RULE.warn(
            PUBLISH,
            "it does not publish the names of members that are joining",
            "a member joins before it is Ready, and the others must find it by its name then",
            "set publishNotReadyAddresses: true",
        )
    })
}

/// Returns a warning if clients would write to the bootstrap node, which will be removed.
fn to_bootstrap(cluster: &Cluster, service: &Service, view: &View<'_>) -> Option<Finding> {
    // The bootstrap node may not exist yet: assume the labels of the seed documents.
    let name = cluster.instance()?;
    let key = adopt::INSTANCE_LABELS.into_iter().find(|key| cluster.member_labels().contains_key(key))?;
    let usual = Labels::from([("app".into(), "galera-bootstrap".into()), (key.into(), name.into())]);
    let also =
        service.selects(&usual) || view.bootstrap_labels(cluster).any(|labels| service.selects(labels));
    also.then(|| {
        RULE.warn(
            SELECTOR,
            format!("its selector also matches the bootstrap node of cluster {}", cluster.id.name),
            "the bootstrap node is removed as soon as the members have its data, and every connection to it is closed",
            "add a label that only members have, such as app: galera",
        )
    })
}

/// Returns a warning if the servers listen on another port than the one to which the Service leads.
fn to_no_port(cluster: &Cluster, service: &Service, view: &View<'_>) -> Option<Finding> {
    let (spec, server) = cluster.server()?;
    let led = service.spec.ports.iter().find(|it| leads_to(it, server) == Some(DEFAULT_PORT))?;
    let ports = view.ports(&cluster.id.namespace, spec, server);
    let port = ports.clients.filter(|port| *port != DEFAULT_PORT)?;
    Some(RULE.warn(
        "spec.ports",
        format!(
            "its port {} leads to {DEFAULT_PORT}, but the servers of cluster {} listen on {port}",
            led.port, cluster.id.name
        ),
        "no server listens there, so every connection is refused",
        format!("write targetPort: {port}"),
    ))
}

/// Returns the port of this server that a port of a Service leads to.
fn leads_to(port: &ServicePort, server: &Container) -> Option<i64> {
    let Some(target) = &port.target_port else { return Some(port.port) };
    let named = server.ports.iter().find(|port| port.name == target.text());
    named.map_or_else(|| target.text().parse().ok(), |port| Some(port.container_port))
}

/// Returns a finding if a change of the Service removes the members, or the names of members that are not Ready.
fn taken_away(cluster: &Cluster, old: &Service, new: &Service, view: &View<'_>) -> Option<Finding> {
    let name = &cluster.id.name;
    let lost = old.selects(cluster.member_labels()) && !new.selects(cluster.member_labels());
    // A client Service may move to another cluster, or to a single member.
    let elsewhere =
        || view.clusters_in(&cluster.id.namespace).any(|other| new.selects(other.member_labels()));
    let to_one = || {
        let (one, rest): (Vec<_>, Vec<_>) =
            new.spec.selector.iter().partition(|(key, _)| **key == *POD_NAME_LABEL);
        one.first().is_some_and(|(_, name)| cluster.member(name).is_some())
            && rest.iter().all(|(key, value)| cluster.member_labels().get(key) == Some(*value))
    };
    if governs(new, cluster) && old.spec.publish_not_ready_addresses && !new.spec.publish_not_ready_addresses
    {
        let second =
            "to keep clients away from members that are not Ready, create a second Service for clients";
        return Some(RULE.deny(
            PUBLISH,
            format!("publishNotReadyAddresses is removed from the governing Service of cluster {name}"),
            "a member joins before it is Ready: without a name no donor can send it data, and \
             it never becomes Ready",
            say("keep it true").then(second),
        ));
    }
    (lost && (governs(new, cluster) || !elsewhere() && !to_one())).then(|| {
        RULE.deny(
            SELECTOR,
            format!("its selector no longer matches the members of cluster {name}"),
            "a selector that matches nothing is not an error: the Service stays, but is empty, and its \
             clients reach no server",
            if governs(new, cluster) {
                "keep labels in it that every member has; the members' names depend on this Service as \
                 long as the cluster exists"
            } else {
                "create a second Service with the new selector and move its clients there; this one may stay"
            },
        )
    })
}

/// Returns a finding if the template has the labels of the new selector, but running members do not have them yet. A client
/// Service may lose some members as long as it leads to one; the governing Service needs all of them.
fn too_early(cluster: &Cluster, old: &Service, new: &Service, view: &View<'_>) -> Option<Finding> {
    let names = governs(new, cluster);
    let leads = |service: &Service, pod: &PodFact| pod.is_selected_by(&service.spec.selector);
    let there = || {
        let pods = cluster.members.iter().filter_map(|it| it.pod.as_deref());
        pods.filter(|pod| if names { !pod.terminating } else { pod.ready })
    };
    if !new.selects(cluster.member_labels()) || !names && there().any(|pod| leads(new, pod)) {
        return None;
    }
    let lacking: Vec<_> = there().filter(|pod| leads(old, pod) && !leads(new, pod)).collect();
    let restart = restart(cluster, &lacking.last()?.name);
    let lacking: Vec<_> = lacking.iter().map(|pod| &*pod.name).collect();
    let says = format!(
        "the template of cluster {} has the labels of its new selector, but {} do not have them yet ({})",
        cluster.id.name,
        lacking.join(", "),
        view.count(cluster)
    );
    let why = if names {
        "a Service selects by the labels of pods, which change when they restart: a member without its name cannot be found by the others"
    } else {
        "a Service selects by the labels of pods, which change when they restart: until then it is empty, and clients reach no member"
    };
    let instead = restart.then("change the Service when all members have been restarted");
    Some(RULE.deny(SELECTOR, says, why, instead))
}

/// Returns the command with which members, this one first, get the labels of their template.
fn restart(cluster: &Cluster, first: &str) -> WayOut {
    let (ns, name, strategy) =
        (&cluster.id.namespace, &cluster.id.name, &cluster.workload.spec.update_strategy);
    match strategy.held_back() {
        _ if strategy.on_delete() => run(CommandLine::new(format!("kubectl -n {ns} delete pod {first}")))
            .say(", and the next one when all members are Ready"),
        ..=0 => run(CommandLine::new(format!("kubectl -n {ns} rollout status statefulset {name}"))),
        _ => edit(
            CommandLine::new(format!("kubectl -n {ns} patch statefulset {name} --patch"))
                .arg(r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#),
            format!("write partition: 0 under spec.updateStrategy.rollingUpdate of StatefulSet {name}"),
        ),
    }
}

/// Returns a finding if the members of a new cluster would have no names.
fn governed(ns: &str, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let name = &new.spec.service_name;
    let service = view.service(ns, name)?;
    let labels = &new.spec.template.metadata.labels;
    let (verdict, problem) = match (service.headless(), service.selects(labels)) {
        // The same verdict as for a Service that is created after its cluster.
        (false, _) => (Verdict::Deny, "is not headless"),
        (true, false) => (Verdict::Warn, "does not select its members"),
        (true, true) => return None,
    };
    let fit = view.services_for(ns, labels).find(|it| it.headless() && it.selects(labels));
    let instead = match fit {
        Some(fit) => format!(
            "set spec.serviceName: {}, which is headless and selects the template's labels",
            fit.metadata.name
        ),
        None => {
            "name a headless Service that selects the template's labels, with publishNotReadyAddresses: true"
                .to_owned()
        }
    };
    Some(RULE.finding(
        verdict,
        "spec.serviceName",
        format!("its governing Service {name} {problem}, so members have no names"),
        "members find each other by their names below the governing Service",
        instead,
    ))
}

/// Returns findings about new labels that the members' Services and budgets do not select.
fn relabelled(review: &Review, old: &Workload, new: &Workload, view: &View<'_>) -> Findings {
    let ns = &*review.namespace;
    let (before, after) = (&old.spec.template.metadata.labels, &new.spec.template.metadata.labels);
    if before == after {
        return Findings::new();
    }
    let services = view.services_for(ns, before).filter(|it| it.selects(before) && !it.selects(after));
    let budgets = view.budgets_for(ns, before).filter(|it| it.protects(before) && !it.protects(after));
    let named = services.map(|it| ("Service", &it.metadata.name));
    let named = named.chain(budgets.map(|it| ("PodDisruptionBudget", &it.metadata.name)));
    let lost = named.map(|(kind, name)| {
        RULE.deny(
            "spec.template.metadata.labels",
            format!("{kind} {name} does not select the template's new labels"),
            "it loses every member that restarts: first one, then all",
            format!("first make {kind} {name} select labels that stay, then change the template"),
        )
    });
    lost.chain(shared::by_labels(review, new, view)).collect()
}
