//! R01: what an Rds was created with stays as it is.
//!
//! Refuses to change availabilityzone, backupstarttime, backupkeepdays, datastoretype, datastoreversion, hamode, hareplicationmode,
//! port, region, subnet, securitygroup, vpc, volumetype and password. Warns where a mask (`xxxxxxxxxx`) takes the place of a password:
//! version 0.7.6 of the operator makes no mask, and cannot log in with one. Warns where a password takes the place of a mask, behind which
//! the same or another may have been. No password is ever repeated.
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
//! Put the old value back. Change the root password in the database first (ALTER USER), then here, with an override. For another version,
//! zone or network, create a second Rds and move the data.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R01 until=TIME reason=…"`. The instance does not change for it: it
//! is right only where the resource is made to say what the instance is already.

use super::{RDS, Rds, Spec, Write, contents};
use engine::exceptions::confirmation;
use engine::rule::{Rule, Verb};
use engine::verdict::{Finding, Findings, Verdict};
use facts::review::Review;
use facts::view::View;
use objects::loose::Loose;

pub(super) const RULE: Rule = Rule {
    id: "R01",
    name: "rds-fixed",
    touches: &[(RDS, &[Verb::Update])],
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

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = Write::update(review, view) else { return Findings::new() };
    let changed = FIXED.iter().filter_map(|(name, field)| {
        let [was, is] = [old, new].map(|it| field(&it.spec));
        (!was.says_as(is)).then(|| of_field(name, was, is))
    });
    changed.chain(of_password(old, new, review, view)).collect()
}

fn of_field(name: &str, was: &Loose, is: &Loose) -> Finding {
    let says = format!("spec.{name} cannot change after creation ({} -> {})", contents(was), contents(is));
    let instead = format!("put spec.{name} back; for another one create a second Rds and move the data");
    let why = "the operator ignores it, and the instance in the cloud keeps the old value";
    RULE.finding(Verdict::Deny, format!("spec.{name}"), says, why, instead)
}

/// A mask says nothing of the password behind it: neither that it is another one, nor that it is the same.
fn of_password(old: &Rds, new: &Rds, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (was, is) = (&old.spec, &new.spec);
    let why =
        "the operator logs in with what stands here, and makes no databases and no users where that fails";
    let finding = |verdict, says: &str, instead: String| {
        Some(RULE.finding(verdict, "spec.password", says, why, instead))
    };
    match (was.is_masked(), is.is_masked()) {
        _ if was.password.says_as(&is.password) => None,
        (true, true) => None,
        (false, true) => finding(
            Verdict::Warn,
            "spec.password becomes a mask, with which the operator cannot log in",
            "put the password back while databases or users are still to be made".to_owned(),
        ),
        (true, false) => finding(
            Verdict::Warn,
            "spec.password takes the place of a mask, and nothing shows whether it is the instance's",
            "write the one that root has in the database".to_owned(),
        ),
        (false, false) => finding(
            Verdict::Deny,
            "spec.password cannot change after creation",
            format!(
                "put the old password back; if ALTER USER has made the new one root's already: {}, and again",
                confirmation(review, RULE.id, view)
            ),
        ),
    }
}
