//! The guard of one process: what every request is answered from, and what the parts of `serve` share.
//!
//! Owns: the state that is shared, and nothing of how it is filled (`watch`, `register`) or asked (`serve/router.rs`).

mod ready;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use crate::config::Settings;
use crate::events::{Notice, Restraint};
use crate::telemetry::Metrics;
use crate::view::{Released, World};

pub use ready::{Readiness, Report};

/// By this name the API server remembers which fields are ours.
pub const FIELD_MANAGER: &str = "gatera";
/// More than this at once is refused at once: a queue would only answer those who have given up.
const MOST_AT_ONCE: usize = 256;

/// What a request is answered from.
#[derive(Debug)]
pub struct Guard {
    /// Everything known, swapped whole.
    pub world: Arc<ArcSwap<World>>,
    /// What the administrator chose, as far as it is in effect. Read once per request.
    pub settings: ArcSwap<Settings>,
    /// What is counted.
    pub metrics: Metrics,
    /// What time it is.
    pub clock: fn() -> Timestamp,
    /// Whether the API server should be sent here.
    pub ready: Readiness,
    /// Members that were let go moments ago. Whoever lets one go holds it from the question to the answer.
    released: Mutex<Released>,
    /// Takes what everybody should see.
    events: Option<mpsc::Sender<Notice>>,
    restraint: Mutex<Restraint>,
    places: Semaphore,
}

impl Guard {
    /// A guard that knows this world.
    pub fn new(world: Arc<ArcSwap<World>>, settings: Settings, clock: fn() -> Timestamp) -> Self {
        let (metrics, ready) = (Metrics::default(), Readiness::default());
        let settings = ArcSwap::from_pointee(settings);
        Self {
            world,
            settings,
            metrics,
            clock,
            ready,
            released: Mutex::default(),
            events: None,
            restraint: Mutex::default(),
            places: Semaphore::new(MOST_AT_ONCE),
        }
    }

    /// What everybody should see goes there.
    #[must_use]
    pub fn telling(self, events: mpsc::Sender<Notice>) -> Self {
        Self { events: Some(events), ..self }
    }

    /// A place for one request, unless there are too many.
    pub fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Who was let go moments ago. Nothing slow happens while it is held.
    pub fn released(&self) -> MutexGuard<'_, Released> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody of a request, but not of one object over and over.
    pub fn tell_of_request(&self, notice: Notice) {
        let mut restraint = self.restraint.lock().unwrap_or_else(PoisonError::into_inner);
        if restraint.lets(&notice, (self.clock)()) {
            self.tell(notice);
        }
    }

    /// Tells everybody. A full queue drops it: a guard that waits for its own Events would be an outage.
    pub fn tell(&self, notice: Notice) {
        if let Some(events) = &self.events {
            let _ = events.try_send(notice);
        }
    }
}
