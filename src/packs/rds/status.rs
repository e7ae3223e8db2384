//! R12: only the operator writes the status of an Rds.
//!
//! Refuses a write of `id`, `ip`, `status` or `autopilot`, and a new Rds that has any of the first three. `reboot` and `logs` may be set
//! and removed, because they request a restart and the log.
//!
//! # Why
//!
//! The resource has no status subresource: a user who may edit an Rds may edit its status. With the `status.id` of another
//! instance, deleting this Rds deletes that instance.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"status":{"id":"b63d19…"}}'
//! [R12] Rds shop/orders: status.id is set by the operator
//! ```
//!
//! # What to do instead
//!
//! Leave it to the operator. To take over an instance, write its id: create the Rds with `status: {id: …}` and an override of this rule,
//! or patch one that has no id. In the cloud the instance must be called `NAMESPACE_NAME` after the Rds: the operator looks for that name,
//! and crashes if there is none. Without the id it finds that the name is taken, and does nothing.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R12 until=TIME reason=…"`. Use it to empty `status.id`, which keeps
//! the instance when you delete the Rds, and to take over an instance.

use super::spec::{Rds, RdsStatus};
use super::{RDS, RdsWrite, patch};
use engine::exceptions::confirmation;
use engine::rule::{All, Finding, Findings, Origin, Review, Rule, View, WRITTEN};
use facts::way_out::{WayOut, say};
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "R12",
    name: "rds-status",
    judges: &[(RDS, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("status.rs"),
};

type OperatorField = (&'static str, fn(&RdsStatus) -> &Scalar);

const OPERATOR_FIELDS: &[OperatorField] =
    &[("id", |status| &status.id), ("ip", |status| &status.ip), ("status", |status| &status.phase)];

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(write) = RdsWrite::of(review, view) else { return Findings::new() };
    let new = &write.new.status;
    let Some(old) = write.old.map(|rds| &rds.status) else {
        let has_operator_field = OPERATOR_FIELDS.iter().any(|(_, field)| !field(new).is_empty());
        // The field of this finding is `status`, not `status.id`: otherwise an id that was set at creation would soften a finding
        // about a later change of it.
        let finding = if new.id.is_empty() {
            set_by_operator(review, "status")
        } else {
            takes_over(review, view, "status")
        };
        return if has_operator_field && review.origin != Origin::Audit {
            vec![finding]
        } else {
            Findings::new()
        };
    };
    let changed = OPERATOR_FIELDS.iter().filter(|(_, field)| !field(old).same_text(field(new)));
    let of_field = |(name, _): &OperatorField| match *name {
        "id" if new.id.is_empty() => gives_up(review, view),
        "id" if old.id.is_empty() => takes_over(review, view, "status.id"),
        name => set_by_operator(review, &format!("status.{name}")),
    };
    let mut findings: Findings = changed.map(of_field).collect();
    if !old.autopilot.same_text(&new.autopilot) {
        findings.push(autopilot(review, write.new));
    }
    findings
}

fn set_by_operator(review: &Review, field: &str) -> Finding {
    let says = format!("{field} is set by the operator");
    let why = "with the id of another instance, deleting this Rds deletes that instance";
    let instead = say("leave status out; users may set only reboot and logs").or(for_operators(review));
    RULE.deny(field, says, why, instead)
}

/// Returns further advice for a service account, which may be that of an operator with another name.
fn for_operators(Review { user, .. }: &Review) -> WayOut {
    if !user.starts_with("system:serviceaccount:") {
        return WayOut::default();
    }
    say(format!(
        "if {user} is the operator, name it in the guard's settings: rds: {{operators: [\"{user}\"]}}"
    ))
}

/// Returns the advice to confirm that the change is intended.
fn confirmed(review: &Review, view: &View<'_>) -> WayOut {
    say("if this is intended: ").and(confirmation(review, RULE.id, view)).say(", and repeat the command")
}

/// Returns the finding for an id that takes over an existing instance. Without the id the operator would only report that the
/// instance exists.
fn takes_over(review: &Review, view: &View<'_>, field: &str) -> Finding {
    let Review { namespace, name, .. } = review;
    let says = "with this status.id the Rds takes over an existing instance";
    let why = format!(
        "deleting the Rds then deletes that instance; and if it is not called {namespace}_{name} in the cloud, the operator crashes"
    );
    RULE.deny(field, says, why, confirmed(review, view).or(for_operators(review)))
}

/// Returns the finding for an id that is removed, which keeps the instance when the Rds is deleted.
fn gives_up(review: &Review, view: &View<'_>) -> Finding {
    let says = "without status.id the instance stays in the cloud and belongs to no Rds";
    let why =
        "the operator then neither changes it nor takes a last backup of it, and it keeps costing money";
    RULE.deny("status.id", says, why, confirmed(review, view))
}

fn autopilot(review: &Review, new: &Rds) -> Finding {
    let says = "status.autopilot is set by the operator";
    let why = "the operator turns autopilot on again as long as spec.endpoint is set, and only then";
    let instead = if new.spec.endpoint.is_empty() {
        "write spec.endpoint".into()
    } else {
        patch(review, r#"{"spec":{"endpoint":""}}"#).then("then delete the alarms in the cloud")
    };
    RULE.deny("status.autopilot", says, why, instead)
}
