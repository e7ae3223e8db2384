//! Injection: what a pod of a Galera cluster gets on its way in, so that a member can leave and join safely.
//!
//! Owns: the list of what is added, in [`into_pod`], and the marks. Must not know: HTTP, clients. Data: the pod as raw
//! JSON (a typed pod would drop fields newer than our types), what is known about its cluster; the pod is changed in
//! place, and what a person should know comes back as lines. Everything is added if it is absent and left alone if it
//! is good enough, so that doing it twice changes nothing.

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

use facts::galera::ports::Ports;
use facts::galera::server;
use facts::marks;
use facts::review::{Operation, Origin, Review};
use facts::revision::Unknown;
use facts::view::{Cluster, PodFact, View};
use objects::{Container, Meta, Object, Pod, PodSpec};

use profile::Profile;

pub use files::START_SCRIPT_TEXT;
pub use ours::{Doubt, doubt};
pub use start::Start;

/// Room to shut down: waiting for a joiner, then flushing to disk.
const GRACE: i64 = 600;
/// What is left of it for flushing when waiting is over.
const FLUSH: i64 = 60;

/// Whose injection it is.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the parts of injection look at.
struct InjectTarget<'a> {
    read: &'a Pod,
    cluster: Option<&'a Cluster>,
    /// A member of the StatefulSet, not the bootstrap node.
    member: bool,
    profile: Profile,
    view: &'a View<'a>,
    namespace: &'a str,
}

impl<'a> InjectTarget<'a> {
    /// A pod of a cluster, and the server in it.
    fn of(read: &'a Pod, namespace: &'a str, view: &'a View<'a>) -> Option<(Self, &'a Container)> {
        let labels = &read.metadata.labels;
        let adopted = !view.left_alone(namespace) && view.adoption().adopts(labels);
        let server = server::in_pod(&read.metadata, &read.spec).filter(|_| adopted)?;
        let owner = read.metadata.controller().filter(|owner| owner.kind == "StatefulSet");
        let of_deployment = read.metadata.controller().is_some_and(|owner| owner.kind == "ReplicaSet");
        if of_deployment && !view.may_found(namespace, &read.metadata, &read.spec) {
            return None;
        }
        let cluster = match owner {
            // Where it is drawn from the pods it left behind, a newer one is there that was not seen yet.
            Some(owner) => view.cluster(namespace, &owner.name).filter(|it| !it.left),
            None => view.cluster_of(namespace, labels),
        };
        let profile = Profile::of(server, read.metadata.mark(marks::PROFILE));
        Some((Self { read, cluster, member: owner.is_some(), profile, view, namespace }, server))
    }

    fn ports(&self, server: &Container) -> Ports {
        self.view.ports(self.namespace, &self.read.spec, server)
    }

    fn mark(&self, name: &str) -> Option<&str> {
        self.read.metadata.mark(name)
    }
}

/// What injection will make of the probes of a server container, so that a rule can say it at the template already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Why the container keeps its probes; `None`: it gets ours.
    pub kept: Option<String>,
    /// Something is in the way, so that the pod gets nothing at all.
    pub in_the_way: bool,
    /// A look at the port takes the place of the liveness probe.
    pub replaces_liveness: bool,
    /// What is wrong with its readiness probe, whose place ours takes.
    pub replaces_readiness: Option<&'static str>,
    /// How long its startup probe waits, and how long the one that takes its place.
    pub replaces_startup: Option<(i64, i64)>,
    /// Ready will mean Synced.
    pub readiness_proves: bool,
    /// Whether a server that crashed will know its position.
    pub start: Start,
}

impl Prospect {
    /// Of the server container of a pod like this one, to which a StatefulSet adds the volumes of these claims.
    pub fn of<'a>(
        server: &Container,
        meta: &Meta,
        spec: &PodSpec,
        claims: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let profile = Profile::of(server, meta.mark(marks::PROFILE));
        let conflict = files::conflict(server, spec, claims);
        let in_the_way = conflict.is_some();
        let kept = conflict.or_else(|| profile.keeps_probes().map(str::to_owned));
        let asks = server.liveness_probe.as_ref().is_some_and(probes::asks_the_database);
        let sees = server.readiness_probe.as_ref().is_some_and(probes::sees_galera);
        let gets_ours = kept.is_none();
        let readiness_proves =
            !in_the_way && sees || gets_ours && meta.mark(marks::READINESS) != Some("keep");
        let start = match Start::of(server, meta) {
            Start::Prepended if in_the_way => Start::Blind {
                why: "gatera injects nothing into its pods",
                instead: "give the volume that is in the way another name or place",
                lasts: false,
            },
            start => start,
        };
        Self {
            replaces_liveness: asks && gets_ours,
            replaces_readiness: probes::replaces_readiness(server, meta).filter(|_| gets_ours),
            replaces_startup: probes::replaces_startup(server, meta).filter(|_| gets_ours),
            readiness_proves,
            in_the_way,
            start,
            kept,
        }
    }
}

/// Puts everything into the pod. Returns what a person should know. Marks of ours that somebody else wrote never stay:
/// they would tell of a pod that was never prepared.
pub fn into_pod(pod: &mut Value, read: &Pod, namespace: &str, view: &View<'_>) -> Vec<String> {
    let view = &view.of_namespace(namespace);
    for mark in read.metadata.marks.keys().filter(|key| marks::is_guards(key)) {
        edit::correct(pod, &[], mark, None);
    }
    let Some((patient, server)) = InjectTarget::of(read, namespace, view) else { return Vec::new() };
    let mut remarks = Vec::new();
    if let Some(conflict) = files::conflict(server, &read.spec, None) {
        remarks.push(format!("gatera injects nothing into this pod: {conflict}"));
        return remarks;
    }
    let grace = longer_grace(pod);
    files::add_volumes(pod, &patient, &identity::of(&patient, server));
    configuration::add(pod, &patient, server, &mut remarks);
    spread::add(pod, &patient, &mut remarks);
    if let Some(node) = identity::place(&patient, server) {
        edit::set(pod, &["spec", "nodeName"], json!(node));
    }
    let (name, mut proven) = (server.name.clone(), false);
    if let Some(container) = container_mut(pod, &name) {
        files::add_mounts(container, &patient);
        probes::add_pre_stop(container, grace - FLUSH);
        proven = probes::add(container, server, &patient, &mut remarks);
        start::add(container, server, &patient, &mut remarks);
        last_words(container);
        unusual_ports(container, patient.ports(server));
    }
    let mark = if proven { VERSION.to_owned() } else { format!("{VERSION} {}", marks::UNPROVEN) };
    edit::annotate(pod, marks::INJECTED, &mark);
    remarks
}

/// The copies of ConfigMaps that a new pod needs and nobody has made yet.
pub fn copies(review: &Review, view: &View<'_>) -> Vec<Value> {
    let new = review.operation == Operation::Create && review.subresource.is_empty();
    let Some(Object::Pod(read)) = review.new.as_ref().filter(|_| new) else { return Vec::new() };
    InjectTarget::of(read, &review.namespace, view)
        .map_or_else(Vec::new, |(patient, server)| configuration::wanted(&patient, server))
}

/// A new member whose StatefulSet, or what it reads, is not known yet.
pub fn is_early(review: &Review, view: &View<'_>) -> bool {
    let new = review.operation == Operation::Create && review.subresource.is_empty() && !review.dry_run;
    let Some(Object::Pod(read)) = review.new.as_ref().filter(|_| new && review.origin == Origin::Mutating)
    else {
        return false;
    };
    let member = |(patient, _): (InjectTarget<'_>, &Container)| {
        let live = patient.cluster.map(|cluster| &cluster.live);
        patient.member && matches!(live, None | Some(Err(Unknown::NotThere(_))))
    };
    InjectTarget::of(read, &review.namespace, view).is_some_and(member)
}

/// Members that run with an address that is no longer the cluster's: their pods, and the option file each should have.
/// A server reads it when it starts, so nobody restarts; those who run learn of each other by gossip.
pub fn outdated<'c>(cluster: &'c Cluster, view: &View<'_>) -> Vec<(&'c PodFact, String)> {
    let Some(address) = files::members(cluster, view) else { return Vec::new() };
    let there = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let outdated: Vec<_> = there
        .filter(|pod| !pod.going && !pod.keeps_address)
        .filter_map(|pod| {
            let now = pod.my_cnf.as_deref()?;
            let then = files::with_address(now, &address);
            (then != now).then_some((pod, then))
        })
        .collect();
    // While members are told to found a cluster (the way back from DOWN), what they have is left to them. Looked at last:
    // it means reading option files.
    let template = &cluster.workload.spec.template;
    let founds =
        || view.founds_new_cluster(&cluster.id.namespace, &template.metadata, &template.spec).is_some();
    if outdated.is_empty() || founds() { Vec::new() } else { outdated }
}

/// What a server says at its end stands in the pod's status, unless it left a message itself; the step and the probes leave theirs
/// where the kubelet reads it.
fn last_words(container: &mut Value) {
    const DEFAULT: &str = "/dev/termination-log";
    let path = container["terminationMessagePath"].as_str().filter(|path| !matches!(*path, "" | DEFAULT));
    if let Some(path) = path.map(str::to_owned) {
        edit::put_named(container, &["env"], json!({ "name": "GATERA_TERMINATION_LOG", "value": path }));
    }
    if matches!(container["terminationMessagePolicy"].as_str(), None | Some("File")) {
        edit::set(container, &["terminationMessagePolicy"], json!("FallbackToLogsOnError"));
    }
}

/// The scripts ask the usual ones if nothing else is said.
fn unusual_ports(container: &mut Value, ports: Ports) {
    for (name, port) in [
        ("GATERA_PORT", ports.clients),
        ("GATERA_SST_PORT", ports.transfer),
        ("GATERA_IST_PORT", ports.missed),
    ] {
        if let Some(port) = port {
            edit::put_named(container, &["env"], json!({ "name": name, "value": port.to_string() }));
        }
    }
}

/// The grace period, raised to the floor; a longer one stays.
fn longer_grace(pod: &mut Value) -> i64 {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let grace = own.max(GRACE);
    edit::set(pod, &["spec", "terminationGracePeriodSeconds"], json!(grace));
    grace
}

fn container_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    edit::at(pod, &["spec", "containers"])?
        .as_array_mut()?
        .iter_mut()
        .find(|container| container["name"] == name)
}
