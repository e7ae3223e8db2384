//! The API server that a command uses: a client for it, its clock, and the settings by which the guard there judges. Every
//! command that looks at a cluster begins here, so that all of them judge as the guard does.
//!
//! Must not know: what is looked at.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use axum::http::Request;
use axum::http::header::DATE;
use facts::settings::Settings;
use facts::view::{View, World};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use objects::visible;

use super::installed::{self, InstalledGuard, SettingsSource};
use super::terminal::print_note;
use crate::act::api::Fault;
use crate::act::reload;
use crate::act::telemetry::chain;

/// An API server, and the settings by which its objects are judged.
pub struct Site {
    /// The client, with the rights of the person who runs the command.
    pub client: Client,
    /// The clock of the API server.
    pub clock: Clock,
    /// The settings by which everything is judged.
    pub settings: Settings,
    /// The origin of the settings.
    pub source: SettingsSource,
    /// The guard that is installed there.
    pub guard: InstalledGuard,
}

impl Site {
    /// Looks for the guard and reads its settings. If `--config` names a file, the settings in it count instead.
    pub async fn of(client: Client, config: Option<&Path>) -> anyhow::Result<Self> {
        let file = config.map(|path| anyhow::Ok((path, reload::load(path)?))).transpose()?;
        let clock = Clock::ask(&client).await?;
        let guard = installed::find(&client).await;
        let (settings, source) = guard.settings_or(file);
        Ok(Self { client, clock, settings, source, guard })
    }

    /// Does the same as `of`, but fails if the guard's settings cannot be read at the moment: commands that judge must not use
    /// other settings instead.
    pub async fn for_judging(client: Client, config: Option<&Path>) -> anyhow::Result<Self> {
        let site = Self::of(client, config).await?;
        if let (SettingsSource::Defaults(_), Err(problem)) = (&site.source, &site.guard.settings)
            && is_away(problem)
        {
            anyhow::bail!("asking for the guard's settings: {}", chain(problem.as_ref()));
        }
        Ok(site)
    }

    /// Returns whether there is a guard that may judge by other settings.
    pub fn settings_are_guessed(&self) -> bool {
        matches!(self.source, SettingsSource::Defaults(_)) && self.guard.is_there()
    }

    /// Prints the origin of the settings.
    pub fn print_source(&self) {
        print_note(&format!("settings: {}", visible(&self.source.to_string())));
    }

    /// Returns the view of this world, as the guard would judge it now.
    pub fn view<'a>(&'a self, world: &'a World) -> View<'a> {
        View::new(world, self.clock.now(), &self.settings)
    }
}

/// The clock of the API server. This machine's clock may be wrong, and may be set while a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    shown: Timestamp,
    asked: Instant,
}

impl Clock {
    /// Reads the API server's time from the date of an answer.
    pub async fn ask(client: &Client) -> anyhow::Result<Self> {
        const ASKING: &str = "asking the API server for its version";
        let request = Request::get("/version").body(Body::empty())?;
        let answer = client.send(request).await.context(ASKING)?;
        let date = answer.headers().get(DATE).and_then(|it| it.to_str().ok());
        let clock = Self { shown: server_time(date, Timestamp::now()), asked: Instant::now() };
        // A connection is used again only if the answer was read to its end.
        answer.into_body().collect_bytes().await.context(ASKING)?;
        Ok(clock)
    }

    #[cfg(test)]
    pub(super) fn of_this_machine() -> Self {
        Self { shown: Timestamp::now(), asked: Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.asked.elapsed()).unwrap_or(SignedDuration::MAX);
        self.shown.checked_add(since).unwrap_or(self.shown)
    }
}

/// Returns whether the API server, or a guard that it calls, did not answer or is overloaded. Then nothing was refused.
pub fn is_away(problem: &anyhow::Error) -> bool {
    api_error(problem).is_some_and(|error| Fault::of(error).is_transient())
}

/// Returns the error of the API server in this problem.
pub fn api_error(problem: &anyhow::Error) -> Option<&kube::Error> {
    problem.chain().find_map(|it| it.downcast_ref())
}

/// Returns the time of this date. A date has whole seconds, and its answer took time, so one close to `now` counts as `now`.
fn server_time(date: Option<&str>, now: Timestamp) -> Timestamp {
    let date = date.and_then(|it| rfc2822::parse(it).ok()).map_or(now, |date| date.timestamp());
    if now.duration_until(date).abs() < SignedDuration::from_secs(2) { now } else { date }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_api_server_counts() {
        let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
        for (date, is) in [
            (Some("Tue, 01 Dec 2026 09:30:01 GMT"), "2026-12-01T09:30:00Z"),
            (Some("Tue, 01 Dec 2026 10:20:00 GMT"), "2026-12-01T10:20:00Z"),
            (Some("Tue, 01 Dec 2026 08:30:00 GMT"), "2026-12-01T08:30:00Z"),
            (Some("yesterday"), "2026-12-01T09:30:00Z"),
            (None, "2026-12-01T09:30:00Z"),
        ] {
            assert_eq!(server_time(date, now), is.parse().unwrap(), "{date:?}");
        }
    }
}
