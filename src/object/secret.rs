//! Secrets: which values there are and whether they change, never what they are. A value is hashed while it is read, so
//! no variable of the guard ever holds one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Deserializer, de};

use super::Meta;
use super::meta::or_default;

/// A Secret.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// Fingerprints by key.
    #[serde(deserialize_with = "or_default")]
    pub data: BTreeMap<String, Fingerprint>,
}

/// Tells whether two values are the same, and nothing else.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
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

impl Secret {
    /// The keys whose value is another one now, or gone.
    pub fn changed_keys<'a>(&'a self, new: &Secret) -> Vec<&'a str> {
        let changed = |(key, value): &(&String, &Fingerprint)| new.data.get(*key) != Some(value);
        self.data.iter().filter(changed).map(|(key, _)| &**key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_a_value_is_not() {
        let read = |json: &str| serde_json::from_str::<Secret>(json).unwrap();
        let old = read(r#"{"data":{"a":"aHVudGVyMg==","b":"x","c":null}}"#);
        assert_eq!(old.changed_keys(&read(r#"{"data":{"a":"b3RoZXI=","b":"x","d":"new"}}"#)), ["a", "c"]);
        assert!(!format!("{old:?}").contains("aHVudGVyMg"));
    }
}
