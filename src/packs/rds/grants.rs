//! R10: each privilege of a user of an Rds is one grant for that user.
//!
//! Refuses a privilege that is not one `GRANT … ON … TO` its own user, one on all databases (`ON *.*`) or on the server's own
//! databases (`mysql`), one over the whole server (SUPER, CREATE USER, PROXY), one that may be passed on (`WITH GRANT OPTION`), and more
//! than one statement. On `*.*` PROCESS, REPLICATION CLIENT, SHOW DATABASES and USAGE are allowed. Refuses changed privileges of an
//! existing user; their order does not matter. Warns about a grant that version 0.7.6 of the operator ignores: one with
//! characters other than letters, digits, spaces and `'*._%`, and one without a host for a user who has one.
//!
//! # Why
//!
//! The operator sends each text to the database unchanged, as root, even `DROP DATABASE x`. It never changes a user that exists.
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
//! Write one grant on one database for each privilege; do everything else in SQL.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R10 until=TIME reason=…"`.

use std::collections::BTreeSet;

use super::grant::Grant;
use super::spec::RdsUser;
use super::{RDS, RdsWrite, shown};
use engine::rule::{All, Findings, Review, Rule, Verdict, View, WRITTEN};
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "R10",
    name: "rds-grants",
    judges: &[(RDS, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("grants.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = RdsWrite::of_part(review, view, |it| &it.users) else { return Findings::new() };
    let old_users = write.old.map(|old| old.spec.accounts()).unwrap_or_default();
    let users = write.new.spec.users.all().iter();
    users
        .flat_map(|user| of_user(old_users.get(&user.account()).copied(), user))
        .take(MOST_FINDINGS)
        .collect()
}

/// The largest number of findings about the privileges of one Rds.
const MOST_FINDINGS: usize = 20;

fn of_user(old: Option<&RdsUser>, user: &RdsUser) -> Findings {
    let name = user.name.look();
    let field = format!("spec.users[{name}].privileges");
    if old.is_some_and(|old| granted(old) == granted(user)) {
        return Findings::new();
    }
    if old.is_some() {
        let says =
            format!("user {} already exists, so the operator does not change the privileges", shown(name));
        let why = "the operator only checks whether a user of this name exists";
        return vec![RULE.deny(field, says, why, "restore them here, and GRANT or REVOKE in SQL")];
    }
    let judge = |it: &Scalar| {
        let (verdict, says, instead) = fault(it.look(), user)?;
        let why = "the operator sends it to the database unchanged, as root";
        let says = format!("a privilege of user {} {says}", shown(name));
        Some(RULE.finding(verdict, field.clone(), says, why, instead))
    };
    user.privileges.all().iter().filter_map(judge).collect()
}

/// Returns the grants of a user, independent of order and spelling.
fn granted(user: &RdsUser) -> BTreeSet<Result<Grant, &str>> {
    let all = user.privileges.all().iter().map(Scalar::look);
    all.map(|text| Grant::read(text).ok_or(text)).collect()
}

/// The privileges that can be granted on a database.
const ON_A_DATABASE: [&str; 20] = [
    "ALL",
    "ALTER",
    "ALTER ROUTINE",
    "CREATE",
    "CREATE ROUTINE",
    "CREATE TEMPORARY TABLES",
    "CREATE VIEW",
    "DELETE",
    "DROP",
    "EVENT",
    "EXECUTE",
    "INDEX",
    "INSERT",
    "LOCK TABLES",
    "REFERENCES",
    "SELECT",
    "SHOW VIEW",
    "TRIGGER",
    "UPDATE",
    "USAGE",
];
/// The privileges for monitoring, which read no data.
const FOR_MONITORING: [&str; 4] = ["PROCESS", "REPLICATION CLIENT", "SHOW DATABASES", "USAGE"];

/// Returns the verdict about one privilege, its fault and the way out. None of them quotes the privilege, which may hold a
/// password.
fn fault(text: &str, user: &RdsUser) -> Option<(Verdict, &'static str, &'static str)> {
    let instead = "write one GRANT … ON DATABASE.* TO this user";
    let deny = |says| Some((Verdict::Deny, says, instead));
    if text.contains(';') {
        return deny("is more than one statement");
    }
    let Some(grant) = Grant::read(text) else { return deny("is not a plain GRANT statement") };
    let grants_only = |known: &[&str]| grant.privileges.iter().all(|it| known.contains(&&**it));
    let host = Some(user.host.look()).filter(|it| !it.is_empty()).unwrap_or("%");
    let is_of_host = grant.host.as_deref().is_none_or(|it| it.eq_ignore_ascii_case(host));
    let is_ignored = |c: char| !c.is_ascii_alphanumeric() && !" '*._%".contains(c);
    match () {
        () if grant.with_grant_option || grant.privileges.contains("GRANT OPTION") => {
            Some((Verdict::Deny, "lets the user pass it on (GRANT OPTION)", "leave GRANT OPTION out"))
        }
        () if grant.user != user.name.look() || !is_of_host => deny("is for another account"),
        () if grant.database == "*" && !grants_only(&FOR_MONITORING) => {
            deny("applies to all databases (ON *.*)")
        }
        () if grant.database != "*" && !grants_only(&ON_A_DATABASE) => {
            deny("applies to the whole server, not to one database")
        }
        () if grant.database.is_empty() => {
            deny("names no database, so it applies to the server's own database (mysql)")
        }
        () if grant.is_on_own_database_of_server() => deny("is on a database of the server itself"),
        () if text.contains(is_ignored) => Some((
            Verdict::Warn,
            "has characters other than letters, digits, spaces and '*._%, so version 0.7.6 of the operator ignores it",
            "write one privilege per entry and no host, or grant it in SQL",
        )),
        () if grant.host.is_none() && host != "%" => Some((
            Verdict::Warn,
            "names no host and so applies to every host, but the user has one: the database refuses it",
            "give the user host \"%\", or grant it in SQL",
        )),
        () => None,
    }
}
