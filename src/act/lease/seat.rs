//! The term of the leader: whether this process leads, and until when.
//!
//! Must not know: leases. A task of the leader checks [`Leading::holds`] before each step. A term that is not renewed ends by
//! itself.

use std::pin::pin;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::info;

/// The end of the term; `None`: this process does not lead.
type TermEnd = Option<Instant>;

/// The candidate's side, which begins and ends terms.
#[derive(Debug)]
pub struct Seat {
    term: watch::Sender<TermEnd>,
    /// 1 while this process leads.
    gauge: Gauge,
}

/// The side of the leader's tasks, which read whether this process leads.
#[derive(Clone, Debug)]
pub struct Leading {
    term: watch::Receiver<TermEnd>,
}

/// Creates an empty seat, and the handle by which the leader's tasks read whether it is taken.
pub fn seat(gauge: Gauge) -> (Seat, Leading) {
    let (sender, term) = watch::channel(None);
    (Seat { term: sender, gauge }, Leading { term })
}

/// Returns what is left of a term, if anything.
fn time_left(term: TermEnd) -> Option<Duration> {
    term.map(|end| end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

impl Seat {
    /// Begins or extends the term, up to this time.
    pub(super) fn take(&self, until: Instant) {
        self.set(Some(until).filter(|end| *end > Instant::now()));
    }

    /// Ends the term.
    pub(super) fn leave(&self) {
        self.set(None);
    }

    pub(super) fn is_taken(&self) -> bool {
        time_left(*self.term.borrow()).is_some()
    }

    /// Waits for `what`. If the term expires meanwhile, ends it at once and goes on waiting.
    pub(super) async fn stepping_down_in_time<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        loop {
            let end = *self.term.borrow();
            let ends = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                outcome = &mut what => return outcome,
                () = ends => self.leave(),
            }
        }
    }

    /// Sets the term. Only its beginning and its end wake the waiting tasks; a renewal can be read, and wakes none.
    fn set(&self, term: TermEnd) {
        let leads = term.is_some();
        self.gauge.set(leads.into());
        self.term.send_if_modified(|before| {
            let changes = before.is_some() != leads;
            if changes {
                let what = if leads { "this replica leads now" } else { "this replica no longer leads" };
                info!(leading = leads, "{what}");
            }
            *before = term;
            changes
        });
    }
}

impl Leading {
    /// Returns whether this replica leads now.
    pub fn holds(&self) -> bool {
        time_left(*self.term.borrow()).is_some()
    }

    /// Returns how long a step that begins now may take, so that it ends before another replica can lead.
    pub fn time_for_a_step(&self) -> Option<Duration> {
        time_left(*self.term.borrow()).map(|left| left + super::STEP_GRACE)
    }

    /// Waits until this replica leads. Returns `false` if it never will again.
    pub async fn until_leading(&mut self) -> bool {
        self.term.wait_for(Option::is_some).await.is_ok()
    }

    /// Waits until this replica no longer leads.
    pub async fn until_not_leading(&mut self) {
        // If the channel is closed, this process never leads again.
        let _ = self.term.wait_for(Option::is_none).await;
    }

    /// Waits until a term of this replica begins or ends. Returns `false` if none will begin any more.
    pub async fn changed(&mut self) -> bool {
        self.term.changed().await.is_ok()
    }
}
