//! Careful edits of raw JSON. Indexing a `Value` for writing panics on a shape nobody expected; these do nothing then.

use serde_json::{Map, Value};

use crate::marks;

/// The value at a path of keys. What is absent or null on the way becomes an object; anything else ends the walk.
pub(crate) fn at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, key| {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        Some(value.as_object_mut()?.entry(*key).or_insert(Value::Null))
    })
}

/// Sets the value at a path of keys, if there can be one.
pub(crate) fn set(value: &mut Value, path: &[&str], new: Value) {
    if let Some(place) = at(value, path) {
        *place = new;
    }
}

/// Puts an item into a list of named items: in place of the one of its name, or at the end.
pub(crate) fn put_named(value: &mut Value, path: &[&str], item: Value) {
    let Some(list) = at(value, path) else { return };
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Some(items) = list.as_array_mut() else { return };
    match items.iter_mut().find(|other| other["name"] == item["name"]) {
        Some(other) => *other = item,
        None => items.push(item),
    }
}

/// Sets one of the guard's annotations.
pub(crate) fn annotate(object: &mut Value, name: &str, value: &str) {
    set(object, &["metadata", "annotations", &format!("{}{name}", marks::PREFIX)], value.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn odd_shapes_are_left_alone() {
        for odd in [json!([]), json!({ "a": 1 }), json!({ "a": { "b": "x" } }), json!({ "a": { "b": [] } })] {
            let mut value = odd.clone();
            set(&mut value, &["a", "b", "c"], json!(1));
            put_named(&mut value, &["a", "b", "c"], json!({ "name": "n" }));
            assert_eq!(value, odd);
        }
        let mut value = json!({ "a": null });
        put_named(&mut value, &["a", "b"], json!({ "name": "n", "x": 1 }));
        put_named(&mut value, &["a", "b"], json!({ "name": "n", "x": 2 }));
        assert_eq!(value, json!({ "a": { "b": [{ "name": "n", "x": 2 }] } }));
    }
}
