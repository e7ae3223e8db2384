//! What stands on a member's claim since `gatera stop` stopped that member: where its data ends, of how many members it was one,
//! since when, and by whom.
//!
//! `gatera.dev/stopped: "66373a7e-e610-11f1-91b9-7e68ccac15f1:363 of=3 since=2026-12-01T09:30:00Z by=alice"`; in place of the position
//! `unknown`, where the member did not tell it. It outlives the StatefulSet. People may write it as they please: it makes a start
//! more careful (`grant/positions.rs`), and a cluster of 0 replicas without a pod STOPPED, not DOWN (`view/cluster.rs`). Must
//! not know: clusters.

use std::fmt;

use jiff::Timestamp;

use super::UNKNOWN;
use crate::galera::start_report::Position;

/// More members than any Galera cluster has: whoever writes more wants something else.
const MOST: i64 = 99;

/// Of a user's name, in bytes.
const LONGEST_NAME: usize = 128;

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where its data ended, if it told that.
    pub position: Option<Position>,
    /// How many members there were. Any one claim that is left tells it.
    pub of: i64,
    /// When that was written.
    pub since: Timestamp,
    /// Who did it, as the API server calls that user; empty: not known.
    pub by: String,
}

impl Record {
    /// Of the annotation's value.
    pub fn read(text: &str) -> Option<Self> {
        let (begin, since) = text.split_once(" since=")?;
        let (since, by) = since.split_once(" by=").unwrap_or((since, ""));
        let (position, of) = begin.split_once(" of=")?;
        let position = match position {
            UNKNOWN => None,
            position => Some(Position::read(position)?),
        };
        let of = of.parse().ok().filter(|of| (1..=MOST).contains(of))?;
        Some(Self { position, of, since: since.parse().ok()?, by: user_name(by) })
    }
}

/// People may write anything here, and it stands in messages: what is no name of a user is left out.
fn user_name(text: &str) -> String {
    let fits = text.len() <= LONGEST_NAME && !text.contains(|c: char| c == ';' || c.is_control());
    if fits { text.to_owned() } else { String::new() }
}

impl fmt::Display for Record {
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
    fn what_is_written_is_read() {
        const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
        for text in [
            format!("{ID}:363 of=3 since=2026-12-01T09:30:00Z"),
            "unknown of=1 since=2026-12-01T09:30:00Z".to_owned(),
            "unknown of=3 since=2026-12-01T09:30:00Z by=oidc:a person".to_owned(),
        ] {
            assert_eq!(Record::read(&text).unwrap().to_string(), text);
        }
        let forged =
            Record::read("unknown of=3 since=2026-12-01T09:30:00Z by=alice; kubectl delete namespace db");
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
            assert_eq!(Record::read(text), None, "{text}");
        }
    }
}
