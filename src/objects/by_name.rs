//! A map with few entries: labels, annotations, the keys of a ConfigMap.
//!
//! Most of these maps have two or three entries, are read once and searched often, and thousands of them are kept. So the entries
//! are sorted, in one allocation; each node of a `BTreeMap` would reserve room for eleven.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ByName<T>(Box<[(String, T)]>);

impl<T> ByName<T> {
    /// Returns the value under this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.binary_search_by(|(it, _)| it.as_str().cmp(name)).ok().map(|at| &self.0[at].1)
    }

    /// Returns whether there is a value under this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&String, &T)> + Clone {
        self.0.iter().map(|(name, it)| (name, it))
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> + Clone {
        self.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, it)| it)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, it)| it)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for ByName<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// If two entries have the same name, the last one counts, as for API servers.
impl<T> FromIterator<(String, T)> for ByName<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        let mut all: Vec<_> = entries.into_iter().collect();
        all.reverse();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.dedup_by(|(one, _), (other, _)| one == other);
        Self(all.into_boxed_slice())
    }
}

impl<T, const N: usize> From<[(String, T); N]> for ByName<T> {
    fn from(entries: [(String, T); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(EntryVisitor::with(|_| true))
    }
}

/// A visitor that keeps the entries whose names this function accepts. With `deserialize_option`, a null is an empty map.
pub(super) struct EntryVisitor<T>(fn(&str) -> bool, PhantomData<T>);

impl<T> EntryVisitor<T> {
    pub(super) fn with(accepts: fn(&str) -> bool) -> Self {
        Self(accepts, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntryVisitor<T> {
    type Value = ByName<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(ByName::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if (self.0)(&name) {
                all.push((name, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_entries_with_the_same_name_the_last_counts() {
        let read: ByName<i64> = serde_json::from_str(r#"{"b":1,"a":2,"b":3,"":4}"#).unwrap();
        assert_eq!(
            read.iter().map(|(name, it)| (&**name, *it)).collect::<Vec<_>>(),
            [("", 4), ("a", 2), ("b", 3)]
        );
        assert_eq!((read.get("b"), read.get("c")), (Some(&3), None));
    }
}
