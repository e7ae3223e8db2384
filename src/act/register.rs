//! Registration: the serving certificate, and the webhook entries that send requests to the guard.
//!
//! Owns: the one task that watches the Secret and the two webhook configurations. Every replica takes its leaf from the Secret
//! and checks whether API servers trust it; the leader also writes. `known.rs` decides; `certificate.rs` maintains the Secret and
//! puts the leaf into use, `entries.rs` maintains the entries. Each of these two steps has its own errors, and a failure of one
//! does not stop the other. Must not know: rules, requests. The chart creates the configurations empty; entries are added when
//! this guard can answer, and are never removed because it is unhealthy. A configuration that was deleted stays deleted.

mod certificate;
mod entries;
mod known;
mod pace;
mod watch;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::webhooks::Destination;
use facts::view::Freshness;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch as channel;
use tokio::time::timeout;
use tracing::warn;

use crate::act::certs::{self, Leaf, Lifetimes};
use crate::act::guard::Guard;
use crate::act::lease::Leading;
use crate::act::telemetry::{chain, repeated};

use known::{Configuration, KnownState};
use pace::Pace;

/// What is registered, and which objects this involves.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The guard's own namespace.
    pub namespace: String,
    /// The Helm release that the guard's objects belong to; empty if there is none.
    pub release: String,
    /// The name of the Secret with the certificates.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    /// The address at which API servers reach the guard.
    pub target: Destination,
    /// The names for which the leaf is issued.
    pub names: Vec<String>,
    /// The lifetimes of the certificates that the guard makes.
    pub lifetimes: Lifetimes,
    /// A folder with `tls.crt`, `tls.key` and `ca.crt`, if the certificates are maintained outside of the guard.
    pub folder: Option<PathBuf>,
}

/// The errors of the registration. Failed steps are retried, and no error ends the process.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("writing the Secret {0}")]
    WriteSecret(String, #[source] kube::Error),
    #[error("writing the webhook configuration {0}")]
    WriteEntries(String, #[source] kube::Error),
    #[error("looking for a ready endpoint of the guard's Service")]
    Endpoints(#[source] kube::Error),
    #[error("certificates")]
    Certificates(#[from] certs::Error),
    #[error("the Secret {0} cannot be used")]
    Unusable(String, #[source] certs::Error),
    #[error("the Secret {0} cannot be used: it holds no certificates of the guard")]
    Empty(String),
    #[error("there is no Secret {0}")]
    NoSecret(String),
    #[error("reading {0}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("no answer from the API server within {} s", STEP_DEADLINE.as_secs())]
    Late,
}

/// The interval at which files are read and failed steps are retried, which is often enough: certificates last for months.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The time for which one step may wait for API servers, so that a stalled link does not hold up the other step.
const STEP_DEADLINE: Duration = Duration::from_secs(10);

/// The registration task: what it knows, and what it does about it.
pub struct Registrar {
    client: Client,
    guard: Arc<Guard>,
    leaf: Leaf,
    registration: Registration,
    known: KnownState,
    /// The pace at which each configuration is written.
    paces: [Pace; 2],
    /// The start of the clock that the paces use.
    begun: Instant,
}

impl Registrar {
    /// Creates the task. Nothing has been read yet.
    pub fn new(client: Client, guard: Arc<Guard>, leaf: Leaf, registration: Registration) -> Self {
        Self {
            client,
            guard,
            leaf,
            registration,
            known: KnownState::default(),
            paces: Default::default(),
            begun: Instant::now(),
        }
    }

    /// Keeps the certificate in use and the entries up to date until the process ends.
    pub async fn run(mut self, mut leading: Leading, mut changed: channel::Receiver<u64>) {
        let Registration { namespace, secret, configuration, .. } = self.registration.clone();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut secrets = pin!(watch::object(secrets, &secret));
        let mutating = watch::object(mutating, &configuration).map(|it| (0, it.map(Configuration::from)));
        let validating = watch::object(validating, &configuration).map(|it| (1, it.map(Configuration::from)));
        let mut entries = pin!(stream::select(mutating, validating));
        let maintains_secret = self.registration.folder.is_none();
        // Certificates that live for seconds (in tests) have to be checked more often.
        let check_interval = CHECK_INTERVAL.min((self.registration.lifetimes.leaf / 20).unsigned_abs());
        loop {
            let is_loading = self.guard.freshness(&self.guard.world.load()) == Freshness::Loading;
            tokio::select! {
                Some(found) = secrets.next(), if maintains_secret => self.known.secret = found,
                Some((index, found)) = entries.next() => self.known.entries[index] = found,
                true = leading.changed() => {}
                Ok(()) = changed.changed(), if is_loading => {}
                () = tokio::time::sleep(check_interval) => {}
            }
            self.run_steps(leading.holds()).await;
        }
    }

    /// Runs every step once. A step that fails has its own line in `/readyz` and does not block the others.
    async fn run_steps(&mut self, leads: bool) {
        let certificate = timeout(STEP_DEADLINE, self.certificate(leads)).await.unwrap_or(Err(Error::Late));
        self.report_certificate(certificate);
        self.report_trust();
        let can_answer = self.known.shown.is_some()
            && self.guard.freshness(&self.guard.world.load()) != Freshness::Loading;
        let entries = timeout(STEP_DEADLINE, self.update_entries(leads && can_answer))
            .await
            .unwrap_or(Err(Error::Late));
        self.report_entries(entries);
        self.report_deletions(leads);
    }
}

/// Logs that an object of the guard cannot be watched. The watch continues by itself.
fn log_watch_error(error: &(dyn std::error::Error + 'static), kind: &str) {
    let error = chain(error);
    if let Some(times) = repeated::times("own object", &error) {
        warn!(kind, error, times, "the guard's own object cannot be watched; trying again");
    }
}

/// Logs an error, and returns its text for `/readyz`.
fn logged(error: &Error) -> String {
    let text = chain(error);
    if let Some(times) = repeated::times("registration", &text) {
        warn!(error = text, times, "the registration failed; trying again");
    }
    text
}
