//! Scenes: a cluster in some state, described in a few words and built as the objects that an API server would hold.
//!
//! The objects go through the same reader as all others; nothing here depends on a rule.

use facts::settings::Settings;
use facts::view::{Facts, Freshness, View, World};
use gatera::rulebook;
use jiff::Timestamp;
use objects::{Kind, Object};
use serde::Deserialize;
use serde_json::{Value, json};

mod members;

/// The namespace of the cluster in every scene.
pub const NAMESPACE: &str = "db";
/// The name of the cluster in every scene, as in the seed documents.
pub const STATEFUL_SET: &str = "galera-instance-galera";
/// The name of the bootstrap Deployment in every scene.
pub const BOOTSTRAP: &str = "galera-instance-bootstrap";
/// The identity of the cluster.
pub const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
const INSTANCE: &str = "galera-instance";
/// The cluster address in the option file.
const ADDRESS: &str = "gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs";

pub fn now() -> Timestamp {
    "2026-12-01T09:30:00Z".parse().unwrap()
}

/// What exists before a request is made.
#[allow(clippy::struct_excessive_bools, reason = "a case file names the ones it means")]
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scene {
    /// One entry per member: ready, unverified (Ready, but not injected), starting, gives (it has started, but is not Ready now,
    /// as a donor), pending, stuck, preparing (its init container keeps failing), unpulled, going or absent. Or a word and a
    /// text: "reported" and the report of its step script, "refused" and why the script did not start the server, or "ended" and
    /// the error with which the server ended.
    pub members: Vec<String>,
    /// The number of replicas, if it is not the number of entries in `members`.
    pub replicas: Option<i64>,
    /// The value of the data mark: present or none. Empty: there is no mark, because the cluster is older than the guard.
    pub data: String,
    /// Whether the members have claims, which are Bound.
    pub claims: bool,
    /// The seqno at which each member's data ended when it was stopped, as its claim records it; 0 if it is recorded as unknown.
    pub ended: Vec<u64>,
    /// The state of the bootstrap Deployment: absent, held (0 replicas) or running.
    pub bootstrap: String,
    /// The freshness of the view: current, loading or stale.
    pub view: String,
    /// Whether the StatefulSet's `podManagementPolicy` is Parallel.
    pub parallel: bool,
    /// Whether the StatefulSet exists; if not, its members are as `kubectl delete --cascade=orphan` leaves them.
    pub exists: bool,
    /// A merge patch for the StatefulSet.
    pub stateful_set: Value,
    /// A merge patch for the ConfigMap that members read.
    pub config: Value,
    /// The text of the option file when the running members started. They mount the file and received a copy of it.
    pub started_with: Option<String>,
    /// The value of the namespace's mode label.
    pub mode: Option<String>,
    /// The value of the namespace's break-glass annotation.
    pub glass: Option<String>,
    /// Whether the namespace is being deleted.
    pub namespace_going: bool,
    /// Additional objects. Each replaces the usual object of the same kind and name.
    pub also: Vec<Value>,
    /// The usual objects that do not exist, as `Kind/name`.
    pub without: Vec<String>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            members: vec!["ready".into(); 3],
            replicas: None,
            data: "present".into(),
            claims: true,
            ended: Vec::new(),
            bootstrap: "absent".into(),
            view: "current".into(),
            parallel: false,
            exists: true,
            stateful_set: Value::Null,
            config: Value::Null,
            started_with: None,
            mode: Some("enforce".into()),
            glass: None,
            namespace_going: false,
            also: Vec::new(),
            without: Vec::new(),
        }
    }
}

impl Scene {
    pub fn world(&self, settings: &Settings) -> World {
        let freshness = match &*self.view {
            "current" => Freshness::Current,
            "loading" => Freshness::Loading,
            "stale" => Freshness::Stale(jiff::SignedDuration::from_secs(42)),
            other => panic!("unknown freshness of the view: {other:?}"),
        };
        World::build(self.facts(settings), freshness)
    }

    /// Returns the facts of this scene, before any Event has been read.
    pub fn facts(&self, settings: &Settings) -> Facts {
        facts_of(self.objects().iter().map(|(_, object)| object), settings)
    }

    /// Returns the object that `Kind/name` names.
    pub fn object(&self, what: &str) -> (Kind, Value) {
        let found = self.objects().into_iter().find(|(kind, object)| is_named(what, *kind, object));
        found.unwrap_or_else(|| panic!("there is no {what} in this scene"))
    }

    pub fn objects(&self) -> Vec<(Kind, Value)> {
        let mut objects = self.usual_objects();
        objects.retain(|(kind, object)| !self.without.iter().any(|what| is_named(what, *kind, object)));
        for object in &self.also {
            let mut object = object.clone();
            if object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = json!(NAMESPACE);
            }
            let kind = kind_of(&object);
            objects
                .retain(|(other, it)| *other != kind || it["metadata"]["name"] != object["metadata"]["name"]);
            objects.push((kind, object));
        }
        objects
    }

    fn usual_objects(&self) -> Vec<(Kind, Value)> {
        let mut labels = json!({ "kubernetes.io/metadata.name": NAMESPACE });
        if let Some(mode) = &self.mode {
            labels["gatera.dev/mode"] = json!(mode);
        }
        let mut namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE, "labels": labels } });
        if let Some(glass) = &self.glass {
            namespace["metadata"]["annotations"] = json!({ "gatera.dev/break-glass": glass });
        }
        if self.namespace_going {
            namespace["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:00Z");
        }
        let mut objects = vec![(Kind::Namespace, namespace), (Kind::ConfigMap, self.config_map())];
        objects.extend([
            (Kind::Service, service("hs", &service_selector(), true)),
            (Kind::Service, service("cs", &service_selector(), false)),
            (Kind::Secret, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "galera", "namespace": NAMESPACE }, "data": { "root": "aHVudGVyMg==" } })),
            (Kind::Budget, json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "galera-instance-pdb", "namespace": NAMESPACE }, "spec": { "maxUnavailable": 1, "selector": { "matchLabels": service_selector() } } })),
        ]);
        objects.extend((0..3).map(|index| (Kind::Node, node(index))));
        if self.exists {
            objects.push((Kind::StatefulSet, self.stateful_set()));
        }
        objects.extend(self.started_with.iter().map(|text| (Kind::ConfigMap, members::snapshot(text).1)));
        for (ordinal, word) in self.members.iter().enumerate() {
            let mut pod = members::pod(ordinal, word);
            if let Some(pod) = pod.as_mut().filter(|_| !self.exists) {
                *pod = self.left_behind(pod);
            }
            if let (Some(pod), Some(text)) = (&mut pod, &self.started_with) {
                pod["metadata"]["annotations"]["gatera.dev/revision"] = json!(members::snapshot(text).0);
            }
            objects.extend(pod.map(|pod| (Kind::Pod, pod)));
            if self.claims {
                let name = format!("datadir-{STATEFUL_SET}-{ordinal}");
                let ended = self.ended.get(ordinal).map(|seqno| match seqno {
                    0 => "unknown of=3 since=2026-12-01T09:00:00Z by=alice".to_owned(),
                    seqno => format!("{ID}:{seqno} of=3 since=2026-12-01T09:00:00Z by=alice"),
                });
                let marks = json!({ "gatera.dev/stopped": ended });
                let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": NAMESPACE, "labels": member_labels(), "annotations": ended.map(|_| marks) }, "status": { "phase": "Bound" } });
                objects.push((Kind::Claim, claim));
            }
        }
        if self.bootstrap != "absent" {
            objects.push((Kind::Service, service("bootstrap-svc", &bootstrap_labels(), true)));
            objects.push((Kind::Deployment, bootstrap_deployment(i64::from(self.bootstrap == "running"))));
        }
        if self.bootstrap == "running" {
            objects.push((Kind::Pod, bootstrap_pod("6d5f7")));
        }
        objects
    }

    /// Returns a member after its StatefulSet was deleted: it has no owner, and only the pod itself shows the template.
    fn left_behind(&self, member: &Value) -> Value {
        let (settings, before) = (Settings::default(), Self { exists: true, ..self.clone() });
        let world = before.world(&settings);
        let view = View::new(&world, now(), &settings);
        let mut pod = members::created_from(&self.stateful_set(), member, &view);
        pod["metadata"]["ownerReferences"] = json!([]);
        pod
    }

    /// Returns the StatefulSet of this scene.
    pub fn stateful_set(&self) -> Value {
        let mut it = json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": { "name": STATEFUL_SET, "namespace": NAMESPACE, "uid": "1", "annotations": {} },
            "spec": {
                "serviceName": "galera-instance-hs",
                "replicas": self.replicas.unwrap_or_else(|| i64::try_from(self.members.len()).unwrap()),
                "podManagementPolicy": if self.parallel { "Parallel" } else { "OrderedReady" },
                "selector": { "matchLabels": member_labels() },
                "template": {
                    "metadata": { "labels": member_labels() },
                    "spec": {
                        "containers": [{
                            "name": "mariadb",
                            "image": "mariadb:10.11",
                            "env": [{ "name": "MARIADB_ROOT_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "galera", "key": "root" } } }],
                            "ports": [{ "containerPort": 3306 }, { "containerPort": 4567 }],
                            "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }],
                        }],
                        "volumes": [{ "name": "config", "configMap": { "name": "galera-instance-nodeconfig" } }],
                    },
                },
                "volumeClaimTemplates": [{ "metadata": { "name": "datadir" } }],
            },
        });
        if !self.data.is_empty() {
            it["metadata"]["annotations"]["gatera.dev/data"] = json!(self.data);
        }
        if self.started_with.is_some() {
            let mount = json!({ "name": "config", "mountPath": "/etc/mysql/conf.d" });
            let mounts = &mut it["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
            mounts.as_array_mut().unwrap().push(mount);
        }
        json_patch::merge(&mut it, &self.stateful_set_change());
        it
    }

    fn stateful_set_change(&self) -> Value {
        if self.stateful_set.is_null() { json!({}) } else { self.stateful_set.clone() }
    }

    /// Returns the ConfigMap that members read.
    pub fn config_map(&self) -> Value {
        let text = format!("[galera]\nwsrep_on = ON\nwsrep_cluster_address = {ADDRESS}\n");
        let mut it = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "galera-instance-nodeconfig", "namespace": NAMESPACE },
            "data": { "galera.cnf": text },
        });
        if !self.config.is_null() {
            json_patch::merge(&mut it, &self.config);
        }
        it
    }
}

/// Returns the facts of these objects, before any Event has been read.
pub fn facts_of<'o>(objects: impl IntoIterator<Item = &'o Value>, settings: &Settings) -> Facts {
    let mut facts = rulebook().facts(&settings.adoption);
    for object in objects {
        let read = Object::read(kind_of(object), &object.to_string());
        // Secrets and autoscalers are not facts, only objects of requests.
        facts.put(read.expect("every object of a scene is readable"));
    }
    facts
}

/// Returns the kind of an object from its `apiVersion` and `kind`.
pub fn kind_of(object: &Value) -> Kind {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    rulebook().kinds().named(group, object["kind"].as_str().unwrap_or_default())
}

fn is_named(what: &str, kind: Kind, object: &Value) -> bool {
    what.split_once('/').is_some_and(|(word, name)| word == kind.name() && object["metadata"]["name"] == name)
}

fn service(name: &str, selector: &Value, headless: bool) -> Value {
    let mut it = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": format!("{INSTANCE}-{name}"), "namespace": NAMESPACE, "labels": { "app": "galera", "galera": INSTANCE } },
        "spec": { "type": "ClusterIP", "clusterIP": "10.96.7.7", "selector": selector, "ports": [{ "name": "mysql", "port": 3306 }] },
    });
    if headless {
        it["spec"]["clusterIP"] = json!("None");
        it["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    it
}

fn node(index: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": format!("node-{index}"), "labels": { "kubernetes.io/hostname": format!("node-{index}") } },
        "status": { "allocatable": { "cpu": "8", "memory": "32Gi", "pods": "110" }, "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

fn service_selector() -> Value {
    json!({ "app": "galera", "instance": INSTANCE })
}

fn member_labels() -> Value {
    json!({ "app": "galera", "galera": "galera", "instance": INSTANCE })
}

fn bootstrap_labels() -> Value {
    json!({ "app": "galera-bootstrap", "instance": INSTANCE })
}

fn bootstrap_pod_spec() -> Value {
    json!({
        "containers": [{
            "name": "mariadb",
            "image": "mariadb:10.11",
            "env": [{ "name": "MARIADB_ROOT_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "galera", "key": "root" } } }],
            "ports": [{ "containerPort": 4567 }],
        }],
    })
}

/// Returns the bootstrap Deployment of the seed documents.
pub fn bootstrap_deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": BOOTSTRAP, "namespace": NAMESPACE, "labels": bootstrap_labels() },
        "spec": {
            "replicas": replicas,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": bootstrap_labels() },
            "template": { "metadata": { "labels": bootstrap_labels() }, "spec": bootstrap_pod_spec() },
        },
    })
}

/// Returns a bootstrap pod, as its `ReplicaSet` creates it.
pub fn bootstrap_pod(suffix: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{BOOTSTRAP}-{suffix}"),
            "namespace": NAMESPACE,
            "uid": suffix,
            "labels": bootstrap_labels(),
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": BOOTSTRAP, "uid": "2", "controller": true }],
        },
        "spec": bootstrap_pod_spec(),
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
