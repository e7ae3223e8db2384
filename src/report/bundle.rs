//! What of an object may go into a bug report: its shape. Everything in it is somebody's text until it is known to be none.
//!
//! Owns: which texts are kept. Keys, numbers and switches stay; a text stays only where it names something (a kind, an image, a
//! node), where it is a label, or where it is the guard's own mark. Of all others only that they are there is told.

use serde_json::{Map, Value, json};

use facts::marks::{self, PREFIX, Whose};
use objects::visible;

/// What stands under these keys names something, or is one of a few words that Kubernetes knows.
const NAMES: &[&str] = &[
    "apiVersion",
    "claimName",
    "clusterIP",
    "containerID",
    "controller-revision-hash",
    "creationTimestamp",
    "currentRevision",
    "deletionTimestamp",
    "finishedAt",
    "image",
    "imageID",
    "imagePullPolicy",
    "key",
    "kind",
    "lastProbeTime",
    "lastTransitionTime",
    "mountPath",
    "name",
    "namespace",
    "nodeName",
    "operator",
    "phase",
    "podManagementPolicy",
    "protocol",
    "qosClass",
    "reason",
    "restartPolicy",
    "resourceVersion",
    "serviceAccountName",
    "serviceName",
    "startTime",
    "startedAt",
    "status",
    "storage",
    "storageClassName",
    "subPath",
    "topologyKey",
    "type",
    "uid",
    "updateRevision",
    "volumeMode",
    "volumeName",
    "whenDeleted",
    "whenScaled",
];
/// Under these keys everything is somebody's own, whatever it is called.
const FREE: &[&str] = &["volumeAttributes", "options", "parameters", "nodeSelector", "flexVolume", "csi"];
/// Marks of the guard's that are whole scripts, which every release has.
const SCRIPTS: &[&str] = &["script", "start-script", "my-cnf"];
/// In the place of a text.
const TEXT: &str = "(text)";
/// What says who changed what says nothing of how it is.
const LEFT_OUT: &str = "managedFields";

/// The shape of an object.
pub fn shape(object: &Value) -> Value {
    at("", object)
}

fn at(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) if key == "annotations" => marks(fields),
        // Selectors and labels are how objects find each other.
        Value::Object(fields) if matches!(key, "labels" | "matchLabels") => plain(fields),
        Value::Object(fields) if FREE.contains(&key) => {
            Value::Object(fields.keys().map(|key| (visible(key), json!(TEXT))).collect())
        }
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != LEFT_OUT);
            Value::Object(kept.map(|(key, value)| (visible(key), at(key, value))).collect())
        }
        Value::Array(items) => items.iter().map(|it| at(key, it)).collect(),
        Value::String(text) if NAMES.contains(&key) => json!(visible(text)),
        Value::String(_) => json!(TEXT),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn plain(fields: &Map<String, Value>) -> Value {
    let text = |value: &Value| value.as_str().map_or(Value::Null, |text| json!(visible(text)));
    Value::Object(fields.iter().map(|(key, value)| (visible(key), text(value))).collect())
}

fn marks(fields: &Map<String, Value>) -> Value {
    let kept = |key: &str| {
        let mark = key.strip_prefix(PREFIX).unwrap_or_default();
        let guards = marks::of(Whose::Guards).any(|name| name == mark);
        guards && !SCRIPTS.contains(&mark)
    };
    let told = |(key, value): (&String, &Value)| {
        let text = value.as_str().filter(|_| kept(key)).map_or(TEXT.to_owned(), visible);
        (visible(key), json!(text))
    };
    Value::Object(fields.iter().map(told).collect())
}

/// Without what moves a terminal's cursor, in every text.
pub fn harmless(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, it)| (visible(&key), harmless(it))).collect())
        }
        Value::Array(items) => items.into_iter().map(harmless).collect(),
        Value::String(text) => json!(visible(&text)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_texts_are_measured() {
        let object = json!({
            "kind": "StatefulSet",
            "metadata": {
                "name": "galera", "labels": { "app": "galera" }, "managedFields": [{ "manager": "x" }],
                "annotations": {
                    "gatera.dev/data": "present", "gatera.dev/script": "#!/bin/sh", "note": "hunter2",
                    "gatera.dev/note": "hunter2", "gatera.dev/override": "G07 until=x reason=hunter2",
                },
            },
            "spec": { "replicas": 3, "csi": { "name": "hunter2" }, "containers": [{
                "image": "mariadb:10.11", "args": ["--password=hunter2"], "env": [{ "name": "ROOT", "value": "hunter2" }],
            }] },
        });
        assert_eq!(
            shape(&object),
            json!({
                "kind": "StatefulSet",
                "metadata": {
                    "name": "galera", "labels": { "app": "galera" },
                    "annotations": {
                        "gatera.dev/data": "present", "gatera.dev/script": "(text)", "note": "(text)",
                        "gatera.dev/note": "(text)", "gatera.dev/override": "(text)",
                    },
                },
                "spec": { "replicas": 3, "csi": { "name": "(text)" }, "containers": [{
                    "image": "mariadb:10.11", "args": ["(text)"],
                    "env": [{ "name": "ROOT", "value": "(text)" }],
                }] },
            })
        );
    }
}
