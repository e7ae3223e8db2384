//! What the leader does next: a pure function of the world.
//!
//! Owns: [`Step`] and [`next`]. Must not know: clients; `reconcile.rs` applies the steps. A step that is done is not
//! planned again, so in steady state there is nothing to do and no API call is made.

use crate::marks;
use crate::view::{Freshness, Id, World};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A member is Ready for the first time: from now on this cluster holds data. Verified or not: a Ready that proves
    /// nothing may still mean data, and a mark that is missing lets a second bootstrap wipe it.
    MarkData(Id),
}

/// Everything there is to do, in an order that is always the same.
pub fn next(world: &World) -> Vec<Step> {
    if world.freshness != Freshness::Current {
        return Vec::new();
    }
    let new = world
        .clusters()
        .filter(|cluster| cluster.workload.metadata.mark(marks::DATA) == Some("none") && cluster.ready() > 0);
    let mut steps: Vec<_> = new.map(|cluster| Step::MarkData(cluster.id.clone())).collect();
    steps.sort_by(|Step::MarkData(a), Step::MarkData(b)| a.cmp(b));
    steps
}
