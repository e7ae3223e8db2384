//! The objects of the cluster that every story is about, as people would apply them.
//!
//! Must not know: what happens to the objects later. They are what the seed documents install, without the mistakes that the
//! rules refuse.

use objects::Kind;
use serde_json::{Value, json};

use super::store::NAMESPACE;

pub const CLUSTER: &str = "galera";
pub const BOOTSTRAP: &str = "galera-bootstrap";
pub const CONFIG: &str = "galera-config";
pub const BOOTSTRAP_CONFIG: &str = "galera-bootstrap-config";
pub const BOOTSTRAP_SERVICE: &str = "galera-bootstrap-svc";
pub const NODES: usize = 5;

pub fn member(ordinal: i64) -> String {
    format!("{CLUSTER}-{ordinal}")
}

pub fn claim(ordinal: i64) -> String {
    format!("datadir-{CLUSTER}-{ordinal}")
}

pub fn node_name(index: usize) -> String {
    format!("node-{index}")
}

fn labels() -> Value {
    json!({ "app": "galera", "instance": "shop" })
}

fn bootstrap_labels() -> Value {
    json!({ "app": "galera-bootstrap", "instance": "shop" })
}

/// Returns the objects that exist before the cluster is installed: the namespace and the nodes.
pub fn preconditions() -> Vec<(Kind, Value)> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE, "labels": { "kubernetes.io/metadata.name": NAMESPACE, "gatera.dev/mode": "enforce" } } });
    let nodes = (0..NODES).map(|index| {
        let name = node_name(index);
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } }, "spec": {}, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        (Kind::Node, node)
    });
    std::iter::once((Kind::Namespace, namespace)).chain(nodes).collect()
}

/// Returns the option file of members; `extra` is text that a person added to it.
pub fn config(members: i64, extra: &str) -> Value {
    let names: Vec<_> = (0..members).map(|ordinal| format!("{}.galera-hs", member(ordinal))).collect();
    let address = format!("gcomm://{BOOTSTRAP_SERVICE},{}", names.join(","));
    config_with_address(&address, extra)
}

pub fn config_with_address(address: &str, extra: &str) -> Value {
    option_file(CONFIG, address, extra)
}

fn option_file(name: &str, address: &str, extra: &str) -> Value {
    let text = format!(
        "[mysqld]\nwsrep_on = ON\nwsrep_provider = /usr/lib/galera/libgalera_smm.so\nwsrep_sst_method = mariabackup\nbinlog_format = ROW\n\
         wsrep_cluster_address = {address}\n{extra}"
    );
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "galera.cnf": text } })
}

fn service(name: &str, selector: &Value, headless: bool) -> Value {
    let mut it = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": selector }, "spec": { "selector": selector, "ports": [{ "name": "mysql", "port": 3306 }] } });
    if headless {
        it["spec"]["clusterIP"] = json!("None");
        it["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    it
}

fn server(image: &str) -> Value {
    json!({
        "name": "mariadb",
        "image": image,
        "args": ["mariadbd"],
        "env": [{ "name": "MARIADB_ROOT_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "galera", "key": "root" } } }],
        "readinessProbe": { "exec": { "command": ["healthcheck.sh", "--connect"] } },
        "ports": [{ "containerPort": 3306, "name": "mysql" }, { "containerPort": 4567, "name": "galera" }],
    })
}

pub const IMAGE: &str = "mariadb:10.11.8";

pub fn stateful_set(replicas: i64) -> Value {
    let mut container = server(IMAGE);
    container["volumeMounts"] = json!([{ "name": "datadir", "mountPath": "/var/lib/mysql" }, { "name": "config", "mountPath": "/etc/mysql/conf.d" }]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": CLUSTER, "labels": labels(), "annotations": {} },
        "spec": {
            "serviceName": "galera-hs",
            "replicas": replicas,
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": { "type": "RollingUpdate" },
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels(), "annotations": {} },
                "spec": {
                    "terminationGracePeriodSeconds": 600,
                    "containers": [container],
                    "volumes": [{ "name": "config", "configMap": { "name": CONFIG } }],
                },
            },
            "volumeClaimTemplates": [{ "metadata": { "name": "datadir" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } } }],
        },
    })
}

pub fn bootstrap() -> Value {
    let mut container = server(IMAGE);
    container["volumeMounts"] = json!([{ "name": "config", "mountPath": "/etc/mysql/conf.d" }]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": BOOTSTRAP, "labels": bootstrap_labels() },
        "spec": {
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": bootstrap_labels() },
            "template": {
                "metadata": { "labels": bootstrap_labels() },
                "spec": { "containers": [container], "volumes": [{ "name": "config", "configMap": { "name": BOOTSTRAP_CONFIG } }] },
            },
        },
    })
}

/// Returns the objects that an installation applies, in this order.
pub fn installation(members: i64) -> Vec<(Kind, Value)> {
    let mut all = bootstrap_objects();
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "galera", "labels": labels() }, "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels() } } });
    all.extend([
        (Kind::ConfigMap, config(members, "")),
        (Kind::Service, service("galera-hs", &labels(), true)),
        (Kind::Service, service("galera", &labels(), false)),
        (Kind::Budget, budget),
        (Kind::StatefulSet, stateful_set(members)),
    ]);
    all
}

/// Returns the bootstrap Deployment, after the objects that it needs.
pub fn bootstrap_objects() -> Vec<(Kind, Value)> {
    vec![
        (Kind::ConfigMap, option_file(BOOTSTRAP_CONFIG, "gcomm://", "")),
        (Kind::Service, service(BOOTSTRAP_SERVICE, &bootstrap_labels(), true)),
        (Kind::Deployment, bootstrap()),
    ]
}
