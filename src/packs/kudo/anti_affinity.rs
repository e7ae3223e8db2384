//! K03: ANTI_AFFINITY of an Instance has a value that KUDO understands.
//!
//! Refuses an ANTI_AFFINITY that is neither `true` nor `false`; warns about `false`.
//!
//! # Why
//!
//! The operator's template compares the text with "true". "True", "yes" and "1" are other texts, so they silently turn it off:
//! two members may share a node, and the loss of that node leaves no majority.
//!
//! The guard adds the missing rule to each pod, unless the pod template has the annotation `gatera.dev/anti-affinity: none`. To let
//! members share a node, the operator's template needs that annotation as well.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo update --instance galera -p ANTI_AFFINITY=True
//! [K03] Instance db/galera: ANTI_AFFINITY is neither true nor false, so it is off
//! ```
//!
//! # What to do instead
//!
//! Write `true`. On a single node for a test write `false`.
//!
//! # Exceptions
//!
//! Annotate the Instance, for an hour at most: `gatera.dev/override: "K03 until=TIME reason=…"`.

use super::{INSTANCE, changed_parameter};
use engine::rule::{Finding, One, Review, Rule, Verdict, View, WRITTEN};

pub(super) const RULE: Rule = Rule {
    id: "K03",
    name: "kudo-anti-affinity",
    judges: &[(INSTANCE, WRITTEN, One(check))],
    depends_on_state: false,
    source: include_str!("anti_affinity.rs"),
};

const NAME: &str = "ANTI_AFFINITY";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (_, switch) = changed_parameter(review, view, NAME).filter(|(_, it)| it.is_present())?;
    let (verdict, says) = match switch.look() {
        "true" => return None,
        "false" => (
            Verdict::Warn,
            format!(
                "{NAME} is off: members may share a node if their template carries gatera.dev/anti-affinity: none"
            ),
        ),
        _ => (Verdict::Deny, format!("{NAME} is neither true nor false, so it is off")),
    };
    let why =
        "the operator understands only the word true; members that share a node are all lost with that node";
    Some(RULE.finding(verdict, format!("spec.parameters[{NAME}]"), says, why, "write \"true\""))
}
