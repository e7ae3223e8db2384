//! A reservation as it stands in a Lease: an annotation with a list of notes.

use decide::marks::PREFIX;
use decide::rules::Departure;
use decide::view::Id;
use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// The annotation's name, behind the prefix of all of ours.
const LET_GO: &str = "let-go";

/// One member that was let go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(super) struct Note {
    namespace: String,
    stateful_set: String,
    pub(super) pod: String,
    pub(super) uid: String,
    /// Counts how often it was let go: each time begins anew for everybody.
    #[serde(default)]
    pub(super) times: u64,
}

impl Note {
    pub(super) fn of(departure: &Departure, times: u64) -> Self {
        let Departure { cluster: Id { namespace, name }, pod, uid, .. } = departure.clone();
        Self { namespace, stateful_set: name, pod, uid, times }
    }

    pub(super) fn cluster(&self) -> Id {
        Id::new(&self.namespace, &self.stateful_set)
    }
}

/// The notes in a Lease. What cannot be read is not ours, and the next write replaces it.
pub(super) fn of(lease: &Lease) -> Vec<Note> {
    let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(&format!("{PREFIX}{LET_GO}")));
    let Some(text) = text else { return Vec::new() };
    serde_json::from_str(text).unwrap_or_else(|error| {
        warn!(lease = lease.metadata.name, %error, "reservations that cannot be read");
        Vec::new()
    })
}

/// The Lease with these notes instead.
pub(super) fn with(mut lease: Lease, notes: &[Note]) -> Lease {
    // A list of plain texts and numbers can always be written.
    let text = serde_json::to_string(notes).unwrap_or_default();
    lease.metadata.annotations.get_or_insert_default().insert(format!("{PREFIX}{LET_GO}"), text);
    lease
}
