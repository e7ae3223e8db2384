//! R15: the namespace and name of an Rds form a name that the cloud accepts.
//!
//! Refuses a new Rds whose namespace and name together, `NAMESPACE_NAME`, do not begin with a letter, do not have 4 to 64
//! characters, or contain a period.
//!
//! # Why
//!
//! This is the name of the instance, in which the cloud accepts only letters, digits, - and _. The cloud refuses another name, the
//! operator ignores the error, and the instance is never created. The operator also names a Service after the Rds, which must not
//! contain a period either.
//!
//! # Example
//!
//! ```text
//! [R15] Rds 3shop/orders: the instance would be called "3shop_orders", which does not begin with a letter
//! ```
//!
//! # What to do instead
//!
//! Choose another name, of the right length and without periods, or a namespace that begins with a letter.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R15 until=TIME reason=…"`.

use super::{RDS, RdsWrite, shown};
use engine::rule::{Finding, One, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "R15",
    name: "rds-name",
    judges: &[(RDS, &[Verb::Create], One(check))],
    depends_on_state: false,
    source: include_str!("name.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let name = &RdsWrite::of(review, view)?.new.metadata.name;
    let instance = format!("{}_{name}", review.namespace);
    let length = instance.chars().count();
    let problem = if name.is_empty() || review.namespace.is_empty() {
        return None;
    } else if !instance.starts_with(|c: char| c.is_ascii_alphabetic()) {
        "which does not begin with a letter".to_owned()
    } else if instance.contains('.') {
        "which has a period".to_owned()
    } else if !(4..=64).contains(&length) {
        format!("which has {length} characters instead of 4 to 64")
    } else {
        return None;
    };
    let says = format!("the instance would be called {}, {problem}", shown(&instance));
    let why = "the cloud refuses it and the operator ignores the error: the instance is never created";
    let instead = "choose another name of letters, digits and -, or a namespace that begins with a letter";
    Some(RULE.deny("metadata.name", says, why, instead))
}
