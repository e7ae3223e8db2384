//! The guard of one process: the state that every request is answered from and that the parts of `serve` share.
//!
//! Owns: the shared state. Must not know: how it is filled (`watch`, `register`) or used (`answer/router.rs`).

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

/// The field manager by which the API server records the fields that the guard owns.
pub const FIELD_MANAGER: &str = "gatera";
/// The number of requests that are answered at the same time. More are refused immediately: a queue would only answer callers
/// that have given up.
const MOST_AT_ONCE: usize = 256;

/// The longest wait of a request for the view. A watch shows a new object within this time, usually much sooner, and an API
/// server waits longer for an answer.
const MOMENT: Duration = Duration::from_millis(500);

/// The state that requests are answered from.
#[derive(Debug)]
pub struct Guard {
    /// Everything that is known; always replaced as a whole.
    pub world: Arc<ArcSwap<World>>,
    /// The freshness of each watch; `None` if the world does not come from watches.
    pub watch_freshness: ArcSwapOption<WatchFreshness>,
    /// The settings that are in effect. They are read once per request.
    pub settings: ArcSwap<Settings>,
    /// The metrics.
    pub metrics: Metrics,
    /// The source of the current time.
    pub clock: fn() -> Timestamp,
    /// The state that decides whether the API server should send requests to this replica.
    pub ready: Readiness,
    /// Reservations: members that were allowed to leave moments ago.
    pub reservations: ReservationStore,
    /// The reader and copier of ConfigMaps that servers read.
    pub config_maps: ConfigMaps,
    /// The memory that this process may use, in bytes.
    pub memory: usize,
    /// The queue of Events to publish; `None` if none are published.
    pub events: Option<mpsc::Sender<Notice>>,
    limiter: Mutex<EventLimiter>,
    news: Notify,
    places: Semaphore,
}

impl Guard {
    /// Creates a guard with this world.
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

    /// Returns how current this world is now.
    pub fn freshness(&self, world: &World) -> Freshness {
        match (&*self.watch_freshness.load(), world.freshness) {
            (Some(watch_freshness), Freshness::Current) => watch_freshness.freshness(),
            (_, built) => built,
        }
    }

    /// Returns whether the API server should send requests to this replica, and if not, why.
    pub fn report(&self) -> Report {
        let (world, settings) = (self.world.load(), self.settings.load());
        let view = View::new(&world, (self.clock)(), &settings);
        self.ready.report(&View { freshness: self.freshness(&world), ..view })
    }

    /// Returns the world as soon as it knows what a request is about, or the current one after a short wait. A request comes
    /// while its object is being created, and the owners of the object may have been created only a moment before.
    pub async fn world_that(&self, knows: impl Fn(&World) -> bool) -> Arc<World> {
        let waits = async {
            loop {
                let mut news = std::pin::pin!(self.news.notified());
                news.as_mut().enable();
                let world = self.world.load_full();
                // A waiting request takes the place of another one.
                if knows(&world) || self.places.available_permits() < MOST_AT_ONCE / 2 {
                    return world;
                }
                news.await;
            }
        };
        timeout(MOMENT, waits).await.unwrap_or_else(|_| self.world.load_full())
    }

    /// Replaces the world, and wakes the requests that wait for it.
    pub fn show(&self, world: World) {
        self.world.store(Arc::new(world));
        self.news.notify_waiters();
    }

    /// Takes a place for one request; `None` if there are too many requests.
    pub fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Publishes an Event about a request, unless there were many about the same object lately.
    pub fn publish_request(&self, notice: Notice) {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        if limiter.admits(&notice, (self.clock)()) {
            self.publish(notice);
        }
    }

    /// Publishes an Event. If the queue is full, the Event is dropped: a guard that waited for its own Events would be an outage.
    pub fn publish(&self, notice: Notice) {
        if let Some(events) = &self.events {
            let _ = events.try_send(notice);
        }
    }
}
