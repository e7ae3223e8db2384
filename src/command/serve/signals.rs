//! SIGTERM and SIGINT. The first signal asks the guard to stop; each further one ends the wait that the stop has reached.
//!
//! Must not know: what stops. In a container a signal without a handler does nothing, so both have handlers from the very
//! beginning, and an early signal is seen later.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The handlers of both signals.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles both signals from now on.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Self { terminate, interrupt })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
