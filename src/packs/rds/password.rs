//! R06: an Rds is created with a strong password.
//!
//! Refuses a new Rds without a `password`, with one that does not have 8 to 32 characters of at least three kinds (lower case,
//! upper case, digits, and others: `~!@#%^*-_=+?` in the operator's schema), or with the one from the operator's README. Warns
//! about a mask instead of a password, and about users whose password is in plain text. No output contains a password. R01 judges
//! later changes. An Rds that takes over an instance (R12) needs no password.
//!
//! # Why
//!
//! The schema accepts a missing password, but the cloud does not: the instance is never created. Every user who may read the object has
//! the root password of the database. The operator's documentation says that it is masked later; version 0.7.6 does not mask it.
//! Even with a mask, `kubectl apply` keeps the password in the annotation `kubectl.kubernetes.io/last-applied-configuration`,
//! which the guard does not read. The passwords of `users` are never masked.
//!
//! # Example
//!
//! ```text
//! spec:
//!   password: A12345678+                  # refused: this one is public
//! ```
//!
//! # What to do instead
//!
//! Use `kubectl create -f`, not `apply`, with a password that is used nowhere else: `echo "Rds-1$(openssl rand -hex 12)"` creates one. When
//! the instance is ACTIVE, change the root password in the database. Create users in SQL rather than here.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R06 until=TIME reason=…"`.

use super::{RDS, RdsWrite, shown};
use engine::rule::{All, Finding, Findings, Origin, Review, Rule, View, WRITTEN};
use facts::way_out::say;

pub(super) const RULE: Rule = Rule {
    id: "R06",
    name: "rds-password",
    judges: &[(RDS, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("password.rs"),
};

/// The password in the operator's README and chart.
const SAMPLE: &str = "A12345678+";
/// The advice. Its command prints a password with at least three kinds of characters, all of which the operator's schema accepts.
const ANOTHER_PASSWORD: &str = "choose another with `echo \"Rds-1$(openssl rand -hex 12)\"`, and use `kubectl create`, not `apply`, which keeps it in an annotation even after it is masked";
/// The characters that the operator's schema accepts besides letters and digits.
const OTHER_CHARACTERS: &str = "~!@#%^*-_=+?";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = RdsWrite::of(review, view) else { return Findings::new() };
    let root = if write.old.is_none() { root_password_fault(review, &write) } else { None };
    root.into_iter().chain(readable_user_passwords(&write)).collect()
}

fn root_password_fault(review: &Review, write: &RdsWrite<'_>) -> Option<Finding> {
    let password = &write.new.spec.password;
    let text = password.look();
    let field = "spec.password";
    // An instance that is taken over has a password; R12 asks for confirmation.
    let takes_over = !write.new.status.id.is_empty();
    if takes_over && (password.is_empty() || write.new.spec.is_masked()) {
        return None;
    }
    if write.new.spec.is_masked() {
        let says = "spec.password is a mask, not a password";
        let why = "the mask would become the root password of a new instance, or the cloud refuses it";
        let instead = say("write a password").or(say("to take over an existing instance, see ").page("R12"));
        let is_audit = review.origin == Origin::Audit;
        return (!is_audit).then(|| RULE.warn(field, says, why, instead));
    }
    let says = match text.chars().count() {
        _ if password.is_empty() => "spec.password is not set",
        _ if text == SAMPLE => "spec.password is the one from the operator's README",
        length if !(8..=32).contains(&length) => "spec.password does not have 8 to 32 characters",
        _ if text.contains(|c: char| !c.is_ascii_alphanumeric() && !OTHER_CHARACTERS.contains(c)) => {
            "spec.password has characters other than letters, digits and ~!@#%^*-_=+?"
        }
        _ if count_classes(text) < 3 => {
            "spec.password needs three kinds of characters: lower case, upper case, digits, others"
        }
        _ => return None,
    };
    let why = "the cloud refuses it, or it is easy to guess: it is the root password of the database";
    Some(RULE.deny(field, says, why, ANOTHER_PASSWORD))
}

fn count_classes(text: &str) -> usize {
    let classes: [fn(char) -> bool; 4] = [
        |c| c.is_ascii_lowercase(),
        |c| c.is_ascii_uppercase(),
        |c| c.is_ascii_digit(),
        |c| !c.is_ascii_alphanumeric(),
    ];
    classes.iter().filter(|class| text.chars().any(**class)).count()
}

fn readable_user_passwords(write: &RdsWrite<'_>) -> Option<Finding> {
    let before = write.old.map(|old| old.spec.accounts()).unwrap_or_default();
    let all = write.new.spec.users.all().iter();
    let new = all.filter(|user| user.password.is_present() && !before.contains_key(&user.account()));
    let names: Vec<_> = new.map(|user| shown(user.name.look())).collect();
    let first = names.first()?;
    let others = if names.len() > 1 { format!(" and of {} more", names.len() - 1) } else { String::new() };
    let says = format!("the password of user {first}{others} is in plain text, and stays readable here");
    let why =
        "every user who may read this object can log in as this user; the field cannot refer to a Secret";
    let instead = "create the user in SQL, or change its password in SQL afterwards";
    Some(RULE.warn("spec.users", says, why, instead))
}
