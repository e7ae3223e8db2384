//! Objects as API servers store them, as far as that is known without asking one: in their namespaces, with the `stringData`
//! of a Secret as `data`, and with manifests merged into the objects that exist.
//!
//! Owns: the fields that an API server fills in; `applied.rs` owns the merging. Must not know: rules, files, requests. All of it
//! is raw JSON, until [`read`] makes an object of it (`objects/lib.rs`).

mod applied;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use objects::{Kind, Object, Unreadable};

pub use applied::{applied, last_applied};

/// Completes an object as an API server stores it: sets its namespace, and adds a Secret's `stringData` to its `data`.
pub fn complete(json: &mut Value, kind: Kind, namespace: &str) {
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    if kind == Kind::Secret {
        encode_texts(json);
    }
}

/// Reads an object from a manifest, without the fields that have no value.
pub fn read(kind: Kind, mut json: Value) -> Result<Object, Unreadable> {
    prune(&mut json);
    Object::read(kind, &json.to_string())
}

/// Maps whose values are texts. A null in them is an entry without a text: it stays, so that the object cannot be read.
const TEXT_MAPS: [&str; 6] = ["annotations", "data", "labels", "matchLabels", "nodeSelector", "stringData"];

/// Removes fields without a value, which API servers do not store: `env:` in YAML is a null.
pub fn prune(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields
                .iter_mut()
                .filter(|(key, _)| !TEXT_MAPS.contains(&key.as_str()))
                .for_each(|(_, it)| prune(it));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Encodes the values of a Secret's `stringData`, and adds them to its `data`.
fn encode_texts(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.get_mut("stringData").map(Value::take) else { return };
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, BASE64.encode(text.as_str()?))));
    let texts: Vec<_> = texts.collect();
    match secret.get_mut("data").and_then(Value::as_object_mut) {
        Some(data) => data.extend(texts.into_iter().map(|(key, text)| (key, text.into()))),
        None => secret["data"] = texts.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_fields_are_removed_but_null_entries_of_text_maps_are_not() {
        let container = json!({ "name": "a", "env": null, "resources": null, "livenessProbe": null });
        let pod = |meta| json!({ "metadata": meta, "spec": { "containers": [container], "affinity": null } });
        assert!(read(Kind::Pod, pod(json!({ "name": "a", "namespace": null }))).is_ok());
        assert!(read(Kind::Pod, pod(json!({ "labels": { "a": null } }))).is_err());
        assert!(read(Kind::ConfigMap, json!({ "data": { "my.cnf": null } })).is_err());
    }
}
