//! The objects of the API server, as JSON, with a uid, a version and a generation, and the log that watches follow.
//!
//! Must not know: permissions (`api.rs` asks the guard), the meaning of objects. Data: whole objects in; the current objects and
//! the log of changes out, each change read once by the real reader.

use std::collections::BTreeMap;
use std::rc::Rc;

use objects::{Kind, Object};
use serde_json::{Value, json};

use super::clock::Millis;

pub const NAMESPACE: &str = "db";

/// A change, as a watch reports it; without an object it is a deletion.
pub struct Change {
    pub at: Millis,
    pub kind: Kind,
    pub name: String,
    pub object: Option<Object>,
}

#[derive(Default)]
pub struct Store {
    objects: BTreeMap<(Kind, String), Rc<Value>>,
    pub version: u64,
    uids: u64,
    pub log: Vec<Change>,
}

impl Store {
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned())).map(Rc::as_ref)
    }

    pub fn all(&self, kind: Kind) -> impl Iterator<Item = (&str, &Rc<Value>)> {
        self.objects.iter().filter(move |((it, _), _)| *it == kind).map(|((_, name), it)| (&**name, it))
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.all(kind).map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns all objects as a first list would show them.
    pub fn listed(&self) -> impl Iterator<Item = Object> {
        self.objects.iter().map(|((kind, _), it)| read(*kind, it))
    }

    /// Creates an object, or replaces the one with its name. Writing an identical object changes nothing.
    pub fn put(&mut self, now: Millis, kind: Kind, mut object: Value) {
        let name = text(&object, "/metadata/name").to_owned();
        let before = self.get(kind, &name);
        if before == Some(&object) {
            return;
        }
        let meta = &mut object["metadata"];
        if !matches!(kind, Kind::Node | Kind::Namespace) {
            meta["namespace"] = json!(NAMESPACE);
        }
        match before {
            None => {
                self.uids += 1;
                meta["uid"] = json!(format!("{:08x}-0000-4000-8000-000000000000", self.uids));
                meta["generation"] = json!(1);
            }
            Some(before) => {
                meta["uid"] = before["metadata"]["uid"].clone();
                let generation = before["metadata"]["generation"].as_i64().unwrap_or(1);
                let changed = before["spec"] != object["spec"];
                object["metadata"]["generation"] = json!(generation + i64::from(changed));
            }
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let read = read(kind, &object);
        self.log.push(Change { at: now, kind, name: name.clone(), object: Some(read) });
        self.objects.insert((kind, name), Rc::new(object));
    }

    /// Changes an object if it exists.
    pub fn edit(&mut self, now: Millis, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.get(kind, name).cloned() else { return };
        change(&mut object);
        self.put(now, kind, object);
    }

    pub fn remove(&mut self, now: Millis, kind: Kind, name: &str) {
        if self.objects.remove(&(kind, name.to_owned())).is_some() {
            self.version += 1;
            self.log.push(Change { at: now, kind, name: name.to_owned(), object: None });
        }
    }
}

/// Reads an object with the real reader. (`to_string` of a JSON value takes several times as long.)
fn read(kind: Kind, object: &Value) -> Object {
    Object::read(kind, &serde_json::to_string(object).unwrap()).unwrap()
}

/// Returns the string at a JSON pointer, or an empty string.
pub fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns an annotation of the guard or of a person, by its name without the prefix.
pub fn mark<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("gatera.dev/{name}")].as_str()
}

/// Returns kind, name and uid of the controller that owns the object.
pub fn owner(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|it| it["controller"] == true)?;
    Some((text(controller, "/kind"), text(controller, "/name"), text(controller, "/uid")))
}

/// Returns the number at the end of a member's name, or -1.
pub fn ordinal(name: &str) -> i64 {
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(-1)
}
