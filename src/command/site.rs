//! The API server that a command asks: the way there, what time it is there, and by which settings the guard there judges. Every
//! command that looks at a cluster begins here, so that all of them see what the guard sees.
//!
//! Must not know: what is looked at.

use std::io::{self, Write as _};
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

use super::installed::{self, Installed, SettingsSource};
use crate::act::api::Fault;
use crate::act::reload;
use crate::act::telemetry::chain;

/// What is asked, and by what its answers are judged.
pub struct Site {
    /// With the rights of the person who types the command.
    pub client: Client,
    /// Its clock.
    pub clock: Clock,
    /// By these everything is judged.
    pub settings: Settings,
    /// Whose they are.
    pub source: SettingsSource,
    /// The guard there.
    pub guard: Installed,
}

impl Site {
    /// Looks for the guard and its settings; those in the file that `--config` names count instead.
    pub async fn of(client: Client, config: Option<&Path>) -> anyhow::Result<Self> {
        let file = config.map(|path| anyhow::Ok((path, reload::load(path)?))).transpose()?;
        let clock = Clock::ask(&client).await?;
        let guard = installed::look(&client).await;
        let (settings, source) = guard.settings_or(file);
        Ok(Self { client, clock, settings, source, guard })
    }

    /// The same, for what judges: where the guard's settings cannot be asked for at the moment, others would be a guess.
    pub async fn that_judges(client: Client, config: Option<&Path>) -> anyhow::Result<Self> {
        let site = Self::of(client, config).await?;
        if let (SettingsSource::Defaults(_), Err(problem)) = (&site.source, &site.guard.settings)
            && is_away(problem)
        {
            anyhow::bail!("asking for the guard's settings: {}", chain(problem.as_ref()));
        }
        Ok(site)
    }

    /// There is a guard, and it may judge by other settings.
    pub fn guesses(&self) -> bool {
        matches!(self.source, SettingsSource::Defaults(_)) && self.guard.is_there()
    }

    /// What is for programs is alone on standard output.
    pub fn tell_source(&self) {
        let _ = writeln!(io::stderr(), "gatera: settings: {}", visible(&self.source.to_string()));
    }

    /// What it holds, as the guard would judge it now.
    pub fn view<'a>(&'a self, world: &'a World) -> View<'a> {
        View::new(world, self.clock.now(), &self.settings)
    }
}

/// What time it is at the API server: this machine's clock may be wrong, and may be set while a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    shown: Timestamp,
    asked: Instant,
}

impl Clock {
    /// Asks for it.
    pub async fn ask(client: &Client) -> anyhow::Result<Self> {
        const ASKING: &str = "asking the API server for its version";
        let request = Request::get("/version").body(Body::empty())?;
        let answer = client.send(request).await.context(ASKING)?;
        let date = answer.headers().get(DATE).and_then(|it| it.to_str().ok());
        let clock = Self { shown: time(date, Timestamp::now()), asked: Instant::now() };
        // A connection whose answer was not read to its end is not used again.
        answer.into_body().collect_bytes().await.context(ASKING)?;
        Ok(clock)
    }

    #[cfg(test)]
    pub(super) fn of_this_machine() -> Self {
        Self { shown: Timestamp::now(), asked: Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.asked.elapsed()).unwrap_or(SignedDuration::MAX);
        self.shown.checked_add(since).unwrap_or(self.shown)
    }
}

/// Whether the API server, or a guard that it asks, does not answer at the moment, or has too much to do: nothing was refused.
pub fn is_away(problem: &anyhow::Error) -> bool {
    error_of(problem).is_some_and(|error| Fault::of(error).is_away())
}

/// The error of the API server in this problem.
pub fn error_of(problem: &anyhow::Error) -> Option<&kube::Error> {
    problem.chain().find_map(|it| it.downcast_ref())
}

/// The time by this date. A date has whole seconds, and its answer took its time: one that is nearly `now` is `now`.
fn time(date: Option<&str>, now: Timestamp) -> Timestamp {
    let date = date.and_then(|it| rfc2822::parse(it).ok()).map_or(now, |date| date.timestamp());
    if now.duration_until(date).abs() < SignedDuration::from_secs(2) { now } else { date }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_here_is_noticed() {
        let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
        for (date, is) in [
            (Some("Tue, 01 Dec 2026 09:30:01 GMT"), "2026-12-01T09:30:00Z"),
            (Some("Tue, 01 Dec 2026 10:20:00 GMT"), "2026-12-01T10:20:00Z"),
            (Some("Tue, 01 Dec 2026 08:30:00 GMT"), "2026-12-01T08:30:00Z"),
            (Some("yesterday"), "2026-12-01T09:30:00Z"),
            (None, "2026-12-01T09:30:00Z"),
        ] {
            assert_eq!(time(date, now), is.parse().unwrap(), "{date:?}");
        }
    }
}
