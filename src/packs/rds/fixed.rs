//! R01: fields of an Rds that are fixed at its creation do not change.
//!
//! Refuses to change availabilityzone, backupstarttime, backupkeepdays, datastoretype, datastoreversion, hamode, hareplicationmode,
//! port, region, subnet, securitygroup, vpc, volumetype and password. Warns if a mask (`xxxxxxxxxx`) replaces a password: version
//! 0.7.6 of the operator writes no masks, and cannot log in with one. Warns if a password replaces a mask, because the masked one may
//! have been the same or another. No output contains a password.
//!
//! # Why
//!
//! The operator sends these fields to the cloud once, when it creates the instance, and ignores later changes. After the change
//! the resource and the instance differ. With another port or password the operator itself can no longer log in, and creates no
//! databases and no users.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"datastoreversion":"8.4"}}'
//! [R01] Rds shop/orders: spec.datastoreversion cannot change after creation ("8.0" -> "8.4")
//! ```
//!
//! # What to do instead
//!
//! Restore the old value. To change the root password, change it in the database first (ALTER USER), then here, with an override. For
//! another version, zone or network, create a second Rds and move the data.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R01 until=TIME reason=…"`. The instance still does not change: use it
//! only to make the resource match the instance.

use super::{RDS, Rds, RdsSpec, RdsWrite, contents};
use engine::exceptions::confirmation;
use engine::rule::{All, Finding, Findings, Review, Rule, Verb, Verdict, View};
use facts::way_out::{WayOut, say};
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "R01",
    name: "rds-fixed",
    judges: &[(RDS, &[Verb::Update], All(check))],
    depends_on_state: false,
    source: include_str!("fixed.rs"),
};

type FixedField = (&'static str, fn(&RdsSpec) -> &Scalar);

const FIXED: &[FixedField] = &[
    ("availabilityzone", |it| &it.availabilityzone),
    ("backupstarttime", |it| &it.backupstarttime),
    ("backupkeepdays", |it| &it.backupkeepdays),
    ("datastoretype", |it| &it.datastoretype),
    ("datastoreversion", |it| &it.datastoreversion),
    ("hamode", |it| &it.hamode),
    ("hareplicationmode", |it| &it.hareplicationmode),
    ("port", |it| &it.port),
    ("region", |it| &it.region),
    ("subnet", |it| &it.subnet),
    ("securitygroup", |it| &it.securitygroup),
    ("vpc", |it| &it.vpc),
    ("volumetype", |it| &it.volumetype),
];

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(RdsWrite { old: Some(old), new }) = RdsWrite::of(review, view) else { return Findings::new() };
    let changed = FIXED.iter().filter_map(|(name, field)| {
        let [was, is] = [old, new].map(|it| field(&it.spec));
        (!was.same_text(is)).then(|| field_changed(name, was, is))
    });
    changed.chain(password_changed(old, new, review, view)).collect()
}

fn field_changed(name: &str, was: &Scalar, is: &Scalar) -> Finding {
    let says = format!("spec.{name} cannot change after creation ({} -> {})", contents(was), contents(is));
    let instead =
        say(format!("restore spec.{name}")).or("for another value, create a second Rds and move the data");
    let why = "the operator ignores it, and the instance in the cloud keeps the old value";
    RULE.deny(format!("spec.{name}"), says, why, instead)
}

/// Returns a finding about a changed password. It is not known whether a mask hides the same password or another one.
fn password_changed(old: &Rds, new: &Rds, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (was, is) = (&old.spec, &new.spec);
    let why = "the operator logs in with this password, and creates no databases and no users if that fails";
    let finding = |verdict, says: &str, instead: WayOut| {
        Some(RULE.finding(verdict, "spec.password", says, why, instead))
    };
    match (was.is_masked(), is.is_masked()) {
        _ if was.password.same_text(&is.password) => None,
        (true, true) => None,
        (false, true) => finding(
            Verdict::Warn,
            "a mask replaces spec.password, and the operator cannot log in with a mask",
            "restore the password if the operator still has to create databases or users".into(),
        ),
        (true, false) => finding(
            Verdict::Warn,
            "spec.password replaces a mask, and gatera cannot know whether the instance has this password",
            "write the password that root has in the database".into(),
        ),
        (false, false) => finding(
            Verdict::Deny,
            "spec.password cannot change after creation",
            say("restore the old password").or(say("if ALTER USER has already set the new one for root: ")
                .and(confirmation(review, RULE.id, view))
                .say(", and repeat the command")),
        ),
    }
}
