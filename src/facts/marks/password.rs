//! The change of one password in a Secret that `gatera passwd` has prepared in MariaDB.
//!
//! `gatera.dev/password: "galera root-password version=4711 at=2026-12-01T10:00:00Z turn=2f9ac1"` on the Secret permits one
//! change: of this key, for this cluster, in the write that replaces exactly this version of the Secret. Every later write
//! replaces another version, so an annotation that stays behind, or is applied again from a file, permits nothing. Must not know:
//! values.

use std::fmt;

use jiff::Timestamp;

/// The annotation on a Secret: the change that it permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordMark {
    /// The StatefulSet whose members read the key.
    pub cluster: String,
    pub key: String,
    /// The resourceVersion of the Secret that the write replaces.
    pub version: String,
    /// The time of the write: pods that were created before it may hold the earlier value.
    pub at: Timestamp,
    /// An id that differs in each change, and again after `--abort` has reversed the change.
    pub turn: String,
}

impl PasswordMark {
    /// Reads the annotation's value; `None`: it is not valid.
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = |prefix: &str| words.next()?.strip_prefix(prefix).filter(|it| !it.is_empty());
        let (cluster, key) = (next("")?.to_owned(), next("")?.to_owned());
        let version = next("version=")?.to_owned();
        let (at, turn) = (next("at=")?.parse().ok()?, next("turn=")?.to_owned());
        words.next().is_none().then_some(Self { cluster, key, version, at, turn })
    }

    /// Returns whether a write that replaces the Secret in this version may change this key.
    pub fn permits(&self, cluster: &str, key: &str, version: &str) -> bool {
        self.cluster == cluster && self.key == key && self.version == version
    }
}

impl fmt::Display for PasswordMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, key, version, at, turn } = self;
        write!(f, "{cluster} {key} version={version} at={at} turn={turn}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_permits_one_write_of_one_key() {
        let text = "galera root-password version=4711 at=2026-12-01T10:00:00Z turn=2f9ac1";
        let change = PasswordMark::read(text).unwrap();
        assert_eq!(change.to_string(), text);
        assert!(change.permits("galera", "root-password", "4711"));
        for (cluster, key, version) in [
            ("other", "root-password", "4711"),
            ("galera", "sst.cnf", "4711"),
            ("galera", "root-password", "4712"),
            ("galera", "root-password", ""),
        ] {
            assert!(!change.permits(cluster, key, version), "{cluster} {key} {version}");
        }
    }

    #[test]
    fn an_incomplete_text_permits_nothing() {
        for text in [
            "",
            "galera root-password",
            "galera root-password version= at=2026-12-01T10:00:00Z turn=a",
            "galera root-password at=2026-12-01T10:00:00Z version=1 turn=a",
            "galera root-password version=1 at=today turn=a",
            "galera root-password version=1 at=2026-12-01T10:00:00Z turn=a more",
        ] {
            assert_eq!(PasswordMark::read(text), None, "{text}");
        }
    }
}
