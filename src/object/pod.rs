//! Pods and what they are made of: containers, environment, probes, volumes; and the nodes they run on.

use std::fmt;

use serde::Deserialize;

use super::meta::or_default;
use super::{Labels, Meta};

/// Text that may hold a password. It can be looked at, but not printed by accident: its `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Literal(String);

impl Literal {
    /// The text, for judging it. Never for a message.
    pub fn look(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} hidden bytes)", self.0.len())
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Template {
    /// Labels and marks that every pod gets.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// What every pod runs.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
}

/// What a pod runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Main containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Containers that run first, or beside (restartPolicy Always).
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Volumes, by reference.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<Volume>,
    /// Where it runs; empty before it is scheduled.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
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

    /// The ConfigMaps whose text reaches a container of this pod.
    pub fn config_maps(&self) -> impl Iterator<Item = &str> {
        let mounted = self.volumes.iter().flat_map(|volume| {
            let projected =
                volume.projected.iter().flat_map(|p| &p.sources).filter_map(|s| s.config_map.as_ref());
            volume.config_map.iter().chain(projected)
        });
        let environment = self.all_containers().flat_map(|(_, container)| {
            let whole = container.env_from.iter().filter_map(|from| from.config_map_ref.as_ref());
            let keys =
                container.env.iter().filter_map(|var| var.value_from.as_ref()?.config_map_key_ref.as_ref());
            whole.chain(keys)
        });
        mounted.chain(environment).map(|reference| &*reference.name)
    }
}

/// One container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name in the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Image reference as written.
    #[serde(deserialize_with = "or_default")]
    pub image: String,
    /// Replaces the image's entrypoint.
    #[serde(deserialize_with = "or_default")]
    pub command: Vec<Literal>,
    /// Arguments of the entrypoint.
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<Literal>,
    /// Environment, one by one.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<EnvVar>,
    /// Environment, whole ConfigMaps and Secrets.
    #[serde(deserialize_with = "or_default")]
    pub env_from: Vec<EnvFrom>,
    /// Declared ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
    /// Where volumes appear.
    #[serde(deserialize_with = "or_default")]
    pub volume_mounts: Vec<Mount>,
    /// Restarts the container when it fails.
    pub liveness_probe: Option<Handler>,
    /// Takes the pod out of its Services when it fails.
    pub readiness_probe: Option<Handler>,
    /// Holds the other two back until it succeeds.
    pub startup_probe: Option<Handler>,
    /// Hooks.
    #[serde(deserialize_with = "or_default")]
    pub lifecycle: Lifecycle,
}

impl Container {
    /// Every command line the container can run, with the field it stands in.
    pub fn command_lines(&self) -> impl Iterator<Item = (&'static str, &[Literal])> {
        let handlers = [
            ("livenessProbe.exec.command", &self.liveness_probe),
            ("readinessProbe.exec.command", &self.readiness_probe),
            ("startupProbe.exec.command", &self.startup_probe),
            ("lifecycle.preStop.exec.command", &self.lifecycle.pre_stop),
            ("lifecycle.postStart.exec.command", &self.lifecycle.post_start),
        ];
        let own = [("command", &*self.command), ("args", &*self.args)];
        own.into_iter()
            .chain(
                handlers
                    .into_iter()
                    .filter_map(|(field, handler)| Some((field, &*handler.as_ref()?.exec.command))),
            )
            .filter(|(_, words)| !words.is_empty())
    }
}

/// One environment variable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its value, when it is written into the manifest.
    #[serde(deserialize_with = "or_default")]
    pub value: Literal,
    /// Where its value comes from, when it is not.
    pub value_from: Option<ValueFrom>,
}

/// Where the value of a variable comes from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValueFrom {
    /// A key of a ConfigMap.
    pub config_map_key_ref: Option<SourceRef>,
}

/// All keys of one object as variables.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFrom {
    /// A ConfigMap.
    pub config_map_ref: Option<SourceRef>,
}

/// A reference by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SourceRef {
    /// Name of the object, in the pod's namespace.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// A declared port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// The number.
    #[serde(deserialize_with = "or_default")]
    pub container_port: i64,
}

/// Where a volume appears.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Mount {
    /// Name of the volume.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Where in the container.
    #[serde(deserialize_with = "or_default")]
    pub mount_path: String,
}

/// A probe or hook, as far as it runs a command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Handler {
    /// The command; empty for HTTP, TCP and gRPC.
    #[serde(deserialize_with = "or_default")]
    pub exec: Exec,
}

/// A command run in a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Exec {
    /// Program and arguments.
    #[serde(deserialize_with = "or_default")]
    pub command: Vec<Literal>,
}

/// Hooks of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Lifecycle {
    /// Before it stops.
    pub pre_stop: Option<Handler>,
    /// After it started.
    pub post_start: Option<Handler>,
}

/// A volume, as far as it refers to an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Name that mounts use.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// A ConfigMap as files.
    pub config_map: Option<SourceRef>,
    /// Several sources in one folder.
    pub projected: Option<Projected>,
}

/// Several sources in one folder.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Projected {
    /// The sources.
    #[serde(deserialize_with = "or_default")]
    pub sources: Vec<Source>,
}

/// One source of a projected volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Source {
    /// A ConfigMap as files.
    pub config_map: Option<SourceRef>,
}

/// How a pod does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Conditions, of which Ready counts.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// How its containers do.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
}

/// One condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Its name.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// True, False, Unknown.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
}

/// How a container does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Waiting, running or terminated.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
}

/// Waiting, running or terminated.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Why it does not run (yet, or again).
    pub waiting: Option<Waiting>,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// CrashLoopBackOff, ImagePullBackOff, ContainerCreating …
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
}

impl Pod {
    /// The kubelet says Ready, and the pod is not on its way out.
    pub fn ready(&self) -> bool {
        !self.metadata.going() && condition(&self.status.conditions, "Ready")
    }

    /// A container falls over again and again, or cannot start at all: no waiting will make this pod Ready.
    pub fn stuck(&self) -> bool {
        const HOPELESS: [&str; 6] = [
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "ErrImagePull",
            "InvalidImageName",
            "CreateContainerConfigError",
            "CreateContainerError",
        ];
        let waits = self.status.container_statuses.iter().filter_map(|status| status.state.waiting.as_ref());
        self.status.phase == "Failed" || waits.into_iter().any(|waiting| HOPELESS.contains(&&*waiting.reason))
    }
}

fn condition(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// A Node, as far as it decides where a member can run.
#[derive(Clone, Debug, Default, Deserialize)]
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
    /// What keeps pods away.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// NoSchedule, PreferNoSchedule, NoExecute.
    #[serde(deserialize_with = "or_default")]
    pub effect: String,
}

/// Conditions of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Ready counts.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

impl Node {
    /// An ordinary pod without tolerations could be placed here now.
    pub fn schedulable(&self) -> bool {
        let tainted =
            self.spec.taints.iter().any(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
        !self.spec.unschedulable && !tainted && condition(&self.status.conditions, "Ready")
    }
}

/// Labels are looked at as often as specs; this keeps the callers short.
impl AsRef<Labels> for Template {
    fn as_ref(&self) -> &Labels {
        &self.metadata.labels
    }
}
