//! Nodes, as far as they decide where a member can run.

use serde::Deserialize;

use super::ApiObject;
use super::meta::list;
use super::pod::{PodSpec, Toleration};
use super::pod_status::{PodCondition, condition};

/// A Node, as far as it decides where a member can run.
pub type Node = ApiObject<NodeSpec, NodeStatus>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    #[serde(deserialize_with = "list")]
    pub taints: Vec<Taint>,
}

/// A taint: it keeps pods that do not tolerate it away from the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "list")]
    pub conditions: Vec<PodCondition>,
}

impl Node {
    /// Returns whether the node is tainted as out of service: nothing runs there any more.
    pub fn out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
    }

    /// Returns whether the node's kubelet reports to the API server. A node that never reported counts as reachable.
    pub fn is_reachable(&self) -> bool {
        let is_silent = |condition: &PodCondition| condition.kind == "Ready" && condition.status == "Unknown";
        !self.status.conditions.iter().any(is_silent)
    }

    /// Returns whether an ordinary pod without tolerations could be placed here now.
    pub fn schedulable(&self) -> bool {
        self.accepts(&PodSpec::default())
    }

    /// Returns whether this pod could be placed here now, as far as labels and taints decide.
    pub fn accepts(&self, pod: &PodSpec) -> bool {
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
