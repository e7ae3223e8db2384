//! Which cluster a member belongs to: the id of the history that its data is part of, `wsrep_cluster_state_uuid`.
//!
//! Zeros are no identity: a cluster that was formed without comparing positions has them, and so has `grastate.dat` in the
//! middle of a DDL. They mean "not known", never "another".

use std::fmt;

/// An id that names a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(String);

/// What a member tells of its cluster: a probe of `wait-for-sync.sh` says it, once, to a guard that does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// Its id.
    Is(Identity),
    /// It has none: its members formed it without comparing what they have.
    HasNone,
}

impl Answer {
    /// Of the output of a probe, as the kubelet repeats it in an Event.
    pub fn read(message: &str) -> Option<Self> {
        let (_, words) = message.split_once("; its cluster ")?;
        match words.trim_end().strip_prefix("is ") {
            Some(id) => Identity::read(id).map(Self::Is),
            None => (words.trim_end() == "has no id").then_some(Self::HasNone),
        }
    }

    /// The id, if it has one.
    pub fn id(&self) -> Option<&Identity> {
        match self {
            Self::Is(id) => Some(id),
            Self::HasNone => None,
        }
    }
}

impl Identity {
    /// Of a text that is nothing else.
    pub fn read(text: &str) -> Option<Self> {
        let digits =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let lengths = text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let known = text.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
        (lengths && known && text.split('-').all(digits)).then(|| Self(text.to_owned()))
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
        let told = |text: &str| Answer::read(&format!("Startup probe failed: {text}"));
        let is = Identity::read(id).map(Answer::Is);
        assert_eq!(told(&format!("the server is SYNCED; its cluster is {id}\n")), is);
        assert_eq!(told("the server is SYNCED; its cluster has no id\n"), Some(Answer::HasNone));
        assert_eq!(told("the server is SYNCED; its cluster has no idea"), None);
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
