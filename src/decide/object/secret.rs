//! Secrets: which values there are and whether they change, never what they are. A value is hashed while it is read, so
//! no variable of the guard ever holds one.

use serde::Deserialize;

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
    /// Fingerprints by key.
    #[serde(deserialize_with = "or_default")]
    pub data: ByName<Fingerprint>,
}

impl Secret {
    /// The keys whose value is another one now, or gone.
    pub fn changed_keys<'a>(&'a self, new: &Secret) -> Vec<&'a str> {
        let changed = |(key, value): &(&String, &Fingerprint)| new.data.get(key) != Some(value);
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
