//! Pods: what they run and what they refer to. Their status is in `pod_status.rs`.

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::meta::{list, name};
use super::pod_status::PodStatus;
use super::references::SourceRef;
use super::unreadable::within;
use super::{Affinity, ApiObject, Container, Fingerprint, Labels, Meta, SpreadConstraint};

pub type Pod = ApiObject<PodSpec, PodStatus>;

/// The pod template of a StatefulSet or Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    /// Labels and annotations that every pod gets.
    pub metadata: Meta,
    pub spec: PodSpec,
    /// A fingerprint of the whole text, because every change restarts the pods, even of fields that are not read here.
    pub fingerprint: Fingerprint,
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(input)?.get();
        let read = serde_json::from_str::<ApiObject<PodSpec>>(text);
        let read = read.map_err(|_| de::Error::custom(within::<ApiObject<PodSpec>>(text)))?;
        Ok(Self { metadata: read.metadata, spec: read.spec, fingerprint: Fingerprint::of(text) })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "list")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them (restartPolicy Always).
    #[serde(deserialize_with = "list")]
    pub init_containers: Vec<Container>,
    /// Containers that were added to the running pod.
    #[serde(deserialize_with = "list")]
    pub ephemeral_containers: Vec<Container>,
    #[serde(deserialize_with = "list")]
    pub volumes: Vec<Volume>,
    /// The ServiceAccount that the pod runs as; empty: `default`, which Kubernetes creates again if it is deleted.
    pub service_account_name: String,
    /// The Secrets with which the images are pulled.
    #[serde(deserialize_with = "list")]
    pub image_pull_secrets: Vec<SourceRef>,
    /// The Service that gives the pod a DNS name.
    pub subdomain: String,
    /// The node that the pod runs on; empty before the pod is scheduled.
    pub node_name: String,
    /// The grace period in seconds; the API server sets an absent number to 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// The pods that this pod avoids, and the nodes that it requires.
    pub affinity: Affinity,
    /// How evenly this pod and similar ones are spread over the nodes.
    #[serde(deserialize_with = "list")]
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    /// The labels that the pod's node must have.
    pub node_selector: Labels,
    /// The taints that the pod tolerates.
    #[serde(deserialize_with = "list")]
    pub tolerations: Vec<Toleration>,
}

/// A taint that a pod tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Toleration {
    pub key: String,
    /// `Exists`, or `Equal` (also if empty).
    pub operator: String,
    pub value: String,
    pub effect: String,
}

impl PodSpec {
    /// Returns every container except ephemeral ones, with the name of its list.
    pub fn all_containers(&self) -> impl Iterator<Item = (&'static str, &Container)> {
        let in_list = |list: &'static str| move |container| (list, container);
        self.containers
            .iter()
            .map(in_list("containers"))
            .chain(self.init_containers.iter().map(in_list("initContainers")))
    }

    /// Returns the grace period, after all defaults.
    pub fn grace(&self) -> i64 {
        self.termination_grace_period_seconds.unwrap_or(30)
    }
}

/// A volume. Only one of its sources is set, so large ones are boxed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    #[serde(deserialize_with = "name")]
    pub name: String,
    pub config_map: Option<Box<SourceRef>>,
    /// Several sources in one folder.
    pub projected: Option<Projected>,
    pub secret: Option<Box<SourceRef>>,
    /// An empty folder that is deleted with the pod.
    pub empty_dir: Option<EmptyDir>,
    /// Fields of the pod itself as files.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardApi>,
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A claim that is deleted with the pod.
    pub ephemeral: Option<super::Present>,
    /// A folder of the node.
    pub host_path: Option<HostPath>,
    /// A folder of a file server.
    pub nfs: Option<super::Present>,
}

/// A folder of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
}

/// An empty folder that is deleted with the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct EmptyDir {
    /// Empty for the node's disk, or `Memory`.
    pub medium: String,
}

/// Fields of the pod itself as files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct DownwardApi {
    #[serde(deserialize_with = "list")]
    pub items: Vec<DownwardFile>,
}

/// One field as a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DownwardFile {
    /// The file's name in the volume.
    pub path: String,
    pub field_ref: FieldRef,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FieldRef {
    pub field_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimVolume {
    /// The name of the claim, the same for every pod of the template.
    pub claim_name: String,
}

/// Several sources in one folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Projected {
    #[serde(deserialize_with = "list")]
    pub sources: Vec<ProjectedSource>,
}

/// One source of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProjectedSource {
    pub config_map: Option<Box<SourceRef>>,
    pub secret: Option<Box<SourceRef>>,
}
