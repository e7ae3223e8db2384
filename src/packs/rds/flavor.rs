//! R03: the flavor of an Rds fits its engine, and changes alone and only while the instance is ACTIVE.
//!
//! Refuses a `flavorref` of another engine, one that ends with `.ha` without `hamode: Ha` or the other way round, and one of a read
//! replica (`.rr`). Refuses to change it together with `volumesize`, or while the instance is not ACTIVE. Warns about a valid
//! change, because the instance restarts.
//!
//! # Why
//!
//! The operator requests the new flavor from the cloud every ten seconds until the change is done. The cloud refuses each request
//! for a flavor that does not fit, and the operator's other work for this instance waits. While the instance is not ACTIVE, the
//! operator does nothing.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"flavorref":"rds.mysql.c2.large.ha"}}'
//! [R03] Rds shop/orders: flavor "rds.mysql.c2.large.ha" ends with .ha, but spec.hamode is not Ha
//! ```
//!
//! # What to do instead
//!
//! Choose a flavor of the same engine (`rds.mysql.`, `rds.pg.`, `rds.mssql.`), with `.ha` if and only if the instance is highly available.
//! Change flavor and volume one after the other, at a time when a restart is acceptable.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R03 until=TIME reason=…"`.

use super::{RDS, Rds, RdsSpec, RdsWrite, bare, shown, until_active};
use engine::rule::{All, Finding, Findings, Review, Rule, Verdict, View, WRITTEN};

pub(super) const RULE: Rule = Rule {
    id: "R03",
    name: "rds-flavor",
    judges: &[(RDS, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("flavor.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = RdsWrite::of_part(review, view, |it| &it.flavorref) else { return Findings::new() };
    let mut found: Findings = unfit(&write.new.spec).into_iter().collect();
    let Some(old) = write.old else { return found };
    found.extend(together(old, write.new));
    found.extend(too_early(write.new, review));
    if found.is_empty() {
        let says = format!(
            "flavor {} -> {}: the instance restarts",
            shown(old.spec.flavor()),
            shown(write.new.spec.flavor())
        );
        let why = "the cloud moves the instance to another machine, and connections break";
        found.push(RULE.warn("spec.flavorref", says, why, "do it at a time when a restart is acceptable"));
    }
    found
}

fn unfit(spec: &RdsSpec) -> Option<Finding> {
    let flavor = spec.flavor();
    let prefix = match spec.engine() {
        "MySQL" => "rds.mysql.",
        "PostgreSQL" => "rds.pg.",
        "SQLServer" => "rds.mssql.",
        _ => "rds.",
    };
    let (_, last) = flavor.rsplit_once('.').unwrap_or_default();
    let ha = last == "ha";
    let (wrong, instead) = if last == "rr" {
        ("is for a read replica".to_owned(), "choose a flavor that does not end with .rr".to_owned())
    } else if !flavor.starts_with(prefix) {
        (
            format!("does not fit {}", bare(spec.engine())),
            format!("choose a flavor that begins with {prefix}"),
        )
    } else if ha && !spec.is_highly_available() {
        (
            "ends with .ha, but spec.hamode is not Ha".to_owned(),
            format!("write flavorref: {}", bare(flavor.trim_end_matches(".ha"))),
        )
    } else if !ha && spec.is_highly_available() {
        (
            "does not end with .ha, but spec.hamode is Ha".to_owned(),
            format!("write flavorref: {}.ha", bare(flavor)),
        )
    } else {
        return None;
    };
    let why =
        "the cloud refuses it, and the operator repeats the request and does nothing else for this instance";
    Some(RULE.deny("spec.flavorref", format!("flavor {} {wrong}", shown(flavor)), why, instead))
}

fn together(old: &Rds, new: &Rds) -> Option<Finding> {
    let both = !old.spec.volumesize.same_text(&new.spec.volumesize);
    let says = "spec.flavorref and spec.volumesize change at the same time";
    let why = "the cloud makes one change to an instance at a time, and refuses the second";
    let instead =
        "change spec.volumesize first, wait until the status is ACTIVE again, then change spec.flavorref";
    both.then(|| RULE.deny("spec", says, why, instead))
}

fn too_early(new: &Rds, review: &Review) -> Option<Finding> {
    let says =
        format!("the flavor cannot change now: the status is {}, not ACTIVE", new.status.description());
    let why = "the operator only works on instances that are ACTIVE";
    let instead = until_active(new, review).say(", then repeat the command");
    (!new.status.is_active()).then(|| RULE.finding(Verdict::Wait, "status.status", says, why, instead))
}
