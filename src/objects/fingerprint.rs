//! Fingerprints: they show whether two texts are the same, without keeping either.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Deserializer};

use super::meta::TextVisitor;

/// A fingerprint: it shows whether two values are the same, and nothing else.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Fingerprint {
    pub fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns the fingerprint as a number, which is the same in every process of one version of gatera.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(TextVisitor(|text| text.map(Self::of).unwrap_or_default()))
    }
}
