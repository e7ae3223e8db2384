//! A value that copies of an object share until one of them changes it.
//!
//! A request contains an object before and after a change, and most of the two is the same. Rules also copy an object to judge
//! it with one field changed. Copying a template takes a hundred allocations; copying a [`Shared`] takes none. It also caches the
//! index of the server container, which many rules look up.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer};

/// A value that dereferences to `T`. Changing one copy does not affect the others.
#[derive(Clone, Default)]
pub struct Shared<T>(Arc<SharedValue<T>>);

#[derive(Clone, Default)]
struct SharedValue<T> {
    value: T,
    index: OnceLock<Option<usize>>,
}

impl<T> Shared<T> {
    /// Returns the index that `find` returned at the first call; a change of the value clears it.
    pub fn cached_index(&self, find: impl FnOnce(&T) -> Option<usize>) -> Option<usize> {
        *self.0.index.get_or_init(|| find(&self.0.value))
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
        known.index.take();
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
        Self(Arc::new(SharedValue { value, index: OnceLock::new() }))
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
    fn a_change_is_seen_in_no_other_copy_and_clears_the_cached_index() {
        let one = Shared::from(vec![1, 2]);
        let mut other = one.clone();
        let two = |of: &Shared<Vec<i32>>| of.cached_index(|all| all.iter().position(|it| *it == 2));
        assert_eq!((two(&one), one == other), (Some(1), true));
        other.insert(0, 0);
        assert_eq!((two(&one), two(&other)), (Some(1), Some(2)));
        assert_eq!((one.len(), other.len(), one == other), (2, 3, false));
        // No other copy shares the value now, and a change still clears the index.
        other.remove(0);
        assert_eq!((two(&other), one == other), (Some(1), true));
    }
}
