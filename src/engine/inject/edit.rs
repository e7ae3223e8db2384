//! Safe edits of raw JSON. Indexing a `Value` for writing panics on an unexpected shape; these functions leave it as it is.

use serde_json::{Map, Value};

use facts::marks;

/// Returns the value at a path of keys and list indexes. Absent and null values on the path become objects; other values that are
/// not containers give `None`.
pub fn at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, key| {
        if let Value::Array(items) = value {
            return items.get_mut(key.parse::<usize>().ok()?);
        }
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        Some(value.as_object_mut()?.entry(*key).or_insert(Value::Null))
    })
}

/// Sets the value at a path of keys, if the shape allows it.
pub fn set(value: &mut Value, path: &[&str], new: Value) {
    if let Some(place) = at(value, path) {
        *place = new;
    }
}

/// Puts an item into a list of named items: it replaces the one of its name, or is appended.
pub fn put_named(value: &mut Value, path: &[&str], item: Value) {
    put(value, path, &["name"], item);
}

/// Puts a mount into a container's list: it replaces the one of this volume at this path, or is appended.
pub fn put_mount(container: &mut Value, mount: Value) {
    put(container, &["volumeMounts"], &["name", "mountPath"], mount);
}

/// Puts an item into a list: it replaces the one in which these keys have the same values, or is appended.
fn put(value: &mut Value, path: &[&str], keys: &[&str], item: Value) {
    let Some(list) = at(value, path) else { return };
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Some(items) = list.as_array_mut() else { return };
    match items.iter_mut().find(|other| keys.iter().all(|key| other[key] == item[key])) {
        Some(other) => *other = item,
        None => items.push(item),
    }
}

/// Sets or removes an annotation of the object at a path.
pub fn set_or_remove_annotation(object: &mut Value, path: &[&str], key: &str, value: Option<&str>) {
    let path = [path, &["metadata", "annotations"]].concat();
    match value {
        Some(value) => set(object, &[&*path, &[key]].concat(), value.into()),
        // `at` would create missing objects.
        None => {
            let place = path.iter().try_fold(object, |object, key| object.get_mut(key));
            place.and_then(Value::as_object_mut).map(|annotations| annotations.remove(key));
        }
    }
}

/// Sets one of the guard's annotations.
pub fn annotate(object: &mut Value, name: &str, value: &str) {
    set_or_remove_annotation(object, &[], &format!("{}{name}", marks::PREFIX), Some(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unexpected_shapes_stay_as_they_are() {
        for shape in [json!([]), json!({ "a": 1 }), json!({ "a": { "b": "x" } }), json!({ "a": { "b": [] } })]
        {
            let mut value = shape.clone();
            set(&mut value, &["a", "b", "c"], json!(1));
            put_named(&mut value, &["a", "b", "c"], json!({ "name": "n" }));
            assert_eq!(value, shape);
        }
        let mut pod = json!({ "metadata": { "annotations": { "a": "1", "b": "2" } } });
        set_or_remove_annotation(&mut pod, &[], "a", None);
        set_or_remove_annotation(&mut pod, &["spec"], "a", None);
        set_or_remove_annotation(&mut pod, &["spec"], "b", Some("3"));
        assert_eq!(
            pod,
            json!({ "metadata": { "annotations": { "b": "2" } }, "spec": { "metadata": { "annotations": { "b": "3" } } } })
        );
        let mut value = json!({ "a": null });
        put_named(&mut value, &["a", "b"], json!({ "name": "n", "x": 1 }));
        put_named(&mut value, &["a", "b"], json!({ "name": "n", "x": 2 }));
        assert_eq!(value, json!({ "a": { "b": [{ "name": "n", "x": 2 }] } }));
    }
}
