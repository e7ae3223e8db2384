//! What a person can see of the guard that is installed in a cluster: its webhook entries, and through them its namespace and its
//! settings. What may not be seen is said as such.
//!
//! Must not know: whether any of it is as it should be.

use decide::config::Settings;
use decide::rules::RULES;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;

use crate::act::telemetry::chain;

/// What was asked for, or in words why that is not known.
pub type Answer<T> = Result<T, String>;

/// The name of both configurations, and the beginning of all that the chart makes.
pub const NAME: &str = "gatera";
/// The ConfigMap with its settings, and their key.
const SETTINGS: (&str, &str) = ("gatera-settings", "settings.yaml");

/// The guard, from outside.
#[derive(Debug)]
pub struct Installed {
    /// The entries that validate, and those that mutate; `None`: there is no such configuration.
    pub entries: [Answer<Option<Vec<Value>>>; 2],
    /// Where it runs; `None`: that cannot be told from its entries.
    pub namespace: Option<String>,
    /// By what it judges; `None`: the chart's ConfigMap is not there.
    pub settings: Answer<Option<Settings>>,
}

/// Looks.
pub async fn look(client: &Client) -> Installed {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let entries = [
        validating.get_opt(NAME).await.map(|it| it.map(|it| values(it.webhooks))).map_err(|it| chain(&it)),
        mutating.get_opt(NAME).await.map(|it| it.map(|it| values(it.webhooks))).map_err(|it| chain(&it)),
    ];
    let namespace = entries.iter().flatten().flatten().flatten().find_map(|entry| {
        entry.pointer("/clientConfig/service/namespace").and_then(Value::as_str).map(str::to_owned)
    });
    // A guard outside the cluster registers by a URL; its chart is where charts usually are.
    let settings = settings(client, namespace.as_deref().unwrap_or(NAME)).await;
    Installed { entries, namespace, settings }
}

impl Installed {
    /// There is something of it.
    pub fn is_there(&self) -> bool {
        !self.entries.iter().all(|it| matches!(it, Ok(None)))
    }

    /// By what it judges, as far as that is known; else `otherwise`.
    pub fn settings_or(&self, otherwise: &Settings) -> Settings {
        self.settings.as_ref().ok().cloned().flatten().unwrap_or_else(|| otherwise.clone())
    }
}

async fn settings(client: &Client, namespace: &str) -> Answer<Option<Settings>> {
    let (name, key) = SETTINGS;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|error| chain(&error))?;
    let Some(text) = found.and_then(|it| it.data?.remove(key)) else { return Ok(None) };
    let rules: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
    Settings::read(&text, &rules)
        .map(Some)
        .map_err(|error| format!("ConfigMap {namespace}/{name}: {}", chain(&error)))
}

fn values<T: Serialize>(entries: Option<Vec<T>>) -> Vec<Value> {
    entries.into_iter().flatten().filter_map(|it| serde_json::to_value(it).ok()).collect()
}
