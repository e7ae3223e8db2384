//! Affinity, as far as it decides where members may run beside each other.

use serde::Deserialize;

use super::meta::list;
use super::{Labels, Present, Selector};

/// The affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    pub pod_anti_affinity: AntiAffinity,
    /// The required nodes; only whether there is such a requirement is read.
    pub node_affinity: NodeAffinity,
}

/// The terms by which a pod avoids other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct AntiAffinity {
    /// Required terms: the pod stays pending if they cannot be met.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "list")]
    pub required: Vec<AffinityTerm>,
    /// Preferred terms: the scheduler ignores a term if no node meets it.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "list")]
    pub preferred: Vec<WeightedTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// Terms that only the scheduler evaluates.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<Present>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeightedTerm {
    pub pod_affinity_term: AffinityTerm,
}

/// A term of an anti-affinity: the pod and the selected pods run on nodes with different values of the label `topology_key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AffinityTerm {
    /// Selects the pods; absent: none.
    pub label_selector: Option<Selector>,
    pub topology_key: String,
    /// Namespaces of the pods; empty: the pod's own.
    #[serde(deserialize_with = "list")]
    pub namespaces: Vec<String>,
    /// Labels: only pods with the same values of them are selected.
    #[serde(deserialize_with = "list")]
    pub match_label_keys: Vec<String>,
}

/// A topology spread constraint: how evenly pods are spread over the values of a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// Selects the pods; absent: none.
    pub label_selector: Option<Selector>,
    pub topology_key: String,
    /// The largest allowed difference between the numbers of pods at two values.
    pub max_skew: i64,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Labels: pods with other values of them, as after a change of the template, are not counted. Only whether the field is
    /// set is read.
    pub match_label_keys: Option<Present>,
}

impl AntiAffinity {
    /// Returns every term, required or preferred.
    pub fn terms(&self) -> impl Iterator<Item = &AffinityTerm> {
        self.required.iter().chain(self.preferred.iter().map(|weighted| &weighted.pod_affinity_term))
    }
}

impl AffinityTerm {
    /// Returns whether it keeps pods with these labels in this namespace on different nodes.
    pub fn separates(&self, labels: &Labels, namespace: &str) -> bool {
        self.is_per_node() && self.applies_to(labels, namespace)
    }

    /// Returns whether it keeps pods with these labels in this namespace apart by its node label.
    pub fn applies_to(&self, labels: &Labels, namespace: &str) -> bool {
        let here = self.namespaces.is_empty() || self.namespaces.iter().any(|it| it == namespace);
        // A label that the template does not set may differ in each pod.
        let shared = self.match_label_keys.iter().all(|key| labels.contains_key(key));
        here && shared && applies_to(self.label_selector.as_ref(), labels)
    }

    /// Returns whether the node label is the host name.
    pub fn is_per_node(&self) -> bool {
        self.topology_key == "kubernetes.io/hostname"
    }
}

impl SpreadConstraint {
    /// Returns whether no two pods with these labels share a value of its node label, as long as there are as many
    /// values as pods.
    pub fn separates(&self, labels: &Labels) -> bool {
        self.max_skew == 1
            && self.when_unsatisfiable == "DoNotSchedule"
            && self.match_label_keys.is_none()
            && applies_to(self.label_selector.as_ref(), labels)
    }
}

fn applies_to(selector: Option<&Selector>, labels: &Labels) -> bool {
    selector.is_some_and(|it| it.is_empty() || it.selects(labels))
}
