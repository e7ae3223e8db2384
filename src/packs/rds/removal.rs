//! R11: removing databases and users from an Rds does not drop them.
//!
//! Warns if a database or a user is removed. Refuses another password or host for an existing user.
//!
//! # Why
//!
//! The operator creates missing databases and users, by name, and does nothing else with them. A user that was removed here can
//! still log in, with the old password.
//!
//! # Example
//!
//! ```text
//! [R11] Rds shop/orders: user "app1" already exists, so another password or host has no effect
//! ```
//!
//! # What to do instead
//!
//! Use `DROP USER`, `DROP DATABASE` or `ALTER USER` in the database.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R11 until=TIME reason=…"`.

use std::collections::BTreeMap;

use super::{RDS, Rds, RdsWrite, shown};
use engine::rule::{All, Finding, Findings, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "R11",
    name: "rds-removal",
    judges: &[(RDS, &[Verb::Update], All(check))],
    depends_on_state: false,
    source: include_str!("removal.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(RdsWrite { old: Some(old), new }) = RdsWrite::of(review, view) else { return Findings::new() };
    users(old, new).chain(databases(old, new)).collect()
}

fn users<'r>(old: &'r Rds, new: &'r Rds) -> impl Iterator<Item = Finding> + use<'r> {
    let (before, after) = (old.spec.accounts(), new.spec.accounts());
    // A user of the same name may have had another host.
    let added = after.iter().filter(|(account, _)| !before.contains_key(account));
    let added: BTreeMap<_, _> = added.map(|((name, _), user)| (*name, *user)).collect();
    old.spec.users.all().iter().filter_map(move |was| {
        let (name, _) = was.account();
        let field = format!("spec.users[{name}]");
        let Some(is) = after.get(&was.account()).or_else(|| added.get(name)) else {
            return Some(removed("user", name, field, "DROP USER"));
        };
        let same = was.password.same_text(&is.password) && was.account() == is.account();
        let says = format!("user {} already exists, so another password or host has no effect", shown(name));
        let why = "the operator only checks whether a user of this name exists, and never changes one";
        let instead = "restore it here, and change it in the database (ALTER USER, RENAME USER)";
        (!same).then(|| RULE.deny(field, says, why, instead))
    })
}

fn databases<'r>(old: &'r Rds, new: &'r Rds) -> impl Iterator<Item = Finding> + use<'r> {
    let gone = old.spec.databases.all().iter().filter(|it| !new.spec.databases.all().contains(it));
    gone.map(|it| removed("database", it.look(), format!("spec.databases[{}]", it.look()), "DROP DATABASE"))
}

fn removed(what: &str, name: &str, field: String, statement: &str) -> Finding {
    let says = format!("removing {what} {} here does not drop it in the database", shown(name));
    let why = "the operator creates what is missing, and removes nothing";
    RULE.warn(field, says, why, format!("{statement} in the database"))
}
