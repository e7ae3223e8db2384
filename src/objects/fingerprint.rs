//! Fingerprints: whether two texts are the same, without keeping either.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Deserializer, de};

/// Tells whether two values are the same, and nothing else.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Fingerprint {
    /// Of any text.
    pub fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// As a number, the same in every process of one version of the program.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Hashed;
        impl de::Visitor<'_> for Hashed {
            type Value = Fingerprint;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Fingerprint, E> {
                Ok(Fingerprint::of(text))
            }
            fn visit_unit<E>(self) -> Result<Fingerprint, E> {
                Ok(Fingerprint::default())
            }
        }
        input.deserialize_any(Hashed)
    }
}
