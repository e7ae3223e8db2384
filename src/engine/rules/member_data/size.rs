//! The requested size of the members' volumes.

use super::RULE;
use crate::verdict::Findings;
use facts::galera::data::{Backing, DataFolder};
use objects::Workload;

/// Returns warnings about claims that are too small: all members fill their disks at the same time.
pub(super) fn small_volumes(new: &Workload, place: Option<&DataFolder>) -> Findings {
    // A volume for logs may be smaller.
    let holds_data = |name: &String| match place.map(|place| &place.backing) {
        Some(Backing::Template(of)) => of == name,
        _ => true,
    };
    let claims = new.spec.volume_claim_templates.iter().filter(|it| holds_data(&it.metadata.name));
    let too_small = claims.filter_map(|claim| {
        let size = claim.spec.resources.requests.get("storage")?;
        (size.bytes()? < SMALLEST_VOLUME).then_some((claim, size))
    });
    let found = too_small.map(|(claim, size)| {
        let name = &claim.metadata.name;
        RULE.warn(
            format!("spec.volumeClaimTemplates[{name}].spec.resources.requests.storage"),
            format!("{size} for {name} is less than an empty MariaDB needs"),
            "a server that fills its disk stops, and all members fill theirs at the same time",
            "request at least 1Gi; in practice, room for data, gcache and one more copy",
        )
    });
    found.collect()
}

/// The smallest volume, in bytes: it holds system tables, redo log, undo log and a gcache of 128 MiB.
const SMALLEST_VOLUME: u64 = 512 << 20;
