//! Registered entries, compared with those that should be: what the API server adds by itself is no difference.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

pub(super) fn as_values<T: serde::Serialize>(webhooks: Option<&Vec<T>>) -> Vec<Value> {
    match serde_json::to_value(webhooks) {
        Ok(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Everything that is wanted is there, and no entry too many. What the API server adds by default does not count.
pub(super) fn covers(found: &[Value], wanted: &[Value]) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
}

fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| match found.get(key) {
                Some(found) => contains(found, wanted),
                // `{}` is written and not sent back.
                None => wanted.as_object().is_some_and(serde_json::Map::is_empty),
            })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        // An empty API group may be sent back as null.
        _ => found == wanted,
    }
}

pub(super) fn encoded(bundle: &str) -> String {
    STANDARD.encode(bundle)
}

pub(super) fn decoded(bundle: &str) -> String {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}
