//! The form of a settings file, as it is read and as its schema describes it. Must not know: what its values mean.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the schema of a settings file.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(SettingsFile)
}

/// The settings of Gatera: what it adopts, and how strictly it judges.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(title = "Settings")]
#[serde(default, deny_unknown_fields)]
pub(super) struct SettingsFile {
    /// Label selectors of pods that are Galera's, besides the usual ones: `key`, `key=value` or `key in (a, b)`.
    pub(super) adopt: Vec<String>,
    /// Whether the usual selectors count, too; true if it is left out.
    #[serde(rename = "adoptDefaults")]
    pub(super) adopt_defaults: Option<bool>,
    /// The mode of every rule that `modes` does not name.
    #[schemars(with = "Option<ModeName>")]
    pub(super) mode: Option<String>,
    /// The modes of single rules, by id.
    #[schemars(with = "BTreeMap<String, ModeName>")]
    pub(super) modes: BTreeMap<String, String>,
    /// NAMESPACE/NAME of the ConfigMap with the rules' pages.
    pub(super) pages: Option<String>,
    /// Packs that are on or off, by name.
    pub(super) packs: BTreeMap<String, bool>,
    pub(super) rds: RdsChoices,
    pub(super) mariadb: MariadbChoices,
    pub(super) injection: Injection,
    pub(super) webhooks: Webhooks,
    /// Paths that `gatera check` leaves out, as in a .gitignore.
    pub(super) exclude: Vec<String>,
}

/// How strictly a rule judges.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum ModeName {
    Enforce,
    Warn,
    Audit,
    Off,
}

/// The pack rds.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RdsChoices {
    /// Its operators: system:serviceaccount:NAMESPACE:NAME.
    pub(super) operators: Vec<String>,
    /// A single operator: the form of earlier versions.
    pub(super) operator: Option<String>,
}

/// Clusters that mariadb-operator drives.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MariadbChoices {
    /// Its accounts: system:serviceaccount:NAMESPACE:NAME.
    pub(super) operators: Vec<String>,
}

/// What happens to pods that no guard can inject.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Injection {
    pub(super) failure_policy: FailurePolicy,
}

/// Ignore creates such pods without injection; Fail refuses them.
#[derive(Default, Deserialize, JsonSchema, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    #[default]
    Ignore,
    Fail,
}

/// The guard's webhook entries.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Webhooks {
    /// The timeout of webhooks that refuse if the guard does not answer: 1 to 30.
    pub(super) timeout_seconds: Option<i64>,
}
