//! Registration: the serving certificate, and the webhook entries that send requests here.
//!
//! Owns: the one task that watches the Secret and the two webhook configurations. Every replica takes its leaf from
//! there and knows whether API servers trust it; the leader also writes. Must not know: rules, requests. The
//! configurations exist before us and are empty; entries are filled in when this guard can answer, and are never
//! removed because it feels unwell.

mod entries;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::certs::{self, Leaf, Lives, Material, Pair};
use crate::guard::{FIELD_MANAGER, Guard};
use crate::lease::Leading;
use crate::telemetry::chain;
use crate::view::Freshness;
use crate::webhooks::{self, Endpoint, Target};

use entries::{as_values, covers, decoded, encoded};

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The guard's own namespace.
    pub namespace: String,
    /// The Secret with the certificates.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    /// Where API servers find us.
    pub target: Target,
    /// The names that the leaf is for.
    pub names: Vec<String>,
    /// How long our certificates live.
    pub lives: Lives,
    /// Certificates that somebody else keeps: a folder with `tls.crt`, `tls.key` and `ca.crt`.
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
    #[error("reading {0}")]
    Read(PathBuf, #[source] std::io::Error),
}

/// How often files are looked at, and a failed step is tried again. Certificates last for months.
const LOOK: Duration = Duration::from_secs(5);
/// What `/readyz` says when all is well.
const REGISTERED: &str = "registered";
/// So long after the entries have changed, every API server has noticed.
const SETTLE: SignedDuration = SignedDuration::from_secs(30);

/// Runs until the process ends.
pub async fn run(
    client: Client,
    guard: Arc<Guard>,
    leaf: Leaf,
    place: Place,
    leading: Leading,
    changed: watch::Receiver<u64>,
) {
    let mut desk = Desk {
        client,
        guard,
        leaf,
        place,
        shown: None,
        secret: None,
        bundle: None,
        entries: [None, None],
        settled: None,
        settling: None,
    };
    desk.work(leading, changed).await;
}

/// What is known, and what is done about it.
struct Desk {
    client: Client,
    guard: Arc<Guard>,
    leaf: Leaf,
    place: Place,
    /// The pair that new handshakes get.
    shown: Option<Pair>,
    /// Outer `None`: the watch has not said yet whether there is one.
    #[allow(
        clippy::option_option,
        reason = "not known yet, known to be missing, and there are three things"
    )]
    secret: Option<Option<Secret>>,
    /// What API servers should trust.
    bundle: Option<String>,
    /// The registered entries: mutating, validating. `None`: the configuration does not exist.
    entries: [Option<Vec<Value>>; 2],
    /// The bundle that is registered now, and since when we know.
    settling: Option<(String, Timestamp)>,
    /// The bundle that every API server is sure to know.
    settled: Option<String>,
}

const CONFIGURATIONS: [(Endpoint, &str); 2] = [
    (Endpoint::Mutate, "MutatingWebhookConfiguration"),
    (Endpoint::Validate, "ValidatingWebhookConfiguration"),
];

impl Desk {
    async fn work(&mut self, mut leading: Leading, mut changed: watch::Receiver<u64>) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.place.namespace);
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut secrets = pin!(watch_object(secrets, &self.place.secret).default_backoff());
        let mut mutating = pin!(watch_object(mutating, &self.place.configuration).default_backoff());
        let mut validating = pin!(watch_object(validating, &self.place.configuration).default_backoff());
        let own = self.place.folder.is_none();
        // Certificates that live for seconds (in tests) want looking after more often.
        let look = LOOK.min((self.place.lives.leaf / 20).unsigned_abs());
        loop {
            let waiting = self.guard.freshness(&self.guard.world.load()) == Freshness::Loading;
            tokio::select! {
                Some(secret) = secrets.next(), if own => match secret {
                    Ok(secret) => self.secret = Some(secret),
                    Err(error) => warn!(%error, "watching our Secret"),
                },
                Some(found) = mutating.next() => match found {
                    Ok(found) => self.entries[0] = found.map(|it| as_values(it.webhooks.as_ref())),
                    Err(error) => warn!(%error, "watching the mutating configuration"),
                },
                Some(found) = validating.next() => match found {
                    Ok(found) => self.entries[1] = found.map(|it| as_values(it.webhooks.as_ref())),
                    Err(error) => warn!(%error, "watching the validating configuration"),
                },
                true = leading.changed() => {}
                Ok(()) = changed.changed(), if waiting => {}
                () = tokio::time::sleep(look) => {}
            }
            let leads = leading.holds();
            if let Err(error) = self.act(leads).await {
                let words = chain(&error);
                warn!(error = words, "registration");
                self.tell(format!("{words}; trying again"));
            }
        }
    }

    async fn act(&mut self, leads: bool) -> Result<(), Error> {
        if let Some(folder) = self.place.folder.clone() {
            self.show_files(&folder)?;
        } else {
            let material = self.secret.iter().flatten().find_map(Material::read);
            if leads && self.secret.is_some() {
                self.make(material.as_ref()).await?;
            }
            if let Some(material) = material {
                self.bundle = Some(material.bundle());
                self.show(material.leaf)?;
            }
        }
        self.judge_trust();
        let can_answer = self.shown.is_some() && self.guard.freshness(&self.guard.world.load()) != Freshness::Loading;
        if leads && can_answer {
            self.register().await?;
        } else {
            self.tell_what_is_there();
        }
        Ok(())
    }

    /// New handshakes get this pair from now on, if it is another one.
    fn show(&mut self, pair: Pair) -> Result<(), Error> {
        if self.shown.as_ref() != Some(&pair) {
            let ends = pair.ends()?;
            self.leaf.swap(pair.loaded()?);
            self.guard.ready.leaf_ends.store(Some(Arc::new(ends)));
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit a double for a while")]
            self.guard.metrics.certificate_ends.set(ends.as_second() as f64);
            info!(%ends, "serving certificate");
            self.shown = Some(pair);
        }
        Ok(())
    }

    /// A half-written set of files is an error that passes; what was shown before stays.
    fn show_files(&mut self, folder: &std::path::Path) -> Result<(), Error> {
        let read = |name: &str| {
            std::fs::read_to_string(folder.join(name)).map_err(|error| Error::Read(folder.join(name), error))
        };
        let pair = Pair::new(read("tls.crt")?, read("tls.key")?);
        self.show(pair)?;
        self.bundle = Some(read("ca.crt")?);
        Ok(())
    }

    /// Leader: the Secret holds what it should.
    async fn make(&mut self, material: Option<&Material>) -> Result<(), Error> {
        let now = Timestamp::now();
        let settled = self.settled(now);
        let Place { names, lives, .. } = &self.place;
        let next = match material {
            None => Some(Material::new(names, *lives, now)?),
            Some(material) => material.next(names, *lives, settled.as_deref(), now)?,
        };
        let Some(next) = next else { return Ok(()) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.place.namespace);
        let written = match self.secret.clone().flatten() {
            Some(secret) => {
                let secret = Secret { data: Some(next.data()), ..secret };
                api.replace(&self.place.secret, &PostParams::default(), &secret).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.place.secret.clone()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(next.data()), ..Secret::default() };
                api.create(&PostParams::default(), &secret).await
            }
        };
        match written {
            Ok(secret) => {
                info!("new certificates");
                self.secret = Some(Some(secret));
            }
            // Somebody wrote it meanwhile; the watch brings what.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::WriteSecret(self.place.secret.clone(), error)),
        }
        Ok(())
    }

    /// The bundle that every registered entry trusts; `None` while there are no entries.
    fn registered(&self) -> Option<String> {
        let bundles = self
            .entries
            .iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.pointer("/clientConfig/caBundle")?.as_str());
        let oldest = bundles
            .min_by_key(|bundle| self.bundle.as_deref().is_some_and(|wanted| decoded(bundle) == wanted))?;
        Some(decoded(oldest))
    }

    /// The registered bundle that every API server has had the time to notice: they read the entries by a watch of
    /// their own, and a leaf they cannot trust yet would fail every new connection.
    fn settled(&mut self, now: Timestamp) -> Option<String> {
        let registered = self.registered()?;
        let since = match &self.settling {
            Some((bundle, since)) if *bundle == registered => *since,
            _ => self.settling.insert((registered.clone(), now)).1,
        };
        if since.duration_until(now) >= SETTLE.min(self.place.lives.leaf / 20) {
            self.settled = Some(registered);
        }
        Some(self.settled.clone().unwrap_or_default())
    }

    /// Leader: both configurations hold exactly the entries of the table.
    async fn register(&mut self) -> Result<(), Error> {
        let Some(bundle) = self.bundle.clone() else { return Ok(()) };
        let mut missing = Vec::new();
        for (index, (endpoint, kind)) in CONFIGURATIONS.into_iter().enumerate() {
            let settings = self.guard.settings.load();
            let wanted = webhooks::entries(endpoint, &settings, &self.place.target, &encoded(&bundle));
            match &self.entries[index] {
                None => missing.push(kind),
                Some(found) if covers(found, &wanted) => {}
                Some(found) => {
                    if found.is_empty() && !self.has_endpoint().await? {
                        self.tell("waiting for a ready endpoint of our Service");
                        return Ok(());
                    }
                    self.write(kind, &wanted).await?;
                    self.entries[index] = Some(wanted);
                }
            }
        }
        if missing.is_empty() {
            self.tell(REGISTERED);
        } else {
            let text = format!(
                "{} {} not there: nothing is guarded; create it empty",
                missing.join(" and "),
                self.place.configuration
            );
            self.tell(text);
        }
        Ok(())
    }

    async fn write(&self, kind: &str, entries: &[Value]) -> Result<(), Error> {
        let name = &self.place.configuration;
        let body = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "webhooks": entries });
        // The entries are ours alone, so ownership of them is taken by force.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = if kind == CONFIGURATIONS[0].1 {
            Api::<MutatingWebhookConfiguration>::all(self.client.clone())
                .patch(name, &params, &Patch::Apply(&body))
                .await
                .map(drop)
        } else {
            Api::<ValidatingWebhookConfiguration>::all(self.client.clone())
                .patch(name, &params, &Patch::Apply(&body))
                .await
                .map(drop)
        };
        written.map_err(|error| Error::WriteEntries(format!("{kind} {name}"), error))?;
        info!(kind, entries = entries.len(), "webhook entries");
        Ok(())
    }

    /// API servers can reach us: asked once, before the first entry exists.
    async fn has_endpoint(&self) -> Result<bool, Error> {
        let Target::Service { namespace, name } = &self.place.target else { return Ok(true) };
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let slices = api.list(&params).await.map_err(Error::Endpoints)?;
        let ready = |slice: &EndpointSlice| {
            slice
                .endpoints
                .iter()
                .any(|it| it.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true))
        };
        Ok(slices.items.iter().any(ready))
    }

    /// Every replica: would an API server accept our leaf?
    fn judge_trust(&self) {
        let untrusted = match (&self.shown, self.registered()) {
            (Some(shown), Some(bundle)) => !shown.trusted_by(&bundle),
            _ => false,
        };
        self.guard.ready.untrusted.store(untrusted, Ordering::Relaxed);
    }

    /// Whoever does not register says what others did.
    fn tell_what_is_there(&self) {
        if self.entries.iter().flatten().any(Vec::is_empty) {
            self.tell("not registered yet");
        } else if self.entries.iter().all(Option::is_some) {
            self.tell(REGISTERED);
        }
    }

    fn tell(&self, words: impl Into<String>) {
        self.guard.ready.registration.store(Some(Arc::new(words.into())));
    }
}
