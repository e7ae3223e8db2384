//! R07: a restore of an Rds needs a confirmation.
//!
//! Refuses `backuprestoretime` until an override of this rule confirms it. A value is always refused if it is not a time with seconds
//! and zone, is in the future or before the oldest backup, or comes with other changes or with a new Rds. While it is set, other changes
//! are refused; it may be emptied.
//!
//! # Why
//!
//! The operator restores in place and overwrites the data of the instance. If something else changes meanwhile, the operator fails to
//! empty the field, and ten seconds later it restores again. A time that it cannot read stops its other work.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"backuprestoretime":"2026-12-01T08:00:00Z"}}'
//! [R07] Rds shop/orders: a restore overwrites the running instance with its state at 2026-12-01T08:00:00Z
//! ```
//!
//! # What to do instead
//!
//! Take a backup first. Then write the time alone, with its zone, in the past.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R07 until=TIME reason=…"`. This is the confirmation. It does not
//! allow an invalid time.

use jiff::{SignedDuration, Timestamp};

use super::{RDS, Rds, RdsSpec, RdsWrite, shown, until_active};
use engine::exceptions::confirmation;
use engine::rule::{Finding, One, Origin, Review, Rule, Verdict, View, WRITTEN, YieldsTo};
use facts::way_out::say;
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "R07",
    name: "rds-restore",
    judges: &[(RDS, WRITTEN, One(check))],
    depends_on_state: false,
    source: include_str!("restore.rs"),
};

const TIME: &str = "spec.backuprestoretime";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let write = RdsWrite::of(review, view)?;
    let requested = &write.new.spec.backuprestoretime;
    match write.old {
        _ if requested.is_empty() => None,
        None if review.origin == Origin::Audit => None,
        None => Some(wrong("a new Rds has nothing to restore", "leave backuprestoretime out")),
        Some(old) if !old.spec.backuprestoretime.is_empty() => Some(pending()),
        Some(old) => Some(requested_restore(old, write.new, review, view)),
    }
}

fn wrong(says: impl Into<String>, instead: &str) -> Finding {
    let why =
        "a restore overwrites the instance, and a time that the operator cannot use stops its other work";
    // A confirmation does not make it valid.
    RULE.deny(TIME, says, why, instead).yielding_to(YieldsTo::BreakGlass)
}

fn pending() -> Finding {
    let says = "a restore is under way: spec.backuprestoretime is still set";
    let why = "if something else changes meanwhile, the operator cannot empty the field, and restores again";
    RULE.finding(
        Verdict::Wait,
        "spec",
        says,
        why,
        "wait until the operator has emptied it, or empty it in a separate write",
    )
}

fn requested_restore(old: &Rds, new: &Rds, review: &Review, view: &View<'_>) -> Finding {
    let now = view.now;
    let text = new.spec.backuprestoretime.look();
    let time = match time(text) {
        Ok(time) => time,
        Err(problem) => {
            return wrong(format!("{} {problem}", shown(text)), "write a time like 2026-12-01T08:00:00Z");
        }
    };
    let alone = RdsSpec { backuprestoretime: Scalar::Absent, ..old.spec.clone() }
        == RdsSpec { backuprestoretime: Scalar::Absent, ..new.spec.clone() };
    let days = old.spec.backup_days().unwrap_or(12).clamp(0, 732);
    if time > now {
        return wrong(format!("{time} is in the future"), "write a time in the past");
    }
    if now.duration_since(time) > SignedDuration::from_hours(24 * days) {
        return wrong(
            format!("{time} is before the oldest backup: backups are kept for {days} days"),
            "write a later time",
        );
    }
    if !alone || old.status != new.status {
        return wrong("the restore is combined with other changes", "write backuprestoretime alone");
    }
    if !old.status.is_active() {
        let says = format!(
            "the instance cannot be restored now: the status is {}, not ACTIVE",
            old.status.description()
        );
        let why = "the operator only works on instances that are ACTIVE";
        let instead =
            until_active(old, review).say(", then write the time again, which then needs a confirmation");
        return RULE.finding(Verdict::Wait, "status.status", says, why, instead);
    }
    let says = format!("a restore overwrites the running instance with its state at {time}");
    let why = "data that was written since then is lost, and the operator does not ask first";
    let confirmed = say("then ").and(confirmation(review, RULE.id, view));
    let instead = say("take a backup").then(confirmed.say(", and write the time again"));
    RULE.deny("status.id", says, why, instead)
}

/// Reads a time as the operator does: date, T, time with seconds, zone.
fn time(text: &str) -> Result<Timestamp, &'static str> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let like = |(c, shape): (u8, &u8)| if *shape == b'0' { c.is_ascii_digit() } else { c == *shape };
    let whole = text.len() >= SHAPE.len() && text.bytes().zip(SHAPE).all(like);
    let rest = text.get(SHAPE.len()..).filter(|_| whole).ok_or("is not a time with date and seconds")?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if zone.is_empty() {
        return Err("has no zone");
    }
    let plain = zone == "Z" || zone.len() == 6 && zone.starts_with(['+', '-']);
    if !plain {
        return Err("is not a time");
    }
    text.parse().map_err(|_| "is not a time")
}
