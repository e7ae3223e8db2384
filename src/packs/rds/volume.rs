//! R02: the volume of an Rds has a size that the cloud offers, and never shrinks.
//!
//! Refuses a `volumesize` that is not a multiple of 10 from 40 to 4000, and one that is smaller than before.
//!
//! # Why
//!
//! The operator silently ignores a smaller size: the resource says 40, but the instance keeps 50 and its cost. The cloud refuses a size
//! that is not a multiple of 10, and only the operator's log says so.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"volumesize":40}}'
//! [R02] Rds shop/orders: volumesize 50 -> 40: RDS volumes cannot shrink
//! ```
//!
//! # What to do instead
//!
//! Keep the size, or grow it in steps of 10. For a smaller volume, create a second Rds and move the data. If autopilot has grown the
//! volume, write the new size in the manifest as well.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R02 until=TIME reason=…"`. The volume still does not shrink.

use super::{RDS, RdsWrite, contents};
use engine::rule::{Finding, One, Review, Rule, View, WRITTEN};

pub(super) const RULE: Rule = Rule {
    id: "R02",
    name: "rds-volume",
    judges: &[(RDS, WRITTEN, One(check))],
    depends_on_state: false,
    source: include_str!("volume.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let write = RdsWrite::of_part(review, view, |it| &it.volumesize)?;
    let was = write.old.and_then(|old| old.spec.size());
    let size = write.new.spec.size();
    let (says, why, instead) = match (was, size) {
        (Some(was), Some(size)) if size < was => (
            format!("volumesize {was} -> {size}: RDS volumes cannot shrink"),
            "the operator ignores a smaller size, and the instance keeps its size",
            format!("keep volumesize {was}"),
        ),
        (_, Some(size)) if (40..=4000).contains(&size) && size % 10 == 0 => return None,
        _ => (
            format!(
                "volumesize {} is not a multiple of 10 from 40 to 4000",
                contents(&write.new.spec.volumesize)
            ),
            "the cloud refuses it, and only the operator's log says so",
            "choose a multiple of 10 from 40 to 4000, such as 50".to_owned(),
        ),
    };
    Some(RULE.deny("spec.volumesize", says, why, instead))
}
