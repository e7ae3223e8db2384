//! The comparison of registered entries with the wanted ones. Defaults that the API server adds are not a difference; additions
//! by others are, because a foreign condition could turn off an entry unnoticed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Returns a list of entries as JSON values.
pub fn as_values<T: serde::Serialize>(webhooks: Option<&Vec<T>>) -> Vec<Value> {
    match serde_json::to_value(webhooks) {
        Ok(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Returns whether the registered entries are exactly the wanted ones.
pub fn same(found: &[Value], wanted: &[Value]) -> bool {
    found.len() == wanted.len()
        && found.iter().map(without_empty_fields).eq(wanted.iter().map(without_empty_fields))
}

/// Returns the first difference besides the CA, as a message.
pub fn first_difference(found: &[Value], wanted: &[Value]) -> Option<String> {
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    for found in found {
        let Some(wanted) = wanted.iter().find(|it| it["name"] == found["name"]) else {
            return Some(format!("{} is not an entry of the guard", name(found)));
        };
        let [found, wanted] = [found, wanted].map(|entry| without_empty_fields(&without_bundle(entry)));
        if let Some(field) = differing_field(&found, &wanted) {
            return Some(format!("{field} of {} is not what the guard writes", name(&wanted)));
        }
    }
    if let Some(missing) = wanted.iter().find(|it| !found.iter().any(|found| found["name"] == it["name"])) {
        return Some(format!("{} is missing", name(missing)));
    }
    let names = |entries: &[Value]| entries.iter().map(name).collect::<Vec<_>>();
    (names(found) != names(wanted)).then(|| "the entries are in another order".to_owned())
}

fn differing_field(found: &Value, wanted: &Value) -> Option<String> {
    let mut keys = [found, wanted].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    keys.find(|key| found.get(*key) != wanted.get(*key)).cloned()
}

fn without_bundle(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(client) = entry.get_mut("clientConfig").and_then(Value::as_object_mut) {
        client.remove("caBundle");
    }
    entry
}

/// Returns the value without empty fields: API servers may replace `{}`, `[]` and null by each other.
fn without_empty_fields(value: &Value) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), without_empty_fields(value)));
            Value::Object(fields.filter(|(_, value)| is_set(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(without_empty_fields).collect(),
        _ => value.clone(),
    }
}

/// Returns a bundle in the encoding of an entry.
pub fn encoded(bundle: &str) -> String {
    STANDARD.encode(bundle)
}

/// Returns the bundle of an entry; empty if it is invalid.
pub fn decoded(bundle: &str) -> String {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rulebook::Rulebook;
    use crate::webhooks::{Destination, Endpoint};
    use facts::settings::Settings;

    fn wanted_entries() -> Vec<Value> {
        let target = Destination::Service { namespace: "gatera".into(), name: "gatera".into() };
        Rulebook::new(&[]).entries(
            Endpoint::Validate,
            &Settings::default(),
            &std::collections::BTreeSet::new(),
            &target,
            &encoded("CA"),
        )
    }

    #[test]
    fn every_change_of_an_entry_is_found() {
        let wanted = wanted_entries();
        let clean = wanted.clone();
        let plain = |it: &Value| it.get("matchConditions").is_none() && it["failurePolicy"] == "Fail";
        let without = clean.iter().position(plain).unwrap();
        let name = clean[without]["name"].as_str().unwrap().to_owned();
        let change = |at: &str, value: Value| {
            let mut found = clean.clone();
            let (parent, key) = at.rsplit_once('/').unwrap();
            found[without].pointer_mut(parent).unwrap()[key] = value;
            found
        };
        let off = serde_json::json!([{ "name": "off", "expression": "false" }]);
        for (found, difference) in [
            (
                change("/matchConditions", off),
                format!("matchConditions of {name} is not what the guard writes"),
            ),
            (
                change("/failurePolicy", "Ignore".into()),
                format!("failurePolicy of {name} is not what the guard writes"),
            ),
            (
                change("/clientConfig/service/path", "/other".into()),
                format!("clientConfig of {name} is not what the guard writes"),
            ),
            (
                change("/name", "old.gatera.dev".into()),
                "old.gatera.dev is not an entry of the guard".to_owned(),
            ),
            (clean[1..].to_vec(), format!("{} is missing", clean[0]["name"].as_str().unwrap())),
            (clean.iter().rev().cloned().collect(), "the entries are in another order".to_owned()),
        ] {
            assert!(!same(&found, &wanted), "{difference}");
            assert_eq!(first_difference(&found, &wanted), Some(difference));
        }
        let found = change("/clientConfig/caBundle", Value::Null);
        assert!(!same(&found, &wanted));
        assert_eq!(first_difference(&found, &wanted), None, "every rotation changes the CA");
    }
}
