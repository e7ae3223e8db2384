//! What API servers make of what they are sent, as far as that is known without asking one: objects in their namespaces, texts of a
//! Secret as data, patches put onto what is there.
//!
//! Owns: the ways of merging, and the one table of what items of lists go by. Must not know: rules, files, requests. Raw JSON in,
//! raw JSON out: what it means is read afterwards (`objects/lib.rs`).

mod applied;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use objects::Kind;

pub use applied::{applied, last};

/// By what items of lists are told apart, as Kubernetes' types say it (`patchMergeKey`).
const KEYS: [(&str, &[&str]); 11] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("ownerReferences", &["uid"]),
];

/// By what items of this list are told apart; `None`: it is replaced as a whole.
fn keys(field: &str) -> Option<&'static [&'static str]> {
    KEYS.iter().find(|(known, _)| *known == field).map(|(_, keys)| *keys)
}

/// By what this item is told apart.
fn name(item: &Value, keys: &[&str]) -> Option<Value> {
    keys.iter().find_map(|key| item.get(key).cloned())
}

/// An item of this list is what was said last, and nothing of what it was: a volume of another sort is another volume
/// (`retainKeys`).
fn keeps_only_what_is_said(list: &str) -> bool {
    list == "volumes"
}

/// This map is replaced as a whole (`patchStrategy: replace`), in this kind alone.
fn is_replaced(object: &Value, field: &str) -> bool {
    field == "selector" && object["kind"] == "PodDisruptionBudget"
}

/// As it is stored: in its namespace, and a Secret's texts as data.
pub fn complete(json: &mut Value, kind: Kind, namespace: &str) {
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    if kind == Kind::Secret {
        store(json);
    }
}

/// A Secret as it is stored: what is written as text is data as well.
fn store(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.get_mut("stringData").map(Value::take) else { return };
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, BASE64.encode(text.as_str()?))));
    let texts: Vec<_> = texts.collect();
    match secret.get_mut("data").and_then(Value::as_object_mut) {
        Some(data) => data.extend(texts.into_iter().map(|(key, text)| (key, text.into()))),
        None => secret["data"] = texts.into_iter().collect(),
    }
}
