//! The table of webhook entries: which requests are sent to the guard, and what happens to each while it cannot answer.
//!
//! Owns: [`ENTRIES`] and what its cells mean. Must not know: how an entry is written (`webhooks.rs`). The documentation lists the
//! table, and tests hold rules and simulation to it.
//!
//! Entries of one configuration never overlap for one request, because the API server shows only one of several
//! denials, and asks as often. An entry that selects by labels is a row per selector, and each row leaves out what the
//! rows before it select. Objects that carry labels are selected by them; requests that carry none (`/scale`) are taken from
//! labelled namespaces with certainty, and from all others as far as the guard answers quickly.

use std::collections::BTreeSet;

use objects::{Kind, Kinds};

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
    /// The namespace has the mode label, and it does not say off.
    LabelledNamespaces,
    /// The namespace has no mode label.
    OtherNamespaces,
    /// It is a namespace with the mode label, before or after, and the label does not say off.
    ModeLabel,
    /// It is a namespace without the mode label.
    NoModeLabel,
    /// It is a namespace.
    AnyNamespace,
    /// Every namespace that is ever guarded.
    Anywhere,
}

/// Which of the requests that are selected are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Every one.
    All,
    /// Those of which this is true (CEL), by this name.
    When(&'static str, &'static str),
    /// Bootstrap pods, and pods that carry marks of the guard's: members without must be able to start while the guard
    /// is down.
    NoPlainMembers,
    /// Not the control plane finishing what was decided before (`exemptions/users.rs`).
    NotExempt,
    /// Not what no server reads (`exemptions/unread.rs`).
    Read,
    /// Changes of labels, of the guard's annotations, of owners, of a running pod's images, or of the finalizers of what is going.
    Marks,
    /// What is created with owners; of what is there, the same changes.
    OwnedOrMarked,
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

impl Entry {
    /// Every kind of a pack that it asks about is offered by the API server. Galera's kinds are everywhere.
    pub(super) fn is_served(&self, served: &BTreeSet<Kind>, kinds: &Kinds) -> bool {
        let asked = self.asks.iter().map(|(group, plural, _)| kinds.of_plural(group, plural));
        asked.filter(|kind| kind.is_optional()).all(|kind| served.contains(&kind))
    }
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Claims and accounts that are written: most writes change nothing that is judged.
const CLAIMS: &[(&str, &str, &[&str])] = &[
    ("", "persistentvolumeclaims", WRITES),
    ("", "persistentvolumeclaims/status", &["UPDATE"]),
    ("", "serviceaccounts", WRITES),
];

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
        asks: &[("", "pods", &["DELETE"]), ("", "pods/resize", &["UPDATE"])],
        selects: Selects::Labels,
        only: Only::NotExempt,
        fail_closed: true,
        why: "members leave one at a time",
    },
    Entry {
        name: "marks",
        endpoint: Endpoint::Validate,
        asks: &[("", "pods", &["UPDATE"]), ("", "pods/status", &["UPDATE"])],
        selects: Selects::Labels,
        only: Only::Marks,
        fail_closed: true,
        why: "a label that is taken off would make everything else slip past",
    },
    Entry {
        name: "claims",
        endpoint: Endpoint::Validate,
        asks: CLAIMS,
        selects: Selects::LabelsElsewhere,
        only: Only::OwnedOrMarked,
        fail_closed: true,
        why: "with an owner that is not there a claim is deleted, and without its finalizer it goes under a server that runs",
    },
    Entry {
        name: "claims-in-namespace",
        endpoint: Endpoint::Validate,
        asks: CLAIMS,
        selects: Selects::LabelledNamespaces,
        only: Only::OwnedOrMarked,
        fail_closed: true,
        why: "the same of what carries no labels, in namespaces that are guarded as a whole",
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
