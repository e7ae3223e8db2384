//! StatefulSets and Deployments, which share most of the fields that are judged, and the Scale that changes both.

use serde::Deserialize;

use super::meta::{list, name, or_default};
use super::quantity::Quantity;
use super::{ApiObject, ByName, Fingerprint, Labels, Selector, Shared, Template};

/// A StatefulSet or a Deployment.
pub type Workload = ApiObject<WorkloadSpec, WorkloadStatus>;

/// The progress of a workload's controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// The generation of the last change that the controller has observed.
    pub observed_generation: i64,
    /// The number of pods of the newest template.
    pub updated_replicas: i64,
    /// The number of pods of the template that was last rolled out completely (StatefulSet).
    pub current_replicas: i64,
    /// The template that was last rolled out completely (StatefulSet).
    pub current_revision: String,
    pub update_revision: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadSpec {
    replicas: Option<i64>,
    /// The selector of the workload's own pods.
    #[serde(deserialize_with = "or_default")]
    pub selector: Selector,
    pub template: Shared<Template>,
    /// Seconds that a pod must be Ready before it counts as available.
    pub min_ready_seconds: u32,
    /// The governing Service (StatefulSet).
    #[serde(deserialize_with = "name")]
    pub service_name: String,
    pub pod_management_policy: String,
    /// The templates of the claims that each ordinal gets (StatefulSet).
    #[serde(deserialize_with = "list")]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// The way in which a new template reaches the pods (StatefulSet).
    pub update_strategy: UpdateStrategy,
    /// The way in which new pods replace old ones (Deployment).
    pub strategy: Strategy,
    /// The policy for claims when the StatefulSet is deleted or scaled down.
    pub persistent_volume_claim_retention_policy: Retention,
    pub ordinals: Ordinals,
}

/// The template of a claim that each ordinal gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    /// Its name is the first part of the claims' names.
    pub metadata: ClaimMeta,
    pub spec: ClaimSpec,
}

/// The name, labels and annotations of a template's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ClaimMeta {
    /// The first part of their names.
    #[serde(deserialize_with = "name")]
    pub name: String,
    pub labels: Labels,
    /// Annotations, which are compared and never shown.
    pub annotations: ByName<Fingerprint>,
}

/// The storage that a claim requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    /// The StorageClass; absent: the cluster's default.
    pub storage_class_name: Option<String>,
    /// The VolumeAttributesClass; absent: none.
    pub volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "list")]
    pub access_modes: Vec<String>,
    pub resources: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The requested amount by resource, as written: `storage: 10Gi`.
    pub requests: ByName<Quantity>,
    /// The largest amount by resource.
    pub limits: ByName<Quantity>,
}

/// The way in which new pods replace old ones (Deployment).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Strategy {
    /// `Recreate` or `RollingUpdate`; empty is `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The way in which a new template reaches the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`; empty is `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Details of `RollingUpdate`. API servers write them even without a type.
    pub rolling_update: Option<RollingUpdate>,
}

impl UpdateStrategy {
    /// Returns whether a new template restarts no member by itself: pods get it when a person deletes them.
    pub fn on_delete(&self) -> bool {
        self.kind == "OnDelete"
    }

    /// Returns how many members, from the first, keep their old template: with `OnDelete`, all of them.
    pub fn held_back(&self) -> i64 {
        if self.on_delete() { i64::MAX } else { self.partition() }
    }

    fn partition(&self) -> i64 {
        self.rolling_update.as_ref().map_or(0, |details| details.partition)
    }
}

/// Details of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// A number or a percentage; absent is 1.
    pub max_unavailable: Option<Quantity>,
    /// Members below this ordinal keep their old template.
    pub partition: i64,
}

/// The policy for claims when a StatefulSet is deleted or scaled down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retention {
    /// The policy when the StatefulSet is deleted: `Retain` (also if empty) or `Delete`.
    pub when_deleted: String,
    /// The same when the StatefulSet is scaled down.
    pub when_scaled: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    pub start: i64,
}

impl WorkloadSpec {
    /// Sets the replicas and the first ordinal to exactly these members.
    pub fn set_members(&mut self, members: std::ops::Range<i64>) {
        (self.replicas, self.ordinals.start) = (Some(members.end - members.start), members.start);
    }
}

impl Workload {
    /// Returns the replicas; the API server sets an absent number to 1.
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Returns whether both are the same apart from labels and annotations that are not the guard's, and the controller's
    /// progress.
    pub fn is_equivalent_to(&self, other: &Self) -> bool {
        self.spec == other.spec && self.metadata.is_owned_and_marked_as(&other.metadata)
    }

    /// Returns whether all pods are started and stopped at once, without waiting for each other.
    pub fn parallel(&self) -> bool {
        self.spec.pod_management_policy == "Parallel"
    }

    /// Returns whether the controller is replacing pods by those of a newer template, or has not observed the last change.
    pub fn rolls(&self) -> bool {
        let Self { spec, status, .. } = self;
        let reached = self.replicas().saturating_sub(spec.update_strategy.partition().max(0));
        !self.is_observed()
            || status.current_revision != status.update_revision
                && !spec.update_strategy.on_delete()
                && status.updated_replicas < reached
    }

    /// Returns the first ordinal that a new template reaches. The partition is counted from the first ordinal of the StatefulSet.
    pub fn first_updated_ordinal(&self) -> i64 {
        self.spec.ordinals.start.saturating_add(self.spec.update_strategy.held_back())
    }

    /// Returns whether its controller has seen the last change.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation
    }

    /// Returns the revision that a new pod of this ordinal is created from, if it is not the newest template.
    pub fn older_revision_for(&self, ordinal: i64) -> Option<&str> {
        let older = &*self.status.current_revision;
        let differs = !["", &*self.status.update_revision].contains(&older);
        (differs && !self.creates_newest(ordinal)).then_some(older)
    }

    /// Returns whether a new pod of this ordinal is created from the newest template. Without details of
    /// RollingUpdate, the first `current_replicas` ordinals, which the rollout has not reached, keep the older template; with
    /// OnDelete every new pod gets the newest.
    pub fn creates_newest(&self, ordinal: i64) -> bool {
        let Self { spec: WorkloadSpec { update_strategy: strategy, ordinals, .. }, status, .. } = self;
        let kept = match &strategy.rolling_update {
            Some(details) => details.partition,
            None if strategy.on_delete() => 0,
            None => status.current_replicas,
        };
        ordinal >= ordinals.start.saturating_add(kept)
    }

    /// Returns the ordinals that should exist. With a negative number of replicas there are none.
    pub fn ordinals(&self) -> std::ops::Range<i64> {
        let start = self.spec.ordinals.start;
        start..start.saturating_add(self.replicas().max(0))
    }
}

/// Returns the ordinal of a pod with this name in this StatefulSet.
pub fn ordinal(pod: &str, stateful_set: &str) -> Option<i64> {
    pod.strip_prefix(stateful_set)?.strip_prefix('-')?.parse().ok()
}

/// The body of a `/scale` request. `replicas: 0` is sent as an absent field, so absent is zero here. It has the name and the
/// namespace of the object that is scaled, but none of its labels.
pub type Scale = ApiObject<ScaleSpec>;

/// The desired state in a scale request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ScaleSpec {
    pub replicas: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(spec: &str, status: &str) -> Workload {
        serde_json::from_str(&format!(r#"{{"spec":{spec},"status":{status}}}"#)).unwrap()
    }

    #[test]
    fn a_partition_counts_from_the_first_ordinal() {
        let held = workload(
            r#"{"replicas":3,"ordinals":{"start":1},"updateStrategy":{"rollingUpdate":{"partition":1}}}"#,
            "{}",
        );
        assert_eq!(held.first_updated_ordinal(), 2);
        assert!(!held.creates_newest(1) && held.creates_newest(2));
    }

    #[test]
    fn without_details_a_pod_that_the_rollout_has_not_reached_is_recreated_from_the_older_template() {
        let status = r#"{"currentReplicas":2}"#;
        for (strategy, newest) in [
            (r#"{"type":"RollingUpdate"}"#, [false, false, true]),
            (r#"{"type":"RollingUpdate","rollingUpdate":{}}"#, [true; 3]),
            (r#"{"type":"OnDelete"}"#, [true; 3]),
        ] {
            let stateful_set = workload(&format!(r#"{{"replicas":3,"updateStrategy":{strategy}}}"#), status);
            assert_eq!([0, 1, 2].map(|ordinal| stateful_set.creates_newest(ordinal)), newest, "{strategy}");
            assert!(
                (0..3).all(|ordinal| stateful_set.older_revision_for(ordinal).is_none()),
                "no status names an older revision"
            );
        }
        let status = r#"{"currentRevision":"a","updateRevision":"b"}"#;
        let held = workload(r#"{"updateStrategy":{"rollingUpdate":{"partition":2}}}"#, status);
        assert_eq!([1, 2].map(|ordinal| held.older_revision_for(ordinal)), [Some("a"), None]);
    }
}
