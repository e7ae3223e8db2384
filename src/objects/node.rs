//! Nodes, as far as they decide where a member can run.

use serde::Deserialize;

use super::Meta;
use super::meta::{list, or_default};
use super::pod::{PodSpec, Toleration};
use super::pod_status::{Condition, condition};

/// A Node, as far as it decides where a member can run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name and labels.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// Taints and cordon.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// Conditions.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// Taints and cordon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
    /// What keeps pods away.
    #[serde(deserialize_with = "list")]
    pub taints: Vec<Taint>,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Its value.
    #[serde(deserialize_with = "or_default")]
    pub value: String,
    /// NoSchedule, PreferNoSchedule, NoExecute.
    #[serde(deserialize_with = "or_default")]
    pub effect: String,
}

/// Conditions of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Ready counts.
    #[serde(deserialize_with = "list")]
    pub conditions: Vec<Condition>,
}

impl Node {
    /// Somebody said that it is switched off for good: nothing runs there any more.
    pub fn out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
    }

    /// Its kubelet is heard. One of which nothing is told is not taken for lost.
    pub fn answers(&self) -> bool {
        let told = |condition: &Condition| condition.kind == "Ready" && condition.status == "Unknown";
        !self.status.conditions.iter().any(told)
    }

    /// An ordinary pod without tolerations could be placed here now.
    pub fn schedulable(&self) -> bool {
        self.takes(&PodSpec::default())
    }

    /// Such a pod could be placed here now, as far as labels and taints decide.
    pub fn takes(&self, pod: &PodSpec) -> bool {
        let labelled =
            pod.node_selector.iter().all(|(key, value)| self.metadata.labels.get(key) == Some(value));
        let mut taints =
            self.spec.taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        let tolerated = taints.all(|taint| pod.tolerations.iter().any(|it| taint.tolerated(it)));
        !self.spec.unschedulable && labelled && tolerated && condition(&self.status.conditions, "Ready")
    }
}

impl Taint {
    fn tolerated(&self, by: &Toleration) -> bool {
        let exists = by.operator == "Exists";
        (by.key == self.key || exists && by.key.is_empty())
            && (by.effect.is_empty() || by.effect == self.effect)
            && (exists || by.value == self.value)
    }
}
