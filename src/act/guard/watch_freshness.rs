//! The time when each watch last proved that it had missed nothing, and the resulting age of the view.
//!
//! Must not know: clients, facts. A watch reports each such proof. The view is as old as the oldest of these times, among the
//! watches that the rules of Galera need. Time is measured by a clock that cannot be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use facts::view::Freshness;
use jiff::SignedDuration;
use tokio::time::Instant;

/// The time of the last proof of each watch. Clones share these times.
#[derive(Clone, Debug)]
pub struct WatchFreshness {
    begun: Instant,
    /// For each watch, the milliseconds from `begun` to its last proof, plus one; 0 if there was none.
    watches: Arc<[AtomicU64]>,
    /// For each watch, whether the age of the view depends on it.
    needed: Arc<[bool]>,
}

impl WatchFreshness {
    /// Creates the record of watches that have reported nothing yet; `needed` says of each whether the age of the view depends
    /// on it.
    pub fn of(needed: impl IntoIterator<Item = bool>) -> Self {
        let needed: Arc<[bool]> = needed.into_iter().collect();
        Self { begun: Instant::now(), watches: needed.iter().map(|_| AtomicU64::new(0)).collect(), needed }
    }

    /// Records that this watch has missed nothing until now.
    pub fn now(&self, watch: usize) {
        self.at(watch, Instant::now());
    }

    /// Records that this watch has missed nothing until the given moment.
    pub fn at(&self, watch: usize, moment: Instant) {
        if let Some(last) = self.watches.get(watch) {
            last.fetch_max(millis(moment - self.begun).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Returns how current a view from these watches is. Only the watches that are needed count.
    pub fn freshness(&self) -> Freshness {
        let needed = self.watches.iter().zip(&*self.needed).filter(|(_, needed)| **needed);
        let oldest = needed.map(|(last, _)| last.load(Ordering::Relaxed)).min();
        let oldest = oldest.and_then(|oldest| oldest.checked_sub(1));
        let age = oldest.map(|oldest| millis(self.begun.elapsed()).saturating_sub(oldest));
        Freshness::at_age(age.map(|age| SignedDuration::from_millis(i64::try_from(age).unwrap_or(i64::MAX))))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_most_silent_watch_counts() {
        // The third watch never reports, and is not needed.
        let watch_freshness = WatchFreshness::of([true, true, false]);
        watch_freshness.now(0);
        assert_eq!(watch_freshness.freshness(), Freshness::Loading, "one watch has not reported yet");
        watch_freshness.now(1);
        assert_eq!(watch_freshness.freshness(), Freshness::Current);
        advance(Duration::from_secs(10)).await;
        watch_freshness.now(1);
        advance(Duration::from_secs(6)).await;
        assert_eq!(watch_freshness.freshness(), Freshness::Stale(SignedDuration::from_secs(16)));
        watch_freshness.now(0);
        assert_eq!(watch_freshness.freshness(), Freshness::Current);
    }
}
