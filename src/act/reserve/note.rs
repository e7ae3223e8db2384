//! Reservations as a Lease contains them: an annotation with a list of notes.

use engine::rules::MemberRemoval;
use facts::marks::PREFIX;
use facts::view::Id;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// The annotation's name, after the prefix that all annotations of the guard have.
const NOTES: &str = "let-go";

/// One reservation, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(super) struct ReservationNote {
    namespace: String,
    stateful_set: String,
    pub(super) pod: String,
    pub(super) uid: String,
    /// How often the removal of this pod was reserved: a higher number is a new reservation for all replicas.
    #[serde(default)]
    pub(super) times: u64,
    /// When the reservation was made, by the API server's clock. `None`: the writer did not know the time, or did not trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
}

impl ReservationNote {
    pub(super) fn of(member_removal: &MemberRemoval, times: u64, at: Option<Timestamp>) -> Self {
        let MemberRemoval { cluster: Id { namespace, name }, pod, uid, .. } = member_removal.clone();
        Self { namespace, stateful_set: name, pod, uid, times, at }
    }

    /// Returns the note that stands for all reservations that may have been in a Lease that was deleted or cannot be read.
    pub(super) fn lost(at: Option<Timestamp>) -> Self {
        Self { at, ..Self::default() }
    }

    /// Returns whether this is the note for lost reservations (see [`ReservationNote::lost`]).
    pub(super) fn is_lost(&self) -> bool {
        self.pod.is_empty()
    }

    pub(super) fn cluster(&self) -> Id {
        Id::new(&self.namespace, &self.stateful_set)
    }
}

/// Returns the notes in a Lease. Notes that cannot be read may have been reservations, so they count as lost; the next write
/// replaces them.
pub(super) fn of(lease: &Lease) -> Vec<ReservationNote> {
    let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(&format!("{PREFIX}{NOTES}")));
    let Some(text) = text else { return Vec::new() };
    serde_json::from_str(text).unwrap_or_else(|error| {
        warn!(
            lease = lease.metadata.name,
            %error,
            "the reservations in this Lease cannot be read, so no member of its clusters may leave until all have expired"
        );
        vec![ReservationNote::lost(None)]
    })
}

/// Returns the Lease with these notes in place of its own.
pub(super) fn with(mut lease: Lease, notes: &[ReservationNote]) -> Lease {
    // A list of plain texts and numbers can always be serialized.
    let text = serde_json::to_string(notes).unwrap_or_default();
    lease.metadata.annotations.get_or_insert_default().insert(format!("{PREFIX}{NOTES}"), text);
    lease
}
