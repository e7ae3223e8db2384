//! Custom resources and other objects that packs use, and which of their kinds the API server offers.
//!
//! Owns: how much of them is kept. Every user who may create a custom resource may write a megabyte and a half into it,
//! and the guard has little memory: an object that finds no room here is known by its name only
//! ([`Facts::cannot_read`](super::Facts::cannot_read)), and the audit reports that it does not examine it. A request
//! about the object contains all of it, and is judged by that. Must not know: any pack. The rules of a pack decide how
//! its objects refer to each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::Id;
use super::facts::Map;
use objects::{Kind, Meta, Object, Unreadable};

/// The largest size of a custom resource, in bytes: a hundred users with their grants, or an operator with several
/// hundred parameters.
const LARGEST_RESOURCE: usize = 128 << 10;
/// The room for all custom resources, in bytes: some thousands of the usual size.
const ROOM_FOR_ALL: usize = 16 << 20;

/// A function that returns whether a Deployment is part of what a pack protects.
pub type KeepsDeployment = fn(&Meta) -> bool;

/// All objects that are kept. A clone shares what is not changed.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    objects: OrdMap<Kind, Map<Object>>,
    weight: usize,
    served: Arc<BTreeSet<Kind>>,
    unlisted: Arc<BTreeSet<Kind>>,
    /// A Deployment is kept for a pack if one of these functions returns true.
    pub(super) keeps: Arc<[KeepsDeployment]>,
}

/// Returns the approximate size of an object in memory, in bytes; 0 for everything but custom resources.
fn weight(object: &Object) -> usize {
    if let Object::Custom(it) = object { it.value.weight() } else { 0 }
}

/// Checks that an object is not too large to be kept.
fn fits(object: &Object) -> Result<usize, Unreadable> {
    let weight = weight(object);
    if weight <= LARGEST_RESOURCE {
        Ok(weight)
    } else {
        Err(Unreadable::NotExamined("it is larger than 128 KiB"))
    }
}

/// Reads an object that is to be kept: one that is too large is dropped at once.
pub fn read(kind: Kind, json: &str) -> Result<Object, Unreadable> {
    let object = Object::read(kind, json)?;
    fits(&object).map(|_| object)
}

impl Kept {
    /// Returns whether this object is kept for a pack.
    pub(super) fn keeps(&self, object: &Object) -> bool {
        match object {
            Object::Deployment(it) => self.keeps.iter().any(|keeps| keeps(&it.metadata)),
            other => other.kind().is_optional(),
        }
    }

    /// Stores an object if there is room, and forgets its earlier version.
    pub(super) fn put(&mut self, id: Id, object: Object) -> Result<(), Unreadable> {
        self.remove(object.kind(), &id);
        let weight = self.weight + fits(&object)?;
        if weight > ROOM_FOR_ALL {
            return Err(Unreadable::NotExamined("gatera's memory for custom resources (16 MiB) is full"));
        }
        self.weight = weight;
        self.objects.entry(object.kind()).or_default().insert(id, Arc::new(object));
        Ok(())
    }

    /// Forgets an object. One that found no room before finds it when it is written or listed again.
    pub(super) fn remove(&mut self, kind: Kind, id: &Id) {
        let known = self.objects.get_mut(&kind).and_then(|objects| objects.remove(id));
        self.weight -= known.map_or(0, |it| weight(&it));
    }

    /// Records whether the API server offers this kind. Returns whether that is new.
    pub fn set_served(&mut self, kind: Kind, is_served: bool) -> bool {
        let served = Arc::make_mut(&mut self.served);
        if is_served { served.insert(kind) } else { served.remove(&kind) }
    }

    /// Returns the kinds that the API server offers.
    pub fn served(&self) -> &BTreeSet<Kind> {
        &self.served
    }

    /// Returns the kinds that are offered, or held.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.served.iter().chain(self.objects.keys()).copied()
    }

    /// Records whether the API server lists this kind. If it offers a kind and does not list it, the objects of that kind
    /// are unknown. Returns whether that is new.
    pub fn set_listed(&mut self, kind: Kind, is_listed: bool) -> bool {
        let unlisted = Arc::make_mut(&mut self.unlisted);
        if is_listed { unlisted.remove(&kind) } else { unlisted.insert(kind) }
    }

    /// Returns the kinds that the API server offers and does not list.
    pub fn unlisted(&self) -> &BTreeSet<Kind> {
        &self.unlisted
    }

    pub(super) fn of(&self, kind: Kind) -> Option<&Map<Object>> {
        self.objects.get(&kind)
    }

    /// Returns whether anything is kept in this namespace.
    pub fn any_in(&self, namespace: &str) -> bool {
        self.all().any(|(_, objects)| super::within(objects, namespace).next().is_some())
    }

    pub fn all(&self) -> impl Iterator<Item = (Kind, &Map<Object>)> {
        self.objects.iter().map(|(kind, objects)| (*kind, objects))
    }
}

#[cfg(test)]
mod tests {
    use objects::{Custom, CustomKind, KindNames, scalar};
    use serde::Deserialize;

    use super::*;
    use crate::view::Facts;

    #[derive(Debug, Default, Hash, Deserialize)]
    #[serde(default)]
    struct TestResource {
        metadata: Meta,
        spec: Vec<scalar::Scalar>,
    }

    impl Custom for TestResource {
        fn meta(&self) -> &Meta {
            &self.metadata
        }
    }

    const USERS: Kind = Kind::Custom(&CustomKind {
        names: KindNames { group: "example.com", version: "v1", name: "Users", plural: "users" },
        watched: true,
        cluster_wide: false,
        read: CustomKind::read_into::<TestResource>,
    });

    fn users(name: &str, number: usize, users: usize, text: &str) -> Object {
        let spec = vec![text; users];
        let metadata = serde_json::json!({ "name": format!("{name}-{number}"), "namespace": "db" });
        let json = serde_json::json!({ "metadata": metadata, "spec": spec });
        Object::read(USERS, &json.to_string()).unwrap()
    }

    #[test]
    fn a_thousand_large_resources_do_not_fill_the_memory() {
        let grants = "GRANT SELECT ON shop.* TO 'app1'; ".repeat(3);
        for (name, size, text, count, kept) in [
            ("megabytes", 100, &*grants.repeat(35), 1000, 0..1),
            ("nothing-again-and-again", 20_000, "", 10, 0..1),
            ("one-text", 1, &*"x".repeat(500_000), 10, 0..1),
            ("many", 150, &*grants, 1000, 500..1000),
        ] {
            let mut facts = Facts::default();
            for number in 0..count {
                facts.put(users(name, number, size, text));
            }
            let there = facts.kept.of(USERS).map_or(0, OrdMap::len);
            assert!(
                kept.contains(&there) && facts.kept.weight <= ROOM_FOR_ALL,
                "{there}: {}",
                facts.kept.weight
            );
            assert_eq!(facts.unreadable.len(), count - there, "the others are known to be there");
            for number in 0..count {
                facts.remove(USERS, &Id::of(users(name, number, 0, "").meta()));
            }
            assert_eq!((facts.kept.weight, facts.unreadable.len()), (0, 0));
        }
    }
}
