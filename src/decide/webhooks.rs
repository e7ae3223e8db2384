//! The webhook entries: what the API server asks the guard about.
//!
//! Owns: the table [`ENTRIES`] and its translation into the two webhook configurations. Must not know: clients. The
//! guard registers from this table (`register.rs`), the documentation lists it, and tests hold both to it.
//!
//! Entries of one configuration never overlap for one request, because the API server shows only one of several
//! denials, and asks as often. An entry that selects by labels is a row per selector, and each row leaves out what the
//! rows before it select. Objects that carry labels are selected by them; requests that carry none (`/scale`) are taken from
//! labelled namespaces with certainty, and from all others as far as the guard answers quickly.

pub mod compare;
mod conditions;

use serde_json::{Value, json};

use crate::config::Settings;
use crate::galera::adopt::Requirement;
use crate::passing::exempt;
use crate::passing::unread;
use crate::view::{MODE_LABEL, NEVER_GUARDED};

use conditions::{glass_changed, marks_changed, no_plain_member, selected, to_amend};

/// Which of the two configurations, and which path of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/mutate`
    Mutate,
    /// `/validate`
    Validate,
}

impl Endpoint {
    /// The path it is served at.
    pub fn path(self) -> &'static str {
        match self {
            Self::Mutate => "/mutate",
            Self::Validate => "/validate",
        }
    }
}

/// How the API server knows that a request concerns Galera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selects {
    /// The labels of the pod template in the object before or after (CEL).
    Template,
    /// The labels of the object itself: one entry per selector.
    Labels,
    /// The labels of the object itself, outside namespaces that are guarded as a whole.
    LabelsElsewhere,
    /// The namespace has the mode label.
    LabelledNamespaces,
    /// The namespace has no mode label.
    OtherNamespaces,
    /// It is a namespace with the mode label, before or after.
    ModeLabel,
    /// It is a namespace without the mode label.
    NoModeLabel,
    /// It is a namespace.
    AnyNamespace,
}

/// Which of the requests that are selected are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Every one.
    All,
    /// Bootstrap pods, and pods that carry marks of the guard's: members without must be able to start while the guard
    /// is down.
    NoPlainMembers,
    /// Not the control plane finishing what was decided before (`passing/exempt.rs`).
    NotExempt,
    /// Not what no server reads (`passing/unread.rs`).
    Read,
    /// Changes of labels, of the guard's annotations, or of a running pod's images.
    Marks,
    /// Where a namespace is opened (`gatera.dev/break-glass`), and no other row sends that.
    Glass,
    /// Where there may be something to amend, or to say before the API server speaks: most updates of a StatefulSet travel once.
    ToAmend,
}

/// One row: what is sent to the guard, and what happens while it cannot answer.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name, without `.gatera.dev`.
    pub name: &'static str,
    /// Where it goes.
    pub endpoint: Endpoint,
    /// API group, plural resource (with subresource), verbs.
    pub asks: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// Which of them.
    pub selects: Selects,
    /// Which of those.
    pub only: Only,
    /// Refuse the request while the guard cannot answer.
    pub fail_closed: bool,
    /// Why it is so.
    pub why: &'static str,
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Every entry.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "workloads-amend",
        endpoint: Endpoint::Mutate,
        asks: &[("apps", "statefulsets", WRITES), ("apps", "deployments", WRITES)],
        selects: Selects::Template,
        only: Only::ToAmend,
        fail_closed: true,
        why: "keeps a bootstrap Deployment at 0 replicas once there is data, keeps the guard's marks its own, and explains fixed fields",
    },
    Entry {
        name: "pods-inject",
        endpoint: Endpoint::Mutate,
        asks: &[("", "pods", &["CREATE"])],
        selects: Selects::Labels,
        only: Only::All,
        fail_closed: false,
        why: "gives members what they need to leave and join; a cluster must be able to restart while the guard is down",
    },
    Entry {
        name: "workloads",
        endpoint: Endpoint::Validate,
        asks: &[("apps", "statefulsets", ALL), ("apps", "deployments", ALL)],
        selects: Selects::Template,
        only: Only::All,
        fail_closed: true,
        why: "every write and the end of a Galera StatefulSet or bootstrap Deployment",
    },
    Entry {
        name: "new-pods",
        endpoint: Endpoint::Validate,
        asks: &[("", "pods", &["CREATE"])],
        selects: Selects::Labels,
        only: Only::NoPlainMembers,
        fail_closed: true,
        why: "the last line before a second, empty cluster: the pod itself, whoever creates it; and pods that say they were prepared",
    },
    Entry {
        name: "pods",
        endpoint: Endpoint::Validate,
        asks: &[("", "pods", &["DELETE"])],
        selects: Selects::Labels,
        only: Only::NotExempt,
        fail_closed: true,
        why: "members leave one at a time",
    },
    Entry {
        name: "marks",
        endpoint: Endpoint::Validate,
        asks: &[
            ("", "pods", &["UPDATE"]),
            ("", "pods/status", &["UPDATE"]),
            ("", "persistentvolumeclaims", &["UPDATE"]),
        ],
        selects: Selects::Labels,
        only: Only::Marks,
        fail_closed: true,
        why: "a label that is taken off would make everything else slip past",
    },
    Entry {
        name: "workloads-status",
        endpoint: Endpoint::Validate,
        asks: &[("apps", "statefulsets/status", &["UPDATE"]), ("apps", "deployments/status", &["UPDATE"])],
        selects: Selects::Template,
        only: Only::Marks,
        fail_closed: true,
        why: "whoever reports how a StatefulSet does may write its annotations, too",
    },
    Entry {
        name: "labelled",
        endpoint: Endpoint::Validate,
        asks: &[
            ("", "configmaps", ALL),
            ("", "secrets", ALL),
            ("", "services", ALL),
            ("", "serviceaccounts", &["DELETE"]),
            ("", "persistentvolumeclaims", &["DELETE"]),
            ("policy", "poddisruptionbudgets", ALL),
        ],
        selects: Selects::LabelsElsewhere,
        only: Only::Read,
        fail_closed: true,
        why: "what a cluster uses, by its own labels, in every namespace",
    },
    Entry {
        name: "namespace",
        endpoint: Endpoint::Validate,
        asks: &[
            ("", "configmaps", ALL),
            ("", "secrets", ALL),
            ("", "services", ALL),
            ("", "serviceaccounts", &["DELETE"]),
            ("", "persistentvolumeclaims", &["DELETE"]),
            ("policy", "poddisruptionbudgets", ALL),
            ("autoscaling", "horizontalpodautoscalers", WRITES),
            ("apps", "statefulsets/scale", &["UPDATE"]),
            ("apps", "deployments/scale", &["UPDATE"]),
            ("", "pods/eviction", &["CREATE"]),
        ],
        selects: Selects::LabelledNamespaces,
        only: Only::Read,
        fail_closed: true,
        why: "what carries no labels, in namespaces that are guarded as a whole",
    },
    Entry {
        name: "elsewhere",
        endpoint: Endpoint::Validate,
        asks: &[
            ("apps", "statefulsets/scale", &["UPDATE"]),
            ("apps", "deployments/scale", &["UPDATE"]),
            ("", "pods/eviction", &["CREATE"]),
        ],
        selects: Selects::OtherNamespaces,
        only: Only::All,
        fail_closed: false,
        why: "scaling and evictions in other namespaces: judged, but strangers are never held up by a guard that is down",
    },
    Entry {
        name: "namespaces",
        endpoint: Endpoint::Validate,
        asks: &[("", "namespaces", &["UPDATE", "DELETE"])],
        selects: Selects::ModeLabel,
        only: Only::All,
        fail_closed: true,
        why: "the end of a namespace that is guarded as a whole, and of its label",
    },
    Entry {
        name: "namespaces-elsewhere",
        endpoint: Endpoint::Validate,
        asks: &[("", "namespaces", &["DELETE"])],
        selects: Selects::NoModeLabel,
        only: Only::All,
        fail_closed: false,
        why: "the end of other namespaces: judged, but never held up by a guard that is down",
    },
    Entry {
        name: "glass",
        endpoint: Endpoint::Validate,
        asks: &[
            ("", "namespaces", WRITES),
            ("", "namespaces/status", &["UPDATE"]),
            ("", "namespaces/finalize", &["UPDATE"]),
        ],
        selects: Selects::AnyNamespace,
        only: Only::Glass,
        fail_closed: true,
        why: "broken glass opens now and for an hour at most, in whatever way it is written; without a guard it opens nothing anyway",
    },
];

/// Where the API server finds the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A Service of the cluster.
    Service {
        /// Its namespace, which is never guarded.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A URL, for a guard that runs outside.
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

/// The `webhooks` list of one of the two configurations. `ca_bundle` is PEM in base64.
pub fn entries(endpoint: Endpoint, settings: &Settings, target: &Destination, ca_bundle: &str) -> Vec<Value> {
    let rows = ENTRIES.iter().filter(|entry| entry.endpoint == endpoint);
    rows.flat_map(|entry| rendered(entry, settings, target, ca_bundle)).collect()
}

fn rendered(entry: &Entry, settings: &Settings, target: &Destination, ca_bundle: &str) -> Vec<Value> {
    let adoption = &settings.adoption;
    let fail_closed = entry.fail_closed || entry.endpoint == Endpoint::Mutate && settings.injection_fails;
    let patience = if fail_closed { settings.timeout_seconds.unwrap_or(5) } else { 2 };
    let rule = |(group, resource, verbs): &(&str, &str, &[&str])| json!({ "apiGroups": [group], "apiVersions": [version(resource)], "resources": [resource], "operations": verbs, "scope": scope(resource) });
    let base = json!({
        "name": format!("{}.gatera.dev", entry.name),
        "admissionReviewVersions": ["v1"],
        "clientConfig": target.client_config(entry.endpoint, ca_bundle),
        "failurePolicy": if fail_closed { "Fail" } else { "Ignore" },
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": patience,
        "rules": entry.asks.iter().map(rule).collect::<Vec<_>>(),
        "namespaceSelector": namespace_selector(entry.selects, target.namespace()),
        "objectSelector": object_selector(entry.selects),
    });
    let labelled = matches!(entry.selects, Selects::Labels | Selects::LabelsElsewhere);
    let mut rendered: Vec<Value> = if labelled {
        let per_selector = adoption.selectors().iter().enumerate().map(|(index, selector)| {
            let mut one = base.clone();
            one["name"] = json!(format!("{}-{index}.gatera.dev", entry.name));
            one["objectSelector"] = json!({ "matchExpressions": selector.requirements().iter().map(expression).collect::<Vec<_>>() });
            if let Some(before) = adoption.selectors().get(..index).filter(|before| !before.is_empty()) {
                let earlier = selected(before, "metadata.labels");
                one["matchConditions"] = json!([{ "name": "not-in-an-earlier-row", "expression": format!("!({earlier})") }]);
            }
            one
        });
        per_selector.collect()
    } else {
        vec![base]
    };
    for one in &mut rendered {
        if entry.endpoint == Endpoint::Mutate {
            one["reinvocationPolicy"] = json!("IfNeeded");
        }
        let galera = || ("galera", selected(adoption.selectors(), "spec.template.metadata.labels"));
        let condition = match entry.only {
            Only::NoPlainMembers => Some(("no-plain-member", no_plain_member())),
            Only::NotExempt => Some(("not-exempt", format!("!({})", exempt::pod_delete_condition()))),
            Only::Read => Some(("read-by-a-server", unread::condition())),
            Only::Marks => Some(("marks", marks_changed())),
            Only::Glass => Some(("glass", glass_changed(MODE_LABEL))),
            Only::ToAmend => Some(("to-amend", to_amend())),
            Only::All => None,
        };
        let condition = (entry.selects == Selects::Template).then(galera).into_iter().chain(condition);
        for (name, expression) in condition {
            let condition = json!({ "name": name, "expression": expression });
            match one.get_mut("matchConditions").and_then(Value::as_array_mut) {
                Some(conditions) => conditions.push(condition),
                None => one["matchConditions"] = json!([condition]),
            }
        }
    }
    rendered
}

/// The API server converts what is written in other versions.
fn version(resource: &str) -> &'static str {
    if resource == "horizontalpodautoscalers" { "v2" } else { "v1" }
}

fn scope(resource: &str) -> &'static str {
    if resource.starts_with("namespaces") { "Cluster" } else { "Namespaced" }
}

fn object_selector(selects: Selects) -> Value {
    match selects {
        Selects::ModeLabel => json!({ "matchExpressions": [{ "key": MODE_LABEL, "operator": "Exists" }] }),
        Selects::NoModeLabel => {
            json!({ "matchExpressions": [{ "key": MODE_LABEL, "operator": "DoesNotExist" }] })
        }
        _ => json!({}),
    }
}

fn namespace_selector(selects: Selects, own: &str) -> Value {
    let never: Vec<&str> = NEVER_GUARDED.into_iter().chain([own]).filter(|name| !name.is_empty()).collect();
    let mut expressions =
        vec![json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never })];
    match selects {
        Selects::LabelledNamespaces => expressions.push(json!({ "key": MODE_LABEL, "operator": "Exists" })),
        Selects::OtherNamespaces | Selects::LabelsElsewhere => {
            expressions.push(json!({ "key": MODE_LABEL, "operator": "DoesNotExist" }));
        }
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
