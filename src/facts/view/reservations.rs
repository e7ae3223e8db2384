//! Reservations: members that were allowed to leave moments ago, which the view cannot show yet.
//!
//! Between the answer "allowed" and the watch event that shows the pod's deletion, a second request would be judged by
//! outdated facts. A reservation covers that time. It is for one pod's uid, so the same request may come again, and it
//! counts as long as the view shows that pod unchanged. Must not know: where reservations are kept, and how long
//! (`reserve.rs` does). Data: those that count at the time of a request, with their ages.

use super::{Cluster, Id};

/// One member that was allowed to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub cluster: Id,
    pub pod: String,
    pub uid: String,
    /// Seconds since the guard learned of it.
    pub age: u64,
}

/// All reservations that the view may not show yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations(Vec<Reservation>);

impl Reservations {
    /// Returns an empty set of reservations.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns another member of this cluster that was allowed to leave and that the view does not show as leaving yet: its
    /// name, and how many seconds ago that was.
    pub fn other_leaving(&self, cluster: &Cluster, pod: &str) -> Option<(&str, u64)> {
        let unseen = |reservation: &&Reservation| {
            reservation.cluster == cluster.id
                && reservation.pod != pod
                && cluster
                    .pod(&reservation.pod)
                    .is_some_and(|seen| seen.uid == reservation.uid && !seen.terminating)
        };
        self.0.iter().find(unseen).map(|reservation| (&*reservation.pod, reservation.age))
    }
}

impl FromIterator<Reservation> for Reservations {
    fn from_iter<T: IntoIterator<Item = Reservation>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}
