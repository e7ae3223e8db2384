//! The time when each watch last proved that it had missed nothing, and the resulting age of the view.
//!
//! Must not know: clients, facts. A watch reports each proof. The view is as old as the oldest of these times, among the
//! watches that the rules of Galera need. Time is measured by a clock that cannot be set.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use facts::view::Freshness;
use jiff::SignedDuration;
use tokio::time::Instant;

/// The time of the last proof of each watch. Clones share these times.
#[derive(Clone, Debug)]
pub struct WatchFreshness(Arc<[LastProof]>);

#[derive(Debug)]
struct LastProof {
    /// Whether the age of the view depends on this watch.
    needed: bool,
    at: ArcSwapOption<Instant>,
}

impl WatchFreshness {
    /// Creates the record of watches that have reported nothing yet. `needed` contains, for each watch, whether the age of the
    /// view depends on it.
    pub fn new(needed: impl IntoIterator<Item = bool>) -> Self {
        Self(needed.into_iter().map(|needed| LastProof { needed, at: ArcSwapOption::empty() }).collect())
    }

    /// Records that this watch has missed nothing until now.
    pub fn record_now(&self, watch: usize) {
        self.record_at(watch, Instant::now());
    }

    /// Records that this watch has missed nothing until the given moment.
    pub fn record_at(&self, watch: usize, moment: Instant) {
        if let Some(last) = self.0.get(watch) {
            last.at.rcu(|before| before.as_deref().copied().max(Some(moment)).map(Arc::new));
        }
    }

    /// Returns how current a view from these watches is. Only the watches that are needed count.
    pub fn freshness(&self) -> Freshness {
        let needed = self.0.iter().filter(|it| it.needed);
        // A watch without any proof counts as the oldest.
        let oldest = needed.map(|it| it.at.load().as_deref().copied()).min().flatten();
        let age = |proof: Instant| SignedDuration::try_from(proof.elapsed()).unwrap_or(SignedDuration::MAX);
        Freshness::at_age(oldest.map(age))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_view_is_as_old_as_the_oldest_proof_of_a_needed_watch() {
        // The third watch never reports, and is not needed.
        let watch_freshness = WatchFreshness::new([true, true, false]);
        watch_freshness.record_now(0);
        assert_eq!(watch_freshness.freshness(), Freshness::Loading, "one watch has not reported yet");
        watch_freshness.record_now(1);
        assert_eq!(watch_freshness.freshness(), Freshness::Current);
        advance(Duration::from_secs(10)).await;
        watch_freshness.record_now(1);
        advance(Duration::from_secs(6)).await;
        assert_eq!(watch_freshness.freshness(), Freshness::Stale(SignedDuration::from_secs(16)));
        watch_freshness.record_now(0);
        assert_eq!(watch_freshness.freshness(), Freshness::Current);
    }
}
