//! What becomes of an object when a manifest is applied to it, as `kubectl apply` does it: fields that the manifest says, fields that
//! it said before and says no more, and fields that are somebody else's.
//!
//! Must not know: rules. Lists whose items have names are merged by these names, as API servers do it; in all others an item keeps
//! what API servers add to it, as long as it stands in the same place.

use serde_json::{Map, Value};

const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// By what items of lists are told apart, as Kubernetes' types say it (`patchMergeKey`); claim templates are atomic there, and their
/// defaults come back by their names.
const KEYS: [(&str, &[&str]); 12] = [
    ("containers", &["/name"]),
    ("initContainers", &["/name"]),
    ("volumes", &["/name"]),
    ("env", &["/name"]),
    ("imagePullSecrets", &["/name"]),
    ("volumeMounts", &["/mountPath"]),
    ("volumeDevices", &["/devicePath"]),
    ("ports", &["/containerPort", "/port"]),
    ("hostAliases", &["/ip"]),
    ("topologySpreadConstraints", &["/topologyKey"]),
    ("ownerReferences", &["/uid"]),
    ("volumeClaimTemplates", &["/metadata/name"]),
];

/// What API servers write and nobody else; manifests that were exported have it, often empty.
const OF_SERVERS: [&str; 7] = [
    "creationTimestamp",
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
];

/// The object after that.
pub(super) fn applied(live: &Value, manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !OF_SERVERS.contains(&&**key));
        if metadata.get("namespace").and_then(Value::as_str) == Some("") {
            metadata.remove("namespace");
        }
    }
    let last = live.pointer(LAST_APPLIED).and_then(Value::as_str);
    let last = last.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
    merged("", live, &last, &manifest)
}

fn merged(field: &str, live: &Value, last: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => Value::Object(map(live, last, wanted)),
        (Value::Array(live), Value::Array(wanted)) => Value::Array(list(field, live, last, wanted)),
        _ => wanted.clone(),
    }
}

fn map(live: &Map<String, Value>, last: &Value, wanted: &Map<String, Value>) -> Map<String, Value> {
    let said = |key: &str| wanted.get(key).filter(|it| !it.is_null());
    let stays = |(key, live): (&String, &Value)| match (said(key), last.get(key)) {
        (Some(wanted), _) => Some((key.clone(), merged(key, live, &last[key], wanted))),
        _ if wanted.contains_key(key) => None,
        (None, None) => Some((key.clone(), live.clone())),
        // What it said in there before goes, and what others say in there stays.
        (None, Some(last)) if live.is_object() && last.is_object() => {
            Some((key.clone(), merged(key, live, last, &Value::Object(Map::new()))))
        }
        (None, Some(_)) => None,
    };
    let mut all: Map<_, _> = live.iter().filter_map(stays).collect();
    for (key, wanted) in wanted {
        if !wanted.is_null() && !live.contains_key(key) {
            all.insert(key.clone(), wanted.clone());
        }
    }
    all
}

fn list(field: &str, live: &[Value], last: &Value, wanted: &[Value]) -> Vec<Value> {
    let keys = KEYS.iter().find(|(known, _)| *known == field).map(|(_, keys)| *keys);
    let Some(keys) = keys else {
        let same_place = live.len() == wanted.len();
        let item = |(at, wanted): (usize, &Value)| match live.get(at).filter(|_| same_place) {
            Some(live) => merged("", live, &last[at], wanted),
            None => wanted.clone(),
        };
        return wanted.iter().enumerate().map(item).collect();
    };
    let name = |item: &Value| keys.iter().find_map(|key| item.pointer(key).cloned());
    let known = |all: &[Value], item: &Value| all.iter().find(|it| name(it) == name(item)).cloned();
    let said: &[Value] = last.as_array().map_or(&[], Vec::as_slice);
    let item = |wanted: &Value| match known(live, wanted) {
        Some(live) => merged("", &live, &known(said, wanted).unwrap_or_default(), wanted),
        None => wanted.clone(),
    };
    let others = live.iter().filter(|live| known(wanted, live).is_none() && known(said, live).is_none());
    wanted.iter().map(item).chain(others.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_manifest_says_counts_and_what_is_somebody_elses_stays() {
        let said = json!({ "metadata": { "annotations": {}, "labels": { "a": "1", "b": "2" } }, "spec": { "replicas": 3, "containers": [{ "name": "x", "image": "i:1", "args": ["-v"] }, { "name": "gone" }] } });
        let mut live = said.clone();
        live["metadata"]["annotations"] = json!({ "kubectl.kubernetes.io/last-applied-configuration": said.to_string(), "gatera.dev/data": "present" });
        live["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        live["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "injected" }));
        live["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
        let wanted = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "containers": [{ "name": "x", "image": "i:2", "args": null }] } });
        let after = applied(&live, &wanted);
        assert_eq!(after["metadata"]["labels"], json!({ "a": "1" }), "taken out of the manifest");
        assert_eq!(after["metadata"]["annotations"]["gatera.dev/data"], "present");
        assert_eq!(after["spec"].get("replicas"), None, "it was said before");
        assert_eq!(after["spec"]["updateStrategy"]["type"], "RollingUpdate");
        assert_eq!(
            after["spec"]["containers"],
            json!([{ "name": "x", "image": "i:2", "imagePullPolicy": "IfNotPresent" }, { "name": "injected" }])
        );
        assert_eq!(applied(&live, &said), live, "nothing changes");
        let mut exported = said.clone();
        exported["metadata"]["creationTimestamp"] = Value::Null;
        exported["status"] = json!({});
        assert_eq!(applied(&live, &exported), live, "what only servers write");
    }

    #[test]
    fn items_without_names_keep_what_was_added_in_the_same_place() {
        let live = json!({ "sources": [{ "configMap": { "name": "a", "optional": false } }, { "secret": { "name": "b" } }], "command": ["a", "b"] });
        let wanted = json!({ "sources": [{ "configMap": { "name": "a" } }, { "secret": { "name": "b" } }], "command": ["a"] });
        assert_eq!(applied(&live, &wanted)["sources"], live["sources"]);
        assert_eq!(applied(&live, &wanted)["command"], json!(["a"]));
        let templates = json!({ "volumeClaimTemplates": [{ "metadata": { "name": "d" }, "spec": { "volumeMode": "Filesystem", "storage": "1Gi" } }] });
        let wanted = json!({ "volumeClaimTemplates": [{ "metadata": { "name": "d" }, "spec": { "storage": "2Gi" } }] });
        assert_eq!(
            applied(&templates, &wanted)["volumeClaimTemplates"][0]["spec"],
            json!({ "volumeMode": "Filesystem", "storage": "2Gi" })
        );
    }
}
