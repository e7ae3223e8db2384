//! R10: what a user of an Rds may do is one grant for that user.
//!
//! Refuses a privilege that is not one `GRANT … TO` the user it stands at, one for everything (`ALL` on `*.*`), one that may be passed on
//! (`WITH GRANT OPTION`), and more than one statement. Refuses other privileges for a user that is there. Warns of a grant with `@` or a
//! comma, of which version 0.7.6 of the operator makes nothing.
//!
//! # Why
//!
//! The operator sends each as it stands, as root. `DROP DATABASE x` is taken as willingly as a grant. A user that is there it never looks
//! at again.
//!
//! # Example
//!
//! ```text
//! privileges:
//! - GRANT SELECT ON shop.* TO 'app1'          # fine
//! - DROP DATABASE shop                        # refused
//! ```
//!
//! # What to do instead
//!
//! One grant on one database for each privilege; everything else in SQL.
//!
//! # How to waive it
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R10 until=TIME reason=…"`.

use super::spec::User;
use super::{Write, shown};
use crate::object::Kind;
use crate::packs::loose::Loose;
use crate::review::Review;
use crate::rules::{Rule, WRITTEN};
use crate::verdict::{Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "R10",
    name: "rds-grants",
    touches: &[(Kind::Rds, WRITTEN)],
    source: include_str!("grants.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = Write::of(review, view) else { return Findings::new() };
    if !write.changes(|it| &it.users) {
        return Findings::new();
    }
    write.new.spec.users.all().iter().flat_map(|user| of(&write, user)).take(MOST).collect()
}

/// More than anybody reads at once.
const MOST: usize = 20;

fn of(write: &Write<'_>, user: &User) -> Findings {
    let name = user.name.look();
    let field = format!("spec.users[{name}].privileges");
    let before = write.old.and_then(|old| old.spec.user(name));
    if before.is_some_and(|was| was.privileges == user.privileges) {
        return Findings::new();
    }
    if before.is_some() {
        let says = format!("privileges of user {}, who exists already, are never changed", shown(name));
        let why = "the operator looks only whether a user of this name exists";
        return vec![RULE.finding(
            Verdict::Deny,
            field,
            says,
            why,
            "put them back here, and GRANT or REVOKE in SQL",
        )];
    }
    let judge = |it: &Loose| {
        let (verdict, says, instead) = wrong(it.look(), name)?;
        let why = "the operator sends it to the database as it stands, as root";
        let says = format!("a privilege of user {} {says}", shown(name));
        Some(RULE.finding(verdict, field.clone(), says, why, instead))
    };
    user.privileges.all().iter().filter_map(judge).collect()
}

/// What is wrong with one, and what to do instead. The text itself is not repeated: it may hold a password.
fn wrong(text: &str, user: &str) -> Option<(Verdict, &'static str, &'static str)> {
    let upper = text.to_ascii_uppercase();
    let words = upper.split_whitespace().collect::<Vec<_>>().join(" ");
    let to = words.rsplit_once(" TO ").map(|(_, to)| to.trim_matches(['\'', '"', '`', ' ']).to_owned());
    let of_user = to.is_some_and(|to| {
        let whom: String = to.chars().take_while(|c| !matches!(c, '@' | '\'' | '"' | '`' | ' ')).collect();
        whom == user.to_ascii_uppercase()
    });
    let one = "write one GRANT … ON DATABASE.* TO this user";
    match () {
        () if text.contains(';') => Some((Verdict::Deny, "is more than one statement", one)),
        () if !words.starts_with("GRANT ") => Some((Verdict::Deny, "is no grant", one)),
        () if words.contains("GRANT OPTION") => {
            Some((Verdict::Deny, "may be passed on", "leave WITH GRANT OPTION out"))
        }
        () if words.contains("ON *.*") && words.contains("ALL") => {
            Some((Verdict::Deny, "is for everything", one))
        }
        () if !of_user => Some((Verdict::Deny, "is for somebody else", one)),
        () if text.contains(['@', ',']) => Some((
            Verdict::Warn,
            "has an @ or a comma, and version 0.7.6 of the operator makes nothing of it",
            "write one privilege each, and no host",
        )),
        () => None,
    }
}
