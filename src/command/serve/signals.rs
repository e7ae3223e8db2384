//! SIGTERM and SIGINT: the first asks to stop; each further one ends the wait that the stop has come to.
//!
//! Must not know: what stops. In a container a signal without a handler does nothing, so this handles them from the
//! very beginning, and a signal that comes early is seen later.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Self { terminate, interrupt })
    }

    /// Ends with the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
