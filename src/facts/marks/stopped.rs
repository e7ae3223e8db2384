//! The record on a member's claim after `gatera stop` stopped that member: where its data ends, how many members there
//! were, when it was stopped, and by which user.
//!
//! `gatera.dev/stopped: "66373a7e-e610-11f1-91b9-7e68ccac15f1:363 of=3 since=2026-12-01T09:30:00Z by=alice"`; the
//! position is `unknown` if the member did not report it. The record outlives the StatefulSet. Users may change it: it
//! only makes a start more careful (`grant/positions.rs`), and changes the state of a cluster with 0 replicas and no pod
//! from DOWN to STOPPED (`view/cluster.rs`). Must not know: clusters.

use std::fmt;

use jiff::Timestamp;

use super::UNKNOWN;
use crate::galera::start_report::Position;

/// The largest number of members: no Galera cluster has more, so a higher number is not a count of members.
const MOST_MEMBERS: i64 = 99;

/// The largest length of a user's name, in bytes.
const LONGEST_NAME: usize = 128;

/// The record of a stopped member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRecord {
    /// The position of the member's data, if the member reported it.
    pub position: Option<Position>,
    /// The number of members that there were. Every claim records this number, so one remaining claim is enough.
    pub of: i64,
    pub since: Timestamp,
    /// The name of the user at the API server; empty: unknown.
    pub by: String,
}

impl StopRecord {
    /// Reads the annotation's value.
    pub fn read(text: &str) -> Option<Self> {
        let (begin, since) = text.split_once(" since=")?;
        let (since, by) = since.split_once(" by=").unwrap_or((since, ""));
        let (position, of) = begin.split_once(" of=")?;
        let position = match position {
            UNKNOWN => None,
            position => Some(Position::read(position)?),
        };
        let of = of.parse().ok().filter(|of| (1..=MOST_MEMBERS).contains(of))?;
        Some(Self { position, of, since: since.parse().ok()?, by: user_name(by) })
    }
}

/// Returns the text if it can be the name of a user, or else an empty one: users may write anything here, and messages repeat it.
fn user_name(text: &str) -> String {
    let fits = text.len() <= LONGEST_NAME && !text.contains(|c: char| c == ';' || c.is_control());
    if fits { text.to_owned() } else { String::new() }
}

impl fmt::Display for StopRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, of, since, by } = self;
        match position {
            Some(position) => write!(f, "{position} of={of} since={since}")?,
            None => write!(f, "{UNKNOWN} of={of} since={since}")?,
        }
        if by.is_empty() { Ok(()) } else { write!(f, " by={by}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written_and_any_other_text_is_not_one() {
        const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
        for text in [
            format!("{ID}:363 of=3 since=2026-12-01T09:30:00Z"),
            "unknown of=1 since=2026-12-01T09:30:00Z".to_owned(),
            "unknown of=3 since=2026-12-01T09:30:00Z by=oidc:a person".to_owned(),
        ] {
            assert_eq!(StopRecord::read(&text).unwrap().to_string(), text);
        }
        let forged =
            StopRecord::read("unknown of=3 since=2026-12-01T09:30:00Z by=alice; kubectl delete namespace db");
        assert_eq!(forged.unwrap().by, "");
        for text in [
            "",
            "unknown",
            "unknown since=2026-12-01T09:30:00Z",
            "unknown of=0 since=2026-12-01T09:30:00Z",
            "unknown of=1000000 since=2026-12-01T09:30:00Z",
            &format!("{ID}:-1 of=3 since=2026-12-01T09:30:00Z"),
            &format!("{ID}:1 of=3 since=now"),
            "none of=3 since=2026-12-01T09:30:00Z",
        ] {
            assert_eq!(StopRecord::read(text), None, "{text}");
        }
    }
}
