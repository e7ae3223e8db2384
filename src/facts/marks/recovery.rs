//! The recovery: from which member a cluster that is down is to be started again, where that member's data ends, and
//! until when that is allowed.
//!
//! `gatera.dev/recover: "galera-2 at 66373a7e-e610-11f1-91b9-7e68ccac15f1:363 until=2026-12-01T10:00:00Z"` on the
//! StatefulSet is a person's request. The guard checks it (`grant::refusal`), and only then repeats it in an
//! annotation of its own, `gatera.dev/recovery`. ` on NODE` before ` until=` requests a node, too. Must not know:
//! clusters.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::overrides::is_placeholder;
use crate::galera::start_report::Position;

/// The longest time that a recovery may last: a longer one would be forgotten.
const LONGEST_RECOVERY: SignedDuration = SignedDuration::from_hours(1);
/// The largest length of a request, in bytes. It contains the accepted loss in the user's words.
const LONGEST_TEXT: usize = 512;

/// A request to recover a cluster from one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub member: String,
    pub position: Position,
    /// The node that its new pod returns to; `None`: the scheduler chooses.
    pub node: Option<String>,
    pub until: Timestamp,
    /// The loss that is accepted, in the user's words; `None`: nothing may be lost.
    pub loss: Option<String>,
}

/// The reason why a text is not a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecovery {
    #[error(
        "its form must be \"MEMBER at ID:SEQNO until=TIME\", with accept-loss=TEXT at the end if data may be lost"
    )]
    Form,
    /// An example was pasted unchanged.
    #[error("after accept-loss=, write what may be lost, such as 12 transactions, or unknown")]
    Placeholder,
    #[error("it ended at {0}")]
    Ended(Timestamp),
    /// The request would last too long.
    #[error("it must end within an hour from now, not at {0}")]
    TooLong(Timestamp),
}

impl Recovery {
    /// Reads the annotation's value. A request that is over, or ends too late, is an error.
    pub fn read(text: &str, now: Timestamp) -> Result<Self, InvalidRecovery> {
        let recovery = Self::of(text)?;
        match recovery.until {
            until if until <= now => Err(InvalidRecovery::Ended(until)),
            until if now.duration_until(until) > LONGEST_RECOVERY => Err(InvalidRecovery::TooLong(until)),
            _ => Ok(recovery),
        }
    }

    /// Reads the annotation's value, even if its time is over.
    pub fn of(text: &str) -> Result<Self, InvalidRecovery> {
        if text.len() > LONGEST_TEXT || text.contains(char::is_control) {
            return Err(InvalidRecovery::Form);
        }
        let (begin, rest) = text.split_once(" until=").ok_or(InvalidRecovery::Form)?;
        let (member, position) = begin.split_once(" at ").ok_or(InvalidRecovery::Form)?;
        let (position, node) =
            position.split_once(" on ").map_or((position, None), |(at, on)| (at, Some(on)));
        let position = Position::read(position).ok_or(InvalidRecovery::Form)?;
        let (until, loss) =
            rest.split_once(" accept-loss=").map_or((rest, None), |(until, it)| (until, Some(it.trim())));
        let until: Timestamp = until.parse().map_err(|_| InvalidRecovery::Form)?;
        match () {
            () if !is_word(member) || !node.is_none_or(is_word) => Err(InvalidRecovery::Form),
            () if loss.is_some_and(is_placeholder) => Err(InvalidRecovery::Placeholder),
            () => {
                let (node, loss) = (node.map(str::to_owned), loss.map(str::to_owned));
                Ok(Self { member: member.to_owned(), position, node, until, loss })
            }
        }
    }

    /// Returns the permission as a pod carries it: the word, the position, and the end as a plain number, because a
    /// shell compares it. The member's own clock ends the permission, because its node may lose contact with the API
    /// server.
    pub fn permission(&self) -> String {
        format!("{} {} until={}", super::RECOVERY, self.position, self.until.strftime("%Y%m%d%H%M%S"))
    }

    /// Returns whether this text on a pod is a permission to start its cluster, in effect or over.
    pub fn is_permission(text: &str) -> bool {
        let parts = || text.strip_prefix(super::RECOVERY)?.strip_prefix(' ')?.split_once(" until=");
        parts().is_some_and(|(position, until)| {
            Position::read(position).is_some()
                && until.len() == 14
                && until.bytes().all(|it| it.is_ascii_digit())
        })
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(' ')
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, position, node, until, loss } = self;
        write!(f, "{member} at {position}")?;
        node.as_ref().map_or(Ok(()), |node| write!(f, " on {node}"))?;
        write!(f, " until={until}")?;
        loss.as_ref().map_or(Ok(()), |loss| write!(f, " accept-loss={loss}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";

    #[test]
    fn a_request_is_read_as_it_is_written_and_any_other_text_is_an_error() {
        let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
        for text in [
            format!("galera-2 at {ID}:363 until=2026-12-01T10:00:00Z"),
            format!("galera-2 at {ID}:0 until=2026-12-01T10:00:00Z accept-loss=412 transactions"),
            format!("galera-2 at {ID}:7 on node-1 until=2026-12-01T10:00:00Z accept-loss=unknown"),
        ] {
            let read = Recovery::read(&text, now).unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(read.permission(), format!("recovery {} until=20261201100000", read.position));
            assert!(Recovery::is_permission(&read.permission()));
        }
        let refused = |rest: &str| Recovery::read(&format!("galera-2 at {ID}:363 {rest}"), now).unwrap_err();
        assert_eq!(refused("until=2026-12-01T09:30:00Z"), InvalidRecovery::Ended(now));
        assert!(matches!(refused("until=2026-12-01T10:30:01Z"), InvalidRecovery::TooLong(_)));
        for loss in ["", "…", "TEXT", "  "] {
            let refused = refused(&format!("until=2026-12-01T10:00:00Z accept-loss={loss}"));
            assert_eq!(refused, InvalidRecovery::Placeholder, "{loss}");
        }
        for text in [
            "",
            "galera-2",
            "galera-2 at 0:1 until=2026-12-01T10:00:00Z",
            &format!("galera-2 at {ID}:+1 until=2026-12-01T10:00:00Z"),
            &format!("galera-2 at {ID}:-1 until=2026-12-01T10:00:00Z"),
            &format!(" at {ID}:1 until=2026-12-01T10:00:00Z"),
            &format!("a b at {ID}:1 until=2026-12-01T10:00:00Z"),
            &format!("galera-2 at {ID}:1 until=soon"),
            &format!("galera-2 at {ID}:1 on  until=2026-12-01T10:00:00Z"),
            &format!("galera-2 at {ID}:1 on a b until=2026-12-01T10:00:00Z"),
            &format!("galera-2 at {ID}:1 until=2026-12-01T10:00:00Z accept-loss=\u{1b}[2J"),
        ] {
            assert_eq!(Recovery::read(text, now), Err(InvalidRecovery::Form), "{text}");
        }
    }

    #[test]
    fn no_other_text_is_a_permission() {
        let right = format!("recovery {ID}:1 until=20261201100000");
        for text in [
            "recovery",
            "recovery ",
            "recover 1",
            "unknown",
            ID,
            &right[..right.len() - 1],
            &format!("{right}0"),
            &right[1..],
        ] {
            assert!(!Recovery::is_permission(text), "{text}");
        }
    }
}
