//! The room: how much memory is used for objects that users write.
//!
//! An editor of one namespace can write objects of a megabyte and a half each, and the guard has little memory. So each
//! object, each namespace, and all unusually large objects together have a share of that memory. An object that finds
//! no room is known by its name ([`Facts::cannot_read`](super::Facts::cannot_read)), and the verdict on a destructive
//! request in its namespace is UNKNOWN. Nodes and namespaces always have room: only administrators write them. Must not
//! know: what an object means. Custom resources and texts of ConfigMaps have room of their own.

use std::hash::Hash;

use imbl::OrdMap;

use super::{Facts, Id};
use objects::{Kind, Object, Unreadable, scalar};

/// The largest size of one object, in bytes: some thousand environment variables.
const LARGEST_OBJECT: usize = 128 << 10;
const NEVER_FITS: &str = "it is larger than 128 KiB";
/// The part of the memory that one namespace may use: 1/32, which is 4 MiB of 128. That is enough for some hundred
/// clusters with all their objects.
const PART_OF_A_NAMESPACE: usize = 32;
/// The size, in bytes, up to which objects are ordinary: a StatefulSet with its sidecars takes half of it. The number
/// of ordinary objects is limited only by the room of their namespace.
const LARGEST_ORDINARY: usize = 32 << 10;
/// The part of the memory that all larger objects together may use: an eighth.
const PART_OF_LARGE_ONES: usize = 8;

/// The memory that kept objects take, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// The memory of the process; `None`: no limit.
    memory: Option<usize>,
    namespaces: OrdMap<String, usize>,
    large: usize,
    /// Room was freed since the last call of [`Facts::kinds_that_may_fit`].
    is_freed: bool,
}

impl Room {
    /// Checks that there is room for this weight in place of the earlier one.
    pub(super) fn check(&self, namespace: &str, before: usize, weight: usize) -> Result<(), Unreadable> {
        let Some(memory) = self.memory.filter(|_| !namespace.is_empty()) else { return Ok(()) };
        let here = self.namespaces.get(namespace).map_or(0, |kept| kept - before) + weight;
        let why = match () {
            () if weight > LARGEST_OBJECT => NEVER_FITS,
            () if here > memory / PART_OF_A_NAMESPACE => {
                "gatera's memory for the objects of this namespace is full"
            }
            () if self.large - large(before) + large(weight) > memory / PART_OF_LARGE_ONES => {
                "gatera's memory for large objects is full"
            }
            () => return Ok(()),
        };
        Err(Unreadable::NotExamined(why))
    }

    /// Replaces one weight by another.
    pub(super) fn change(&mut self, namespace: &str, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.is_freed |= after < before;
        self.large = self.large - large(before) + large(after);
        let kept = self.namespaces.get(namespace).map_or(0, |kept| kept - before) + after;
        if kept == 0 {
            self.namespaces.remove(namespace);
        } else {
            self.namespaces.insert(namespace.to_owned(), kept);
        }
    }
}

fn large(weight: usize) -> usize {
    if weight > LARGEST_ORDINARY { weight } else { 0 }
}

/// Returns the approximate size of a value in memory, in bytes: the bytes of its hash input, and some for each part.
pub(super) fn weight(of: &impl Hash) -> usize {
    // A part without bytes of its own takes some.
    scalar::weigh(of, |bytes| bytes.max(16))
}

/// The kinds of objects in a namespace that the rules of Galera need.
const NEEDED: [Kind; 6] =
    [Kind::StatefulSet, Kind::Deployment, Kind::Pod, Kind::Claim, Kind::Service, Kind::Budget];

impl Facts {
    /// Sets the memory of the process, in bytes.
    #[must_use]
    pub fn with_memory(mut self, memory: usize) -> Self {
        self.room.memory = Some(memory);
        self
    }

    /// Returns the memory of the process, in bytes; if it has no limit, the one that the chart sets.
    pub fn memory(&self) -> usize {
        self.room.memory.unwrap_or(128 << 20)
    }

    /// Returns whether an object of this namespace that the rules of Galera need found no room.
    pub(super) fn lacks_objects_of(&self, namespace: &str) -> bool {
        let found_none = |kind: Kind| {
            let from = (kind, Id::new(namespace, ""));
            let from_here = self.unreadable.range(from..);
            let mut here = from_here.take_while(|((of, id), _)| *of == kind && id.namespace == namespace);
            here.any(|(_, problem)| matches!(problem, Unreadable::NotExamined(_)))
        };
        NEEDED.into_iter().any(found_none)
    }

    /// Returns the kinds with an object that found no room and may find it now, because room was freed since the last
    /// call.
    pub fn kinds_that_may_fit(&mut self) -> Vec<Kind> {
        if !std::mem::take(&mut self.room.is_freed) {
            return Vec::new();
        }
        let waits = |kind: &Kind| {
            let all = self.unreadable.range((*kind, Id::new("", ""))..).take_while(|((of, _), _)| of == kind);
            let mut all = all.map(|(_, problem)| problem);
            all.any(|it| matches!(it, Unreadable::NotExamined(why) if *why != NEVER_FITS))
        };
        NEEDED.into_iter().filter(waits).collect()
    }

    /// Returns whether there is room for this object. If not, it is known by its name only.
    pub(super) fn has_room(&mut self, kind: Kind, id: &Id, weight: usize) -> bool {
        let checked = self.room.check(&id.namespace, self.weight_of(kind, id), weight);
        checked.map_err(|problem| self.cannot_read(kind, id.clone(), problem)).is_ok()
    }

    /// Returns the room that this object takes.
    pub(super) fn weight_of(&self, kind: Kind, id: &Id) -> usize {
        match kind {
            Kind::StatefulSet => self.stateful_sets.get(id).map(weight),
            Kind::Deployment => {
                let for_a_pack = || self.kept.of(kind)?.get(id).map(|it| self.weight_if_kept(it));
                self.deployments.get(id).map(weight).or_else(for_a_pack)
            }
            Kind::Pod => self.pods.get(id).map(|it| it.weight()),
            Kind::Claim => self.claims.get(id).map(weight),
            Kind::Service => self.services.get(id).map(weight),
            Kind::Budget => self.budgets.get(id).map(weight),
            Kind::Autoscaler => self.autoscalers.get(id).map(weight),
            Kind::Node => self.nodes.get(&id.name).map(weight),
            Kind::Namespace => self.namespaces.get(&id.name).map(weight),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Returns the room that this object will take, if it is kept.
    pub(super) fn weight_if_kept(&self, object: &Object) -> usize {
        match object {
            Object::StatefulSet(it) | Object::Deployment(it)
                if self.adoption().adopts(&it.spec.template.metadata.labels) || self.kept.keeps(object) =>
            {
                weight(it)
            }
            Object::Claim(it) => weight(it),
            Object::Service(it) => weight(it),
            Object::Budget(it) => weight(it),
            Object::Autoscaler(it) => weight(it),
            Object::Node(it) => weight(it),
            Object::Namespace(it) => weight(&it.metadata),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, size: usize) -> Object {
        let label = "x".repeat(size);
        let meta = format!(r#"{{"name":"{name}","namespace":"{namespace}","labels":{{"a":"{label}"}}}}"#);
        Object::read(Kind::Service, &format!(r#"{{"metadata":{meta}}}"#)).unwrap()
    }

    #[test]
    fn one_namespace_takes_no_room_of_another() {
        let mut facts = Facts::default().with_memory(128 << 20);
        for number in 0..1000 {
            facts.put(service("mine", &format!("s-{number}"), 100_000));
            facts.put(service("mine", &format!("t-{number}"), 200_000));
        }
        let kept = facts.services.len();
        assert!((20..50).contains(&kept), "{kept}");
        assert_eq!(facts.unreadable.len(), 2000 - kept, "the others are known to be there");
        facts.put(service("yours", "s", 10_000));
        assert!(facts.services.contains_key(&Id::new("yours", "s")));
        for number in 0..1000 {
            facts.remove(Kind::Service, &Id::new("mine", &format!("s-{number}")));
            facts.remove(Kind::Service, &Id::new("mine", &format!("t-{number}")));
        }
        assert_eq!((facts.room.namespaces.len(), facts.unreadable.len()), (1, 0));
        assert!(facts.room.large == 0 && facts.put(service("mine", "s", 100_000)));
        assert!(facts.unreadable.is_empty());
    }

    fn deployment(name: &str, labels: &str) -> Object {
        let label = "x".repeat(100_000);
        let meta = format!(r#"{{"name":"{name}","namespace":"mine","labels":{{"packed":"{label}"}}}}"#);
        let template = format!(r#"{{"metadata":{{"labels":{labels}}}}}"#);
        let json = format!(r#"{{"metadata":{meta},"spec":{{"template":{template}}}}}"#);
        Object::read(Kind::Deployment, &json).unwrap()
    }

    #[test]
    fn deployments_of_packs_take_room_and_are_kept_once() {
        let packed: super::super::kept::KeepsDeployment = |meta| meta.labels.contains_key("packed");
        let mut facts = Facts::default().with_kept_deployments([packed].into()).with_memory(128 << 20);
        for number in 0..1000 {
            facts.put(deployment(&format!("d-{number}"), "{}"));
        }
        let kept = |facts: &Facts| facts.kept.of(Kind::Deployment).map_or(0, OrdMap::len);
        assert!((20..50).contains(&kept(&facts)), "{}", kept(&facts));
        assert_eq!(facts.unreadable.len(), 1000 - kept(&facts), "the others are known to be there");
        for number in 0..1000 {
            let id = Id::new("mine", &format!("d-{number}"));
            facts.remove(Kind::Deployment, &id);
        }
        assert_eq!((facts.room.namespaces.len(), facts.unreadable.len(), kept(&facts)), (0, 0, 0));

        facts.put(deployment("d", "{}"));
        facts.put(deployment("d", r#"{"gatera.dev/cluster":"shop"}"#));
        assert_eq!((facts.deployments.len(), kept(&facts)), (1, 0), "it is adopted now");
    }

    #[test]
    fn many_namespaces_of_large_objects_leave_room_for_ordinary_ones() {
        let mut facts = Facts::default().with_memory(128 << 20);
        for number in 0..1000 {
            facts.put(service(&format!("n-{number}"), "s", 100_000));
        }
        let kept = facts.services.len();
        assert!((150..170).contains(&kept), "{kept}");
        facts.put(service("yours", "s", 10_000));
        assert!(facts.services.contains_key(&Id::new("yours", "s")));
    }
}
