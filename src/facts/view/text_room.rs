//! The room for texts of ConfigMaps: how many of them are kept.
//!
//! Users who may write in one namespace may create any number of ConfigMaps there, a megabyte each, and the guard has
//! little memory. So no namespace may take all of the room. A large text that several ConfigMaps hold is kept once:
//! the scripts of a chart are the same in each of its releases. Such a text counts once in each namespace that holds it,
//! and once for all of them.

use std::collections::{BTreeMap, HashMap};

use super::Id;
use objects::{ConfigMap, Fingerprint, Literal, Unreadable};

/// The largest size of one ConfigMap, in bytes. Option files are a few kilobytes; scripts and dumps that a first start reads
/// are a few hundred.
const LARGEST_CONFIG_MAP: usize = 512 << 10;
/// The part of the memory that the texts of all ConfigMaps may use: an eighth, which is 16 MiB of 128.
const PART_OF_ALL: usize = 8;
/// The part of the memory that the texts of one namespace may use: 1/64, which is 2 MiB of 128.
const PART_OF_A_NAMESPACE: usize = 64;
/// The least size, in bytes, of a large text, which is kept once.
const LARGE: usize = 1 << 10;

/// The texts that are kept, and the sizes of ConfigMaps that found no room.
#[derive(Debug, Default)]
pub struct TextRoom {
    /// The memory of the process, in bytes.
    memory: usize,
    kept: BTreeMap<Id, Size>,
    large: HashMap<Fingerprint, LargeText>,
    by_namespace: BTreeMap<String, usize>,
    used: usize,
    without_room: BTreeMap<Id, Size>,
    /// Room was freed since all ConfigMaps without room were tried.
    is_freed: bool,
}

/// The size of a ConfigMap, in bytes: of each large text, and of the rest.
#[derive(Debug, Default)]
struct Size {
    large: BTreeMap<Fingerprint, usize>,
    rest: usize,
}

/// A text that is kept once, and the number of ConfigMaps of each namespace that hold it.
#[derive(Debug)]
struct LargeText {
    text: Literal,
    holders: BTreeMap<String, usize>,
}

impl Size {
    /// Returns the size of all but the large texts that are known.
    fn of_new(&self, is_known: impl Fn(&Fingerprint) -> bool) -> usize {
        self.rest
            + self.large.iter().filter(|(text, _)| !is_known(text)).map(|(_, length)| length).sum::<usize>()
    }
}

impl TextRoom {
    /// Creates the room of a process with this memory, in bytes.
    pub fn with_memory(memory: usize) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Reserves room for this ConfigMap, in place of its earlier version. Its large texts become clones of the kept ones.
    pub fn take(&mut self, map: &mut ConfigMap) -> Result<(), Unreadable> {
        let id = Id::of(&map.metadata);
        self.remove(&id);
        let size = self.size(map);
        if let Some(why) = self.refusal(&id.namespace, &size) {
            self.without_room.insert(id, size);
            return Err(Unreadable::NotExamined(why));
        }
        *self.by_namespace.entry(id.namespace.clone()).or_default() +=
            self.extra_in_namespace(&id.namespace, &size);
        self.used += self.extra_in_all(&size);
        for text in map.data.values_mut().filter(|text| text.look().len() >= LARGE) {
            let fingerprint = Fingerprint::of(text.look());
            if size.large.contains_key(&fingerprint) {
                let first = || LargeText { text: text.clone(), holders: BTreeMap::new() };
                let kept = self.large.entry(fingerprint).or_insert_with(first);
                if kept.text == *text {
                    *text = kept.text.clone();
                }
            }
        }
        for text in size.large.keys() {
            if let Some(kept) = self.large.get_mut(text) {
                *kept.holders.entry(id.namespace.clone()).or_default() += 1;
            }
        }
        self.kept.insert(id, size);
        Ok(())
    }

    /// Drops this ConfigMap, which is not needed any more.
    pub fn remove(&mut self, id: &Id) {
        self.without_room.remove(id);
        let Some(size) = self.kept.remove(id) else { return };
        for text in size.large.keys() {
            let Some(kept) = self.large.get_mut(text) else { continue };
            lower(&mut kept.holders, &id.namespace, 1);
            if kept.holders.is_empty() {
                self.large.remove(text);
            }
        }
        self.is_freed = true;
        self.used -= self.extra_in_all(&size);
        let freed = self.extra_in_namespace(&id.namespace, &size);
        lower(&mut self.by_namespace, &id.namespace, freed);
    }

    /// Marks a ConfigMap that found no room to be tried again, because it has changed. Returns false if it has room, or
    /// is unknown.
    pub fn try_again(&mut self, id: &Id) -> bool {
        let Some(size) = self.without_room.get_mut(id) else { return false };
        *size = Size::default();
        self.is_freed = true;
        true
    }

    /// Returns a ConfigMap that found no room before, and fits now.
    pub fn next_that_fits(&mut self) -> Option<Id> {
        let fits = |(id, size): &(&Id, &Size)| self.refusal(&id.namespace, size).is_none();
        let next = self.without_room.iter().filter(|_| self.is_freed).find(fits).map(|(id, _)| id.clone());
        self.is_freed = next.is_some();
        next
    }

    /// Returns the size of a ConfigMap. Two different texts with the same fingerprint are not taken for the same one.
    fn size(&self, map: &ConfigMap) -> Size {
        let mut size = Size { rest: map.weight(), ..Size::default() };
        let mut texts_of_map = HashMap::new();
        for text in map.data.values().filter(|text| text.look().len() >= LARGE) {
            let fingerprint = Fingerprint::of(text.look());
            let first = *texts_of_map.entry(fingerprint).or_insert(text);
            if first == text && self.large.get(&fingerprint).is_none_or(|kept| kept.text == *text) {
                size.rest -= text.look().len();
                size.large.insert(fingerprint, text.look().len());
            }
        }
        size
    }

    /// Returns how much more room of this namespace a ConfigMap of this size takes.
    fn extra_in_namespace(&self, namespace: &str, size: &Size) -> usize {
        size.of_new(|text| self.large.get(text).is_some_and(|kept| kept.holders.contains_key(namespace)))
    }

    /// Returns how much more of the room of all ConfigMaps one of this size takes.
    fn extra_in_all(&self, size: &Size) -> usize {
        size.of_new(|text| self.large.contains_key(text))
    }

    /// Returns why a ConfigMap of this size has no room; `None`: it fits.
    fn refusal(&self, namespace: &str, size: &Size) -> Option<&'static str> {
        let of_its_namespace = self.by_namespace.get(namespace).copied().unwrap_or_default();
        match () {
            () if size.of_new(|_| false) > LARGEST_CONFIG_MAP => Some("it is larger than 512 KiB"),
            () if of_its_namespace + self.extra_in_namespace(namespace, size)
                > self.memory / PART_OF_A_NAMESPACE =>
            {
                Some("gatera's memory for the ConfigMaps of this namespace is full")
            }
            () if self.used + self.extra_in_all(size) > self.memory / PART_OF_ALL => {
                Some("gatera's memory for ConfigMaps is full")
            }
            () => None,
        }
    }
}

/// Subtracts from the number of a namespace, and removes a number that reaches 0.
fn lower(numbers: &mut BTreeMap<String, usize>, namespace: &str, by: usize) {
    if let Some(number) = numbers.get_mut(namespace) {
        *number -= by;
        if *number == 0 {
            numbers.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use objects::{Kind, Object};

    const MEMORY: usize = 128 << 20;

    /// Returns a ConfigMap with these texts.
    fn map_of(namespace: &str, name: &str, texts: &[String]) -> ConfigMap {
        let entry = |(number, text): (usize, &String)| format!(r#""{number}":"{text}""#);
        let data: Vec<_> = texts.iter().enumerate().map(entry).collect();
        let metadata = format!(r#"{{"name":"{name}","namespace":"{namespace}"}}"#);
        let json = format!(r#"{{"metadata":{metadata},"data":{{{}}}}}"#, data.join(","));
        let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else {
            unreachable!("it is a ConfigMap")
        };
        map
    }

    /// Returns a ConfigMap with one text that no other has.
    fn map(namespace: &str, name: &str, kib: usize) -> ConfigMap {
        map_of(namespace, name, &[format!("{namespace}/{name}{}", "x".repeat(kib << 10))])
    }

    #[test]
    fn no_namespace_takes_the_room_of_the_others() {
        let mut room = TextRoom::with_memory(MEMORY);
        let refused =
            |room: &mut TextRoom, mut map: ConfigMap| room.take(&mut map).err().map(|it| it.to_string());
        let namespace_full =
            Some("is not examined: gatera's memory for the ConfigMaps of this namespace is full".to_owned());
        for number in 0..150 {
            let refusal = refused(&mut room, map("hostile", &format!("m-{number:03}"), 500));
            assert_eq!(refusal.is_none(), number < 4, "{number}: {refusal:?}");
            assert!(refusal.is_none() || refusal == namespace_full, "{refusal:?}");
        }
        assert_eq!(refused(&mut room, map("db", "conf", 4)), None);
        let large = refused(&mut room, map("db", "dump", 900));
        assert_eq!(large.as_deref(), Some("is not examined: it is larger than 512 KiB"));
        assert_eq!(room.next_that_fits(), None, "no room was freed");
        room.remove(&Id::new("hostile", "m-001"));
        assert_eq!(room.next_that_fits(), Some(Id::new("hostile", "m-004")));
        assert_eq!(
            refused(&mut room, map("hostile", "m-100", 500)),
            None,
            "it is written again, and fits now"
        );
        assert_eq!(room.next_that_fits(), None);
        assert_eq!(refused(&mut room, map("db", "dump", 100)), None, "it is smaller now");
        for number in 0..10 {
            for name in ["a", "b", "c"] {
                drop(room.take(&mut map(&format!("n-{number}"), name, 500)));
            }
        }
        assert!(room.used <= 16 << 20, "{}", room.used);
        let all = refused(&mut room, map("other", "conf", 500));
        assert_eq!(all.as_deref(), Some("is not examined: gatera's memory for ConfigMaps is full"));
        for id in room.kept.keys().chain(room.without_room.keys()).cloned().collect::<Vec<_>>() {
            room.remove(&id);
        }
        assert_eq!((room.used, room.by_namespace.len(), room.without_room.len()), (0, 0, 0));
    }

    #[test]
    fn with_more_memory_a_namespace_has_more_room() {
        for (memory, fit) in [(MEMORY / 2, 2), (MEMORY, 4), (2 * MEMORY, 8)] {
            let mut room = TextRoom::with_memory(memory);
            let taken = (0..20).filter(|number| room.take(&mut map("db", &number.to_string(), 500)).is_ok());
            assert_eq!(taken.count(), fit, "{memory}");
        }
    }

    #[test]
    fn thousands_of_empty_keys_need_room() {
        let mut map = map_of("db", "a", &vec![String::new(); 50_000]);
        assert!(TextRoom::with_memory(MEMORY).take(&mut map).is_err());
    }

    #[test]
    fn the_scripts_of_a_chart_are_kept_once() {
        let scripts = |release: usize| {
            let texts = [format!("own options of {release}"), "s".repeat(44 << 10)];
            map_of("db", &format!("galera-{release}"), &texts)
        };
        let mut room = TextRoom::with_memory(MEMORY);
        let mut first = scripts(0);
        room.take(&mut first).unwrap();
        for release in 1..256 {
            let mut next = scripts(release);
            room.take(&mut next).unwrap();
            assert_eq!(next, scripts(release), "its texts are still its own");
            assert!(std::ptr::eq(next.data.get("1").unwrap().look(), first.data.get("1").unwrap().look()));
        }
        assert!(room.used < 150 << 10, "{}", room.used);
    }

    #[derive(Clone, Debug)]
    enum Move {
        Take(usize, usize, Vec<usize>),
        Leave(usize, usize),
        Changed(usize, usize),
        Fits,
    }

    fn steps() -> impl Strategy<Value = Vec<Move>> {
        let (namespace, name) = (0..3_usize, 0..5_usize);
        let texts = proptest::collection::vec(0..6_usize, 0..4);
        let step = prop_oneof![
            4 => (namespace.clone(), name.clone(), texts).prop_map(|(of, name, texts)| Move::Take(of, name, texts)),
            2 => (namespace.clone(), name.clone()).prop_map(|(of, name)| Move::Leave(of, name)),
            1 => (namespace, name).prop_map(|(of, name)| Move::Changed(of, name)),
            2 => Just(Move::Fits),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// In every order in which ConfigMaps are created, changed and deleted, the counts match what is kept, no share is
        /// exceeded, equal texts are kept once, and no ConfigMap that fits is left waiting.
        #[test]
        fn the_counts_match_what_is_kept(steps in steps()) {
            // A namespace has room for three of the five large texts.
            const LENGTH: usize = 4 << 10;
            let text = |number: usize| format!("{number}{}", "x".repeat(if number == 0 { 9 } else { LENGTH }));
            let id = |namespace: usize, name: usize| Id::new(&format!("n{namespace}"), &format!("m{name}"));
            let mut room = TextRoom::with_memory(PART_OF_A_NAMESPACE * (3 * LENGTH + 700));
            let mut kept: BTreeMap<Id, ConfigMap> = BTreeMap::new();
            let mut known: BTreeMap<Id, ConfigMap> = BTreeMap::new();
            let put = |room: &mut TextRoom, kept: &mut BTreeMap<Id, ConfigMap>, mut map: ConfigMap| {
                let id = Id::of(&map.metadata);
                kept.remove(&id);
                if room.take(&mut map).is_ok() {
                    kept.insert(id, map);
                }
            };
            for step in steps {
                match step {
                    Move::Take(namespace, name, texts) => {
                        let texts: Vec<_> = texts.into_iter().map(text).collect();
                        let Id { namespace, name } = id(namespace, name);
                        let map = map_of(&namespace, &name, &texts);
                        known.insert(Id::of(&map.metadata), map.clone());
                        put(&mut room, &mut kept, map);
                    }
                    Move::Leave(namespace, name) => {
                        room.remove(&id(namespace, name));
                        kept.remove(&id(namespace, name));
                        known.remove(&id(namespace, name));
                    }
                    Move::Changed(namespace, name) => {
                        let id = id(namespace, name);
                        prop_assert_eq!(room.try_again(&id), known.contains_key(&id) && !kept.contains_key(&id));
                    }
                    Move::Fits => while let Some(id) = room.next_that_fits() {
                        put(&mut room, &mut kept, known[&id].clone());
                    },
                }
                let count = |of: &dyn Fn(&Id) -> bool| {
                    let maps = || kept.iter().filter(|(id, _)| of(id)).map(|(_, map)| map);
                    let texts = || maps().flat_map(|map| map.data.values()).filter(|text| text.look().len() >= LARGE);
                    let large = |map: &ConfigMap| map.data.values().map(|it| it.look().len()).filter(|it| *it >= LARGE).sum::<usize>();
                    let places: BTreeSet<_> = texts().map(|text| text.look().as_ptr()).collect();
                    let different: BTreeSet<_> = texts().map(Literal::look).collect();
                    let rest: usize = maps().map(|map| map.weight() - large(map)).sum();
                    (rest + different.iter().map(|text| text.len()).sum::<usize>(), places.len() == different.len())
                };
                prop_assert_eq!(count(&|_| true), (room.used, true));
                for namespace in ["n0", "n1", "n2"] {
                    let counted = room.by_namespace.get(namespace).copied().unwrap_or_default();
                    prop_assert_eq!(count(&|id| id.namespace == namespace).0, counted);
                    prop_assert!(counted <= room.memory / PART_OF_A_NAMESPACE);
                }
                let would_fit = |(id, size): (&Id, &Size)| room.refusal(&id.namespace, size).is_none();
                prop_assert!(room.is_freed || !room.without_room.iter().any(would_fit));
            }
        }
    }
}
