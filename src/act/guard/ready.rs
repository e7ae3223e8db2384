//! The readiness of this replica: whether the API server should send requests to it, and if not, why.
//!
//! A stale view is reported but does not make the replica unready: the guard then answers UNKNOWN and explains why, which is
//! better than no answer. A replica is unready only if it cannot answer at all, or is shutting down.

use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use facts::view::{Freshness, View};
use jiff::Timestamp;
use leader::once_guarded;

/// The parts of readiness besides the view.
#[derive(Debug, Default)]
pub struct Readiness {
    /// The end of the loaded leaf's validity; `None` before one is loaded.
    pub leaf_ends: ArcSwapOption<Timestamp>,
    /// The start of the loaded leaf's validity; `None` before one is loaded.
    pub leaf_begins: ArcSwapOption<Timestamp>,
    /// The problem with issuing or reading certificates, in words; `None` while there is none.
    pub certificates: ArcSwapOption<String>,
    /// Whether the registered webhook entries trust another CA than the one that signed the loaded leaf.
    pub untrusted: AtomicBool,
    /// Whether the replica is shutting down: it should be removed from the endpoints while it still serves.
    pub leaving: AtomicBool,
    /// The state of the webhook entries, in words; `None` before it is known.
    pub registration: ArcSwapOption<String>,
    /// The problem with the settings file, in words; `None` while the file is in effect.
    pub settings: ArcSwapOption<String>,
    /// Whether the watches are still listing the objects that a new adoption selects.
    pub adopting: AtomicBool,
    /// What the view lacks, in words; `None` if the view is complete.
    pub unlisted: ArcSwapOption<String>,
}

/// The answer of `/readyz`.
#[derive(Debug)]
pub struct ReadinessReport {
    /// Whether requests should be sent to this replica.
    pub ready: bool,
    /// The state of each part, one per line.
    pub text: String,
}

impl Readiness {
    /// Reports on every part of readiness.
    pub fn report(&self, view: &View<'_>) -> ReadinessReport {
        let now = view.now;
        let view_state = match view.freshness {
            Freshness::Loading => Err("still listing the objects of the cluster".to_owned()),
            Freshness::Current | Freshness::Partial => Ok(match self.unlisted.load().as_deref() {
                Some(text) => format!("current; {text}"),
                None => "current".to_owned(),
            }),
            Freshness::Stale(age) => Ok(format!(
                "stale for {}s: a watch is silent; destructive requests are refused as UNKNOWN",
                age.as_secs()
            )),
        };
        let problem = self.certificates.load();
        let problem = problem.as_deref().map(|text| format!("; {text}")).unwrap_or_default();
        let valid_from = self.leaf_begins.load().as_deref().copied().filter(|begins| now < *begins);
        let certificate = match (self.leaf_ends.load().as_deref(), valid_from) {
            (None, _) => Err(format!("no certificate yet{problem}")),
            (Some(ends), _) if *ends <= now => Err(format!("expired at {ends}{problem}")),
            (_, Some(begins)) => Err(format!("not valid before {begins}{problem}")),
            _ if self.untrusted.load(Ordering::Relaxed) => {
                Err(format!("not signed by a CA in the registered caBundle{problem}"))
            }
            (Some(ends), None) => Ok(format!("valid until {ends}{problem}")),
        };
        let server = if self.leaving.load(Ordering::Relaxed) {
            Err("shutting down".to_owned())
        } else {
            Ok("serving".to_owned())
        };
        let registration = self.registration.load();
        let webhooks = registration.as_deref().map_or("not registered yet", |text| text).to_owned();
        let problem = self.settings.load();
        let settings = match problem.as_deref() {
            Some(text) => text.clone(),
            None if self.adopting.load(Ordering::Relaxed) => {
                "listing the objects that `adopt` now selects".to_owned()
            }
            None => match once_guarded::summary(view) {
                Some(text) => format!("current; {text}"),
                None => "current".to_owned(),
            },
        };
        let parts = [
            ("view", view_state),
            ("certificate", certificate),
            ("webhooks", Ok(webhooks)),
            ("settings", Ok(settings)),
            ("server", server),
        ];
        let mut text = String::new();
        for (name, part) in &parts {
            let (sign, state) = match part {
                Ok(state) => ('+', state),
                Err(state) => ('-', state),
            };
            text.push_str(&format!("[{sign}] {name}: {state}\n"));
        }
        ReadinessReport { ready: parts.iter().all(|(_, part)| part.is_ok()), text }
    }
}
