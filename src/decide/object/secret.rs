//! Secrets: which values there are and whether they change, never what they are. A value is hashed while it is read, so
//! no variable of the guard ever holds one.

use serde::{Deserialize, Deserializer, de};

use super::meta::or_default;
use super::{ByName, Fingerprint, Meta};

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What it is for, in a word of Kubernetes'; it never changes.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub of_type: String,
    /// What is known of the values, by key.
    #[serde(deserialize_with = "or_default")]
    pub data: ByName<Hidden>,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    fingerprint: Fingerprint,
    /// It is a certificate or a key of one, as PEM or DER.
    certificate: bool,
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Looked;
        impl de::Visitor<'_> for Looked {
            type Value = Hidden;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Hidden, E> {
                // "-----BEGIN", and the first bytes of a long DER sequence, in base64.
                let certificate =
                    text.starts_with("LS0tLS1CRUdJT") || text.starts_with("MII") && text.len() > 200;
                Ok(Hidden { fingerprint: Fingerprint::of(text), certificate })
            }
            fn visit_unit<E>(self) -> Result<Hidden, E> {
                Ok(Hidden::default())
            }
        }
        input.deserialize_any(Looked)
    }
}

impl Secret {
    /// The keys whose value is another one now, or gone.
    pub fn changed_keys<'a>(&'a self, new: &Secret) -> Vec<&'a str> {
        let changed = |(key, value): &(&String, &Hidden)| new.data.get(key) != Some(value);
        self.data.iter().filter(changed).map(|(key, _)| &**key).collect()
    }

    /// The value of this key is a certificate, or a key of one.
    pub fn is_certificate(&self, key: &str) -> bool {
        self.data.get(key).is_some_and(|it| it.certificate)
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
