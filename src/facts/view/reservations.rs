//! Members that were let go moments ago: what the view cannot show yet.
//!
//! Between the answer "allowed" and the watch that shows the pod going a second request would be judged by yesterday's
//! facts. A reservation bridges that time. It is for one pod's uid, so the same request may come again, and it counts as
//! long as the view shows that very pod as if nothing had happened. Must not know: who keeps reservations, and how long
//! (`reserve.rs` does). Data: a snapshot of those that count, with their ages.

use super::{Cluster, Id};

/// One member that was allowed to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its cluster.
    pub cluster: Id,
    /// Its pod.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// Seconds since we know of it.
    pub age: u64,
}

/// All members that were let go and that the view may not show yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations(Vec<Reservation>);

impl Reservations {
    /// Nobody.
    pub const fn nobody() -> Self {
        Self(Vec::new())
    }

    /// Another member of this cluster that is on its way out without the view showing it: its name, and since when.
    pub fn besides(&self, cluster: &Cluster, pod: &str) -> Option<(&str, u64)> {
        let unseen = |reservation: &&Reservation| {
            reservation.cluster == cluster.id
                && reservation.pod != pod
                && cluster
                    .pod(&reservation.pod)
                    .is_some_and(|seen| seen.uid == reservation.uid && !seen.going)
        };
        self.0.iter().find(unseen).map(|reservation| (&*reservation.pod, reservation.age))
    }
}

impl FromIterator<Reservation> for Reservations {
    fn from_iter<T: IntoIterator<Item = Reservation>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}
