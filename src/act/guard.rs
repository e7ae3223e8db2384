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

pub use ready::{Readiness, ReadinessReport};
pub use watch_freshness::WatchFreshness;

/// The field manager under which the API server records the fields that the guard owns.
pub const FIELD_MANAGER: &str = "gatera";
/// The number of requests that are answered at the same time. More are refused immediately: a queue would only answer callers
/// that have given up.
const MAX_REQUESTS: usize = 256;

/// The longest wait of a request for a world that contains its objects. A watch delivers a new object within this time, usually
/// much sooner, and an API server waits longer than this for an answer.
const WORLD_WAIT: Duration = Duration::from_millis(500);

/// The state that requests are answered from.
#[derive(Debug)]
pub struct Guard {
    /// Everything that is known; always replaced as a whole.
    pub world: Arc<ArcSwap<World>>,
    /// The freshness of each watch; `None` if the world does not come from watches.
    pub watch_freshness: ArcSwapOption<WatchFreshness>,
    /// The settings that are in effect. They are read once per request.
    pub settings: ArcSwap<Settings>,
    /// The metrics that `/metrics` shows.
    pub metrics: Metrics,
    /// The source of the current time.
    pub clock: fn() -> Timestamp,
    /// The state that decides whether the API server should send requests to this replica.
    pub ready: Readiness,
    /// The reservations of members that were allowed to leave moments ago.
    pub reservations: ReservationStore,
    /// The access to the ConfigMaps that servers read, and to their snapshots.
    pub config_maps: ConfigMaps,
    /// The memory that this process may use, in bytes.
    pub memory: usize,
    /// The queue of Events to publish; `None` if none are published.
    pub events: Option<mpsc::Sender<Notice>>,
    event_limiter: Mutex<EventLimiter>,
    world_replaced: Notify,
    request_permits: Semaphore,
}

impl Guard {
    /// Creates a guard with this world.
    pub fn new(world: Arc<ArcSwap<World>>, settings: Settings, clock: fn() -> Timestamp) -> Self {
        let (metrics, ready) = (Metrics::default(), Readiness::default());
        metrics.start_at_zero(crate::rulebook().rules().iter().map(|rule| rule.id));
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
            event_limiter: Mutex::default(),
            world_replaced: Notify::new(),
            request_permits: Semaphore::new(MAX_REQUESTS),
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
    pub fn readiness_report(&self) -> ReadinessReport {
        let (world, settings) = (self.world.load(), self.settings.load());
        let view = View::new(&world, (self.clock)(), &settings);
        self.ready.report(&View { freshness: self.freshness(&world), ..view })
    }

    /// Returns the world as soon as it is complete for a request, or the current one after a short wait. A request arrives while
    /// its object is being created, and the owners of the object may have been created only a moment before.
    pub async fn world_when(&self, is_complete: impl Fn(&World) -> bool) -> Arc<World> {
        let complete_world = async {
            loop {
                let mut replaced = std::pin::pin!(self.world_replaced.notified());
                replaced.as_mut().enable();
                let world = self.world.load_full();
                // A request that waits holds a permit, so no request waits when few permits are left.
                if is_complete(&world) || self.request_permits.available_permits() < MAX_REQUESTS / 2 {
                    return world;
                }
                replaced.await;
            }
        };
        timeout(WORLD_WAIT, complete_world).await.unwrap_or_else(|_| self.world.load_full())
    }

    /// Replaces the world, and wakes the requests that wait for it.
    pub fn replace_world(&self, world: World) {
        self.world.store(Arc::new(world));
        self.world_replaced.notify_waiters();
    }

    /// Takes a permit for one request; `None` if there are too many requests.
    pub fn request_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.request_permits.try_acquire().ok()
    }

    /// Publishes an Event about a request, unless there were many about the same object lately.
    pub fn publish_request(&self, notice: Notice) {
        let mut limiter = self.event_limiter.lock().unwrap_or_else(PoisonError::into_inner);
        if limiter.admits(&notice, (self.clock)()) {
            self.publish(notice);
        }
    }

    /// Publishes an Event. If the queue is full, the Event is dropped, because no request may wait for Events.
    pub fn publish(&self, notice: Notice) {
        if let Some(events) = &self.events {
            let _ = events.try_send(notice);
        }
    }
}
