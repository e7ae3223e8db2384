//! R01: what an Rds was created with stays as it is.
//!
//! Refuses to change availabilityzone, backupstarttime, backupkeepdays, datastoretype, datastoreversion, hamode, hareplicationmode,
//! port, region, subnet, securitygroup, vpc, volumetype and password. A password may be replaced by a mask (`xxxxxxxxxx`). No password
//! is ever repeated.
//!
//! # Why
//!
//! The operator gives these to the cloud once, when it makes the instance, and never looks at them again. After the change the resource
//! says one thing and the instance is another. With another port or password the operator itself can no longer log in, and makes no
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
//! Put the old value back. Change the root password in the database, and leave the mask here. For another version, zone or network,
//! create a second Rds and move the data.
//!
//! # How to waive it
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R01 until=TIME reason=…"`. The instance does not change for it: it
//! is right only where the resource is made to say what the instance is already.

use super::{Spec, Write, told};
use crate::object::Kind;
use crate::packs::loose::Loose;
use crate::review::Review;
use crate::rules::{Rule, Verb};
use crate::verdict::{Finding, Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "R01",
    name: "rds-fixed",
    touches: &[(Kind::Rds, &[Verb::Update])],
    source: include_str!("fixed.rs"),
    check,
};

type Field = (&'static str, fn(&Spec) -> &Loose);

const FIXED: &[Field] = &[
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

/// It hides a password that was there.
pub(super) fn is_mask(password: &Loose) -> bool {
    let text = password.look();
    !text.is_empty() && text.bytes().all(|c| matches!(c, b'x' | b'*'))
}

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = Write::update(review, view) else { return Findings::new() };
    let changed = FIXED.iter().filter_map(|(name, field)| {
        let [was, is] = [old, new].map(|it| field(&it.spec));
        (!was.says_as(is)).then(|| of_field(name, was, is))
    });
    changed.chain(of_password(&old.spec.password, &new.spec.password)).collect()
}

fn of_field(name: &str, was: &Loose, is: &Loose) -> Finding {
    let says = format!("spec.{name} cannot change after creation ({} -> {})", told(was), told(is));
    let instead = format!("put spec.{name} back; for another one create a second Rds and move the data");
    let why = "the operator ignores it, and the instance in the cloud keeps the old value";
    RULE.finding(Verdict::Deny, format!("spec.{name}"), says, why, instead)
}

fn of_password(was: &Loose, is: &Loose) -> Option<Finding> {
    if was.says_as(is) || is_mask(is) {
        return None;
    }
    let says = "spec.password cannot change after creation";
    let why = "the cloud keeps the old password, and the operator then logs in with the new one and fails";
    let instead =
        "put the old password or the mask back, and change the password in the database (ALTER USER)";
    Some(RULE.finding(Verdict::Deny, "spec.password", says, why, instead))
}
