//! Disruption budgets and autoscalers.

use serde::Deserialize;

use super::quantity::Quantity;
use super::{ApiObject, Labels, Selector};

pub type Budget = ApiObject<BudgetSpec>;

/// The pods of a budget, and how many of them may be unavailable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetSpec {
    /// Selects the pods; empty: all of the namespace, absent: none.
    pub selector: Option<Selector>,
    pub min_available: Option<Quantity>,
    pub max_unavailable: Option<Quantity>,
    /// Whether pods that are not Ready may be evicted: `IfHealthyBudget` (also if empty) or `AlwaysAllow`.
    pub unhealthy_pod_eviction_policy: String,
}

impl Budget {
    /// Returns whether the budget protects pods with these labels.
    pub fn protects(&self, labels: &Labels) -> bool {
        self.spec.selector.as_ref().is_some_and(|it| it.is_empty() || it.selects(labels))
    }

    /// Returns how many of `members` may be evicted at once; `None` if that is unknown.
    pub fn evictable(&self, members: i64) -> Option<i64> {
        match (&self.spec.max_unavailable, &self.spec.min_available) {
            (Some(most), _) => most.of(members),
            (None, Some(least)) => Some(members - least.of(members)?),
            (None, None) => None,
        }
    }
}

pub type Autoscaler = ApiObject<AutoscalerSpec>;

impl Autoscaler {
    /// Returns whether the autoscaler sets the replicas of this StatefulSet.
    pub fn scales(&self, stateful_set: &str) -> bool {
        let target = &self.spec.scale_target_ref;
        let of_kubernetes = target.api_version.is_empty() || target.api_version.starts_with("apps/");
        of_kubernetes && target.kind == "StatefulSet" && target.name == stateful_set
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AutoscalerSpec {
    pub scale_target_ref: ScaleTarget,
}

/// The object that is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScaleTarget {
    /// The group and version; other groups have a StatefulSet, too.
    pub api_version: String,
    pub kind: String,
    pub name: String,
}
