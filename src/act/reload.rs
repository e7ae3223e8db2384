//! The settings file: read at the start, and again whenever its content changes.
//!
//! Owns: the file, the effect of a change, and how any file is followed ([`follow_contents`]). Must not know: the meaning of the
//! settings (`settings.rs`). Modes and webhook settings take effect at once; a new adoption takes effect when the watches
//! have listed what it selects (`watch.rs`), so that no request is judged by selectors whose objects are not in the view yet.
//! A file that cannot be read changes nothing and is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use facts::galera::adopt::Adoption;
use facts::settings::{self, Settings};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::act::guard::Guard;
use crate::act::telemetry::chain;
use crate::rulebook;

/// The interval at which the content is read. A kubelet swaps a link somewhere above the file, which a file watch would miss.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The reason why a settings file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read, or is not UTF-8 text.
    #[error("reading the settings file {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file holds something other than valid settings.
    #[error("settings file {0}")]
    Invalid(PathBuf, #[source] settings::Error),
}

/// Reads the settings from the file.
pub fn load(path: &Path) -> Result<Settings, Error> {
    parse(path, &read_text(path)?)
}

fn read_text(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::Read(path.to_owned(), error))
}

/// Parses the settings in a text that was read from this file.
pub fn parse(path: &Path, text: &str) -> Result<Settings, Error> {
    rulebook().settings(text).map_err(|error| Error::Invalid(path.to_owned(), error))
}

/// Follows the file until the process ends. `adopted` receives the adoption if it changes. `changed` is incremented with each new
/// content, including the first, and with each new reason why the file cannot be read.
pub async fn follow(
    path: PathBuf,
    guard: Arc<Guard>,
    adopted: watch::Sender<Adoption>,
    changed: watch::Sender<u64>,
) {
    let read = || read_text(&path).map_err(|error| chain(&error));
    let apply_text = |now: &Result<String, String>| {
        let read = now.clone().and_then(|text| parse(&path, &text).map_err(|error| chain(&error)));
        apply(read, &guard, &adopted);
        changed.send_modify(|count| *count += 1);
    };
    follow_contents(read, apply_text).await;
}

/// Calls `use_content` with the content, or with the reason why it cannot be read: at once, and then whenever that changes, until
/// the process ends.
pub async fn follow_contents<T: PartialEq>(
    read: impl Fn() -> Result<T, String>,
    mut use_content: impl FnMut(&Result<T, String>),
) {
    let mut seen = None;
    loop {
        let now = read();
        if seen.as_ref() != Some(&now) {
            use_content(&now);
            seen = Some(now);
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Puts the settings that were read into effect, or reports why they could not be read.
pub fn apply(read: Result<Settings, String>, guard: &Guard, adopted: &watch::Sender<Adoption>) {
    guard.metrics.config_current.set(i64::from(read.is_ok()));
    match read {
        Ok(new) => {
            let before = guard.settings.rcu(|now| now.updated_by(&new));
            let adopts = adopted.send_if_modified(|known| {
                let another = *known != new.adoption;
                *known = new.adoption.clone();
                another
            });
            if adopts || *before != **guard.settings.load() {
                info!(adopts, "the settings have changed");
            }
            guard.ready.settings.store(None);
        }
        Err(problem) => {
            warn!(error = problem, "the settings cannot be read; the last valid ones stay in effect");
            guard
                .ready
                .settings
                .store(Some(Arc::new(format!("{problem}; the last valid ones stay in effect"))));
        }
    }
}
