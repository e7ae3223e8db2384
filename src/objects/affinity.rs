//! Affinity, as far as it says where members may run beside each other.

use serde::Deserialize;

use super::meta::{list, or_default};
use super::{Labels, Present, Selector};

/// Where a pod wants to run, and beside whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    /// Not beside these.
    #[serde(deserialize_with = "or_default")]
    pub pod_anti_affinity: AntiAffinity,
    /// Only on these nodes: present or not is all that is read.
    #[serde(deserialize_with = "or_default")]
    pub node_affinity: NodeAffinity,
}

/// Not beside these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct AntiAffinity {
    /// Rather wait for ever than run beside them.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "list")]
    pub required: Vec<Term>,
    /// If there is another node.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "list")]
    pub preferred: Vec<Weighted>,
}

/// Only on these nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// Terms that only the scheduler understands.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<Present>,
}

/// A preference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Weighted {
    /// Not beside these.
    #[serde(deserialize_with = "or_default")]
    pub pod_affinity_term: Term,
}

/// Not beside such pods, where "beside" is sharing the value of a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Term {
    /// Which pods; absent: none.
    pub label_selector: Option<Selector>,
    /// The node label.
    #[serde(deserialize_with = "or_default")]
    pub topology_key: String,
    /// In these namespaces; empty: in the pod's own.
    #[serde(deserialize_with = "list")]
    pub namespaces: Vec<String>,
    /// And with the same values of these labels.
    #[serde(deserialize_with = "list")]
    pub match_label_keys: Vec<String>,
}

/// How evenly such pods are spread over the values of a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spread {
    /// Which pods; absent: none.
    pub label_selector: Option<Selector>,
    /// The node label.
    #[serde(deserialize_with = "or_default")]
    pub topology_key: String,
    /// So many more than the fewest may share a value.
    #[serde(deserialize_with = "or_default")]
    pub max_skew: i64,
    /// DoNotSchedule, or ScheduleAnyway.
    #[serde(deserialize_with = "or_default")]
    pub when_unsatisfiable: String,
    /// Pods of another revision are not counted: present or not is all that is read.
    pub match_label_keys: Option<Present>,
}

impl AntiAffinity {
    /// Every term, required or preferred.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.required.iter().chain(self.preferred.iter().map(|weighted| &weighted.pod_affinity_term))
    }
}

impl Term {
    /// It keeps pods with these labels in this namespace away from each other on nodes.
    pub fn parts(&self, labels: &Labels, namespace: &str) -> bool {
        self.on_nodes() && self.is_about(labels, namespace)
    }

    /// It keeps pods with these labels in this namespace away from each other where they share a value of its node label.
    pub fn is_about(&self, labels: &Labels, namespace: &str) -> bool {
        let here = self.namespaces.is_empty() || self.namespaces.iter().any(|it| it == namespace);
        // A label that the template does not give may be another one in each pod.
        let shared = self.match_label_keys.iter().all(|key| labels.contains_key(key));
        here && shared && is_about(self.label_selector.as_ref(), labels)
    }

    /// "Beside" means on the same node.
    pub fn on_nodes(&self) -> bool {
        self.topology_key == "kubernetes.io/hostname"
    }
}

impl Spread {
    /// Of pods with these labels no two share a value of its node label while there are as many values as pods.
    pub fn parts(&self, labels: &Labels) -> bool {
        self.max_skew == 1
            && self.when_unsatisfiable == "DoNotSchedule"
            && self.match_label_keys.is_none()
            && is_about(self.label_selector.as_ref(), labels)
    }
}

fn is_about(selector: Option<&Selector>, labels: &Labels) -> bool {
    selector.is_some_and(|it| it.is_empty() || it.selects(labels))
}
