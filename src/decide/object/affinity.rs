//! Affinity, as far as it says where members may run beside each other.

use serde::Deserialize;

use super::meta::{list, or_default};
use super::{Labels, Selector};

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
    pub required: Option<super::Present>,
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
    /// Such pods; absent: nobody.
    pub label_selector: Option<Selector>,
    /// The node label.
    #[serde(deserialize_with = "or_default")]
    pub topology_key: String,
}

impl AntiAffinity {
    /// Every term, required or preferred.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.required.iter().chain(self.preferred.iter().map(|weighted| &weighted.pod_affinity_term))
    }
}

impl Term {
    /// It keeps pods with these labels away from each other on nodes.
    pub fn parts(&self, labels: &Labels) -> bool {
        self.on_nodes() && self.label_selector.as_ref().is_some_and(|it| it.is_empty() || it.selects(labels))
    }

    /// "Beside" means on the same node.
    pub fn on_nodes(&self) -> bool {
        self.topology_key == "kubernetes.io/hostname"
    }
}
