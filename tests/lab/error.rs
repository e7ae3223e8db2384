//! Why a control plane did not start, in texts that show where to look. Every file of the lab makes these errors;
//! `ControlPlane::start` prints them.

use std::io;
use std::time::Duration;

use super::command::Output;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Tools(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("making the key that signs service account tokens: {0}")]
    Key(#[from] rcgen::Error),
    #[error("{component} ended by itself; its last lines:\n{last_lines}")]
    Ended { component: String, last_lines: String },
    #[error("`{command}` had not ended after {} s; so far: {output}", patience.as_secs())]
    Endless { command: String, patience: Duration, output: Output },
    #[error("waited in vain: {waiting_for}; the last lines of {component}:\n{last_lines}")]
    Late { waiting_for: &'static str, component: String, last_lines: String },
}

impl Error {
    /// Returns whether another program took the port after the kernel offered it as free and before our program bound it.
    pub(super) fn port_was_taken(&self) -> bool {
        matches!(self, Self::Ended { last_lines, .. } if last_lines.contains("address already in use"))
    }
}

/// Adds to an error of the file system what was being done, as in `fs::write(…).doing(|| format!("writing {path}"))?`.
pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
