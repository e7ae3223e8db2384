//! The label of a cluster on a StatefulSet of an operator, whose ordinary work the rules would refuse.

use super::RULE;
use crate::verdict::Finding;
use facts::galera::{adopt, driver};
use facts::view::View;
use facts::way_out::say;
use objects::Workload;

/// Operators that let users label pods, by the group of their resources.
const OPERATORS: [&str; 2] = [driver::GROUP, "pxc.percona.com"];

/// Returns a warning if one of these operators owns this StatefulSet, and the guard does not know the operator's account.
pub(super) fn judge(new: &Workload, view: &View<'_>) -> Option<Finding> {
    let (label, owner) = (adopt::INSTANCE_LABELS[0], new.metadata.operator()?);
    let is_of = |group: &&str| owner.is_of(group, &owner.kind);
    let known = driver::of(new).is_some();
    if !new.spec.template.metadata.labels.contains_key(label)
        || !OPERATORS.iter().any(is_of)
        || known && view.settings.knows_mariadb_operators()
    {
        return None;
    }
    let mut instead = say(format!("remove the label from {owner}"));
    if known {
        instead = say("name its account in the guard's setting mariadb.operators").or(instead);
    }
    Some(RULE.warn(
        format!("spec.template.metadata.labels[{label}]"),
        format!("it has the label {label}, but {owner} manages it: the guard would refuse changes by its operator"),
        "the operator scales its cluster to 0 and deletes pods, for example to recover it; the guard does not know its account, \
         and judges it like any other user",
        instead,
    ))
}
