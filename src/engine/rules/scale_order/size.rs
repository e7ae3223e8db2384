//! What is unwise about a number of members, independent of which are Ready.

use super::{Resize, deny, finding};
use crate::verdict::{Finding, Findings, Verdict};

/// Returns findings about the size of a new cluster.
pub fn created(replicas: i64) -> Findings {
    if replicas < 0 {
        return vec![deny(
            format!("{replicas} replicas is not a number of members"),
            "a count cannot be negative",
            "write 3",
        )];
    }
    unwise_size(replicas, 0).into_iter().collect()
}

/// Returns a warning about sizes that gain nothing. With an arbitrator an even number of members has an odd number of votes.
pub(super) fn unwise_size(replicas: i64, arbitrators: i64) -> Option<Finding> {
    let says = match replicas {
        2.. if arbitrators > 0 && (replicas + arbitrators) % 2 == 1 => return None,
        0 => "0 replicas: no member will start".to_owned(),
        1 => "the loss of a single member stops the cluster".to_owned(),
        2 => "2 members: the sudden loss of one stops the other".to_owned(),
        even if even % 2 == 0 => format!("{even} members survive no more failures than {} do", even - 1),
        _ => return None,
    };
    Some(finding(
        Verdict::Warn,
        says,
        "a cluster serves while more than half of its members are connected, so only odd sizes from 3 gain anything",
        "use 3, 5 or 7 members",
    ))
}

/// Returns a warning if the claims of the removed members are deleted.
pub(super) fn claims_deleted(step: Resize<'_>) -> Option<Finding> {
    let cluster = step.cluster.filter(|_| step.to < step.from)?;
    let retention = &cluster.workload.spec.persistent_volume_claim_retention_policy;
    let first_removed = cluster.workload.ordinals().start + step.to;
    let removed = cluster.members.iter().filter(|it| it.ordinal >= first_removed).map(|it| &*it.name);
    let removed = removed.collect::<Vec<_>>().join(" and ");
    (retention.when_scaled == "Delete" && !removed.is_empty()).then(|| {
        finding(
            Verdict::Warn,
            format!("{} deletes the claims of {removed} (whenScaled: Delete)", step.change()),
            "the data is deleted with its claim: a member that is added later copies everything from another",
            "to keep them, write whenScaled: Retain first",
        )
    })
}
