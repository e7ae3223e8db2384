//! The identity of a cluster: the id of the history that its data belongs to, `wsrep_cluster_state_uuid`.
//!
//! Zeros are not an identity: a cluster that was formed without comparing positions has them, and so has `grastate.dat`
//! in the middle of a DDL. They mean "not known", never "another".

use std::fmt;

/// The identity of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(String);

/// A member's report about its cluster: a probe of `wait-for-sync.sh` prints it while the guard has not recorded this
/// cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityReport {
    Is(Identity),
    /// The cluster has no identity: its members formed it without comparing their data.
    HasNone,
}

impl IdentityReport {
    /// Reads the output of a probe, as the kubelet repeats it in an Event.
    pub fn read(message: &str) -> Option<Self> {
        let (_, words) = message.split_once("; its cluster ")?;
        match words.trim_end().strip_prefix("is ") {
            Some(id) => Identity::read(id).map(Self::Is),
            None => (words.trim_end() == "has no id").then_some(Self::HasNone),
        }
    }

    /// Returns the identity, if the cluster has one.
    pub fn id(&self) -> Option<&Identity> {
        match self {
            Self::Is(id) => Some(id),
            Self::HasNone => None,
        }
    }
}

impl Identity {
    /// Reads a text that is exactly an identity.
    pub fn read(text: &str) -> Option<Self> {
        let digits =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let lengths = text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let known = text.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
        (lengths && known && text.split('-').all(digits)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_uuid_that_is_not_all_zeros_is_an_identity() {
        let id = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
        assert_eq!(Identity::read(id).unwrap().to_string(), id);
        let reported = |text: &str| IdentityReport::read(&format!("Startup probe failed: {text}"));
        let is = Identity::read(id).map(IdentityReport::Is);
        assert_eq!(reported(&format!("the server is SYNCED; its cluster is {id}\n")), is);
        assert_eq!(reported("the server is SYNCED; its cluster has no id\n"), Some(IdentityReport::HasNone));
        assert_eq!(reported("the server is SYNCED; its cluster has no idea"), None);
        assert_eq!(reported("the server is SYNCED"), None);
        assert_eq!(reported(&format!("the server is SYNCED; its cluster is {id} and more")), None);
        for text in [
            "",
            "unknown",
            "00000000-0000-0000-0000-000000000000",
            "66373a7e-e610-11f1-91b9-7e68ccac15f",
            "66373A7E-e610-11f1-91b9-7e68ccac15f1",
            "66373a7e-e610-11f1-91b97e68ccac15f1-",
            "66373a7e-e610-11f1-91b9-7e68ccac15f1-",
            "é6373a7e-e610-11f1-91b9-7e68ccac15f1",
        ] {
            assert_eq!(Identity::read(text), None, "{text}");
        }
    }
}
