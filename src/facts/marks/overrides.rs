//! The override: a user takes the responsibility for one step, for at most an hour.
//!
//! `gatera.dev/override: "G07 until=2026-12-01T10:00:00Z reason=moving to new disks"` suspends rule G07 for the object that has
//! it, or that gets it in the request, and on a StatefulSet for the whole cluster. `gatera.dev/break-glass: "until=… reason=…"`
//! on a namespace suspends every rule for all objects in it. A malformed text suspends nothing; an error says why.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// The longest time that an override may last: a longer one would be forgotten.
pub const LONGEST_OVERRIDE: SignedDuration = SignedDuration::from_hours(1);
/// The tolerated difference between clocks, so that a break-glass of one hour is accepted.
const SKEW: SignedDuration = SignedDuration::from_mins(1);
/// The largest length of an override, in bytes; messages repeat its reason.
const LONGEST_TEXT: usize = 1024;

/// Returns the end of an override in an example: late enough for one step, and without fractions of a second.
pub fn example_end(now: Timestamp) -> Timestamp {
    let later = now.checked_add(SignedDuration::from_mins(30)).unwrap_or(now);
    Timestamp::from_second(later.as_second()).unwrap_or(later)
}

/// Returns whether the text is an example that was pasted unchanged.
pub(super) fn is_placeholder(text: &str) -> bool {
    !text.contains(char::is_alphanumeric) || text == "TEXT"
}

/// The text that stands in place of the ids of rules in a break-glass.
const EVERY_RULE: &str = "every rule";

/// An override: one or several rules that are suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The ids of the rules, or the one text that stands for all.
    pub rules: Vec<String>,
    pub until: Timestamp,
    pub reason: String,
}

/// The reason why an override suspends nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidException {
    #[error("its form must be \"RULE until=TIME reason=TEXT\"")]
    Form,
    /// The form of a break-glass is wrong.
    #[error("its form must be \"until=TIME reason=TEXT\"")]
    BreakGlassForm,
    /// An example was pasted unchanged.
    #[error("its reason is still a placeholder: after reason=, write why you need it")]
    Placeholder,
    /// The text is too long to be repeated in messages.
    #[error("it is longer than {LONGEST_TEXT} bytes")]
    Overlong,
    #[error("it ended at {0}; remove it")]
    Ended(Timestamp),
    /// The override would last too long.
    #[error("it must end within an hour from now, not at {0}")]
    TooLong(Timestamp),
}

impl Override {
    /// Reads the annotation's value. The error says why it has no effect now.
    pub fn read(text: &str, now: Timestamp) -> Result<Self, InvalidException> {
        let ids =
            |rules: &str| rules.split([',', ' ']).filter(|id| !id.is_empty()).map(str::to_owned).collect();
        let parts = text.trim().split_once(" until=").map(|(rules, term)| (ids(rules), term));
        Self::within(LONGEST_OVERRIDE, InvalidException::Form, parts, text, now)
    }

    /// Reads the break-glass annotation of a namespace.
    pub fn break_glass(text: &str, now: Timestamp) -> Result<Self, InvalidException> {
        let parts = text.trim().strip_prefix("until=").map(|term| (vec![EVERY_RULE.to_owned()], term));
        Self::within(LONGEST_OVERRIDE + SKEW, InvalidException::BreakGlassForm, parts, text, now)
    }

    /// Reads an override from its parts: the ids of its rules, and what follows `until=`. The error is `form` if there are no
    /// ids, or if the rest has another form.
    fn within(
        longest: SignedDuration,
        form: InvalidException,
        parts: Option<(Vec<String>, &str)>,
        text: &str,
        now: Timestamp,
    ) -> Result<Self, InvalidException> {
        let Some((rules, term)) = parts.filter(|(rules, _)| !rules.is_empty()) else { return Err(form) };
        if text.len() > LONGEST_TEXT {
            return Err(InvalidException::Overlong);
        }
        let Some((until, reason)) = term.split_once(" reason=") else { return Err(form) };
        let Ok(until) = until.trim().parse::<Timestamp>() else { return Err(form) };
        let reason = reason.trim().to_owned();
        match () {
            () if reason.is_empty() => Err(form),
            () if is_placeholder(&reason) => Err(InvalidException::Placeholder),
            () if until <= now => Err(InvalidException::Ended(until)),
            () if now.duration_until(until) > longest => Err(InvalidException::TooLong(until)),
            () => Ok(Self { rules, until, reason }),
        }
    }

    /// Returns whether it is a break-glass, which suspends every rule.
    pub fn is_break_glass(&self) -> bool {
        self.rules.iter().any(|id| id == EVERY_RULE)
    }

    /// Returns whether it suspends this rule.
    pub fn suspends(&self, rule: &str) -> bool {
        self.is_break_glass() || self.rules.iter().any(|id| id.eq_ignore_ascii_case(rule))
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} until {}: {}", self.rules.join(", "), self.until, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_needs_a_reason_and_an_end_within_an_hour() {
        let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
        let until: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        let good =
            Override::read("G07, G01 until=2026-12-01T10:00:00Z reason=new disks = faster", now).unwrap();
        assert_eq!(
            good,
            Override { rules: vec!["G07".into(), "G01".into()], until, reason: "new disks = faster".into() }
        );
        assert!(good.suspends("G01") && good.suspends("g07") && !good.suspends("G11"));
        assert_eq!(
            Override::read("G07 until=2026-12-01T09:30:00Z reason=x", now),
            Err(InvalidException::Ended(now))
        );
        assert!(matches!(
            Override::read("G07 until=2026-12-01T10:30:01Z reason=x", now),
            Err(InvalidException::TooLong(_))
        ));
        for placeholder in ["…", "...", "<>", "TEXT"] {
            let text = format!("G07 until=2026-12-01T10:00:00Z reason={placeholder}");
            assert_eq!(Override::read(&text, now), Err(InvalidException::Placeholder), "{text}");
        }
        let long = format!("G07 until=2026-12-01T10:00:00Z reason={}", "x".repeat(1024));
        assert_eq!(Override::read(&long, now), Err(InvalidException::Overlong));
        for text in [
            "",
            "G07",
            "true",
            "G07 until=tomorrow reason=x",
            "G07 until=2026-12-01T10:00:00Z",
            " until=2026-12-01T10:00:00Z reason=x",
            "G07 until=2026-12-01T10:00:00Z reason= ",
        ] {
            assert_eq!(Override::read(text, now), Err(InvalidException::Form), "{text}");
        }
    }

    #[test]
    fn a_break_glass_suspends_every_rule_without_naming_one() {
        let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
        let open = Override::break_glass("until=2026-12-01T09:45:00Z reason=a node burns", now).unwrap();
        assert!(open.suspends("G01") && open.suspends("G18"));
        assert_eq!(open.to_string(), "every rule until 2026-12-01T09:45:00Z: a node burns");
        // An override cannot suspend all rules by these words: every user who may write an object may write an override.
        let named = Override::read("every rule until=2026-12-01T09:45:00Z reason=x", now).unwrap();
        assert!(!named.suspends("G01"));
        for (text, problem) in [
            (
                "until=2026-12-01T10:31:01Z reason=x",
                InvalidException::TooLong("2026-12-01T10:31:01Z".parse().unwrap()),
            ),
            ("until=2026-12-01T09:30:00Z reason=x", InvalidException::Ended(now)),
            ("until=2026-12-01T09:45:00Z reason=TEXT", InvalidException::Placeholder),
            ("until=2026-12-01T09:45:00Z reason= ", InvalidException::BreakGlassForm),
            ("G01 until=2026-12-01T09:45:00Z reason=x", InvalidException::BreakGlassForm),
            ("until=soon reason=x", InvalidException::BreakGlassForm),
            ("15m", InvalidException::BreakGlassForm),
            ("", InvalidException::BreakGlassForm),
        ] {
            assert_eq!(Override::break_glass(text, now), Err(problem), "{text}");
        }
    }
}
