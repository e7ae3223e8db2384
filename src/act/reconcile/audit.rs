//! The leader's audit: judges everything whenever the world changed, and says what it found in gauges and Events.
//!
//! Must not know: what is found (`audit.rs` does). It asks the API server nothing, and tells it only what is new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::audit::{self, Announced, Audit, Counts};
use decide::view::{Freshness, View};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::act::events;
use crate::act::guard::Guard;
use crate::act::lease::Leading;

/// Under a storm of events everything is judged this often, no more,
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

/// One audit after the other, until nothing changes the world any more.
async fn audits(guard: &Arc<Guard>, changed: &mut watch::Receiver<u64>) {
    let mut announcer = Announcer {
        told: Announced::default(),
        counts: Counts::new(),
        events_left: MOST_EVENTS,
        since: Instant::now(),
    };
    loop {
        changed.mark_unchanged();
        let begun = Instant::now();
        let judging = Arc::clone(guard);
        // Requests are answered meanwhile.
        match tokio::task::spawn_blocking(move || judge(&judging)).await {
            Ok(judged) => announcer.say(guard, judged),
            Err(error) => warn!(%error, "audit"),
        }
        let cost = begun.elapsed();
        debug!(?cost, "audit");
        tokio::time::sleep(AT_MOST_EVERY.max(cost * REST)).await;
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AT_LEAST_EVERY) => {}
        }
    }
}

/// Everything, if the view is current; of an old one only the clusters, whose state is then unknown.
fn judge(guard: &Guard) -> (Audit, Freshness) {
    let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
    let freshness = guard.freshness(&world);
    let view = View { freshness, ..View::new(&world, (guard.clock)(), &settings) };
    let audit = if freshness == Freshness::Current {
        audit::run(&view)
    } else {
        Audit { clusters: audit::clusters(&view), ..Audit::default() }
    };
    (audit, freshness)
}

/// What was said already.
struct Announcer {
    told: Announced,
    counts: Counts,
    events_left: usize,
    since: Instant,
}

impl Announcer {
    fn say(&mut self, guard: &Guard, (audit, freshness): (Audit, Freshness)) {
        guard.metrics.clusters_are(audit.clusters.iter().map(|cluster| cluster.state));
        guard.metrics.rollouts_are(audit.clusters.iter().map(|cluster| cluster.rollout));
        // What an old view shows is neither found nor gone.
        if freshness != Freshness::Current {
            return;
        }
        let counts = audit.counts();
        if counts != self.counts {
            info!(objects = audit.judged, refused = audit.refused(), warned = audit.warned(), "audit");
        }
        guard.metrics.audited(&counts, &self.counts);
        self.counts = counts;
        if self.since.elapsed() >= IN {
            (self.events_left, self.since) = (MOST_EVENTS, Instant::now());
        }
        let (news, held_back) = self.told.news(&audit, self.events_left);
        self.events_left -= news.len();
        if held_back > 0 && !news.is_empty() {
            info!(
                told = news.len(),
                held_back, "audit: more Events than are good at once; the others follow"
            );
        }
        for news in news {
            guard.publish(events::found(&news));
        }
    }
}
