//! The entries of both webhook configurations: what is there, what should be, and which CA API servers know by now.
//!
//! Must not know: how certificates are made. The leader writes the whole list at once, by a merge patch: server-side apply
//! leaves what another manager added to an entry of ours, and a foreign condition can switch an entry off. A patch of this
//! kind never creates anything, so a configuration that was deleted stays deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use decide::webhooks::{self, Destination, Endpoint};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Error as KubeError, ResourceExt as _};
use serde_json::{Value, json};
use tracing::info;

use crate::act::events;
use crate::act::guard::FIELD_MANAGER;
use crate::act::telemetry::Trouble;

use super::compare::{as_values, decoded, encoded, foreign, same};
use super::{Error, Registrar, Seen, words};

/// What `/readyz` says when all is well.
const REGISTERED: &str = "registered";
/// What it says before anything is.
const NOT_YET: &str = "not registered yet";
/// So long after the entries have changed, every API server has noticed.
const SETTLE: Duration = Duration::from_secs(30);

const CONFIGURATIONS: [(Endpoint, &str, &str); 2] = [
    (Endpoint::Mutate, "MutatingWebhookConfiguration", "pods get nothing injected"),
    (Endpoint::Validate, "ValidatingWebhookConfiguration", "deletions, scaling and evictions are not judged"),
];

/// A configuration as far as it concerns us.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    version: String,
    entries: Vec<Value>,
}

impl From<MutatingWebhookConfiguration> for Configuration {
    fn from(it: MutatingWebhookConfiguration) -> Self {
        Self { version: it.resource_version().unwrap_or_default(), entries: as_values(it.webhooks.as_ref()) }
    }
}

impl From<ValidatingWebhookConfiguration> for Configuration {
    fn from(it: ValidatingWebhookConfiguration) -> Self {
        Self { version: it.resource_version().unwrap_or_default(), entries: as_values(it.webhooks.as_ref()) }
    }
}

/// What became of a write.
enum Filled {
    Written(Configuration),
    /// No endpoint of our Service is ready: an entry would hold up everybody.
    Waits,
    /// Somebody was faster; the watch brings what is there now.
    Overtaken,
}

/// Which bundle is registered, and for how long we have seen it there.
#[derive(Debug, Default)]
pub(super) struct Settling {
    since: Option<(String, Instant)>,
    done: Option<String>,
}

impl Registrar {
    /// Both configurations hold exactly the entries of the table, or it is said what they hold. Only the leader writes.
    pub(super) async fn register(&mut self, writes: bool) -> Result<String, Error> {
        let Some(bundle) = self.bundle.clone() else { return Ok(self.summary(None)) };
        let (mut strange, mut waits, mut failed) = (None, false, Ok(()));
        for (index, (endpoint, kind, _)) in CONFIGURATIONS.into_iter().enumerate() {
            let Some(found) = self.entries[index].there().cloned() else { continue };
            let settings = self.guard.settings.load();
            let wanted = webhooks::entries(endpoint, &settings, &self.registration.target, &encoded(&bundle));
            let mut difference = foreign(&found.entries, &wanted).filter(|_| !found.entries.is_empty());
            if writes && !same(&found.entries, &wanted) {
                match self.fill(kind, &found, &wanted).await {
                    Ok(Filled::Written(written)) => {
                        // Some clusters amend what is written; then it is said what is in the way.
                        difference = foreign(&written.entries, &wanted);
                        self.entries[index] = Seen::There(written);
                    }
                    Ok(Filled::Overtaken) => {}
                    Ok(Filled::Waits) => waits = true,
                    Err(error) => failed = Err(error),
                }
            }
            strange = strange.or(difference);
        }
        self.guard.metrics.trouble(Trouble::ForeignEntries, strange.is_some());
        failed?;
        if waits {
            return Ok("waiting for a ready endpoint of our Service".to_owned());
        }
        Ok(self.summary(strange))
    }

    /// What there is, in words.
    fn summary(&self, strange: Option<String>) -> String {
        let name = &self.registration.configuration;
        let gone = self.gone();
        if gone.len() == CONFIGURATIONS.len() {
            let kinds = gone.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(" and ");
            return format!(
                "{kinds} {name} are not there: nothing is guarded; `helm upgrade` brings them back"
            );
        }
        if let Some((kind, lost)) = gone.first() {
            return format!("{kind} {name} is not there: {lost}; `helm upgrade` brings it back");
        }
        if let Some(strange) = strange {
            return format!("{strange}; the leading replica writes it again");
        }
        let filled = |it: &Seen<Configuration>| it.there().is_some_and(|it| !it.entries.is_empty());
        if self.entries.iter().all(filled) { REGISTERED } else { NOT_YET }.to_owned()
    }

    /// The configurations that do not exist, with what is lost without each.
    fn gone(&self) -> Vec<(&'static str, &'static str)> {
        let both = self.entries.iter().zip(CONFIGURATIONS);
        both.filter(|(it, _)| it.is_gone()).map(|(_, (_, kind, lost))| (kind, lost)).collect()
    }

    /// Writes all entries of a configuration, if it is still the one that we have seen.
    async fn fill(&self, kind: &str, found: &Configuration, entries: &[Value]) -> Result<Filled, Error> {
        if found.entries.is_empty() && !self.has_endpoint().await? {
            return Ok(Filled::Waits);
        }
        let name = &self.registration.configuration;
        let body = json!({ "metadata": { "resourceVersion": found.version }, "webhooks": entries });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let (patch, client) = (Patch::Merge(&body), self.client.clone());
        let written = if kind == CONFIGURATIONS[0].1 {
            let api: Api<MutatingWebhookConfiguration> = Api::all(client);
            api.patch(name, &params, &patch).await.map(Configuration::from)
        } else {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
            api.patch(name, &params, &patch).await.map(Configuration::from)
        };
        match written {
            Ok(written) => {
                info!(kind, entries = entries.len(), "webhook entries");
                self.guard.metrics.entries_written.inc();
                Ok(Filled::Written(written))
            }
            Err(KubeError::Api(status)) if matches!(status.code, 404 | 409) => Ok(Filled::Overtaken),
            Err(error) => Err(Error::WriteEntries(format!("{kind} {name}"), error)),
        }
    }

    /// API servers can reach us: asked once, before the first entry exists.
    async fn has_endpoint(&self) -> Result<bool, Error> {
        let Destination::Service { namespace, name } = &self.registration.target else { return Ok(true) };
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

    /// The bundle that every registered entry trusts; `None` while there are no entries.
    pub(super) fn registered(&self) -> Option<String> {
        let entries = self.entries.iter().filter_map(|it| it.there()).flat_map(|it| &it.entries);
        let bundles = entries.filter_map(|entry| entry.pointer("/clientConfig/caBundle")?.as_str());
        let oldest = bundles
            .min_by_key(|bundle| self.bundle.as_deref().is_some_and(|wanted| decoded(bundle) == wanted))?;
        Some(decoded(oldest))
    }

    /// The registered bundle that every API server has had the time to notice: they read the entries by a watch of
    /// their own, and a leaf they cannot trust yet would fail every new connection.
    pub(super) fn settled(&mut self) -> Option<String> {
        let registered = self.registered()?;
        let since = match &self.settling.since {
            Some((bundle, since)) if *bundle == registered => *since,
            _ => self.settling.since.insert((registered.clone(), Instant::now())).1,
        };
        if since.elapsed() >= SETTLE.min((self.registration.lives.leaf / 20).unsigned_abs()) {
            self.settling.done = Some(registered);
        }
        Some(self.settling.done.clone().unwrap_or_default())
    }

    /// In `/readyz`, until it is over.
    pub(super) fn tell_entries(&self, outcome: Result<String, Error>) {
        let words = outcome.unwrap_or_else(|error| format!("{}; trying again", words(&error)));
        self.guard.ready.registration.store(Some(Arc::new(words)));
    }

    /// Leader: the end of a configuration is told to everybody, once. It is a way out that somebody chose, or an accident.
    pub(super) fn tell_deletions(&mut self, leads: bool) {
        let gone: Vec<_> = self.gone().into_iter().map(|(kind, _)| kind).collect();
        self.guard.metrics.trouble(Trouble::ConfigurationDeleted, gone.len() == 1);
        self.guard.metrics.trouble(Trouble::BothConfigurationsDeleted, gone.len() == 2);
        if leads && !gone.iter().all(|kind| self.told_gone.contains(kind)) {
            let notice =
                events::configurations_deleted(&self.registration.namespace, &gone, self.summary(None));
            self.guard.publish(notice);
        }
        if leads || gone.len() < self.told_gone.len() {
            self.told_gone = gone;
        }
    }
}
