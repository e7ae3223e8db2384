//! A template that has the label of a cluster, although an operator drives it whose ordinary work the rules would refuse.

use super::finding;
use crate::verdict::{Finding, Verdict};
use facts::galera::adopt;
use objects::Workload;

/// Operators that stop, scale and found their clusters themselves, by the group of their resources.
const OPERATORS: [&str; 3] = ["k8s.mariadb.com", "pxc.percona.com", "mariadb.openstack.org"];

/// Returns a warning if one of them owns this StatefulSet.
pub(super) fn judge(new: &Workload) -> Option<Finding> {
    let (label, owner) = (adopt::INSTANCE_LABELS[0], new.metadata.operator()?);
    let drives = |group: &&str| owner.is_of(group, &owner.kind);
    if !new.spec.template.metadata.labels.contains_key(label) || !OPERATORS.iter().any(drives) {
        return None;
    }
    Some(Finding {
        verdict: Verdict::Warn,
        field: format!("spec.template.metadata.labels[{label}]"),
        says: format!(
            "it carries {label}, and {} {} drives it, whose recovery the guard would refuse",
            owner.kind, owner.name
        ),
        instead: format!("take the label out of {} {}", owner.kind, owner.name).into(),
        ..finding(
            "the operator recovers its cluster by scaling it to 0, deleting pods and founding from one member; the guard does not \
             know its account, and judges it as a person",
        )
    })
}
