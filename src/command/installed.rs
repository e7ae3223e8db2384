//! What a person can see of the guard that is installed in a cluster: its webhook entries, and through them its namespace and
//! settings. What cannot be read is kept as an error. Only this file decides which settings a command judges by.
//!
//! Must not know: whether any of it is as it should be.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::rulebook;
use anyhow::Context as _;
use engine::webhooks::compare::as_values;
use facts::settings::Settings;
use inspect::doctor::AnswerOrReason;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;

use crate::act::telemetry::chain;

/// The name of both webhook configurations, and the first part of every name in the chart.
pub const NAME: &str = "gatera";
/// The name of the ConfigMap with the guard's settings, and the key of the settings in it.
const SETTINGS: (&str, &str) = ("gatera-settings", "settings.yaml");

/// The guard as it can be seen from outside.
#[derive(Debug)]
pub struct InstalledGuard {
    /// The validating and the mutating webhook entries; `None`: the configuration does not exist.
    pub entries: [AnswerOrReason<Option<Vec<Value>>>; 2],
    /// The namespace in which it runs; `None`: no webhook entry names one.
    pub namespace: Option<String>,
    /// The guard's settings; `None`: the chart's ConfigMap does not exist.
    pub settings: anyhow::Result<Option<Settings>>,
}

/// The origin of the settings by which a command judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsSource {
    /// The file that `--config` names.
    File(PathBuf),
    /// The guard in this namespace.
    Guard(String),
    /// The defaults, and why the guard's settings are not known.
    Defaults(String),
}

impl fmt::Display for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "those of {}, as --config says", path.display()),
            Self::Guard(namespace) => write!(f, "those of the guard (ConfigMap {namespace}/{})", SETTINGS.0),
            Self::Defaults(why) => write!(f, "the defaults, because {why}; --config FILE names others"),
        }
    }
}

/// Reads the guard's webhook entries and its settings.
pub async fn find(client: &Client) -> InstalledGuard {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let (validating, mutating) = (validating.get_opt(NAME).await, mutating.get_opt(NAME).await);
    let found = [
        validating.map(|it| it.map(|it| as_values(it.webhooks.as_ref()))),
        mutating.map(|it| it.map(|it| as_values(it.webhooks.as_ref()))),
    ];
    let entries = found.map(|it| it.map_err(|error| chain(&error)));
    let namespace = entries.iter().flatten().flatten().flatten().find_map(|entry| {
        entry.pointer("/clientConfig/service/namespace").and_then(Value::as_str).map(str::to_owned)
    });
    let settings = installed_settings(client, namespace_or_default(namespace.as_deref())).await;
    InstalledGuard { entries, namespace, settings }
}

/// Returns this namespace, or the chart's usual one: the URL of a guard outside the cluster names no namespace.
fn namespace_or_default(namespace: Option<&str>) -> &str {
    namespace.unwrap_or(NAME)
}

impl InstalledGuard {
    /// Returns whether at least one webhook configuration exists, or could not be read.
    pub fn is_there(&self) -> bool {
        !self.entries.iter().all(|it| matches!(it, Ok(None)))
    }

    /// Returns the settings by which a command judges, and their origin: this file, if given, or the guard, or the defaults.
    pub fn settings_or(&self, file: Option<(&Path, Settings)>) -> (Settings, SettingsSource) {
        let namespace = namespace_or_default(self.namespace.as_deref());
        let defaults = |why: String| (Settings::default(), SettingsSource::Defaults(why));
        match (file, &self.settings) {
            (Some((path, settings)), _) => (settings, SettingsSource::File(path.to_owned())),
            (None, Ok(Some(settings))) => (settings.clone(), SettingsSource::Guard(namespace.to_owned())),
            (None, Ok(None)) if !self.is_there() => defaults("no guard is installed".to_owned()),
            (None, Ok(None)) => defaults(format!("namespace {namespace} has no ConfigMap {}", SETTINGS.0)),
            (None, Err(problem)) => {
                defaults(format!("those of the guard cannot be read: {}", chain(problem.as_ref())))
            }
        }
    }
}

async fn installed_settings(client: &Client, namespace: &str) -> anyhow::Result<Option<Settings>> {
    let (name, key) = SETTINGS;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let Some(text) = api.get_opt(name).await?.and_then(|it| it.data?.remove(key)) else { return Ok(None) };
    let settings = rulebook().settings(&text).with_context(|| format!("ConfigMap {namespace}/{name}"))?;
    Ok(Some(settings))
}
