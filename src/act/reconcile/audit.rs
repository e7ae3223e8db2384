//! The leader's audit: judges what changed, and says what it found in gauges and Events.
//!
//! Must not know: what is found, or where to look again (`decide::audit` does). It asks the API server nothing, and tells it
//! only what is new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::audit::{Counts, Round, Rounds};
use decide::view::View;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::act::events;
use crate::act::guard::Guard;
use crate::act::lease::Leading;

/// Under a storm of events there is a round this often, no more,
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// and judging never takes more than a tenth of the time.
const REST: u32 = 9;
/// Overrides end without an event.
const AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// A guard with new rules finds much at once in a big cluster: so many Events in so long a time, the others later.
const MOST_EVENTS: usize = 50;
const IN: Duration = Duration::from_secs(60);

/// Audits while `leading`, whenever the world has `changed`.
pub async fn run(guard: Arc<Guard>, mut leading: Leading, mut changed: watch::Receiver<u64>) {
    while leading.elected().await {
        tokio::select! {
            () = audits(&guard, &mut changed) => return,
            () = leading.deposed() => {}
        }
        guard.metrics.not_auditing();
    }
}

/// One round after the other, until nothing changes the world any more.
async fn audits(guard: &Arc<Guard>, changed: &mut watch::Receiver<u64>) {
    let mut auditor = Auditor::default();
    loop {
        changed.mark_unchanged();
        let begun = Instant::now();
        let judging = Arc::clone(guard);
        // Requests are answered meanwhile.
        let judged = tokio::task::spawn_blocking(move || {
            auditor.round(&judging);
            auditor
        });
        auditor = judged.await.unwrap_or_else(|error| {
            warn!(%error, "audit");
            Auditor::default()
        });
        let cost = begun.elapsed();
        debug!(?cost, "audit");
        tokio::time::sleep(AT_MOST_EVERY.max(cost * REST)).await;
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AT_LEAST_EVERY) => {}
        }
    }
}

/// What was found and said already.
struct Auditor {
    began: Instant,
    rounds: Rounds,
    counts: Counts,
    events_left: usize,
    since: Instant,
}

impl Default for Auditor {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            rounds: Rounds::default(),
            counts: Counts::new(),
            events_left: MOST_EVENTS,
            since: now,
        }
    }
}

impl Auditor {
    fn round(&mut self, guard: &Guard) {
        if self.since.elapsed() >= IN {
            (self.events_left, self.since) = (MOST_EVENTS, Instant::now());
        }
        let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
        let view =
            View { freshness: guard.freshness(&world), ..View::new(&world, (guard.clock)(), &settings) };
        let mut told = 0;
        let round = self.rounds.next(&view, self.began.elapsed(), self.events_left, |news| {
            guard.publish(events::found(news));
            told += 1;
        });
        self.events_left -= told;
        self.say(guard, round, told);
    }

    fn say(&mut self, guard: &Guard, round: Round, told: usize) {
        guard.metrics.clusters_are(round.clusters.iter().map(|(state, _)| *state));
        guard.metrics.rollouts_are(round.clusters.iter().map(|(_, rollout)| *rollout));
        let Round { counts: Some(counts), judged, refused, warned, held_back, .. } = round else { return };
        if counts != self.counts {
            info!(objects = judged, refused, warned, "audit");
        }
        guard.metrics.audited(&counts, &self.counts);
        self.counts = counts;
        if held_back > 0 && told > 0 {
            info!(told, held_back, "audit: more Events than are good at once; the others follow");
        }
    }
}
