//! Injection: what the guard adds to a new pod of a Galera cluster, so that a member can leave and join safely.
//!
//! Owns: the list of additions, in [`into_pod`], and the marks. Must not know: HTTP, clients. The input is the pod as raw
//! JSON (a typed pod would drop fields newer than our types) and the view of its cluster; the pod is changed in
//! place. A part is added only if it is absent or insufficient, so a second injection changes nothing.

mod configuration;
pub mod edit;
mod files;
pub mod identity;
mod ours;
mod probes;
mod profile;
mod spread;
mod start;

use serde_json::{Value, json};

use crate::grant;
use facts::galera::ports::Ports;
use facts::galera::start::EntryPoint;
use facts::galera::{driver, server};
use facts::marks;
use facts::review::{Operation, Origin, Review};
use facts::revision::UnknownRevision;
use facts::view::{Cluster, PodFact, View};
use objects::{Container, Meta, Pod, PodSpec};

use profile::Profile;

pub use files::{BITNAMI_SCRIPT_TEXT, SCRIPT_TEXT, START_SCRIPT_TEXT};
pub use ours::{Doubt, doubt};
pub use start::StartMethod;

/// The smallest grace period, in seconds: time to wait for a joiner, then to write to disk.
const MIN_GRACE: i64 = 600;
/// The part of the grace period that is kept for writing to disk.
const FLUSH_TIME: i64 = 60;

/// The version of gatera that injects.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The pod under injection, and what its parts depend on.
struct InjectTarget<'a> {
    /// The pod, read into its type; the patch is made of the JSON.
    typed: &'a Pod,
    /// The container of the server.
    server: &'a Container,
    cluster: Option<&'a Cluster>,
    /// Whether the pod is a member; otherwise it is the bootstrap node.
    member: bool,
    profile: Profile,
    planned: PlannedInjection,
    view: &'a View<'a>,
    namespace: &'a str,
}

impl<'a> InjectTarget<'a> {
    /// Returns the target for a pod of a cluster; `None` for other pods.
    fn of(typed: &'a Pod, namespace: &'a str, view: &'a View<'a>) -> Option<Self> {
        let labels = &typed.metadata.labels;
        let adopted = !view.is_mode_off(namespace) && view.adoption().adopts(labels);
        let server = server::in_pod(&typed.metadata, &typed.spec).filter(|_| adopted)?;
        let owner = typed.metadata.controller().filter(|owner| owner.kind == "StatefulSet");
        let of_deployment = typed.metadata.controller().is_some_and(|owner| owner.kind == "ReplicaSet");
        if of_deployment && !view.may_found(namespace, &typed.metadata, &typed.spec) {
            return None;
        }
        let cluster = match owner {
            // If the view holds only pods without their StatefulSet, a newer one exists that the view has not seen yet.
            Some(owner) => view.cluster(namespace, &owner.name).filter(|cluster| !cluster.orphaned),
            None => view.cluster_of(namespace, labels),
        };
        let profile = Profile::of(server, &typed.metadata);
        let planned = PlannedInjection::of(server, &typed.metadata, &typed.spec, None);
        Some(Self { typed, server, cluster, member: owner.is_some(), profile, planned, view, namespace })
    }

    fn ports(&self) -> Ports {
        self.view.ports(self.namespace, &self.typed.spec, self.server)
    }

    /// Returns whether the server starts through the step script after injection.
    fn starts_with_step_script(&self) -> bool {
        self.planned.start == StartMethod::Prepended || EntryPoint::of(self.server) == EntryPoint::Step
    }

    /// Returns the cluster that the pod may start if it is down, because its step script compares the position.
    fn cluster_to_start(&self) -> Option<&'a Cluster> {
        self.cluster.filter(|_| self.member && self.starts_with_step_script())
    }

    /// Returns whether an operator drives the cluster, and so writes addresses and configuration itself.
    fn is_driven(&self) -> bool {
        self.cluster.is_some_and(|cluster| driver::of(&cluster.workload).is_some())
    }

    fn mark(&self, name: &str) -> Option<&str> {
        self.typed.metadata.mark(name)
    }
}

/// The effects that injection will have on a server container, so that rules can already warn about the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedInjection {
    /// The reason why the container keeps its own probes; `None`: injection replaces those that are not good enough.
    pub keeps_probes: Option<String>,
    /// Whether a conflict prevents the whole injection.
    pub has_conflict: bool,
    /// Whether a check of the port replaces the liveness probe.
    pub replaces_liveness: bool,
    /// The fault of the readiness probe that is replaced.
    pub replaces_readiness: Option<&'static str>,
    /// The seconds for which the startup probe waits, and those of its replacement, if it is replaced.
    pub replaces_startup: Option<(i64, i64)>,
    /// Whether Ready will mean Synced.
    pub ready_means_synced: bool,
    /// The way the server starts, and so whether it knows its position after a crash.
    pub start: StartMethod,
}

impl PlannedInjection {
    /// Returns the effects on a server container, in a pod to which a StatefulSet adds the volumes of these claims.
    pub fn of<'a>(
        server: &Container,
        meta: &Meta,
        spec: &PodSpec,
        claims: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let profile = Profile::of(server, meta);
        let conflict = files::conflict(server, spec, claims);
        let has_conflict = conflict.is_some();
        let keeps_probes = conflict.or_else(|| profile.keeps_probes());
        let liveness_asks_database = server.liveness_probe.as_ref().is_some_and(probes::asks_the_database);
        let readiness_sees_galera = server.readiness_probe.as_ref().is_some_and(probes::sees_galera);
        let replaces_probes = keeps_probes.is_none();
        let ready_means_synced = !has_conflict && readiness_sees_galera
            || replaces_probes && meta.mark(marks::READINESS) != Some("keep");
        let start = match StartMethod::of(server, meta) {
            StartMethod::Prepended if has_conflict => StartMethod::Blind {
                why: "gatera injects nothing into its pods",
                instead: "give the conflicting volume another name or path",
            },
            start => start,
        };
        Self {
            replaces_liveness: liveness_asks_database && replaces_probes,
            replaces_readiness: probes::replaces_readiness(server, meta).filter(|_| replaces_probes),
            replaces_startup: probes::replaces_startup(server, meta).filter(|_| replaces_probes),
            ready_means_synced,
            has_conflict,
            start,
            keeps_probes,
        }
    }
}

/// Injects everything into the pod. Rules report on the template what is replaced or in the way (G14, G15, G19). Marks of
/// the guard that another user wrote are removed, because they would describe a pod that was never injected.
pub fn into_pod(pod: &mut Value, typed: &Pod, namespace: &str, view: &View<'_>) {
    let view = &view.of_namespace(namespace);
    for mark in typed.metadata.marks.keys().filter(|key| marks::is_guards(key)) {
        edit::set_or_remove_annotation(pod, &[], mark, None);
    }
    let target = InjectTarget::of(typed, namespace, view).filter(|target| !target.planned.has_conflict);
    let Some(target) = target else { return };
    let grace = raise_grace(pod);
    files::add_volumes(pod, &target, &identity::value_for_new_pod(&target));
    configuration::add(pod, &target);
    spread::add(pod, &target);
    let node = target.cluster_to_start().and_then(|cluster| grant::node_to_start_on(cluster, typed, view));
    if let Some(node) = node {
        edit::set(pod, &["spec", "nodeName"], json!(node));
    }
    let mut ready_means_synced = false;
    if let Some(container) = container_mut(pod, &target.server.name) {
        files::add_mounts(container, &target);
        probes::add_pre_stop(container, grace - FLUSH_TIME);
        ready_means_synced = probes::add(container, &target);
        start::add(container, &target);
        set_termination_message(container);
        set_unusual_ports(container, target.ports());
    }
    let mark = if ready_means_synced { VERSION.to_owned() } else { format!("{VERSION} {}", marks::UNPROVEN) };
    edit::annotate(pod, marks::INJECTED, &mark);
}

/// Returns the pod that this request creates.
fn created_pod(review: &Review) -> Option<&Pod> {
    let creates = review.operation == Operation::Create && review.subresource.is_empty();
    review.change().new.filter(|_| creates)
}

/// Returns the snapshots of ConfigMaps that a new pod needs and that do not exist yet.
pub fn missing_snapshots(review: &Review, view: &View<'_>) -> Vec<Value> {
    let Some(typed) = created_pod(review) else { return Vec::new() };
    let target = InjectTarget::of(typed, &review.namespace, view);
    target.map_or_else(Vec::new, |target| configuration::missing_snapshots(&target))
}

/// Returns whether a new member's StatefulSet or ConfigMaps are not in the view yet.
pub fn is_ahead_of_view(review: &Review, view: &View<'_>) -> bool {
    let may_wait = review.origin == Origin::Mutating && !review.dry_run;
    let Some(typed) = created_pod(review).filter(|_| may_wait) else { return false };
    let is_incomplete = |target: InjectTarget<'_>| {
        let live = target.cluster.map(|cluster| &cluster.live);
        target.member && matches!(live, None | Some(Err(UnknownRevision::NotThere(_))))
    };
    InjectTarget::of(typed, &review.namespace, view).is_some_and(is_incomplete)
}

/// Returns the pods of running members with an old cluster address, and the option file that each should have. A server reads the
/// file when it starts, so no member restarts; running members find each other by gossip.
pub fn outdated_addresses<'c>(cluster: &'c Cluster, view: &View<'_>) -> Vec<(&'c PodFact, String)> {
    let has_no_operator = driver::of(&cluster.workload).is_none();
    let Some(address) = has_no_operator.then(|| files::cluster_address(cluster, view)).flatten() else {
        return Vec::new();
    };
    let pods = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let outdated: Vec<_> = pods
        .filter(|pod| !pod.terminating && !pod.keeps_address)
        .filter_map(|pod| {
            let current = pod.my_cnf.as_deref()?;
            let wanted = files::with_address(current, &address);
            (wanted != current).then_some((pod, wanted))
        })
        .collect();
    // During a bootstrap by hand the members keep their files. Checked last, because it reads option files.
    let template = &cluster.workload.spec.template;
    let bootstraps_by_hand =
        || view.founds_new_cluster(&cluster.id.namespace, &template.metadata, &template.spec).is_some();
    if outdated.is_empty() || bootstraps_by_hand() { Vec::new() } else { outdated }
}

/// Sets the policy by which the last log lines become the termination message, unless a program wrote to the file for it. The
/// step script and the probes write to that file; a variable gives them its path, if the path is unusual.
fn set_termination_message(container: &mut Value) {
    const DEFAULT: &str = "/dev/termination-log";
    let path = container["terminationMessagePath"].as_str().filter(|path| !matches!(*path, "" | DEFAULT));
    if let Some(path) = path.map(str::to_owned) {
        edit::put_named(container, &["env"], json!({ "name": "GATERA_TERMINATION_LOG", "value": path }));
    }
    if matches!(container["terminationMessagePolicy"].as_str(), None | Some("File")) {
        edit::set(container, &["terminationMessagePolicy"], json!("FallbackToLogsOnError"));
    }
}

/// Sets a variable for each port that differs from the default of the scripts.
fn set_unusual_ports(container: &mut Value, ports: Ports) {
    for (name, port) in [
        ("GATERA_PORT", ports.clients),
        ("GATERA_SST_PORT", ports.transfer),
        ("GATERA_GROUP_PORT", ports.group),
        ("GATERA_IST_PORT", ports.incremental),
    ] {
        if let Some(port) = port {
            edit::put_named(container, &["env"], json!({ "name": name, "value": port.to_string() }));
        }
    }
}

/// Raises the grace period to at least [`MIN_GRACE`], and returns it.
fn raise_grace(pod: &mut Value) -> i64 {
    let current = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let grace = current.max(MIN_GRACE);
    edit::set(pod, &["spec", "terminationGracePeriodSeconds"], json!(grace));
    grace
}

fn container_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    edit::at(pod, &["spec", "containers"])?
        .as_array_mut()?
        .iter_mut()
        .find(|container| container["name"] == name)
}
