//! The shape of an object, which may go into a bug report. Every text counts as private until it is known not to be.
//!
//! Owns: which texts are kept. Keys, numbers and booleans stay; a text stays only if it names something (a kind, an
//! image, a node), if it is a label, or if it is an annotation of the guard. Of every other text only the presence is
//! shown.

use serde_json::{Map, Value, json};

use facts::marks::{OF_GUARD, PREFIX};
use objects::visible;

/// Keys whose values name something, or are one of a few words that Kubernetes knows.
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
/// Keys below which all values are private, under any name.
const PRIVATE: &[&str] = &["volumeAttributes", "options", "parameters", "nodeSelector", "flexVolume", "csi"];
/// Annotations of the guard that hold whole files. They are left out because every release contains these.
const SCRIPTS: &[&str] = &["script", "start-script", "my-cnf"];
/// The placeholder for a text that is not shown.
const HIDDEN_TEXT: &str = "(text)";
/// The field that is left out, because it says who changed what, and nothing about the object's state.
const LEFT_OUT: &str = "managedFields";

/// Returns the shape of an object.
pub fn shape(object: &Value) -> Value {
    shape_of("", object)
}

fn shape_of(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) if key == "annotations" => annotations(fields),
        // Selectors and labels are how objects find each other.
        Value::Object(fields) if matches!(key, "labels" | "matchLabels") => labels(fields),
        Value::Object(fields) if PRIVATE.contains(&key) => {
            Value::Object(fields.keys().map(|key| (visible(key), json!(HIDDEN_TEXT))).collect())
        }
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != LEFT_OUT);
            Value::Object(kept.map(|(key, value)| (visible(key), shape_of(key, value))).collect())
        }
        Value::Array(items) => items.iter().map(|it| shape_of(key, it)).collect(),
        Value::String(text) if NAMES.contains(&key) => json!(visible(text)),
        Value::String(_) => json!(HIDDEN_TEXT),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn labels(fields: &Map<String, Value>) -> Value {
    let text = |value: &Value| value.as_str().map_or(Value::Null, |text| json!(visible(text)));
    Value::Object(fields.iter().map(|(key, value)| (visible(key), text(value))).collect())
}

fn annotations(fields: &Map<String, Value>) -> Value {
    let is_kept = |key: &str| {
        let mark = key.strip_prefix(PREFIX).unwrap_or_default();
        OF_GUARD.contains(&mark) && !SCRIPTS.contains(&mark)
    };
    let kept_field = |(key, value): (&String, &Value)| {
        let text = value.as_str().filter(|_| is_kept(key)).map_or(HIDDEN_TEXT.to_owned(), visible);
        (visible(key), json!(text))
    };
    Value::Object(fields.iter().map(kept_field).collect())
}

/// Returns the value without characters that move a terminal's cursor.
pub fn without_control_characters(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(key, it)| (visible(&key), without_control_characters(it))).collect(),
        ),
        Value::Array(items) => items.into_iter().map(without_control_characters).collect(),
        Value::String(text) => json!(visible(&text)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_texts_are_hidden() {
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
