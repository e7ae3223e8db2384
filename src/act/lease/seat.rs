//! The leader's seat: who sits there, and until when.
//!
//! Must not know: leases. A task of the leader asks [`Leading::holds`] before each step; a term ends by itself.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::info;

/// The end of the term; `None`: this process does not lead.
type Term = Arc<Mutex<Option<Instant>>>;

/// The side of the candidate.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    term: Term,
    elected: watch::Sender<bool>,
}

/// The side of those who act for the leader.
#[derive(Clone, Debug)]
pub struct Leading {
    term: Term,
    elected: watch::Receiver<bool>,
}

pub(super) fn seat() -> (Seat, Leading) {
    let term = Term::default();
    let (elect, elected) = watch::channel(false);
    (Seat { term: Arc::clone(&term), elected: elect }, Leading { term, elected })
}

/// What is left of a term.
fn left(term: &Term) -> Option<Duration> {
    let end = (*term.lock().unwrap_or_else(PoisonError::into_inner))?;
    Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

impl Seat {
    /// Leads until then.
    pub(super) fn take(&self, until: Instant) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.announce();
    }

    /// Ends the term.
    pub(super) fn leave(&self) {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.announce();
    }

    pub(super) fn is_taken(&self) -> bool {
        left(&self.term).is_some()
    }

    /// Waits for something, and announces the end of the term if that comes first.
    pub(super) async fn stepping_down_in_time<T>(
        &self,
        what: impl Future<Output = T>,
        announce_end: impl Fn(bool),
    ) -> T {
        let mut what = pin!(what);
        loop {
            let end = *self.term.lock().unwrap_or_else(PoisonError::into_inner);
            let ends = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                outcome = &mut what => return outcome,
                () = ends => {
                    self.leave();
                    announce_end(false);
                }
            }
        }
    }

    fn announce(&self) {
        let now = self.is_taken();
        self.elected.send_if_modified(|before| {
            if *before != now {
                let what = if now { "this replica leads now" } else { "this replica no longer leads" };
                info!(leading = now, "{what}");
            }
            std::mem::replace(before, now) != now
        });
    }
}

impl Leading {
    /// This replica leads, at this very moment.
    pub fn holds(&self) -> bool {
        left(&self.term).is_some()
    }

    /// How long what begins now may take, so that it ends before another replica can lead.
    pub fn time_for_a_step(&self) -> Option<Duration> {
        left(&self.term).map(|left| left + super::SPARE)
    }

    /// Waits until this replica leads; false: never any more.
    pub async fn elected(&mut self) -> bool {
        self.elected.wait_for(|elected| *elected).await.is_ok()
    }

    /// Waits until this replica leads no more.
    pub async fn deposed(&mut self) {
        // A closed channel: this process never leads again.
        let _ = self.elected.wait_for(|elected| !*elected).await;
    }

    /// Waits for an election or its end; false: there will be none any more.
    pub async fn changed(&mut self) -> bool {
        self.elected.changed().await.is_ok()
    }
}
