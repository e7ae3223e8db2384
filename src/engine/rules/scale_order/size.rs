//! The requested number of members, independent of the current one.

use super::{deny, finding};
use crate::verdict::{Finding, Findings, Verdict};

/// Returns findings about the size of a new cluster.
pub(super) fn created(replicas: i64) -> Findings {
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
