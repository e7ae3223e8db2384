//! Objects of a scene, moved to the namespace and the time in which they are played. Raw JSON in, raw JSON out, as an API server
//! takes it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::scene::NAMESPACE;

/// The target of a move: the namespace, and the distance in time.
pub struct Mover {
    pub namespace: String,
    pub by: SignedDuration,
}

impl Mover {
    pub fn moved(&self, mut value: Value) -> Value {
        self.walk(&mut value, "");
        complete(&mut value);
        value
    }

    fn walk(&self, value: &mut Value, key: &str) {
        match value {
            Value::String(text) => {
                let names = matches!(key, "namespace" | "name" | "kubernetes.io/metadata.name");
                if names && text == NAMESPACE {
                    text.clone_from(&self.namespace);
                }
                // API servers and guards take two objects with the same uid for one.
                if key == "uid" {
                    text.push_str(&self.namespace[NAMESPACE.len()..]);
                }
                *text = self.times(&text.replace(".db.", &format!(".{}.", self.namespace)));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item, key)),
            Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| self.walk(value, key)),
            _ => {}
        }
    }

    /// Moves every time of the form `2026-12-01T09:30:00Z` in a text.
    fn times(&self, text: &str) -> String {
        const LENGTH: usize = "2026-12-01T09:30:00Z".len();
        let mut moved = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("20") {
            let time = rest.get(at..at + LENGTH).and_then(|it| it.parse::<Timestamp>().ok());
            let end = if time.is_some() { at + LENGTH } else { at + 2 };
            match time {
                Some(time) => moved.push_str(&format!("{}{:.0}", &rest[..at], time + self.by)),
                None => moved.push_str(&rest[..end]),
            }
            rest = &rest[end..];
        }
        moved + rest
    }
}

/// Adds the fields that API servers require and no case is about.
pub fn complete(object: &mut Value) {
    let add = |object: &mut Value, lacks: Value| {
        let given = std::mem::replace(object, lacks);
        json_patch::merge(object, &given);
    };
    let claim = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    match object["kind"].as_str() {
        Some("StatefulSet") => {
            let templates = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
            templates.into_iter().flatten().for_each(|template| add(template, claim.clone()));
        }
        Some("PersistentVolumeClaim") => add(object, claim),
        Some("Service") => add(object, json!({ "spec": { "ports": [{ "port": 3306 }] } })),
        _ => {}
    }
}
