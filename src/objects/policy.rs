//! What others may do to pods: disruption budgets and autoscalers.

use serde::Deserialize;

use super::meta::or_default;
use super::quantity::Quantity;
use super::{Labels, Meta, Selector};

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// How many may go.
    #[serde(deserialize_with = "or_default")]
    pub spec: BudgetSpec,
}

/// How many of which pods may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetSpec {
    /// Which pods; empty: all of the namespace, absent: none.
    pub selector: Option<Selector>,
    /// So many must stay.
    pub min_available: Option<Quantity>,
    /// So many may go.
    pub max_unavailable: Option<Quantity>,
    /// What becomes of pods that are not Ready: IfHealthyBudget (also if empty) or AlwaysAllow.
    #[serde(deserialize_with = "or_default")]
    pub unhealthy_pod_eviction_policy: String,
}

impl Budget {
    /// It protects pods with these labels.
    pub fn protects(&self, labels: &Labels) -> bool {
        self.spec.selector.as_ref().is_some_and(|it| it.is_empty() || it.selects(labels))
    }

    /// How many of `members` may go at once; `None` if that cannot be told.
    pub fn lets_go(&self, members: i64) -> Option<i64> {
        match (&self.spec.max_unavailable, &self.spec.min_available) {
            (Some(most), _) => most.of(members),
            (None, Some(least)) => Some(members - least.of(members)?),
            (None, None) => None,
        }
    }
}

/// A `HorizontalPodAutoscaler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Autoscaler {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What it scales.
    #[serde(deserialize_with = "or_default")]
    pub spec: AutoscalerSpec,
}

impl Autoscaler {
    /// It sets the replicas of this StatefulSet.
    pub fn scales(&self, stateful_set: &str) -> bool {
        let target = &self.spec.scale_target_ref;
        let of_kubernetes = target.api_version.is_empty() || target.api_version.starts_with("apps/");
        of_kubernetes && target.kind == "StatefulSet" && target.name == stateful_set
    }
}

/// What an autoscaler scales.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AutoscalerSpec {
    /// Kind and name.
    #[serde(deserialize_with = "or_default")]
    pub scale_target_ref: ScaleTarget,
}

/// Kind and name of what is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScaleTarget {
    /// Its group and version: other groups have a StatefulSet, too.
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    /// StatefulSet, Deployment …
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}
