//! Members that were let go moments ago: what the view cannot show yet.
//!
//! Between the answer "allowed" and the watch that shows the pod going there are some milliseconds, in which a second
//! request would be judged by yesterday's facts. A reservation bridges them. It is keyed by the pod's uid, so the same
//! request may come again; it ends when the view shows what became of the pod, or after [`LONGEST`], because the API
//! server may still have refused (a disruption budget).
//!
//! Another replica of the guard does not see it. What remains possible there is narrowed by its own watch and by the
//! `PodDisruptionBudget`.

use jiff::{SignedDuration, Timestamp};

use super::{Cluster, Id};

/// Longer than any watch is late, shorter than anybody waits before trying again.
const LONGEST: SignedDuration = SignedDuration::from_secs(15);

/// One member that was let go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Release {
    cluster: Id,
    pod: String,
    uid: String,
    at: Timestamp,
}

/// All members that were let go and that the view may not show yet.
#[derive(Clone, Debug, Default)]
pub struct Released(Vec<Release>);

impl Released {
    /// Nobody.
    pub const fn nobody() -> Self {
        Self(Vec::new())
    }

    /// Notes that a member was let go.
    pub fn note(&mut self, cluster: &Cluster, pod: &str, now: Timestamp) {
        self.0.retain(|release| release.fresh(now));
        let Some(uid) = cluster.pod(pod).map(|pod| pod.uid.clone()) else { return };
        if !self.0.iter().any(|release| release.uid == uid) {
            self.0.push(Release { cluster: cluster.id.clone(), pod: pod.to_owned(), uid, at: now });
        }
    }

    /// Another member of this cluster that is on its way out without the view showing it: its name, and since when.
    pub fn besides(&self, cluster: &Cluster, pod: &str, now: Timestamp) -> Option<(&str, i64)> {
        let unseen = |release: &&Release| {
            release.fresh(now)
                && release.cluster == cluster.id
                && release.pod != pod
                && cluster.pod(&release.pod).is_some_and(|seen| seen.uid == release.uid && !seen.going)
        };
        let release = self.0.iter().find(unseen)?;
        Some((&release.pod, now.duration_since(release.at).as_secs().max(0)))
    }
}

impl Release {
    fn fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < LONGEST
    }
}
