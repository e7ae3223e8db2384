//! The object after `kubectl apply` of a manifest: the fields of the manifest are set, fields that only the last manifest had
//! are removed, and fields of other owners stay.
//!
//! Must not know: rules. Lists whose items have a key are merged by it, as API servers do; in all other lists an item keeps
//! the fields that API servers fill in, as long as its index or the name in its metadata stays the same.

use serde_json::{Map, Value};

/// The keys that distinguish items of a list, as Kubernetes' types define them (`patchMergeKey`). Any other list is replaced
/// as a whole.
const KEYS: [(&str, &[&str]); 11] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    (VOLUMES, &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("ownerReferences", &["uid"]),
];
/// The list whose items keep only the new fields: a volume of another type is another volume (`retainKeys`).
const VOLUMES: &str = "volumes";

const SELECTOR: &str = "/spec/selector";
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Fields that API servers fill in where a list is replaced as a whole: claim templates, sources of a projected volume.
const FILLED_IN: [&str; 6] =
    ["apiVersion", "kind", "status", "volumeMode", "defaultMode", "expirationSeconds"];

/// Fields that only API servers write; exported manifests contain them, often empty.
const SERVER_FIELDS: [&str; 7] = [
    "creationTimestamp",
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
];

/// Returns the object after the manifest was applied.
pub fn applied(live: &Value, manifest: &Value) -> Value {
    let last = last_applied(live).unwrap_or_default();
    let mut manifest = manifest.clone();
    remove_server_fields(&mut manifest);
    // kubectl adds an annotation to every manifest: one without annotations does not remove those of other owners.
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    }
    let mut after = merged("", live, &last, &manifest);
    // This map is replaced as a whole (`patchStrategy: replace`), only in this kind.
    if live["kind"] == "PodDisruptionBudget"
        && let (Some(after), Some(wanted)) = (after.pointer_mut(SELECTOR), manifest.pointer(SELECTOR))
    {
        *after = wanted.clone();
    }
    if live.pointer("/metadata/annotations").is_none()
        && let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        metadata.remove("annotations");
    }
    after
}

/// Returns the manifest that was applied last; `None`: unknown, so removed fields stay.
pub fn last_applied(live: &Value) -> Option<Value> {
    let text = live.pointer(LAST_APPLIED)?.as_str()?;
    let mut manifest: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    remove_server_fields(&mut manifest);
    Some(manifest)
}

/// Removes fields that only API servers write.
fn remove_server_fields(manifest: &mut Value) {
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_FIELDS.contains(&&**key));
        if metadata.get("namespace").and_then(Value::as_str) == Some("") {
            metadata.remove("namespace");
        }
    }
}

fn merged(field: &str, live: &Value, last: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => Value::Object(merged_map(live, last, wanted)),
        (Value::Array(live), Value::Array(wanted)) => Value::Array(merged_list(field, live, last, wanted)),
        _ => wanted.clone(),
    }
}

/// Merges a map. A field of the last manifest that the new one no longer has is removed, with everything below it.
fn merged_map(live: &Map<String, Value>, last: &Value, wanted: &Map<String, Value>) -> Map<String, Value> {
    let after = |(key, live): (&String, &Value)| match wanted.get(key) {
        Some(Value::Null) => None,
        Some(wanted) => Some((key.clone(), merged(key, live, &last[key], wanted))),
        None if last.get(key).is_none_or(Value::is_null) => Some((key.clone(), live.clone())),
        None => None,
    };
    let mut all: Map<_, _> = live.iter().filter_map(after).collect();
    for (key, wanted) in wanted {
        if !wanted.is_null() && !live.contains_key(key) {
            all.insert(key.clone(), wanted.clone());
        }
    }
    all
}

fn merged_list(field: &str, live: &[Value], last: &Value, wanted: &[Value]) -> Vec<Value> {
    let Some((_, keys)) = KEYS.iter().find(|(known, _)| *known == field) else {
        return replaced(live, wanted);
    };
    let identity = |item: &Value| keys.iter().find_map(|key| item.get(key).cloned());
    let same = |all: &[Value], item: &Value| all.iter().find(|it| identity(it) == identity(item)).cloned();
    let last: &[Value] = last.as_array().map_or(&[], Vec::as_slice);
    let item = |wanted: &Value| {
        let Some(live) = same(live, wanted) else { return wanted.clone() };
        let mut item = merged("", &live, &same(last, wanted).unwrap_or_default(), wanted);
        if let (true, Some(fields)) = (field == VOLUMES, item.as_object_mut()) {
            fields.retain(|key, _| wanted.get(key).is_some());
        }
        item
    };
    let others = live.iter().filter(|live| same(wanted, live).is_none() && same(last, live).is_none());
    wanted.iter().map(item).chain(others.cloned()).collect()
}

/// Replaces a list as a whole by the items of the manifest, with the fields that API servers fill in again.
fn replaced(live: &[Value], wanted: &[Value]) -> Vec<Value> {
    let named = |item: &Value| item.pointer("/metadata/name").cloned();
    let before = |at: usize, wanted: &Value| match named(wanted) {
        None => live.get(at),
        name => live.iter().find(|it| named(it) == name),
    };
    let item = |(at, wanted): (usize, &Value)| match before(at, wanted) {
        Some(live) => filled_in(live, wanted),
        None => wanted.clone(),
    };
    wanted.iter().enumerate().map(item).collect()
}

fn filled_in(live: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let written = wanted.iter().filter(|(_, it)| !it.is_null());
            let mut all: Map<_, _> = written
                .map(|(key, it)| (key.clone(), live.get(key).map_or(it.clone(), |live| filled_in(live, it))))
                .collect();
            for (key, live) in live {
                // Older API servers write "creationTimestamp: null" into claim templates.
                if (FILLED_IN.contains(&&**key) || live.is_null()) && !all.contains_key(key) {
                    all.insert(key.clone(), live.clone());
                }
            }
            Value::Object(all)
        }
        (Value::Array(live), Value::Array(wanted)) => Value::Array(replaced(live, wanted)),
        _ => wanted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_manifest_count_and_those_of_other_owners_stay() {
        let last = json!({ "metadata": { "annotations": {}, "labels": { "a": "1", "b": "2" } }, "spec": { "replicas": 3, "containers": [{ "name": "x", "image": "i:1", "args": ["-v"] }, { "name": "gone" }] } });
        let mut live = last.clone();
        live["metadata"]["annotations"] = json!({ "kubectl.kubernetes.io/last-applied-configuration": last.to_string(), "gatera.dev/data": "present" });
        live["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        live["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "injected" }));
        live["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
        let wanted = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "containers": [{ "name": "x", "image": "i:2", "args": null }] } });
        let after = applied(&live, &wanted);
        assert_eq!(after["metadata"]["labels"], json!({ "a": "1" }), "the manifest no longer has label b");
        assert_eq!(after["metadata"]["annotations"]["gatera.dev/data"], "present");
        assert_eq!(after["spec"].get("replicas"), None, "the last manifest had it");
        assert_eq!(after["spec"]["updateStrategy"]["type"], "RollingUpdate");
        assert_eq!(
            after["spec"]["containers"],
            json!([{ "name": "x", "image": "i:2", "imagePullPolicy": "IfNotPresent" }, { "name": "injected" }])
        );
        assert_eq!(applied(&live, &last), live, "nothing changes");
        let mut exported = last.clone();
        exported["metadata"]["creationTimestamp"] = Value::Null;
        exported["status"] = json!({});
        assert_eq!(applied(&live, &exported), live, "fields that only servers write are ignored");
    }

    #[test]
    fn a_list_that_is_replaced_keeps_only_what_servers_fill_in() {
        let live = json!({ "sources": [{ "serviceAccountToken": { "path": "a", "expirationSeconds": 3600 } }, { "secret": { "name": "b" } }], "command": ["a", "b"], "terms": [{ "namespaces": ["x"], "key": "k" }] });
        let wanted = json!({ "sources": [{ "serviceAccountToken": { "path": "a" } }, { "configMap": { "name": "b" } }], "command": ["a"], "terms": [{ "key": "k" }] });
        let after = applied(&live, &wanted);
        assert_eq!(after["sources"][0], live["sources"][0]);
        assert_eq!(after["sources"][1], json!({ "configMap": { "name": "b" } }));
        assert_eq!((&after["command"], &after["terms"]), (&json!(["a"]), &json!([{ "key": "k" }])));
        let template = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
        let live = json!({ "volumeClaimTemplates": [template("d", json!({ "volumeMode": "Filesystem", "storage": "1Gi", "storageClassName": "fast" })), template("logs", json!({}))] });
        let wanted = json!({ "volumeClaimTemplates": [template("d", json!({ "storage": "2Gi" }))] });
        assert_eq!(
            applied(&live, &wanted)["volumeClaimTemplates"],
            json!([template("d", json!({ "volumeMode": "Filesystem", "storage": "2Gi" }))])
        );
    }

    #[test]
    fn empty_fields_of_servers_are_not_changes() {
        let template = |metadata: Value| json!({ "volumeClaimTemplates": [{ "metadata": metadata }] });
        let live = template(json!({ "name": "d", "creationTimestamp": null }));
        assert_eq!(applied(&live, &template(json!({ "name": "d" }))), live);
    }

    /// If the last manifest is not known, everything stays.
    #[test]
    fn a_field_is_removed_with_what_servers_wrote_below_it() {
        let last = json!({ "metadata": { "annotations": {}, "creationTimestamp": null }, "spec": { "probe": { "exec": {} }, "volumes": [{ "name": "c", "configMap": { "name": "a" } }] }, "status": {} });
        let mut live = last.clone();
        live["metadata"]["creationTimestamp"] = json!("2026-12-01T09:00:00Z");
        live["metadata"]["annotations"] =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": last.to_string() });
        live["spec"]["probe"]["timeoutSeconds"] = json!(1);
        live["spec"]["volumes"][0]["configMap"]["defaultMode"] = json!(420);
        let wanted = json!({ "metadata": {}, "spec": { "volumes": [{ "name": "c", "secret": { "secretName": "a" } }] } });
        let after = applied(&live, &wanted);
        assert_eq!(after["spec"], wanted["spec"]);
        assert_eq!(after["metadata"], live["metadata"], "annotations, and what servers write, stay");
        assert_eq!(applied(&live, &last), live, "nothing changes");

        for annotations in [json!({}), json!({ "kubectl.kubernetes.io/last-applied-configuration": "{" })] {
            live["metadata"]["annotations"] = annotations;
            assert_eq!(last_applied(&live), None);
            let after = applied(&live, &wanted);
            assert_eq!(after["spec"]["probe"], live["spec"]["probe"], "its owner is not known");
            assert_eq!(after["spec"]["volumes"], wanted["spec"]["volumes"], "another type of volume");
        }
    }

    #[test]
    fn the_selector_of_a_budget_is_replaced() {
        let live =
            json!({ "kind": "PodDisruptionBudget", "spec": { "selector": { "matchLabels": { "a": "1" } } } });
        let wanted =
            json!({ "kind": "PodDisruptionBudget", "spec": { "selector": { "matchLabels": { "b": "2" } } } });
        assert_eq!(applied(&live, &wanted)["spec"], wanted["spec"]);
    }
}
