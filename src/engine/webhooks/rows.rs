//! The table of webhook entries: which requests are sent to the guard, and what happens to them while it cannot answer.
//!
//! Owns: [`ENTRIES`] and the meaning of its cells. Must not know: how an entry is written (`webhooks.rs`). The documentation
//! lists the table, and tests compare the rules with it.
//!
//! No request matches two entries of one configuration, because the API server would send it twice and show only one of the
//! denials. An entry that selects by labels is registered once for each selector, each time without the objects that an earlier
//! selector selects. Objects with labels are selected by them. Requests without labels (`/scale`) are always sent; outside
//! labelled namespaces they are allowed if the guard does not answer in time.

use std::collections::BTreeSet;

use objects::{Kind, Kinds};

/// One of the two configurations, and its path at the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/mutate`
    Mutate,
    /// `/validate`
    Validate,
}

impl Endpoint {
    /// Returns the URL path.
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
    /// The namespace has the mode label, with another value than off.
    LabelledNamespaces,
    /// The namespace has no mode label.
    OtherNamespaces,
    /// The object is a namespace with the mode label, before or after, with another value than off.
    ModeLabel,
    /// The object is a namespace without the mode label.
    NoModeLabel,
    /// The object is any namespace.
    AnyNamespace,
    /// Every namespace that can be guarded.
    Anywhere,
}

/// Which of the selected requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    All,
    /// Requests for which this condition (name, CEL) is true.
    When(&'static str, &'static str),
    /// Bootstrap pods, and pods that carry marks of the guard: members without marks must be able to start while the guard
    /// is down.
    NoPlainMembers,
    /// Requests of users that are not exempt (`exemptions/users.rs`).
    NotExempt,
    /// Objects that a server may read (`exemptions/unread.rs`).
    Read,
    /// Changes of labels, the guard's annotations, owners, or a pod's images.
    Marks,
    /// New objects with owners; for existing objects, the same changes as `Marks`, and those of a terminating object's
    /// finalizers.
    OwnedOrMarked,
    /// Writes of `gatera.dev/break-glass` that no other row sends.
    BreakGlass,
    /// Requests about workloads, except updates that change nothing that a rule reads.
    Changed,
    /// Requests that the guard may have to amend, or to refuse before the API server does. Most StatefulSet updates are neither,
    /// and are sent only once.
    ToAmend,
}

/// A row: which requests are sent to the guard, and what happens while it cannot answer.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, without `.gatera.dev`.
    pub name: &'static str,
    pub endpoint: Endpoint,
    /// The requests: API group, plural resource (with subresource), and verbs.
    pub requests: &'static [(&'static str, &'static str, &'static [&'static str])],
    pub selects: Selects,
    pub only: Only,
    /// Whether the API server refuses the request while the guard cannot answer.
    pub fail_closed: bool,
}

impl Entry {
    /// The defaults of the validating rows: all requests, in every namespace, refused while the guard cannot answer.
    pub const VALIDATING: Self = Self {
        name: "",
        endpoint: Endpoint::Validate,
        requests: &[],
        selects: Selects::Anywhere,
        only: Only::All,
        fail_closed: true,
    };

    /// Returns whether the API server offers every pack's kind in this entry. Galera's kinds always exist.
    pub(crate) fn is_served(&self, served: &BTreeSet<Kind>, kinds: &Kinds) -> bool {
        let requested = self.requests.iter().map(|(group, plural, _)| kinds.of_plural(group, plural));
        requested.filter(|kind| kind.is_optional()).all(|kind| served.contains(&kind))
    }
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Writes of claims and service accounts, most of which change nothing that is judged.
const CLAIMS_AND_ACCOUNTS: &[(&str, &str, &[&str])] = &[
    ("", "persistentvolumeclaims", WRITES),
    ("", "persistentvolumeclaims/status", &["UPDATE"]),
    ("", "serviceaccounts", WRITES),
];

pub const ENTRIES: &[Entry] = &[
    // Keeps a bootstrap Deployment at 0 replicas once there is data, protects the guard's marks, and explains fixed fields.
    Entry {
        name: "workloads-amend",
        endpoint: Endpoint::Mutate,
        requests: &[("apps", "statefulsets", WRITES), ("apps", "deployments", WRITES)],
        selects: Selects::Template,
        only: Only::ToAmend,
        fail_closed: true,
    },
    // Injects what members need to leave and join; a cluster must be able to restart while the guard is down.
    Entry {
        name: "pods-inject",
        endpoint: Endpoint::Mutate,
        requests: &[("", "pods", &["CREATE"])],
        selects: Selects::Labels,
        only: Only::All,
        fail_closed: false,
    },
    // Every change and the deletion of a Galera StatefulSet or bootstrap Deployment.
    Entry {
        name: "workloads",
        requests: &[("apps", "statefulsets", ALL), ("apps", "deployments", ALL)],
        selects: Selects::Template,
        only: Only::Changed,
        ..Entry::VALIDATING
    },
    // The last protection against a second, empty cluster: the pod itself, from any creator; and pods with marks of an injection.
    Entry {
        name: "new-pods",
        requests: &[("", "pods", &["CREATE"])],
        selects: Selects::Labels,
        only: Only::NoPlainMembers,
        ..Entry::VALIDATING
    },
    // Members leave one at a time.
    Entry {
        name: "pods",
        requests: &[("", "pods", &["DELETE"]), ("", "pods/resize", &["UPDATE"])],
        selects: Selects::Labels,
        only: Only::NotExempt,
        ..Entry::VALIDATING
    },
    // If a pod lost its labels, requests about it would no longer be judged.
    Entry {
        name: "marks",
        requests: &[("", "pods", &["UPDATE"]), ("", "pods/status", &["UPDATE"])],
        selects: Selects::Labels,
        only: Only::Marks,
        ..Entry::VALIDATING
    },
    // A claim whose owner does not exist is deleted, and one without its finalizer is deleted while a server uses it.
    Entry {
        name: "claims",
        requests: CLAIMS_AND_ACCOUNTS,
        selects: Selects::LabelsElsewhere,
        only: Only::OwnedOrMarked,
        ..Entry::VALIDATING
    },
    // The same for claims without labels, in fully guarded namespaces.
    Entry {
        name: "claims-in-namespace",
        requests: CLAIMS_AND_ACCOUNTS,
        selects: Selects::LabelledNamespaces,
        only: Only::OwnedOrMarked,
        ..Entry::VALIDATING
    },
    // A write of a StatefulSet's status can change its annotations, too.
    Entry {
        name: "workloads-status",
        requests: &[
            ("apps", "statefulsets/status", &["UPDATE"]),
            ("apps", "deployments/status", &["UPDATE"]),
        ],
        selects: Selects::Template,
        only: Only::Marks,
        ..Entry::VALIDATING
    },
    // Objects that a cluster uses, by their own labels, in every namespace.
    Entry {
        name: "labelled",
        requests: &[
            ("", "configmaps", ALL),
            ("", "secrets", ALL),
            ("", "services", ALL),
            ("", "serviceaccounts", &["DELETE"]),
            ("", "persistentvolumeclaims", &["DELETE"]),
            ("policy", "poddisruptionbudgets", ALL),
        ],
        selects: Selects::LabelsElsewhere,
        only: Only::Read,
        ..Entry::VALIDATING
    },
    // Objects without labels, in fully guarded namespaces.
    Entry {
        name: "namespace",
        requests: &[
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
        ..Entry::VALIDATING
    },
    // Scaling and evictions in other namespaces: judged, but never blocked by a guard that is down.
    Entry {
        name: "elsewhere",
        requests: &[
            ("apps", "statefulsets/scale", &["UPDATE"]),
            ("apps", "deployments/scale", &["UPDATE"]),
            ("", "pods/eviction", &["CREATE"]),
        ],
        selects: Selects::OtherNamespaces,
        fail_closed: false,
        ..Entry::VALIDATING
    },
    // The deletion of a fully guarded namespace, and the removal of its label.
    Entry {
        name: "namespaces",
        requests: &[("", "namespaces", &["UPDATE", "DELETE"])],
        selects: Selects::ModeLabel,
        ..Entry::VALIDATING
    },
    // The deletion of other namespaces: judged, but never blocked by a guard that is down.
    Entry {
        name: "namespaces-elsewhere",
        requests: &[("", "namespaces", &["DELETE"])],
        selects: Selects::NoModeLabel,
        fail_closed: false,
        ..Entry::VALIDATING
    },
    // Break-glass begins at once and lasts an hour at most, however it is written; without a guard it has no effect anyway.
    Entry {
        name: "glass",
        requests: &[
            ("", "namespaces", WRITES),
            ("", "namespaces/status", &["UPDATE"]),
            ("", "namespaces/finalize", &["UPDATE"]),
        ],
        selects: Selects::AnyNamespace,
        only: Only::BreakGlass,
        ..Entry::VALIDATING
    },
];
