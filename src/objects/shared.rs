//! A value that copies of an object share until one of them changes it.
//!
//! A request shows an object before and after a change, most of which is the same; a copy of either is made to judge it in another
//! role. A template takes a hundred allocations to copy, and this takes none. What many rules ask about it is found out once.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer};

/// Reads like the value itself. A change of one copy is not seen in the others.
#[derive(Clone, Default)]
pub struct Shared<T>(Arc<SharedValue<T>>);

#[derive(Clone, Default)]
struct SharedValue<T> {
    value: T,
    place: OnceLock<Option<usize>>,
}

impl<T> Shared<T> {
    /// Returns the place that `find` returned the first time; it is forgotten when the value changes.
    pub fn place(&self, find: impl FnOnce(&T) -> Option<usize>) -> Option<usize> {
        *self.0.place.get_or_init(|| find(&self.0.value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        let known = Arc::make_mut(&mut self.0);
        known.place.take();
        &mut known.value
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(SharedValue { value, place: OnceLock::new() }))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        T::deserialize(input).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_in_no_other_copy_and_what_was_known_is_forgotten() {
        let one = Shared::from(vec![1, 2]);
        let mut other = one.clone();
        let two = |of: &Shared<Vec<i32>>| of.place(|all| all.iter().position(|it| *it == 2));
        assert_eq!((two(&one), one == other), (Some(1), true));
        other.insert(0, 0);
        assert_eq!((two(&one), two(&other)), (Some(1), Some(2)));
        assert_eq!((one.len(), other.len(), one == other), (2, 3, false));
        // No other copy shares it now, and it is still forgotten.
        other.remove(0);
        assert_eq!((two(&other), one == other), (Some(1), true));
    }
}
