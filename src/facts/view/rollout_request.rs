//! The annotation of a StatefulSet with which a user controls a rollout: `paused`, `retry` what was given up, or a
//! revision that members are to run although the ConfigMaps hold another.
//!
//! Owns: how a request is written. A revision to keep also names the revision that it replaces, so the request ends by
//! itself when the ConfigMaps change again.

use std::fmt;

use crate::marks;
use crate::revision::Revision;
use objects::Meta;

/// A user's request about a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutRequest {
    /// No member is restarted.
    Paused,
    /// The revision that was given up is tried once more. Other words after `retry` request another attempt.
    Retry(String),
    /// Members run a revision instead of the one in the ConfigMaps.
    Keep {
        /// The revision that members run.
        revision: Revision,
        /// The revision that the ConfigMaps hold; the request ends when they change.
        instead_of: Revision,
    },
    /// The value is not valid, so no member is restarted.
    Invalid,
}

impl RolloutRequest {
    /// Reads the annotation of a StatefulSet.
    pub fn of(meta: &Meta) -> Option<Self> {
        meta.mark(marks::ROLLOUT).map(Self::read)
    }

    /// Returns the words of a retry request.
    pub fn retry(self) -> Option<String> {
        match self {
            Self::Retry(once) => Some(once),
            Self::Paused | Self::Keep { .. } | Self::Invalid => None,
        }
    }

    fn read(text: &str) -> Self {
        let retry = |text: &str| {
            let once = text.strip_prefix(RETRY)?;
            let fits = once.is_empty() || once.starts_with(' ') && once.len() <= LONGEST_WORDS;
            fits.then(|| Self::Retry(once.trim().to_owned()))
        };
        let keep = || {
            let (revision, instead_of) = text.strip_prefix(KEEP)?.split_once(INSTEAD_OF)?;
            Some(Self::Keep { revision: Revision::read(revision)?, instead_of: Revision::read(instead_of)? })
        };
        match text.trim() {
            PAUSED => Self::Paused,
            other => retry(other).or_else(keep).unwrap_or(Self::Invalid),
        }
    }
}

const PAUSED: &str = "paused";
const RETRY: &str = "retry";
/// The largest length of the words after `retry`, in bytes. They are recorded again if that attempt fails, too.
const LONGEST_WORDS: usize = 64;
const KEEP: &str = "keep ";
const INSTEAD_OF: &str = " instead of ";

impl fmt::Display for RolloutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str(PAUSED),
            Self::Keep { revision, instead_of } => write!(f, "{KEEP}{revision}{INSTEAD_OF}{instead_of}"),
            Self::Retry(once) => f.write_str(format!("{RETRY} {once}").trim_end()),
            Self::Invalid => f.write_str("invalid"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let revision = |letter: &str| Revision::read(&format!("conf={}", letter.repeat(32))).unwrap();
        let keep = RolloutRequest::Keep { revision: revision("a"), instead_of: revision("b") };
        let retry = |once: &str| RolloutRequest::Retry(once.to_owned());
        for request in [RolloutRequest::Paused, keep, retry(""), retry("2026-12-01T10:00:00Z")] {
            assert_eq!(RolloutRequest::read(&request.to_string()), request);
        }
        for invalid in [
            &*format!("retry {}", "x".repeat(65)),
            "retrying",
            "",
            "pause",
            "keep",
            "keep conf=aaaaaaaaaaaaaaaa",
            "keep x instead of y",
        ] {
            assert_eq!(RolloutRequest::read(invalid), RolloutRequest::Invalid, "{invalid}");
        }
    }
}
