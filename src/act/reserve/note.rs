//! A reservation as it stands in a Lease: an annotation with a list of notes.

use engine::rules::MemberRemoval;
use facts::marks::PREFIX;
use facts::view::Id;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// The annotation's name, behind the prefix of all of ours.
const LET_GO: &str = "let-go";

/// One reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(super) struct ReservationNote {
    namespace: String,
    stateful_set: String,
    pub(super) pod: String,
    pub(super) uid: String,
    /// Counts how often its pod was reserved: each time begins anew for all replicas.
    #[serde(default)]
    pub(super) times: u64,
    /// When it was made, by the API server's clock. `None`: its writer did not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
}

impl ReservationNote {
    pub(super) fn of(member_removal: &MemberRemoval, times: u64, at: Option<Timestamp>) -> Self {
        let MemberRemoval { cluster: Id { namespace, name }, pod, uid, .. } = member_removal.clone();
        Self { namespace, stateful_set: name, pod, uid, times, at }
    }

    /// Stands for all reservations that may have been in a Lease that was deleted, or cannot be read.
    pub(super) fn lost(at: Option<Timestamp>) -> Self {
        Self { at, ..Self::default() }
    }

    /// See [`ReservationNote::lost`].
    pub(super) fn is_lost(&self) -> bool {
        self.pod.is_empty()
    }

    pub(super) fn cluster(&self) -> Id {
        Id::new(&self.namespace, &self.stateful_set)
    }
}

/// The notes in a Lease. What cannot be read may have been reservations, and the next write replaces it.
pub(super) fn of(lease: &Lease) -> Vec<ReservationNote> {
    let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(&format!("{PREFIX}{LET_GO}")));
    let Some(text) = text else { return Vec::new() };
    serde_json::from_str(text).unwrap_or_else(|error| {
        warn!(lease = lease.metadata.name, %error, "the reservations in this Lease cannot be read; they are treated as lost");
        vec![ReservationNote::lost(None)]
    })
}

/// The Lease with these notes instead.
pub(super) fn with(mut lease: Lease, notes: &[ReservationNote]) -> Lease {
    // A list of plain texts and numbers can always be written.
    let text = serde_json::to_string(notes).unwrap_or_default();
    lease.metadata.annotations.get_or_insert_default().insert(format!("{PREFIX}{LET_GO}"), text);
    lease
}
