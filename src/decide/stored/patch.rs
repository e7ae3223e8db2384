//! The object after a PATCH.
//!
//! Of a strategic merge patch all that kubectl writes is understood, but for the order of items, by which nothing is judged.

use serde_json::{Map, Value};

use super::applied::over;
use super::{is_replaced, keys, name};

/// How it says what changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// As operations.
    Json,
    /// As fields; a list is replaced as a whole.
    Merge,
    /// As fields; items of lists have names.
    Strategic,
    /// As a manifest, of which the API server knows who owns which field.
    Apply,
}

impl Patch {
    /// By the type of its content.
    pub fn of(content_type: &str) -> Option<Self> {
        Some(match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            _ => return None,
        })
    }
}

/// The directives of a strategic merge patch.
const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// The object after that, or in words why that is not known.
pub fn patched(live: &Value, patch: &Value, how: Patch) -> Result<Value, String> {
    let mut after = live.clone();
    match how {
        Patch::Json => {
            let patch: json_patch::Patch = serde_json::from_value(patch.clone())
                .map_err(|error| format!("it is no JSON patch: {error}"))?;
            json_patch::patch(&mut after, &patch)
                .map_err(|error| format!("the patch cannot be put on: {}", error.kind))?;
        }
        Patch::Merge => json_patch::merge(&mut after, patch),
        Patch::Strategic => {
            let Value::Object(patch) = patch else { return Err("the patch is no object".to_owned()) };
            let fields = after.as_object_mut().ok_or("what is there is no object")?;
            let budget = is_replaced(live, "selector");
            map(fields, patch, budget);
        }
        // What it said before, and says no more, is known to the API server alone, and stays here.
        Patch::Apply => after = over(live, &Value::Null, patch),
    }
    Ok(after)
}

/// `budget`: it is one of those whose selector is replaced.
fn map(live: &mut Map<String, Value>, patch: &Map<String, Value>, budget: bool) {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("delete") => return live.clear(),
        Some("replace") => {
            *live = plain(patch);
            return;
        }
        _ => {}
    }
    if let Some(retained) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        live.retain(|key, _| retained.iter().any(|it| it.as_str() == Some(key)));
    }
    for (key, wanted) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            let gone = wanted.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(all) = live.get_mut(field).and_then(Value::as_array_mut) {
                all.retain(|it| !gone.contains(it));
            }
        } else if key.starts_with('$') {
            // Directives that were followed, and those of order.
        } else if wanted.is_null() {
            live.remove(key);
        } else {
            let replaced = budget && key == "selector";
            match (live.get_mut(key).filter(|_| !replaced), wanted) {
                (Some(Value::Object(live)), Value::Object(wanted)) => map(live, wanted, budget),
                (Some(Value::Array(live)), Value::Array(wanted)) => list(key, live, wanted),
                _ => drop(live.insert(key.clone(), without_directives(wanted))),
            }
        }
    }
}

fn list(field: &str, live: &mut Vec<Value>, wanted: &[Value]) {
    if field == "finalizers" {
        let new: Vec<_> = wanted.iter().filter(|it| !live.contains(it)).cloned().collect();
        return live.extend(new);
    }
    let Some(keys) = keys(field) else {
        *live = wanted.iter().map(without_directives).collect();
        return;
    };
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    if wanted.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let said = wanted.iter().filter(|item| directive(item).is_none());
        *live = said.map(without_directives).collect();
        return;
    }
    for item in wanted {
        let same = |it: &Value| name(it, keys).is_some() && name(it, keys) == name(item, keys);
        if directive(item).as_deref() == Some("delete") {
            live.retain(|it| !same(it));
            continue;
        }
        match (live.iter_mut().find(|it| same(it)), item) {
            (Some(Value::Object(live)), Value::Object(item)) => map(live, item, false),
            (Some(live), item) => *live = item.clone(),
            (None, item) => live.push(without_directives(item)),
        }
    }
}

fn without_directives(wanted: &Value) -> Value {
    match wanted {
        Value::Object(fields) => Value::Object(plain(fields)),
        Value::Array(items) => items.iter().map(without_directives).collect(),
        other => other.clone(),
    }
}

/// What a patch says where nothing is: neither directives nor what it takes away.
fn plain(patch: &Map<String, Value>) -> Map<String, Value> {
    let said = patch.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    said.map(|(key, value)| (key.clone(), without_directives(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_strategic_patch_is_put_on_as_an_api_server_does_it() {
        let live = json!({
            "metadata": { "finalizers": ["a", "b"], "labels": { "x": "1", "y": "2" } },
            "spec": {
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } },
                "containers": [{ "name": "db", "image": "i:1", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }], "args": ["-v"] }, { "name": "side" }],
                "volumes": [{ "name": "v", "configMap": { "name": "c" } }],
                "tolerations": [{ "key": "k" }],
            },
        });
        let patch = json!({
            "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "labels": { "x": null } },
            "spec": {
                "strategy": { "$retainKeys": ["type"], "type": "Recreate" },
                "$setElementOrder/containers": [{ "name": "db" }, { "name": "new" }],
                "containers": [
                    { "name": "db", "image": "i:2", "args": ["-q"], "env": [{ "name": "A", "$patch": "delete" }, { "name": "C", "value": "3" }] },
                    { "name": "side", "$patch": "delete" },
                    { "name": "new", "image": "n", "command": null },
                ],
                "volumes": [{ "name": "v", "$retainKeys": ["name", "secret"], "secret": { "secretName": "s" } }],
                "tolerations": [],
            },
        });
        let after = json!({
            "metadata": { "finalizers": ["b", "c"], "labels": { "y": "2" } },
            "spec": {
                "strategy": { "type": "Recreate" },
                "containers": [
                    { "name": "db", "image": "i:2", "env": [{ "name": "B", "value": "2" }, { "name": "C", "value": "3" }], "args": ["-q"] },
                    { "name": "new", "image": "n" },
                ],
                "volumes": [{ "name": "v", "secret": { "secretName": "s" } }],
                "tolerations": [],
            },
        });
        assert_eq!(patched(&live, &patch, Patch::Strategic), Ok(after));
        let whole = json!({ "spec": { "$patch": "replace", "containers": [{ "$patch": "replace" }, { "name": "a" }] }, "metadata": { "labels": { "$patch": "delete" } } });
        let after = patched(&live, &whole, Patch::Strategic).unwrap();
        assert_eq!(after["metadata"], json!({ "finalizers": ["a", "b"], "labels": {} }));
        let all = json!({ "spec": { "containers": [{ "$patch": "replace" }, { "name": "a" }] } });
        let after = patched(&live, &all, Patch::Strategic).unwrap();
        assert_eq!(after["spec"]["containers"], json!([{ "name": "a" }]));
    }

    #[test]
    fn each_sort_of_patch_is_read_as_it_is_meant() {
        let live = json!({ "kind": "PodDisruptionBudget", "spec": { "selector": { "matchLabels": { "a": "1" } }, "ports": [{ "port": 1 }] } });
        let selector = json!({ "spec": { "selector": { "matchLabels": { "b": "2" } } } });
        let both = json!({ "a": "1", "b": "2" });
        let labels = |how| patched(&live, &selector, how).unwrap()["spec"]["selector"]["matchLabels"].clone();
        assert_eq!((labels(Patch::Strategic), labels(Patch::Merge)), (json!({ "b": "2" }), both));
        assert_eq!(labels(Patch::Apply), json!({ "b": "2" }));
        let ports = json!({ "spec": { "ports": [{ "port": 2 }] } });
        let count = |how| patched(&live, &ports, how).unwrap()["spec"]["ports"].as_array().unwrap().len();
        assert_eq!((count(Patch::Strategic), count(Patch::Merge)), (2, 1));
        let operations = json!([{ "op": "remove", "path": "/spec/ports/0" }]);
        assert_eq!(patched(&live, &operations, Patch::Json).unwrap()["spec"]["ports"], json!([]));
        let nowhere = json!([{ "op": "remove", "path": "/spec/ports/7" }]);
        assert!(
            patched(&live, &nowhere, Patch::Json).unwrap_err().starts_with("the patch cannot be put on: ")
        );
        for (how, odd) in [(Patch::Json, json!({})), (Patch::Strategic, json!([]))] {
            assert!(patched(&live, &odd, how).is_err(), "{how:?}");
        }
        assert!(patched(&Value::Null, &json!({}), Patch::Strategic).is_err());
    }

    #[test]
    fn the_type_of_its_content_says_how_it_is_meant() {
        for (text, how) in [
            ("application/json-patch+json", Some(Patch::Json)),
            ("application/merge-patch+json; charset=utf-8", Some(Patch::Merge)),
            ("application/strategic-merge-patch+json", Some(Patch::Strategic)),
            ("application/apply-patch+yaml", Some(Patch::Apply)),
            ("application/json", None),
        ] {
            assert_eq!(Patch::of(text), how, "{text}");
        }
    }
}
