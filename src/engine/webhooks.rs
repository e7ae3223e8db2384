//! The webhook entries: the requests that the API server sends to the guard, in the form of the two webhook configurations.
//!
//! Owns: the translation of the table [`ENTRIES`] (`webhooks/rows.rs`). Must not know: clients. The guard registers the result
//! (`register.rs`).

pub mod compare;
mod conditions;
mod rows;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::exemptions::unread;
use crate::exemptions::users;
use facts::galera::adopt::Requirement;
use facts::settings::Settings;
use facts::view::{MODE_LABEL, NEVER_GUARDED};
use objects::{Kind, Kinds};

use conditions::{
    break_glass_changed, marks_changed, no_plain_member, owned_or_marked, selected, to_amend,
    workload_changed,
};

pub use rows::{ENTRIES, Endpoint, Entry, Only, Selects};

/// The mode of a namespace that the guard ignores.
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

/// Returns the `webhooks` list of one of the two configurations. `ca_bundle` is PEM in base64. `served` are the kinds of packs
/// that the API server offers; an entry of a pack is included if its kinds are served.
pub fn entries(
    endpoint: Endpoint,
    (of_packs, kinds): (impl Iterator<Item = &'static Entry>, &Kinds),
    settings: &Settings,
    served: &BTreeSet<Kind>,
    target: &Destination,
    ca_bundle: &str,
) -> Vec<Value> {
    let of_packs = of_packs.filter(|entry| entry.is_served(served, kinds));
    let rows = ENTRIES.iter().chain(of_packs).filter(|entry| entry.endpoint == endpoint);
    rows.flat_map(|entry| rendered(entry, kinds, settings, target, ca_bundle)).collect()
}

fn rendered(
    entry: &Entry,
    kinds: &Kinds,
    settings: &Settings,
    target: &Destination,
    ca_bundle: &str,
) -> Vec<Value> {
    let adoption = &settings.adoption;
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
    let base = json!({
        "name": format!("{}.gatera.dev", entry.name),
        "admissionReviewVersions": ["v1"],
        "clientConfig": target.client_config(entry.endpoint, ca_bundle),
        "failurePolicy": if fail_closed { "Fail" } else { "Ignore" },
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": timeout_seconds,
        "rules": entry.requests.iter().map(rule).collect::<Vec<_>>(),
        "namespaceSelector": namespace_selector(entry.selects, target.namespace()),
        "objectSelector": object_selector(entry.selects),
    });
    let has_one_per_selector = matches!(entry.selects, Selects::Labels | Selects::LabelsElsewhere);
    let mut rendered: Vec<Value> = if has_one_per_selector {
        let per_selector = adoption.selectors().iter().enumerate().map(|(index, selector)| {
            let mut row = base.clone();
            row["name"] = json!(format!("{}-{index}.gatera.dev", entry.name));
            row["objectSelector"] = json!({ "matchExpressions": selector.requirements().iter().map(expression).collect::<Vec<_>>() });
            if let Some(before) = adoption.selectors().get(..index).filter(|before| !before.is_empty()) {
                let earlier = selected(before, "metadata.labels");
                row["matchConditions"] = json!([{ "name": "not-in-an-earlier-row", "expression": format!("!({earlier})") }]);
            }
            row
        });
        per_selector.collect()
    } else {
        vec![base]
    };
    for row in &mut rendered {
        if entry.endpoint == Endpoint::Mutate {
            row["reinvocationPolicy"] = json!("IfNeeded");
        }
        let of_galera = || ("galera", selected(adoption.selectors(), "spec.template.metadata.labels"));
        let condition = match entry.only {
            Only::NoPlainMembers => Some(("no-plain-member", no_plain_member())),
            Only::NotExempt => Some(("not-exempt", format!("!({})", users::pod_delete_condition()))),
            Only::Read => Some(("read-by-a-server", unread::condition())),
            Only::Marks => Some(("marks", marks_changed())),
            Only::OwnedOrMarked => Some(("owned-or-marked", owned_or_marked())),
            Only::BreakGlass => Some(("glass", break_glass_changed(MODE_LABEL, OFF))),
            Only::Changed => Some(("changed", workload_changed())),
            Only::ToAmend => Some(("to-amend", to_amend())),
            Only::When(name, condition) => Some((name, condition.to_owned())),
            Only::All => None,
        };
        let conditions = (entry.selects == Selects::Template).then(of_galera).into_iter().chain(condition);
        for (name, expression) in conditions {
            let condition = json!({ "name": name, "expression": expression });
            match row.get_mut("matchConditions").and_then(Value::as_array_mut) {
                Some(conditions) => conditions.push(condition),
                None => row["matchConditions"] = json!([condition]),
            }
        }
    }
    rendered
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

/// Returns the requirement that excludes namespaces with mode off: they must not wait for the guard longer than ones without the
/// label.
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
    use super::*;

    /// In a namespace with mode `off`, requests about unlabelled objects and the namespace's deletion do not wait for the guard.
    #[test]
    fn a_namespace_with_mode_off_has_no_more_entries_than_one_without_the_label() {
        let target = Destination::Service { namespace: "gatera".into(), name: "gatera".into() };
        let entries = entries(
            Endpoint::Validate,
            (std::iter::empty(), &Kinds::default()),
            &Settings::default(),
            &BTreeSet::new(),
            &target,
            "",
        );
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
