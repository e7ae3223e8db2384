//! The webhook entries: the requests that the API server sends to the guard, in the form of the two webhook configurations.
//!
//! Owns: the translation of the table [`ENTRIES`] (`webhooks/rows.rs`). Must not know: clients. The guard registers the result
//! (`register.rs`).

pub mod compare;
mod conditions;
mod rows;

use serde_json::{Value, json};

use crate::exemptions::{unread, users};
use facts::galera::adopt::Requirement;
use facts::settings::Settings;
use facts::view::{MODE_LABEL, NEVER_GUARDED};
use objects::Kinds;

use conditions::{
    break_glass_changed, marks_changed, no_plain_member, owned_or_marked, selected, to_amend,
    workload_changed,
};

pub use rows::{ENTRIES, Endpoint, Entry, Only, Selects};

/// The value of the mode label in a namespace that the guard ignores.
const OFF: &str = "off";

/// The address at which the API server reaches the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A Service in the same Kubernetes cluster.
    Service {
        /// The Service's namespace, which is never guarded.
        namespace: String,
        name: String,
    },
    /// A URL, for a guard that runs outside the cluster.
    Url {
        /// `https://host:port`
        base: String,
        /// The guard's own namespace, which is never guarded.
        namespace: String,
    },
}

impl Destination {
    fn namespace(&self) -> &str {
        match self {
            Self::Service { namespace, .. } | Self::Url { namespace, .. } => namespace,
        }
    }

    fn client_config(&self, endpoint: Endpoint, ca_bundle: &str) -> Value {
        match self {
            Self::Service { namespace, name } => json!({
                "caBundle": ca_bundle,
                "service": { "namespace": namespace, "name": name, "path": endpoint.path(), "port": 443 },
            }),
            Self::Url { base, .. } => {
                json!({ "caBundle": ca_bundle, "url": format!("{base}{}", endpoint.path()) })
            }
        }
    }
}

/// Returns the entries of one row, in the form of a webhook configuration: one for each selector if it selects by labels.
pub(crate) fn rendered(
    entry: &Entry,
    kinds: &Kinds,
    settings: &Settings,
    target: &Destination,
    ca_bundle: &str,
) -> Vec<Value> {
    let selectors = settings.adoption.selectors();
    let fail_closed = entry.fail_closed || entry.endpoint == Endpoint::Mutate && settings.injection_fails;
    let timeout_seconds = if fail_closed { settings.timeout_seconds.unwrap_or(5) } else { 2 };
    let rule = |(group, resource, verbs): &(&str, &str, &[&str])| {
        // A subresource has the version of its object; API servers convert other versions.
        let kind = kinds.of_plural(group, resource.split('/').next().unwrap_or_default());
        json!({
            "apiGroups": [group],
            "apiVersions": [kind.version()],
            "resources": [resource],
            "operations": verbs,
            "scope": if kind.is_cluster_wide() { "Cluster" } else { "Namespaced" },
        })
    };
    let of_galera = || ("galera", selected(selectors, "spec.template.metadata.labels"));
    let of_galera = (entry.selects == Selects::Template).then(of_galera);
    let row = |name: String, object_selector: Value, earlier: Option<(&'static str, String)>| {
        let conditions = earlier.into_iter().chain(of_galera.clone()).chain(condition(entry.only));
        let conditions: Vec<_> =
            conditions.map(|(name, it)| json!({ "name": name, "expression": it })).collect();
        let mut row = json!({
            "name": format!("{name}.gatera.dev"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": target.client_config(entry.endpoint, ca_bundle),
            "failurePolicy": if fail_closed { "Fail" } else { "Ignore" },
            "matchPolicy": "Equivalent",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": timeout_seconds,
            "rules": entry.requests.iter().map(rule).collect::<Vec<_>>(),
            "namespaceSelector": namespace_selector(entry.selects, target.namespace()),
            "objectSelector": object_selector,
        });
        if entry.endpoint == Endpoint::Mutate {
            row["reinvocationPolicy"] = json!("IfNeeded");
        }
        if !conditions.is_empty() {
            row["matchConditions"] = json!(conditions);
        }
        row
    };
    if !matches!(entry.selects, Selects::Labels | Selects::LabelsElsewhere) {
        return vec![row(entry.name.to_owned(), object_selector(entry.selects), None)];
    }
    let per_selector = selectors.iter().enumerate().map(|(index, selector)| {
        let before = &selectors[..index];
        let earlier = || ("not-in-an-earlier-row", format!("!({})", selected(before, "metadata.labels")));
        let expressions: Vec<_> = selector.requirements().iter().map(expression).collect();
        let selector = json!({ "matchExpressions": expressions });
        row(format!("{}-{index}", entry.name), selector, (index > 0).then(earlier))
    });
    per_selector.collect()
}

/// Returns the name and the CEL expression of the condition for sending a request; `None`: all are sent.
fn condition(only: Only) -> Option<(&'static str, String)> {
    Some(match only {
        Only::NoPlainMembers => ("no-plain-member", no_plain_member()),
        Only::NotExempt => ("not-exempt", format!("!({})", users::pod_delete_condition())),
        Only::Read => ("read-by-a-server", unread::condition()),
        Only::Marks => ("marks", marks_changed()),
        Only::OwnedOrMarked => ("owned-or-marked", owned_or_marked()),
        Only::BreakGlass => ("glass", break_glass_changed(MODE_LABEL, OFF)),
        Only::Changed => ("changed", workload_changed()),
        Only::ToAmend => ("to-amend", to_amend()),
        Only::When(name, condition) => (name, condition.to_owned()),
        Only::All => return None,
    })
}

fn object_selector(selects: Selects) -> Value {
    match selects {
        Selects::ModeLabel => json!({ "matchExpressions": [labelled(), not_off()] }),
        Selects::NoModeLabel => json!({ "matchExpressions": [not_labelled()] }),
        _ => json!({}),
    }
}

fn labelled() -> Value {
    json!({ "key": MODE_LABEL, "operator": "Exists" })
}

fn not_labelled() -> Value {
    json!({ "key": MODE_LABEL, "operator": "DoesNotExist" })
}

/// Returns the requirement that excludes namespaces with mode off: they must not depend on the guard more than namespaces
/// without the label.
fn not_off() -> Value {
    json!({ "key": MODE_LABEL, "operator": "NotIn", "values": [OFF] })
}

fn namespace_selector(selects: Selects, own: &str) -> Value {
    let never: Vec<&str> = NEVER_GUARDED.into_iter().chain([own]).filter(|name| !name.is_empty()).collect();
    let mut expressions =
        vec![json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never })];
    match selects {
        Selects::LabelledNamespaces => expressions.extend([labelled(), not_off()]),
        Selects::OtherNamespaces | Selects::LabelsElsewhere => expressions.push(not_labelled()),
        _ => {}
    }
    json!({ "matchExpressions": expressions })
}

fn expression(requirement: &Requirement) -> Value {
    match requirement.values.as_slice() {
        [] => json!({ "key": requirement.key, "operator": "Exists" }),
        values => json!({ "key": requirement.key, "operator": "In", "values": values }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rulebook::Rulebook;

    /// In a namespace with mode `off`, requests about unlabelled objects and the namespace's deletion do not wait for the guard.
    #[test]
    fn a_namespace_with_mode_off_has_no_more_entries_than_one_without_the_label() {
        let target = Destination::Service { namespace: "gatera".into(), name: "gatera".into() };
        let settings = Settings::default();
        let entries =
            Rulebook::new(&[]).entries(Endpoint::Validate, &settings, &BTreeSet::new(), &target, "");
        let of = |name: &str, selector: &str| {
            let entry = entries.iter().find(|it| it["name"] == format!("{name}.gatera.dev")).unwrap();
            entry[selector]["matchExpressions"].as_array().unwrap().clone()
        };
        for (name, selector) in [("namespace", "namespaceSelector"), ("namespaces", "objectSelector")] {
            let expressions = of(name, selector);
            assert!(expressions.contains(&labelled()) && expressions.contains(&not_off()), "{name}");
        }
        for (name, selector) in
            [("elsewhere", "namespaceSelector"), ("namespaces-elsewhere", "objectSelector")]
        {
            assert!(of(name, selector).contains(&not_labelled()), "{name}");
        }
    }
}
