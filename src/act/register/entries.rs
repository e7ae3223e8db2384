//! The entries of both webhook configurations: compares them with what they should be; the leader corrects them.
//!
//! Must not know: how certificates are made. The leader writes the whole list at once, by a merge patch: server-side apply keeps
//! what another manager added to an entry of the guard, and a foreign condition can switch an entry off. A merge patch never
//! creates an object, so a configuration that was deleted stays deleted.

use std::sync::Arc;
use std::time::Duration;

use engine::webhooks::compare::{encoded, first_difference, same};
use engine::webhooks::{self, Destination};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::Api;
use kube::api::{ListParams, Patch};
use serde_json::{Value, json};
use tracing::info;

use crate::act::api::{Fault, written_by};
use crate::act::events;
use crate::act::guard::FIELD_MANAGER;
use crate::act::telemetry::Trouble;

use super::known::{CONFIGURATIONS, Configuration};
use super::watch::Watched;
use super::{Error, Registrar, logged};

/// The outcome of a write.
enum EntriesWrite {
    Written(Configuration),
    /// The guard's Service has no ready endpoint, so an entry would block all requests.
    NoEndpoint,
    /// Another writer was faster; the watch delivers the current state.
    Overtaken,
}

impl Registrar {
    /// Compares both configurations with the table of entries and returns their state for `/readyz`. Only the leader `writes`: it
    /// also corrects differences.
    pub(super) async fn update_entries(&mut self, writes: bool) -> Result<String, Error> {
        let name = self.registration.configuration.clone();
        let Some(bundle) = self.known.bundle.clone() else { return Ok(self.known.summary(&name, None)) };
        let (mut foreign_change, mut no_endpoint, mut failed, mut contested) = (None, false, Ok(()), None);
        for (index, (endpoint, kind, _)) in CONFIGURATIONS.into_iter().enumerate() {
            let Some(found) = self.known.entries[index].there().cloned() else { continue };
            let (settings, world) = (self.guard.settings.load(), self.guard.world.load());
            let (served, target) = (world.facts().kept.served(), &self.registration.target);
            let wanted = crate::rulebook().entries(endpoint, &settings, served, target, &encoded(&bundle));
            let mut difference =
                first_difference(&found.entries, &wanted).filter(|_| !found.entries.is_empty());
            let now = self.begun.elapsed();
            let empty = found.entries.is_empty();
            // A replica that no longer leads does not compete with the other writer.
            if !writes || same(&found.entries, &wanted) {
                self.paces[index].reset_if_quiet(now);
            } else if self.paces[index].remaining_pause(now, empty).is_zero() {
                match self.write_entries(endpoint, &found, &wanted).await {
                    Ok(EntriesWrite::Written(written)) => {
                        // Some clusters change what is written; the difference is then reported.
                        difference = first_difference(&written.entries, &wanted);
                        self.paces[index].record_write(self.begun.elapsed());
                        self.known.entries[index] = Watched::There(written);
                    }
                    Ok(EntriesWrite::Overtaken) => {}
                    Ok(EntriesWrite::NoEndpoint) => no_endpoint = true,
                    Err(error) => failed = Err(error),
                }
            }
            let pace = &mut self.paces[index];
            if pace.is_contested() {
                let text = contest_message(kind, &name, pace.remaining_pause(self.begun.elapsed(), empty));
                if pace.take_announcement() {
                    self.guard.publish(events::entries_contested(&self.registration.namespace, text.clone()));
                }
                contested = contested.or(Some(text));
            }
            foreign_change = foreign_change.or(difference);
        }
        self.guard.metrics.set_trouble(Trouble::CONTESTED_ENTRIES, contested.is_some());
        self.guard.metrics.set_trouble(Trouble::FOREIGN_ENTRIES, foreign_change.is_some());
        failed?;
        if no_endpoint {
            return Ok("waiting for a ready endpoint of the guard's Service".to_owned());
        }
        let summary = self.known.summary(&name, foreign_change);
        Ok(match contested {
            Some(message) => format!("{summary}; {message}"),
            None => summary,
        })
    }

    /// Writes all entries of a configuration, unless it has changed since it was read.
    async fn write_entries(
        &self,
        endpoint: webhooks::Endpoint,
        found: &Configuration,
        entries: &[Value],
    ) -> Result<EntriesWrite, Error> {
        if found.entries.is_empty() && !self.has_endpoint().await? {
            return Ok(EntriesWrite::NoEndpoint);
        }
        let name = &self.registration.configuration;
        let body = json!({ "metadata": { "resourceVersion": found.version }, "webhooks": entries });
        let params = written_by(FIELD_MANAGER);
        let (patch, client) = (Patch::Merge(&body), self.client.clone());
        let (kind, written) = match endpoint {
            webhooks::Endpoint::Mutate => {
                let api: Api<MutatingWebhookConfiguration> = Api::all(client);
                let written = api.patch(name, &params, &patch).await.map(Configuration::from);
                ("MutatingWebhookConfiguration", written)
            }
            webhooks::Endpoint::Validate => {
                let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
                let written = api.patch(name, &params, &patch).await.map(Configuration::from);
                ("ValidatingWebhookConfiguration", written)
            }
        };
        match written {
            Ok(written) => {
                info!(kind, entries = entries.len(), "webhook entries were written");
                self.guard.metrics.entries_written.inc();
                Ok(EntriesWrite::Written(written))
            }
            Err(error) if Fault::of(&error).is_overtaken() => Ok(EntriesWrite::Overtaken),
            Err(error) => Err(Error::WriteEntries(format!("{kind} {name}"), error)),
        }
    }

    /// Returns whether the guard's Service has a ready endpoint. This is checked only while there are no entries.
    async fn has_endpoint(&self) -> Result<bool, Error> {
        let Destination::Service { namespace, name } = &self.registration.target else { return Ok(true) };
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let slices = api.list(&params).await.map_err(Error::Endpoints)?;
        let ready = |it: &Endpoint| it.conditions.as_ref().and_then(|conditions| conditions.ready);
        Ok(slices.items.iter().flat_map(|slice| &slice.endpoints).any(|it| ready(it).unwrap_or(true)))
    }

    /// Reports the outcome in `/readyz`, where a failure stays until it is over.
    pub(super) fn report_entries(&self, outcome: Result<String, Error>) {
        let text = outcome.unwrap_or_else(|error| format!("{}; trying again", logged(&error)));
        self.guard.ready.registration.store(Some(Arc::new(text)));
    }

    /// Reports deleted configurations in the metrics and, on the leader, by an Event.
    pub(super) fn report_deletions(&mut self, leads: bool) {
        let gone = self.known.gone().len();
        self.guard.metrics.set_trouble(Trouble::CONFIGURATION_DELETED, gone == 1);
        self.guard.metrics.set_trouble(Trouble::BOTH_CONFIGURATIONS_DELETED, gone == CONFIGURATIONS.len());
        if let Some(kinds) = self.known.unreported_deletions(leads) {
            let text = self.known.summary(&self.registration.configuration, None);
            self.guard.publish(events::configurations_deleted(&self.registration.namespace, &kinds, text));
        }
    }
}

/// Returns the message that is shown while another writer undoes each write.
fn contest_message(kind: &str, name: &str, pause: Duration) -> String {
    format!(
        "another client keeps changing the entries of {kind} {name}; the guard writes them again in {} s; `kubectl get \
         {kind} {name} --show-managed-fields -o yaml` names that client",
        pause.as_secs()
    )
}
