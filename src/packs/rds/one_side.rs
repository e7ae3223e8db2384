//! R13: spec and status of an Rds change one after the other.
//!
//! Refuses a write that changes both, if it changes databases or users; otherwise warns about it.
//!
//! # Why
//!
//! The operator skips a write that changes both. It checks sizes and restores again ten seconds later, but does not create
//! databases and users until something else changes.
//!
//! # Example
//!
//! ```text
//! [R13] Rds shop/orders: spec and status change at the same time, and the operator ignores such a change
//! ```
//!
//! # What to do instead
//!
//! Change the spec first, then request the reboot or the log in a separate write.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R13 until=TIME reason=…"`.

use super::{RDS, RdsWrite};
use engine::rule::{Finding, One, Review, Rule, Verb, Verdict, View};

pub(super) const RULE: Rule = Rule {
    id: "R13",
    name: "rds-one-side",
    judges: &[(RDS, &[Verb::Update], One(check))],
    depends_on_state: false,
    source: include_str!("one_side.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let RdsWrite { old: Some(old), new } = RdsWrite::of(review, view)? else { return None };
    if old.spec == new.spec || old.status == new.status {
        return None;
    }
    let lost = old.spec.databases != new.spec.databases || old.spec.users != new.spec.users;
    let verdict = if lost { Verdict::Deny } else { Verdict::Warn };
    let says = "spec and status change at the same time, and the operator ignores such a change";
    let why = "new databases and users are not created until something else changes";
    Some(RULE.finding(
        verdict,
        "status",
        says,
        why,
        "change the spec first, then the status in a separate write",
    ))
}
