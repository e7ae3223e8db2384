//! Pods: what they run, what they refer to, and how they do.

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::meta::{list, name, or_default};
use super::references::SourceRef;
use super::unreadable::within;
use super::{Affinity, Container, Fingerprint, Labels, Meta};

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name, labels, marks, owner.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What it runs.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// How it does.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// The pod template of a StatefulSet or Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Labels and marks that every pod gets.
    pub metadata: Meta,
    /// What every pod runs.
    pub spec: PodSpec,
    /// Of the whole text: any change of it restarts the pods, also of what is not read here.
    pub fingerprint: Fingerprint,
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Read {
            #[serde(deserialize_with = "or_default")]
            metadata: Meta,
            #[serde(deserialize_with = "or_default")]
            spec: PodSpec,
        }
        let text = <&RawValue>::deserialize(input)?.get();
        let read = serde_json::from_str(text);
        let Read { metadata, spec } = read.map_err(|_| de::Error::custom(within::<Read>(text)))?;
        Ok(Self { metadata, spec, fingerprint: Fingerprint::of(text) })
    }
}

/// What a pod runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Main containers.
    #[serde(deserialize_with = "list")]
    pub containers: Vec<Container>,
    /// Containers that run first, or beside (restartPolicy Always).
    #[serde(deserialize_with = "list")]
    pub init_containers: Vec<Container>,
    /// Containers that somebody put into the running pod.
    #[serde(deserialize_with = "list")]
    pub ephemeral_containers: Vec<Container>,
    /// Volumes, by reference.
    #[serde(deserialize_with = "list")]
    pub volumes: Vec<Volume>,
    /// The ServiceAccount that it runs as; empty: `default`, which is made again by itself.
    #[serde(deserialize_with = "or_default")]
    pub service_account_name: String,
    /// The Secrets that its images are pulled with.
    #[serde(deserialize_with = "list")]
    pub image_pull_secrets: Vec<SourceRef>,
    /// Where it runs; empty before it is scheduled.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// Seconds between "stop" and "die"; the API server makes an absent number 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Beside whom it may run.
    #[serde(deserialize_with = "or_default")]
    pub affinity: Affinity,
    /// Labels its node must have.
    #[serde(deserialize_with = "or_default")]
    pub node_selector: Labels,
    /// Taints it does not mind.
    #[serde(deserialize_with = "list")]
    pub tolerations: Vec<Toleration>,
}

/// A taint that a pod does not mind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// Its key; empty: any.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Exists, or Equal (also if empty).
    #[serde(deserialize_with = "or_default")]
    pub operator: String,
    /// For Equal.
    #[serde(deserialize_with = "or_default")]
    pub value: String,
    /// Empty: any effect.
    #[serde(deserialize_with = "or_default")]
    pub effect: String,
}

impl PodSpec {
    /// Every container with the name of the list it stands in.
    pub fn all_containers(&self) -> impl Iterator<Item = (&'static str, &Container)> {
        let named = |list: &'static str| move |container| (list, container);
        self.containers
            .iter()
            .map(named("containers"))
            .chain(self.init_containers.iter().map(named("initContainers")))
    }

    /// How long a member may take to leave, after all defaults.
    pub fn grace(&self) -> i64 {
        self.termination_grace_period_seconds.unwrap_or(30)
    }
}

/// A volume, as far as it refers to an object. It is one of these kinds, so what is large is boxed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Name that mounts use.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// A ConfigMap as files.
    pub config_map: Option<Box<SourceRef>>,
    /// Several sources in one folder.
    pub projected: Option<Projected>,
    /// A Secret as files.
    pub secret: Option<Box<SourceRef>>,
    /// An empty folder that goes with the pod.
    pub empty_dir: Option<EmptyDir>,
    /// Fields of the pod itself as files.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardApi>,
    /// A claim, by name.
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A claim that goes with the pod.
    pub ephemeral: Option<super::Present>,
    /// A folder of the node.
    pub host_path: Option<HostPath>,
}

/// A folder of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostPath {
    /// Where.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
}

/// An empty folder that goes with the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EmptyDir {
    /// Empty for the node's disk, or Memory.
    #[serde(deserialize_with = "or_default")]
    pub medium: String,
}

/// Fields of the pod itself as files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DownwardApi {
    /// The files.
    #[serde(deserialize_with = "list")]
    pub items: Vec<DownwardFile>,
}

/// One field as a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DownwardFile {
    /// Its name in the volume.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// Which field.
    #[serde(deserialize_with = "or_default")]
    pub field_ref: FieldRef,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FieldRef {
    /// `metadata.annotations['…']`
    #[serde(deserialize_with = "or_default")]
    pub field_path: String,
}

/// A claim, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimVolume {
    /// Name of the claim, the same for every pod of the template.
    #[serde(deserialize_with = "or_default")]
    pub claim_name: String,
}

/// Several sources in one folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Projected {
    /// The sources.
    #[serde(deserialize_with = "list")]
    pub sources: Vec<Source>,
}

/// One source of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Source {
    /// A ConfigMap as files.
    pub config_map: Option<Box<SourceRef>>,
    /// A Secret as files.
    pub secret: Option<Box<SourceRef>>,
}

/// How a pod does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Conditions, of which Ready counts.
    #[serde(deserialize_with = "list")]
    pub conditions: Vec<Condition>,
    /// How its containers do.
    #[serde(deserialize_with = "list")]
    pub container_statuses: Vec<ContainerStatus>,
    /// How those do that come before them.
    #[serde(deserialize_with = "list")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its name.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// True, False, Unknown.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    /// Since when it is so.
    #[serde(deserialize_with = "or_default")]
    pub last_transition_time: String,
}

/// How a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Waiting, running or terminated.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
    /// How it ended the last time.
    #[serde(deserialize_with = "or_default")]
    pub last_state: ContainerState,
    /// Its startup probe has succeeded.
    #[serde(deserialize_with = "or_default")]
    pub started: bool,
    /// How often it was started again.
    #[serde(deserialize_with = "or_default")]
    pub restart_count: i64,
}

/// Waiting, running or terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Why it does not run (yet, or again).
    pub waiting: Option<Waiting>,
    /// It runs.
    pub running: Option<Run>,
    /// It has ended.
    pub terminated: Option<Run>,
}

/// One life of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Run {
    /// When it began, by the clock of its node.
    #[serde(deserialize_with = "or_default")]
    pub started_at: String,
    /// Its last words, whoever wrote them.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// CrashLoopBackOff, ImagePullBackOff, ContainerCreating …
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
}

const NO_IMAGE: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "InvalidImageName"];

impl ContainerStatus {
    fn waits_for(&self, reasons: &[&str]) -> bool {
        self.state.waiting.as_ref().is_some_and(|it| reasons.contains(&&*it.reason))
    }
}

impl Pod {
    /// The kubelet says Ready, and the pod is not on its way out.
    pub fn ready(&self) -> bool {
        !self.metadata.going() && condition(&self.status.conditions, "Ready")
    }

    /// This container runs at the moment, as far as the kubelet says.
    pub fn runs(&self, container: &str) -> bool {
        self.status
            .container_statuses
            .iter()
            .any(|status| status.name == container && status.state.running.is_some())
    }

    /// What this container left behind when it ended the last time, as long as it has not started well since.
    pub fn last_words(&self, container: &str) -> Option<&str> {
        let status = self.container_status(container)?;
        let ended = status.state.terminated.as_ref().or(status.last_state.terminated.as_ref());
        ended.filter(|_| !status.started).map(|ended| &*ended.message)
    }

    /// When this container began to run the last time, as the kubelet wrote it; `None`: it never did, or has started well.
    pub fn began(&self, container: &str) -> Option<&str> {
        let status = self.container_status(container).filter(|status| !status.started)?;
        let runs = [&status.state.running, &status.state.terminated, &status.last_state.terminated];
        runs.into_iter().flatten().next().map(|run| &*run.started_at)
    }

    /// How often this container was started again.
    pub fn restarts(&self, container: &str) -> i64 {
        self.container_status(container).map_or(0, |status| status.restart_count)
    }

    /// Since when it is not Ready, as the kubelet wrote it.
    pub fn unready_since(&self) -> Option<&str> {
        let unready = |it: &&Condition| it.kind == "Ready" && it.status != "True";
        self.status.conditions.iter().find(unready).map(|it| &*it.last_transition_time)
    }

    /// Since when this container runs, as the kubelet wrote it.
    pub fn since(&self, container: &str) -> Option<&str> {
        Some(&*self.container_status(container)?.state.running.as_ref()?.started_at)
    }

    fn container_status(&self, container: &str) -> Option<&ContainerStatus> {
        self.status.container_statuses.iter().find(|status| status.name == container)
    }

    /// A container falls over again and again, or cannot start at all: no waiting will make this pod Ready.
    pub fn stuck(&self) -> bool {
        const HOPELESS: [&str; 3] =
            ["CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"];
        let PodStatus { init_container_statuses, container_statuses, phase, .. } = &self.status;
        let mut all = init_container_statuses.iter().chain(container_statuses);
        phase == "Failed" || all.any(|it| it.waits_for(&HOPELESS) || it.waits_for(&NO_IMAGE))
    }

    /// The image of this container, or of one that comes before it, cannot be had.
    pub fn lacks_an_image(&self, container: &str) -> bool {
        let before = self.status.init_container_statuses.iter();
        before.chain(self.container_status(container)).any(|it| it.waits_for(&NO_IMAGE))
    }
}

pub(super) fn condition(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// Labels are looked at as often as specs; this keeps the callers short.
impl AsRef<Labels> for Template {
    fn as_ref(&self) -> &Labels {
        &self.metadata.labels
    }
}
