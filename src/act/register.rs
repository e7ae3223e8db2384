//! Registration: the serving certificate, and the webhook entries that send requests here.
//!
//! Owns: the one task that watches the Secret and the two webhook configurations. Every replica takes its leaf from
//! there and knows whether API servers trust it; the leader also writes. `known.rs` decides; `certificate.rs` keeps the Secret
//! and shows the leaf, `entries.rs` keeps the entries: two steps that never wait for each other's success, and have errors of their
//! own. Must not know: rules, requests. The configurations exist before us and are empty; entries are filled in when
//! this guard can answer, and are never removed because it feels unwell. A configuration that was deleted stays deleted.

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
use futures_util::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch as channel;
use tokio::time::timeout;
use tracing::warn;

use crate::act::certs::{self, Leaf, Lives};
use crate::act::guard::Guard;
use crate::act::lease::Leading;
use crate::act::telemetry::{chain, repeated};

use known::Known;
use pace::Pace;

/// What is registered, and where everything is that this takes.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The guard's own namespace.
    pub namespace: String,
    /// The Helm release that our objects belong to; empty: none.
    pub release: String,
    /// The Secret with the certificates.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    /// Where API servers find us.
    pub target: Destination,
    /// The names that the leaf is for.
    pub names: Vec<String>,
    /// How long our certificates live.
    pub lives: Lives,
    /// Certificates that are kept from outside: a folder with `tls.crt`, `tls.key` and `ca.crt`.
    pub folder: Option<PathBuf>,
}

/// What goes wrong here is tried again; nothing of it ends the process.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("writing the Secret {0}")]
    WriteSecret(String, #[source] kube::Error),
    #[error("writing the webhook configuration {0}")]
    WriteEntries(String, #[source] kube::Error),
    #[error("looking for a ready endpoint of our Service")]
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
    #[error("no answer from the API server within {} s", DEADLINE.as_secs())]
    Late,
}

/// How often files are looked at, and a failed step is tried again. Certificates last for months.
const LOOK: Duration = Duration::from_secs(5);
/// So long one step may wait for API servers, or a link that stalled would hold up the other step.
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs until the process ends.
pub async fn run(
    client: Client,
    guard: Arc<Guard>,
    leaf: Leaf,
    registration: Registration,
    leading: Leading,
    changed: channel::Receiver<u64>,
) {
    let mut registrar = Registrar::new(client, guard, leaf, registration);
    registrar.work(leading, changed).await;
}

/// What is known, and what is done about it.
struct Registrar {
    client: Client,
    guard: Arc<Guard>,
    leaf: Leaf,
    registration: Registration,
    known: Known,
    /// How often each configuration is written, by the time since `begun`.
    paces: [Pace; 2],
    begun: Instant,
}

impl Registrar {
    fn new(client: Client, guard: Arc<Guard>, leaf: Leaf, registration: Registration) -> Self {
        Self {
            client,
            guard,
            leaf,
            registration,
            known: Known::default(),
            paces: Default::default(),
            begun: Instant::now(),
        }
    }

    async fn work(&mut self, mut leading: Leading, mut changed: channel::Receiver<u64>) {
        let Registration { namespace, secret, configuration, .. } = self.registration.clone();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut secrets = pin!(watch::object(secrets, &secret));
        let mut mutating = pin!(watch::object(mutating, &configuration));
        let mut validating = pin!(watch::object(validating, &configuration));
        let own = self.registration.folder.is_none();
        // Certificates that live for seconds (in tests) want looking after more often.
        let look = LOOK.min((self.registration.lives.leaf / 20).unsigned_abs());
        loop {
            let waiting = self.guard.freshness(&self.guard.world.load()) == Freshness::Loading;
            tokio::select! {
                Some(found) = secrets.next(), if own => match found {
                    Ok(found) => self.known.secret = found,
                    Err(error) => unwatched(&error, "Secret"),
                },
                Some(found) = mutating.next() => match found {
                    Ok(found) => self.known.entries[0] = found.map(Into::into),
                    Err(error) => unwatched(&error, "MutatingWebhookConfiguration"),
                },
                Some(found) = validating.next() => match found {
                    Ok(found) => self.known.entries[1] = found.map(Into::into),
                    Err(error) => unwatched(&error, "ValidatingWebhookConfiguration"),
                },
                true = leading.changed() => {}
                Ok(()) = changed.changed(), if waiting => {}
                () = tokio::time::sleep(look) => {}
            }
            self.act(leading.holds()).await;
        }
    }

    /// Everything there is to do. What fails has its own line in `/readyz`, and does not block the rest.
    async fn act(&mut self, leads: bool) {
        let certificate = timeout(DEADLINE, self.certificate(leads)).await.unwrap_or(Err(Error::Late));
        self.tell_certificate(certificate);
        self.judge_trust();
        let can_answer = self.known.shown.is_some()
            && self.guard.freshness(&self.guard.world.load()) != Freshness::Loading;
        let entries = timeout(DEADLINE, self.register(leads && can_answer)).await.unwrap_or(Err(Error::Late));
        self.tell_entries(entries);
        self.tell_deletions(leads);
    }
}

/// The watch of an object of ours goes on by itself.
fn unwatched(error: &(dyn std::error::Error + 'static), kind: &str) {
    let error = chain(error);
    if let Some(times) = repeated::times("own object", &error) {
        warn!(kind, error, times, "the guard's own object cannot be watched and is watched again");
    }
}

/// For `/readyz` and the log.
fn words(error: &Error) -> String {
    let words = chain(error);
    if let Some(times) = repeated::times("registration", &words) {
        warn!(error = words, times, "the registration failed and is tried again");
    }
    words
}
