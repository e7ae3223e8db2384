//! Which cluster a member belongs to: the id of the history that its data is part of, `wsrep_cluster_state_uuid`.
//!
//! Zeros are no identity: a cluster that was formed without comparing positions has them, and so has `grastate.dat` in the
//! middle of a DDL. They mean "not known", never "another".

use std::fmt;

/// An id that names a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(String);

/// What a probe of `wait-for-sync.sh` says, once, to a guard that does not know the cluster.
const TOLD: &str = "; its cluster is ";

impl Identity {
    /// Of a text that is nothing else.
    pub fn read(text: &str) -> Option<Self> {
        let digits =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let lengths = text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let known = text.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
        (lengths && known && text.split('-').all(digits)).then(|| Self(text.to_owned()))
    }

    /// Of the output of a probe, as the kubelet repeats it in an Event.
    pub fn told(message: &str) -> Option<Self> {
        Self::read(message.split_once(TOLD)?.1.trim_end())
    }

    /// As it is written.
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
    fn only_an_id_is_one() {
        let id = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
        assert_eq!(Identity::read(id).unwrap().to_string(), id);
        let told = |text: &str| Identity::told(&format!("Startup probe failed: {text}"));
        assert_eq!(told(&format!("the server is SYNCED; its cluster is {id}\n")), Identity::read(id));
        assert_eq!(told("the server is SYNCED"), None);
        assert_eq!(told(&format!("the server is SYNCED; its cluster is {id} and more")), None);
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
