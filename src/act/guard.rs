//! The guard of one process: what every request is answered from, and what the parts of `serve` share.
//!
//! Owns: the state that is shared, and nothing of how it is filled (`watch`, `register`) or asked (`answer/router.rs`).

mod ready;
mod watch_freshness;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::act::config_maps::ConfigMaps;
use crate::act::events::{EventLimiter, Notice};
use crate::act::reserve::ReservationStore;
use crate::act::telemetry::Metrics;

pub use ready::{Readiness, Report};
pub use watch_freshness::WatchFreshness;

/// By this name the API server remembers which fields are ours.
pub const FIELD_MANAGER: &str = "gatera";
/// More than this at once is refused at once: a queue would only answer those who have given up.
const MOST_AT_ONCE: usize = 256;

/// A watch shows what was made within this, usually much sooner. An API server waits longer for an answer.
const MOMENT: Duration = Duration::from_millis(500);

/// What a request is answered from.
#[derive(Debug)]
pub struct Guard {
    /// Everything known, swapped whole.
    pub world: Arc<ArcSwap<World>>,
    /// The freshness of each watch; `None`: the world is not made of watches.
    pub watch_freshness: ArcSwapOption<WatchFreshness>,
    /// What the administrator chose, as far as it is in effect. Read once per request.
    pub settings: ArcSwap<Settings>,
    /// What is counted.
    pub metrics: Metrics,
    /// What time it is.
    pub clock: fn() -> Timestamp,
    /// Whether the API server should be sent here.
    pub ready: Readiness,
    /// Reservations: members that were allowed to leave moments ago.
    pub reservations: ReservationStore,
    /// Reads and copies what servers read.
    pub config_maps: ConfigMaps,
    /// Bytes that this process may take.
    pub memory: usize,
    /// The queue of Events to publish; `None`: none is published.
    pub events: Option<mpsc::Sender<Notice>>,
    limiter: Mutex<EventLimiter>,
    news: Notify,
    places: Semaphore,
}

impl Guard {
    /// A guard that knows this world.
    pub fn new(world: Arc<ArcSwap<World>>, settings: Settings, clock: fn() -> Timestamp) -> Self {
        let (metrics, ready) = (Metrics::default(), Readiness::default());
        metrics.expect(crate::rulebook().rules().iter().map(|rule| rule.id));
        let settings = ArcSwap::from_pointee(settings);
        Self {
            world,
            watch_freshness: ArcSwapOption::empty(),
            settings,
            metrics,
            clock,
            ready,
            reservations: ReservationStore::of_one_replica(),
            config_maps: ConfigMaps::default(),
            memory: usize::MAX,
            events: None,
            limiter: Mutex::default(),
            news: Notify::new(),
            places: Semaphore::new(MOST_AT_ONCE),
        }
    }

    /// How current this world is by now.
    pub fn freshness(&self, world: &World) -> Freshness {
        match (&*self.watch_freshness.load(), world.freshness) {
            (Some(watch_freshness), Freshness::Current) => watch_freshness.freshness(),
            (_, built) => built,
        }
    }

    /// Whether the API server should be sent here, and why not.
    pub fn report(&self) -> Report {
        let (world, settings) = (self.world.load(), self.settings.load());
        let view = View::new(&world, (self.clock)(), &settings);
        self.ready.report(&View { freshness: self.freshness(&world), ..view })
    }

    /// The world, as soon as it knows what a request is about. An object is asked about the moment it is made, and those that it
    /// belongs to may have been made a moment before.
    pub async fn world_that(&self, knows: impl Fn(&World) -> bool) -> Arc<World> {
        let waits = async {
            loop {
                let mut news = std::pin::pin!(self.news.notified());
                news.as_mut().enable();
                let world = self.world.load_full();
                // A request that waits takes the place of another one.
                if knows(&world) || self.places.available_permits() < MOST_AT_ONCE / 2 {
                    return world;
                }
                news.await;
            }
        };
        timeout(MOMENT, waits).await.unwrap_or_else(|_| self.world.load_full())
    }

    /// Another world is shown.
    pub fn show(&self, world: World) {
        self.world.store(Arc::new(world));
        self.news.notify_waiters();
    }

    /// A place for one request, unless there are too many.
    pub fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Publishes an Event about a request, but not about one object over and over.
    pub fn publish_request(&self, notice: Notice) {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        if limiter.lets(&notice, (self.clock)()) {
            self.publish(notice);
        }
    }

    /// Publishes an Event. A full queue drops it: a guard that waits for its own Events would be an outage.
    pub fn publish(&self, notice: Notice) {
        if let Some(events) = &self.events {
            let _ = events.try_send(notice);
        }
    }
}
