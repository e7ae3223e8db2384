//! What stands on a member's claim since `gatera stop` stopped that member: where its data ends, and since when.
//!
//! `gatera.dev/stopped: "66373a7e-e610-11f1-91b9-7e68ccac15f1:363 since=2026-12-01T09:30:00Z"`; in place of the position
//! `unknown`, where the member did not tell it. It outlives the StatefulSet. People may write it as they please: it only ever makes
//! a start more careful (`recovery/table.rs`). Must not know: clusters.

use std::fmt;

use jiff::Timestamp;

use super::UNKNOWN;
use crate::galera::start_note::Position;

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where its data ended, if it told that.
    pub position: Option<Position>,
    /// When that was written.
    pub since: Timestamp,
}

impl Record {
    /// Of the annotation's value.
    pub fn read(text: &str) -> Option<Self> {
        let (position, since) = text.split_once(" since=")?;
        let position = match position {
            UNKNOWN => None,
            position => Some(Position::read(position)?),
        };
        Some(Self { position, since: since.parse().ok()? })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some(position) => write!(f, "{position} since={}", self.since),
            None => write!(f, "{UNKNOWN} since={}", self.since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
        for text in
            [format!("{ID}:363 since=2026-12-01T09:30:00Z"), "unknown since=2026-12-01T09:30:00Z".to_owned()]
        {
            assert_eq!(Record::read(&text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "unknown",
            &format!("{ID}:-1 since=2026-12-01T09:30:00Z"),
            &format!("{ID}:1 since=now"),
            "none since=2026-12-01T09:30:00Z",
        ] {
            assert_eq!(Record::read(text), None, "{text}");
        }
    }
}
