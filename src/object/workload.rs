//! StatefulSets and Deployments, which differ little as far as they are judged, and the Scale that changes both.

use serde::Deserialize;

use super::meta::or_default;
use super::{Labels, Meta, Template};

/// A StatefulSet or a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Workload {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What is asked for.
    #[serde(deserialize_with = "or_default")]
    pub spec: WorkloadSpec,
}

/// What is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadSpec {
    replicas: Option<i64>,
    /// Which pods are its own.
    #[serde(deserialize_with = "or_default")]
    pub selector: Selector,
    /// What every pod is.
    #[serde(deserialize_with = "or_default")]
    pub template: Template,
    /// The governing Service (StatefulSet).
    #[serde(deserialize_with = "or_default")]
    pub service_name: String,
    /// OrderedReady or Parallel (StatefulSet).
    #[serde(deserialize_with = "or_default")]
    pod_management_policy: String,
    /// Claims made for every ordinal (StatefulSet).
    #[serde(deserialize_with = "or_default")]
    pub volume_claim_templates: Vec<super::Plain>,
    /// Where counting begins (StatefulSet).
    #[serde(deserialize_with = "or_default")]
    pub ordinals: Ordinals,
}

/// Which pods are its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Labels a pod must have.
    #[serde(deserialize_with = "or_default")]
    pub match_labels: Labels,
}

/// Where counting begins.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The first ordinal.
    #[serde(deserialize_with = "or_default")]
    pub start: i64,
}

impl Workload {
    /// How many pods are asked for; the API server makes an absent number 1.
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    /// All pods are started and stopped at once, without waiting for each other.
    pub fn parallel(&self) -> bool {
        self.spec.pod_management_policy == "Parallel"
    }

    /// The ordinals that should exist. A negative number of replicas has none.
    pub fn ordinals(&self) -> std::ops::Range<i64> {
        let start = self.spec.ordinals.start;
        start..start.saturating_add(self.replicas().max(0))
    }
}

/// The body of a `/scale` request. `replicas: 0` travels as an absent field, so absent is zero here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Scale {
    /// Name and namespace of the parent; a Scale carries none of its labels.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What is asked for.
    #[serde(deserialize_with = "or_default")]
    pub spec: ScaleSpec,
}

/// What a scale request asks for.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ScaleSpec {
    /// How many pods.
    #[serde(deserialize_with = "or_default")]
    pub replicas: i64,
}
