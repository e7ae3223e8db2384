//! The status of a pod, as its kubelet reports it: conditions, and the runs of its containers.

use serde::Deserialize;

use super::Pod;
use super::meta::{list, or_default};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The reason why the pod failed, in one word.
    pub reason: String,
    /// The reason why the pod failed, in a sentence.
    pub message: String,
    /// The conditions; only Ready and PodScheduled are used.
    #[serde(deserialize_with = "list")]
    pub conditions: Vec<PodCondition>,
    #[serde(deserialize_with = "list")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The status of its init containers.
    #[serde(deserialize_with = "list")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    /// The time since which the condition has this status.
    #[serde(deserialize_with = "or_default")]
    pub last_transition_time: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub state: ContainerState,
    /// The end of the previous run.
    pub last_state: ContainerState,
    /// Whether its startup probe has succeeded.
    pub started: bool,
    /// The number of restarts.
    pub restart_count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// The reason why it does not run (yet, or again).
    pub waiting: Option<Waiting>,
    pub running: Option<ContainerRun>,
    pub terminated: Option<ContainerRun>,
}

/// One run of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerRun {
    /// When it began, by the clock of its node.
    #[serde(deserialize_with = "or_default")]
    pub started_at: String,
    /// Its termination message.
    pub message: String,
}

/// The reason why a container does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// `CrashLoopBackOff`, `ImagePullBackOff`, `ContainerCreating` …
    pub reason: String,
    /// The reason, in a sentence.
    pub message: String,
}

const NO_IMAGE: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "InvalidImageName"];

impl ContainerStatus {
    fn waits_for(&self, reasons: &[&str]) -> bool {
        self.state.waiting.as_ref().is_some_and(|waiting| reasons.contains(&&*waiting.reason))
    }

    /// Returns whether the container runs, as far as the kubelet reports.
    pub fn runs(&self) -> bool {
        self.state.running.is_some()
    }

    /// Returns since when the container runs, as the kubelet wrote it.
    pub fn running_since(&self) -> Option<&str> {
        Some(&*self.state.running.as_ref()?.started_at)
    }

    /// Returns the termination message, until the startup probe of a later run has succeeded.
    pub fn termination_message(&self) -> Option<&str> {
        let ended = self.state.terminated.as_ref().or(self.last_state.terminated.as_ref());
        ended.filter(|_| !self.started).map(|ended| &*ended.message)
    }

    /// Returns when the container last started, as the kubelet wrote it; `None`: it never did, or its startup probe has
    /// succeeded.
    pub fn starting_since(&self) -> Option<&str> {
        self.last_run().filter(|_| !self.started).map(|run| &*run.started_at)
    }

    fn last_run(&self) -> Option<&ContainerRun> {
        let runs = [&self.state.running, &self.state.terminated, &self.last_state.terminated];
        runs.into_iter().flatten().next()
    }
}

impl Pod {
    /// Returns whether the pod is Ready and not being deleted.
    pub fn ready(&self) -> bool {
        !self.metadata.is_terminating() && condition(&self.status.conditions, "Ready")
    }

    /// Returns whether this container has run, however briefly, or may have: a pod that a kubelet rejected after a
    /// restart of its node has no container status.
    pub fn has_run(&self, container: &str) -> bool {
        let ran = |status: &ContainerStatus| status.restart_count > 0 || status.last_run().is_some();
        !matches!(&*self.status.phase, "" | "Pending") || self.container_status(container).is_some_and(ran)
    }

    /// Returns since when the pod is not Ready, as the kubelet wrote it, or since when it is pending without a node.
    pub fn unready_since(&self) -> Option<&str> {
        let is_unready = |condition: &&PodCondition| condition.kind == "Ready" && condition.status != "True";
        let condition = self.status.conditions.iter().find(is_unready).or(self.unscheduled());
        condition.map(|condition| &*condition.last_transition_time)
    }

    fn unscheduled(&self) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|known| known.kind == "PodScheduled" && known.status == "False")
    }

    /// Returns Kubernetes' reason why nothing runs in the pod: from the scheduler, from a kubelet that rejected it, or from
    /// a container that waits.
    pub fn held_up_by(&self) -> Option<&str> {
        let PodStatus { phase, reason, message, .. } = &self.status;
        let statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        // These reasons do not name a cause.
        let mut causes = statuses
            .filter_map(|status| status.state.waiting.as_ref())
            .filter(|waiting| {
                !matches!(&*waiting.reason, "CrashLoopBackOff" | "PodInitializing" | "ContainerCreating")
            })
            .map(|waiting| if waiting.message.is_empty() { &*waiting.reason } else { &*waiting.message });
        let rejection =
            Some(if message.is_empty() { &**reason } else { message }).filter(|_| phase == "Failed");
        self.unscheduled()
            .map(|condition| &*condition.message)
            .or(rejection)
            .or_else(|| causes.next())
            .filter(|cause| !cause.is_empty())
    }

    /// Returns what the kubelet reports of this container.
    pub fn container_status(&self, container: &str) -> Option<&ContainerStatus> {
        self.status.container_statuses.iter().find(|status| status.name == container)
    }

    /// Returns whether the pod has failed, or a container keeps failing or cannot start: waiting does not make this pod
    /// Ready.
    pub fn stuck(&self) -> bool {
        const HOPELESS: [&str; 3] =
            ["CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"];
        let PodStatus { init_container_statuses, container_statuses, phase, .. } = &self.status;
        let mut statuses = init_container_statuses.iter().chain(container_statuses);
        phase == "Failed" || statuses.any(|status| status.waits_for(&HOPELESS) || status.waits_for(&NO_IMAGE))
    }

    /// Returns whether the image of this container, or of one before it, cannot be pulled.
    pub fn lacks_an_image(&self, container: &str) -> bool {
        let init_containers = self.status.init_container_statuses.iter();
        init_containers.chain(self.container_status(container)).any(|status| status.waits_for(&NO_IMAGE))
    }
}

pub(super) fn condition(conditions: &[PodCondition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}
