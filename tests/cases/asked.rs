//! The action of a case, and the AdmissionReview that an API server would send about it.

use engine::rule::Verb;
use objects::Kind;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scene::{self, NAMESPACE, Scene};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// `statefulsets/scale` from the scene's replicas to this number.
    Scale(i64),
    /// `deployments/scale` of the bootstrap Deployment from 0 to this number.
    ScaleBootstrap(i64),
    /// `/scale` of an object of the scene to this number.
    ScaleObject { what: String, to: i64 },
    /// UPDATE of the StatefulSet, as a merge patch.
    Change(Value),
    /// CREATE of the StatefulSet, as a merge patch on the usual one.
    Create(Value),
    /// UPDATE of the members' ConfigMap, as a merge patch.
    ChangeConfig(Value),
    /// CREATE of the members' ConfigMap, as a merge patch on the usual one.
    CreateConfig(Value),
    /// CREATE of the bootstrap Deployment, as a merge patch on the usual one.
    CreateBootstrap(Value),
    /// UPDATE of the bootstrap Deployment, which has `from` replicas, as a merge patch.
    ChangeBootstrap { from: i64, change: Value },
    /// CREATE of a pod of the bootstrap Deployment, as a merge patch on the usual one.
    CreateBootstrapPod(Value),
    /// CREATE of the given object.
    CreateObject(Value),
    /// UPDATE of an object of the scene, as a merge patch.
    ChangeObject { what: String, change: Value },
    /// UPDATE of the `/status` of an object of the scene, as a merge patch.
    ReportObject { what: String, change: Value },
    /// UPDATE of the `/resize` of a pod of the scene, as a merge patch.
    ResizeObject { what: String, change: Value },
    /// DELETE of an object of the scene.
    Delete(Removal),
    /// CREATE of an Eviction of a pod of the scene.
    Evict(Removal),
}

const STATEFUL_SET: &str = "StatefulSet/galera-instance-galera";

/// The object to delete, and the options of the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// The object, as `Kind/name`.
    what: String,
    grace: Option<i64>,
    /// What differs in the object that the API server sends, because the view is late, as a merge patch.
    #[serde(default)]
    shown: Value,
    /// The propagation policy: Orphan, Background or Foreground.
    propagation: Option<String>,
}

impl Removal {
    fn options(&self) -> Value {
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        if let Some(grace) = self.grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = &self.propagation {
            options["propagationPolicy"] = json!(policy);
        }
        options
    }
}

/// A request that an API server would send to the guard.
#[derive(Clone)]
pub struct Asked {
    pub operation: &'static str,
    /// The kind of the object that is sent; `of` is the kind of the object that it concerns.
    pub kind: Kind,
    pub of: Kind,
    pub subresource: &'static str,
    pub old: Value,
    pub new: Value,
    pub options: Value,
}

impl Asked {
    pub fn write(old: Value, new: Value) -> Self {
        let kind = scene::kind_of(&new);
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        Self { operation, kind, of: kind, subresource: "", old, new, options: Value::Null }
    }

    pub fn scale(of: Kind, name: &str, from: i64, to: i64) -> Self {
        let scale = |replicas: i64| {
            // As the API server sends it: 0 replicas are left out.
            let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
            json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec })
        };
        Self {
            operation: "UPDATE",
            kind: Kind::Scale,
            of,
            subresource: "scale",
            old: scale(from),
            new: scale(to),
            options: Value::Null,
        }
    }

    pub fn verb(&self) -> Verb {
        match (self.subresource, self.operation) {
            ("scale", _) => Verb::Scale,
            ("eviction", _) => Verb::Evict,
            ("status", _) => Verb::Report,
            (_, "CREATE") => Verb::Create,
            (_, "UPDATE") => Verb::Update,
            _ => Verb::Delete,
        }
    }

    pub fn name(&self) -> &str {
        let object = if self.new.is_null() { &self.old } else { &self.new };
        object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

impl Action {
    /// Returns the request that the action makes in this scene.
    pub fn asked(&self, given: &Scene) -> Asked {
        let merged = |mut base: Value, change: &Value| {
            json_patch::merge(&mut base, change);
            base
        };
        let sts = || given.stateful_set();
        match self {
            Action::Scale(to) => {
                let from = sts()["spec"]["replicas"].as_i64().unwrap();
                Asked::scale(Kind::StatefulSet, scene::STATEFUL_SET, from, *to)
            }
            Action::ScaleObject { what, to } => {
                let (kind, object) = given.object(what);
                let from = object["spec"]["replicas"].as_i64().unwrap();
                Asked::scale(kind, object["metadata"]["name"].as_str().unwrap(), from, *to)
            }
            Action::ScaleBootstrap(to) => Asked::scale(Kind::Deployment, scene::BOOTSTRAP, 0, *to),
            Action::Change(change) => Asked::write(sts(), merged(sts(), change)),
            Action::Create(change) => {
                let usual = Scene { data: String::new(), ..given.clone() }.stateful_set();
                Asked::write(Value::Null, merged(usual, change))
            }
            Action::ChangeConfig(change) => {
                let old = given.config_map();
                Asked::write(old.clone(), merged(old, change))
            }
            Action::CreateConfig(change) => Asked::write(Value::Null, merged(given.config_map(), change)),
            Action::CreateBootstrap(change) => {
                Asked::write(Value::Null, merged(scene::bootstrap_deployment(1), change))
            }
            Action::ChangeBootstrap { from, change } => {
                let old = scene::bootstrap_deployment(*from);
                Asked::write(old.clone(), merged(old, change))
            }
            Action::CreateBootstrapPod(change) => {
                Asked::write(Value::Null, merged(scene::bootstrap_pod("7d9fc"), change))
            }
            Action::CreateObject(object) => Asked::write(Value::Null, object.clone()),
            Action::ChangeObject { what, change } => {
                let (_, old) = given.object(what);
                Asked::write(old.clone(), merged(old, change))
            }
            Action::ReportObject { what, change } => {
                let (_, old) = given.object(what);
                Asked { subresource: "status", ..Asked::write(old.clone(), merged(old, change)) }
            }
            Action::ResizeObject { what, change } => {
                let (_, old) = given.object(what);
                Asked { subresource: "resize", ..Asked::write(old.clone(), merged(old, change)) }
            }
            Action::Delete(removal) => {
                let (kind, old) = match &*removal.what {
                    // The StatefulSet need not be in the view.
                    STATEFUL_SET => (Kind::StatefulSet, sts()),
                    what => given.object(what),
                };
                let shown = if removal.shown.is_null() { &json!({}) } else { &removal.shown };
                Asked {
                    operation: "DELETE",
                    kind,
                    of: kind,
                    subresource: "",
                    old: merged(old, shown),
                    new: Value::Null,
                    options: removal.options(),
                }
            }
            Action::Evict(removal) => {
                let (of, pod) = given.object(&removal.what);
                let new = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod["metadata"]["name"], "namespace": NAMESPACE }, "deleteOptions": removal.options() });
                Asked {
                    operation: "CREATE",
                    kind: Kind::Eviction,
                    of,
                    subresource: "eviction",
                    old: Value::Null,
                    new,
                    options: Value::Null,
                }
            }
        }
    }
}

/// Returns the AdmissionReview that an API server would send.
pub fn body(asked: &Asked, user: &str) -> Value {
    let of_the_cluster = asked.of.is_cluster_wide() && asked.of != Kind::Namespace && asked.of != Kind::Node;
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": asked.kind.group(), "version": "v1", "kind": asked.kind.name() },
            "resource": { "group": asked.of.group(), "version": "v1", "resource": asked.of.plural() },
            "subResource": asked.subresource,
            "name": asked.name(),
            "namespace": if of_the_cluster { "" } else { NAMESPACE },
            "operation": asked.operation,
            "userInfo": { "username": user },
            "object": asked.new,
            "oldObject": asked.old,
            "dryRun": false,
            "options": asked.options,
        },
    })
}
