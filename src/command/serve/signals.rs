//! SIGTERM and SIGINT. The first signal makes the guard stop; each further one ends the current wait of that stop.
//!
//! Must not know: what stops. The first process of a container ignores a signal without a handler, so both have handlers from the
//! very beginning, and a signal that arrives early is not lost.

use anyhow::Context as _;
#[cfg(windows)]
use tokio::signal::windows::{
    CtrlC as Interrupt, CtrlShutdown as Terminate, ctrl_c as interrupt, ctrl_shutdown as terminate,
};
#[cfg(unix)]
use unix::{Signal as Interrupt, Signal as Terminate, interrupt, terminate};

#[cfg(unix)]
mod unix {
    use std::io;

    pub(super) use tokio::signal::unix::Signal;
    use tokio::signal::unix::{SignalKind, signal};

    pub(super) fn interrupt() -> io::Result<Signal> {
        signal(SignalKind::interrupt())
    }

    pub(super) fn terminate() -> io::Result<Signal> {
        signal(SignalKind::terminate())
    }
}

/// The handlers of both signals.
pub(super) struct Signals {
    terminate: Terminate,
    interrupt: Interrupt,
}

impl Signals {
    /// Handles both signals from now on.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let terminate = terminate().context("listening for SIGTERM")?;
        let interrupt = interrupt().context("listening for SIGINT")?;
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
