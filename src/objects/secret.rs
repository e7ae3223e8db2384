//! Secrets: which values there are and whether they change, never what they are. A value is hashed while it is read, so
//! no variable of the guard ever holds one. In a file of encryption keys each line is hashed separately, in an option
//! file each option's value.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer};

use super::meta::TextVisitor;
use super::{ByName, Fingerprint, Meta};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Secret {
    pub metadata: Meta,
    /// The `type` of the Secret, which never changes.
    #[serde(rename = "type")]
    pub of_type: String,
    /// What is known of the values, by key.
    pub data: ByName<HiddenValue>,
}

/// What is known of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenValue {
    fingerprint: Fingerprint,
    /// The form of the value.
    pub form: Form,
}

/// The form of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Unknown: it may be a password.
    #[default]
    Plain,
    /// A certificate or its key, as PEM or DER.
    Certificate,
    /// A file of encryption keys, with `N;hex` in each line; holds a fingerprint of each line.
    Keys(BTreeSet<Fingerprint>),
    /// A file that OpenSSL encrypted, as files of encryption keys are.
    Encrypted,
    /// An option file; holds a fingerprint of each option's value.
    Options(BTreeMap<String, Fingerprint>),
    Script,
}

impl Form {
    /// Reads a value as the API returns it.
    fn of(text: &str) -> Self {
        // "-----BEGIN", and the first bytes of a long DER sequence, in base64.
        if text.starts_with("LS0tLS1CRUdJT") || text.starts_with("MII") && text.len() > 200 {
            return Self::Certificate;
        }
        let Ok(bytes) = BASE64.decode(text) else { return Self::Plain };
        if bytes.starts_with(b"Salted__") {
            return Self::Encrypted;
        }
        std::str::from_utf8(&bytes).map_or(Self::Plain, Self::of_text)
    }

    fn of_text(text: &str) -> Self {
        if text.starts_with("#!") {
            return Self::Script;
        }
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let is_key = |line: &str| {
            let (number, key) = line.split_once(';').unwrap_or_default();
            let digits = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
            digits && key.len() >= 32 && key.bytes().all(|it| it.is_ascii_hexdigit())
        };
        match lines().next() {
            Some(first) if first.starts_with('[') && first.ends_with(']') => {
                let options = lines().filter(|line| !line.starts_with(['[', ';', '!']));
                let option = |line: &str| {
                    let (name, value) = line.split_once('=').unwrap_or((line, ""));
                    let name = name.trim().to_ascii_lowercase().replace('-', "_");
                    (name, Fingerprint::of(value.trim().trim_matches(['"', '\''])))
                };
                Self::Options(options.map(option).collect())
            }
            Some(_) if lines().all(is_key) => {
                Self::Keys(lines().map(|line| Fingerprint::of(&line.to_ascii_lowercase())).collect())
            }
            _ => Self::Plain,
        }
    }
}

impl<'de> Deserialize<'de> for HiddenValue {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(TextVisitor(|text| {
            text.map(|text| Self { fingerprint: Fingerprint::of(text), form: Form::of(text) })
                .unwrap_or_default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_a_value_is_not() {
        let read = |json: &str| serde_json::from_str::<Secret>(json).unwrap();
        let old = read(r#"{"data":{"a":"aHVudGVyMg==","b":"x","c":null}}"#);
        let new = read(r#"{"data":{"a":"b3RoZXI=","b":"x","d":"new"}}"#);
        let differs = |key: &&str| old.data.get(key) != new.data.get(key);
        assert_eq!(["a", "b", "c", "d"].iter().copied().filter(differs).collect::<Vec<_>>(), ["a", "c", "d"]);
        assert!(!format!("{old:?}").contains("aHVudGVyMg"));
    }

    #[test]
    fn the_text_of_a_value_shows_its_form() {
        let key = "0123456789abcdef0123456789ABCDEF";
        for (text, form) in [
            (format!("# keys\n1;{key}\n 2;{key}\n"), "Keys({(hidden), (hidden)})"),
            (format!("1;{key}\nhunter2\n"), "Plain"),
            ("hunter2".to_owned(), "Plain"),
            (
                "[mysqld]\nwsrep-sst-auth = \"a:hunter2\"\n".to_owned(),
                r#"Options({"wsrep_sst_auth": (hidden)})"#,
            ),
            ("[hunter2".to_owned(), "Plain"),
            ("#!/bin/sh\n".to_owned(), "Script"),
            ("Salted__x".to_owned(), "Encrypted"),
            (String::new(), "Plain"),
        ] {
            assert_eq!(format!("{:?}", Form::of(&BASE64.encode(&text))), form, "{text}");
        }
    }
}
