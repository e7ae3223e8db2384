//! Texts of ConfigMaps: which ones are needed, and how many of them are kept.
//!
//! Owns: the [`Room`]. Users who may write in one namespace may name any number of ConfigMaps there, a megabyte each,
//! and the guard has little memory: a text that finds no room is known by its name ([`Facts::cannot_read`]), the
//! verdict on its readers reports that it is missing (G00), and no namespace takes the room of all others. Must not
//! know: how a text is requested.

use std::collections::{BTreeMap, BTreeSet};

use super::index::By;
use super::{Facts, Id};
use crate::revision::Unknown;
use objects::{ConfigMap, Kind, Unreadable};

/// The largest size of one ConfigMap, in bytes: option files are a few kilobytes, scripts and dumps that a first start
/// reads some hundred.
const LARGEST: usize = 512 << 10;
/// The fraction of the memory that all ConfigMaps may use, and that of one namespace: 16 MiB and 2 MiB of 128.
const PART: usize = 8;
const PART_OF_A_NAMESPACE: usize = 64;

/// The index entries of readers of ConfigMaps.
const READS: [By; 4] = [By::SetThatReads, By::SetThatNotes, By::DeploymentThatReads, By::PodThatReads];

/// The sizes of the texts that are kept, and of those that found no room.
#[derive(Debug)]
pub struct Room {
    /// The memory of the process, in bytes.
    memory: usize,
    kept: BTreeMap<Id, usize>,
    by_namespace: BTreeMap<String, usize>,
    all: usize,
    without: BTreeMap<Id, usize>,
    /// Room was freed since all texts without room were tried.
    is_freed: bool,
}

impl Room {
    /// Creates the room of a process with this memory, in bytes.
    pub fn within(memory: usize) -> Self {
        Self {
            memory,
            kept: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            all: 0,
            without: BTreeMap::new(),
            is_freed: false,
        }
    }

    /// Reserves room for this text, in place of its ConfigMap's earlier one.
    pub fn take(&mut self, map: &ConfigMap) -> Result<(), Unreadable> {
        let (id, weight) = (Id::of(&map.metadata), map.weight());
        self.leave(&id);
        if let Some(why) = self.lacks(&id.namespace, weight) {
            self.without.insert(id, weight);
            return Err(Unreadable::TooMuch(why));
        }
        *self.by_namespace.entry(id.namespace.clone()).or_default() += weight;
        self.all += weight;
        self.kept.insert(id, weight);
        Ok(())
    }

    /// Drops this text, which is not needed any more.
    pub fn leave(&mut self, id: &Id) {
        self.without.remove(id);
        let Some(weight) = self.kept.remove(id) else { return };
        self.all -= weight;
        self.is_freed = true;
        if let Some(of_its_namespace) = self.by_namespace.get_mut(&id.namespace) {
            *of_its_namespace -= weight;
            if *of_its_namespace == 0 {
                self.by_namespace.remove(&id.namespace);
            }
        }
    }

    /// Marks a text that found no room to be tried again, because it has changed. Returns false if it has room, or is
    /// unknown.
    pub fn try_again(&mut self, id: &Id) -> bool {
        let Some(weight) = self.without.get_mut(id) else { return false };
        *weight = 0;
        self.is_freed = true;
        true
    }

    /// Returns a text that found no room, and would find it now.
    pub fn that_fits(&mut self) -> Option<Id> {
        let fits = |(id, weight): &(&Id, &usize)| self.lacks(&id.namespace, **weight).is_none();
        let next = self.without.iter().filter(|_| self.is_freed).find(fits).map(|(id, _)| id.clone());
        self.is_freed = next.is_some();
        next
    }

    /// Returns why there is no room for one more.
    fn lacks(&self, namespace: &str, weight: usize) -> Option<&'static str> {
        let of_its_namespace = self.by_namespace.get(namespace).copied().unwrap_or_default();
        match weight {
            large if large > LARGEST => Some("it holds more than 512 KiB"),
            more if of_its_namespace + more > self.memory / PART_OF_A_NAMESPACE => {
                Some("the ConfigMaps of its namespace have used all of their room")
            }
            more if self.all + more > self.memory / PART => Some("ConfigMaps have used all of their room"),
            _ => None,
        }
    }
}

impl Facts {
    /// Returns the ConfigMaps whose text this object needs: those that a template refers to, and snapshots that are in
    /// use or requested.
    pub fn config_maps_of(&self, kind: Kind, id: &Id) -> impl Iterator<Item = Id> + use<> {
        let (words, namespace) = (self.words(kind, id).into_iter(), id.namespace.clone());
        words.filter(|(by, _)| READS.contains(by)).map(move |(_, name)| Id::new(&namespace, &name))
    }

    /// Returns whether an object needs the text of this ConfigMap.
    pub fn reads(&self, config_map: &Id) -> bool {
        let Id { namespace, name } = config_map;
        READS.into_iter().any(|by| self.index.names(by, namespace, name).next().is_some())
    }

    /// Returns all ConfigMaps whose text is needed.
    pub fn config_maps_that_are_read(&self) -> BTreeSet<Id> {
        let sets = self.stateful_sets.keys().map(|id| (Kind::StatefulSet, id));
        let deployments = self.deployments.keys().map(|id| (Kind::Deployment, id));
        let pods = self.pods.keys().map(|id| (Kind::Pod, id));
        sets.chain(deployments).chain(pods).flat_map(|(kind, id)| self.config_maps_of(kind, id)).collect()
    }

    /// Notes whether the text of this ConfigMap was requested and has not arrived.
    pub fn awaits(&mut self, config_map: &Id, is_so: bool) {
        if is_so {
            self.awaited.insert(config_map.clone());
        } else {
            self.awaited.remove(config_map);
        }
    }

    /// Returns why the text of this ConfigMap is unknown, although it exists.
    pub fn without_room(&self, config_map: &Id) -> Option<&Unreadable> {
        let problem = self.unreadable.get(&(Kind::ConfigMap, config_map.clone()))?;
        matches!(problem, Unreadable::TooMuch(_)).then_some(problem)
    }

    /// Returns whether this ConfigMap need not be read: its text is known, or found no room, or it did not exist when
    /// the watches last reported, which counts unless it may be newer than that.
    pub(super) fn answers_for(&self, config_map: &Id, may_be_new: bool) -> bool {
        let is_there = || self.without_room(config_map).is_some();
        self.config_maps.contains_key(config_map)
            || !self.awaited.contains(config_map) && self.reads(config_map) && (!may_be_new || is_there())
    }

    /// Returns the same problem, unless it is that the ConfigMap is missing, and it exists without room.
    pub(super) fn named(&self, namespace: &str, problem: Unknown) -> Unknown {
        match problem {
            Unknown::NotThere(name) => match self.without_room(&Id::new(namespace, &name)) {
                Some(why) => Unknown::NoRoom(name, why.to_string()),
                None => Unknown::NotThere(name),
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::Object;

    const MEMORY: usize = 128 << 20;

    fn map(namespace: &str, name: &str, kib: usize) -> ConfigMap {
        let text = "x".repeat(kib << 10);
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"data":{{"a":"{text}"}}}}"#
        );
        let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else {
            unreachable!("it is one")
        };
        map
    }

    #[test]
    fn no_namespace_takes_the_room_of_the_others() {
        let mut room = Room::within(MEMORY);
        let refused = |room: &mut Room, map: &ConfigMap| room.take(map).err().map(|it| it.to_string());
        let own =
            Some("is not examined: the ConfigMaps of its namespace have used all of their room".to_owned());
        for number in 0..150 {
            let found = refused(&mut room, &map("hostile", &format!("m-{number:03}"), 500));
            assert_eq!(found.is_none(), number < 4, "{number}: {found:?}");
            assert!(found.is_none() || found == own, "{found:?}");
        }
        assert_eq!(refused(&mut room, &map("db", "conf", 4)), None);
        let large = refused(&mut room, &map("db", "dump", 900));
        assert_eq!(large.as_deref(), Some("is not examined: it holds more than 512 KiB"));
        assert_eq!(room.that_fits(), None, "nothing has gone");
        room.leave(&Id::new("hostile", "m-001"));
        assert_eq!(room.that_fits(), Some(Id::new("hostile", "m-004")));
        assert_eq!(
            refused(&mut room, &map("hostile", "m-100", 500)),
            None,
            "it is written again, and fits now"
        );
        assert_eq!(room.that_fits(), None);
        assert_eq!(refused(&mut room, &map("db", "dump", 100)), None, "it is smaller now");
        for number in 0..10 {
            for name in ["a", "b", "c"] {
                drop(room.take(&map(&format!("n-{number}"), name, 500)));
            }
        }
        assert!(room.all <= 16 << 20, "{}", room.all);
        let all = refused(&mut room, &map("other", "conf", 500));
        assert_eq!(all.as_deref(), Some("is not examined: ConfigMaps have used all of their room"));
        for id in room.kept.keys().chain(room.without.keys()).cloned().collect::<Vec<_>>() {
            room.leave(&id);
        }
        assert_eq!((room.all, room.by_namespace.len(), room.without.len()), (0, 0, 0));
    }

    #[test]
    fn with_more_memory_a_namespace_has_more_room() {
        for (memory, fit) in [(MEMORY / 2, 2), (MEMORY, 4), (2 * MEMORY, 8)] {
            let mut room = Room::within(memory);
            let taken = (0..20).filter(|number| room.take(&map("db", &number.to_string(), 500)).is_ok());
            assert_eq!(taken.count(), fit, "{memory}");
        }
    }

    #[test]
    fn thousands_of_empty_keys_weigh_something() {
        let keys: Vec<_> = (0..50_000).map(|number| format!(r#""{number}":"""#)).collect();
        let json = format!(r#"{{"metadata":{{"name":"a"}},"data":{{{}}}}}"#, keys.join(","));
        let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else {
            unreachable!("it is one")
        };
        assert!(Room::within(MEMORY).take(&map).is_err());
    }
}
