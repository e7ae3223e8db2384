//! The clusters of the benchmark: any number of Galera clusters of three members, each in its own namespace or all in one.
//!
//! The objects in `captured/` were read from a real API server (1.36) after `kubectl apply` of
//! `tests/fixtures/galera.yaml`, including managed fields and the last-applied annotation. This file only moves them to
//! other namespaces and adds what the scheduler, the provisioner and the kubelet would add. They are read by the same reader as
//! all objects.

use facts::settings::Settings;
use facts::view::Facts;
use gatera::rulebook;
use objects::{Kind, Object};
use serde_json::{Value, json};

/// The name of the StatefulSet in every namespace.
pub const STATEFUL_SET: &str = "galera-instance-galera";
/// The name of the ConfigMap that the members read.
pub const CONFIG_MAP: &str = "galera-instance-nodeconfig";
/// The content of that ConfigMap.
pub const OPTIONS: &str = "[galera]
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_cluster_address = gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs
wsrep_sst_method = mariabackup
binlog_format = ROW
innodb_autoinc_lock_mode = 2
";
/// The number of clusters in a full view.
pub const CLUSTERS: usize = 1000;
/// The number of members of each cluster.
pub const MEMBERS: usize = 3;
const NODES: usize = 30;

/// Returns the namespace of a cluster.
pub fn namespace(cluster: usize) -> String {
    format!("db-{cluster:04}")
}

/// Moves a captured object to the namespace of `cluster`, and gives it a uid of this cluster.
fn moved(captured: &str, cluster: usize) -> Value {
    let text = captured.replace("db-0000", &namespace(cluster)).replace("db0000", &format!("db{cluster:04}"));
    serde_json::from_str(&text).expect("a captured object is JSON")
}

/// Returns the StatefulSet of a cluster whose members have data.
pub fn stateful_set(cluster: usize) -> Value {
    let mut it = moved(include_str!("captured/stateful-set.json"), cluster);
    it["metadata"]["annotations"]["gatera.dev/data"] = json!("present");
    it["status"]["readyReplicas"] = json!(MEMBERS);
    it
}

/// Returns a member as the StatefulSet controller creates it.
pub fn new_pod(cluster: usize, ordinal: usize) -> Value {
    let name = format!("{STATEFUL_SET}-{ordinal}");
    let captured = include_str!("captured/pod.json").replace("galera-instance-galera-0", &name);
    let mut it = moved(&captured, cluster);
    it["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    it["metadata"]["uid"] = json!(format!("eeaf12bd-c153-4f57-95dc-{ordinal:04}0000{cluster:04}"));
    it
}

/// Returns a member that runs and is Ready.
pub fn pod(cluster: usize, ordinal: usize) -> Value {
    let mut it = new_pod(cluster, ordinal);
    it["metadata"]["annotations"] = json!({ "gatera.dev/injected": env!("CARGO_PKG_VERSION") });
    it["spec"]["nodeName"] = json!(format!("node-{}", (cluster + ordinal) % NODES));
    it["status"] = running();
    it
}

/// Returns the status that a kubelet reports for a healthy member.
pub fn running() -> Value {
    let now = "2026-11-21T08:20:00Z";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
    let server = json!({
        "name": "mariadb",
        "image": "mariadb:10.11",
        "imageID": "mariadb@sha256:7a0f9a4b5e5a3d1e5d0f6c0b2c1c8b4a5e6f7081920a1b2c3d4e5f60718293a4",
        "ready": true,
        "started": true,
        "restartCount": 0,
        "state": { "running": { "startedAt": now } },
    });
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({ "phase": "Running", "conditions": conditions, "containerStatuses": [server] })
}

fn claim(cluster: usize, ordinal: usize) -> Value {
    let name = format!("galera-instance-galera-{ordinal}");
    let mut it =
        moved(&include_str!("captured/claim.json").replace("galera-instance-galera-0", &name), cluster);
    it["status"]["phase"] = json!("Bound");
    it
}

/// Returns everything in the namespace of a cluster that the guard watches.
fn objects(cluster: usize) -> Vec<(Kind, Value)> {
    let namespace = namespace(cluster);
    let within = |name: &str| json!({ "name": name, "namespace": namespace, "labels": { "app": "galera" } });
    let labels = json!({ "kubernetes.io/metadata.name": namespace, "gatera.dev/mode": "enforce" });
    let selector = json!({ "app": "galera", "instance": "galera-instance" });
    let mut objects = vec![
        (Kind::Namespace, json!({ "metadata": { "name": namespace, "labels": labels } })),
        (Kind::StatefulSet, stateful_set(cluster)),
        (Kind::Budget, json!({ "metadata": within("galera"), "spec": { "maxUnavailable": 1 } })),
        (Kind::ConfigMap, json!({ "metadata": within(CONFIG_MAP), "data": { "galera.cnf": OPTIONS } })),
        (
            Kind::Service,
            json!({
                "metadata": within("galera-instance-hs"),
                "spec": { "selector": selector, "clusterIP": "None", "publishNotReadyAddresses": true },
            }),
        ),
        (
            Kind::Service,
            json!({ "metadata": within("galera-instance-cs"), "spec": { "selector": selector } }),
        ),
    ];
    for ordinal in 0..MEMBERS {
        objects.push((Kind::Pod, pod(cluster, ordinal)));
        objects.push((Kind::Claim, claim(cluster, ordinal)));
    }
    objects
}

/// How the clusters are spread over namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each cluster has its own namespace.
    EachAlone,
    /// All clusters share one namespace, under different names.
    Together,
}

impl Spread {
    /// Reads the argument of a role.
    pub fn of(together: &str) -> Self {
        if together == "true" { Self::Together } else { Self::EachAlone }
    }

    /// Moves an object of a cluster to the namespace and the name that this spread gives it.
    pub fn moved(self, object: Value, cluster: usize) -> Value {
        if self == Self::EachAlone {
            return object;
        }
        serde_json::from_str(&self.renamed(&object.to_string(), cluster))
            .expect("JSON with other names is still JSON")
    }

    /// Replaces the namespace and the name of a cluster in a text.
    pub fn renamed(self, text: &str, cluster: usize) -> String {
        match self {
            Self::EachAlone => text.to_owned(),
            Self::Together => {
                let text = text.replace(&namespace(cluster), &namespace(0));
                text.replace("galera-instance", &format!("galera-{cluster:04}"))
            }
        }
    }
}

/// Returns all objects that the guard watches.
pub fn all(clusters: usize, spread: Spread) -> impl Iterator<Item = (Kind, Value)> {
    let nodes = (0..NODES).map(|number| (Kind::Node, node(number)));
    // Clusters are made one after the other, so that their JSON is never in memory all at once.
    let objects = (0..clusters).flat_map(move |cluster| {
        objects(cluster).into_iter().map(move |(kind, object)| (kind, spread.moved(object, cluster)))
    });
    nodes.chain(objects)
}

fn node(number: usize) -> Value {
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    json!({ "metadata": { "name": format!("node-{number}") }, "status": ready })
}

/// Returns what the watches would know of this many clusters.
pub fn facts(clusters: usize, settings: &Settings) -> Facts {
    let mut facts = rulebook().facts(&settings.adoption);
    for (kind, object) in all(clusters, Spread::EachAlone) {
        let object = Object::read(kind, &object.to_string()).expect("the fleet is made of readable objects");
        assert!(facts.put(object), "the view holds this kind");
    }
    facts
}
