//! R09: the operator can create the databases and users of an Rds.
//!
//! Refuses databases without a list of users; names of databases that have other characters than letters and digits; names, hosts
//! and passwords of users with a quote, a backslash or a control character. Warns about databases and users with an engine other
//! than MySQL, and about a second user of one name: the operator only checks the name, and creates the first.
//!
//! # Why
//!
//! The operator expects the field `users` if there are databases: without it the operator crashes, for every tenant, and again at
//! every start. It builds its SQL from these texts, as root: a quote in one of them can end one statement and begin another. With
//! other engines it creates neither databases nor users.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"databases":["shop"]}}'
//! [R09] Rds shop/orders: spec.databases without spec.users crashes the operator
//! ```
//!
//! # What to do instead
//!
//! Write `users: []` beside `databases`. Use letters and digits in names; create other names in SQL.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R09 until=TIME reason=…"`.

use std::collections::BTreeSet;

use super::{RDS, RdsWrite, shown};
use engine::rule::{All, Finding, Findings, Review, Rule, View, WRITTEN};
use objects::scalar::Listed;

pub(super) const RULE: Rule = Rule {
    id: "R09",
    name: "rds-users",
    judges: &[(RDS, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("users.rs"),
};

const SQL: &str =
    "the operator builds SQL from it as root, and a quote can end one statement and begin another";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = RdsWrite::of(review, view) else { return Findings::new() };
    if !write.changes(|it| &it.databases) && !write.changes(|it| &it.users) {
        return Findings::new();
    }
    let spec = &write.new.spec;
    let none = spec.databases.all().is_empty() && spec.users.all().is_empty();
    if spec.engine() != "MySQL" && !none {
        let says = format!("databases and users of {} are not created", shown(spec.engine()));
        let why = "the operator creates them only with MySQL";
        return vec![RULE.warn("spec.databases", says, why, "create them in SQL")];
    }
    without_users(&write)
        .into_iter()
        .chain(databases(&write))
        .chain(users(&write))
        .chain(twice(&write))
        .collect()
}

fn without_users(write: &RdsWrite<'_>) -> Option<Finding> {
    let spec = &write.new.spec;
    let says = "spec.databases without spec.users crashes the operator";
    let why =
        "the operator expects users there, and crashes without them, for every tenant and at every start";
    let ends = !spec.databases.all().is_empty() && spec.users == Listed::Absent;
    ends.then(|| RULE.deny("spec.users", says, why, "write users: [] beside databases"))
}

fn databases(write: &RdsWrite<'_>) -> Option<Finding> {
    let plain = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    let invalid = write.new.spec.databases.all().iter().find(|it| !plain(it.look()))?;
    let says = format!(
        "the name of database {} has characters other than letters and digits",
        shown(invalid.look())
    );
    let why = "the operator does not create such a database, and only its log says so";
    Some(RULE.deny("spec.databases", says, why, "choose another name, or create it in SQL"))
}

fn users(write: &RdsWrite<'_>) -> Option<Finding> {
    let is_unsafe = |text: &str| text.chars().any(|c| matches!(c, '\'' | '"' | '`' | '\\') || c.is_control());
    let first = write.new.spec.users.all().iter().find_map(|it| {
        let all = [("name", &it.name), ("host", &it.host), ("password", &it.password)];
        all.into_iter().find(|(_, value)| is_unsafe(value.look())).map(|(what, _)| (what, it.name.look()))
    });
    let (what, name) = first?;
    let says = format!("the {what} of user {} has a quote, a backslash or a control character", shown(name));
    Some(RULE.deny("spec.users", says, SQL, "choose another, or create the user in SQL"))
}

/// Returns a warning about a second account of one name: the operator creates only the first, for any host.
fn twice(write: &RdsWrite<'_>) -> Option<Finding> {
    let before = write.old.map(|old| old.spec.accounts()).unwrap_or_default();
    let mut names = BTreeSet::new();
    let second = write.new.spec.users.all().iter().find(|it| {
        let (name, _) = it.account();
        !names.insert(name) && !before.contains_key(&it.account())
    })?;
    let says = format!("user {} is listed twice, and only the first is created", shown(second.name.look()));
    let why = "the operator looks for a user of this name, with any host, and creates none if there is one";
    Some(RULE.warn("spec.users.name", says, why, "create the second in SQL"))
}
