//! The status of a pod, as its kubelet reports it: conditions, and the runs of its containers.

use serde::Deserialize;

use super::Pod;
use super::meta::{list, or_default};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The reason why it failed, in one word.
    pub reason: String,
    /// The reason why it failed, in a sentence.
    pub message: String,
    /// The conditions, of which Ready and PodScheduled count.
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
    /// Its startup probe has succeeded.
    pub started: bool,
    /// The number of restarts.
    pub restart_count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// The reason why it does not run (yet, or again).
    pub waiting: Option<Waiting>,
    pub running: Option<Run>,
    pub terminated: Option<Run>,
}

/// One run of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Run {
    /// When it began, by the clock of its node.
    #[serde(deserialize_with = "or_default")]
    pub started_at: String,
    /// Its termination message.
    pub message: String,
}

/// Why a container does not run.
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
        self.state.waiting.as_ref().is_some_and(|it| reasons.contains(&&*it.reason))
    }

    /// Returns whether the container runs, as far as the kubelet reports.
    pub fn runs(&self) -> bool {
        self.state.running.is_some()
    }

    /// Returns since when the container runs, as the kubelet wrote it.
    pub fn since(&self) -> Option<&str> {
        Some(&*self.state.running.as_ref()?.started_at)
    }

    /// Returns the termination message, as long as the container has not started well since.
    pub fn last_words(&self) -> Option<&str> {
        let ended = self.state.terminated.as_ref().or(self.last_state.terminated.as_ref());
        ended.filter(|_| !self.started).map(|ended| &*ended.message)
    }

    /// Returns when the container last started, as the kubelet wrote it; `None`: it never did, or has started well.
    pub fn began(&self) -> Option<&str> {
        self.last_run().filter(|_| !self.started).map(|run| &*run.started_at)
    }

    fn last_run(&self) -> Option<&Run> {
        let runs = [&self.state.running, &self.state.terminated, &self.last_state.terminated];
        runs.into_iter().flatten().next()
    }
}

impl Pod {
    /// Returns whether the pod is Ready and not being deleted.
    pub fn ready(&self) -> bool {
        !self.metadata.going() && condition(&self.status.conditions, "Ready")
    }

    /// Returns whether this container has run, however shortly, or may have: a pod that a kubelet rejected after a
    /// restart of its node has no container status.
    pub fn has_run(&self, container: &str) -> bool {
        let ran = |status: &ContainerStatus| status.restart_count > 0 || status.last_run().is_some();
        !matches!(&*self.status.phase, "" | "Pending") || self.container_status(container).is_some_and(ran)
    }

    /// Returns since when it is not Ready, as the kubelet wrote it, or since when it is pending without a node.
    pub fn unready_since(&self) -> Option<&str> {
        let unready = |it: &&PodCondition| it.kind == "Ready" && it.status != "True";
        let condition = self.status.conditions.iter().find(unready).or(self.unscheduled());
        condition.map(|it| &*it.last_transition_time)
    }

    fn unscheduled(&self) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False")
    }

    /// Returns Kubernetes' reason why nothing runs in it: from the scheduler, from a kubelet that rejected it, or from
    /// a container that waits.
    pub fn held_up_by(&self) -> Option<&str> {
        let PodStatus { phase, reason, message, .. } = &self.status;
        let all = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        // A container in back-off says nothing about the cause.
        let mut waits = all
            .filter_map(|it| it.state.waiting.as_ref())
            .filter(|it| !matches!(&*it.reason, "CrashLoopBackOff" | "PodInitializing" | "ContainerCreating"))
            .map(|it| if it.message.is_empty() { &*it.reason } else { &*it.message });
        let turned_away =
            Some(if message.is_empty() { &**reason } else { message }).filter(|_| phase == "Failed");
        self.unscheduled()
            .map(|it| &*it.message)
            .or(turned_away)
            .or_else(|| waits.next())
            .filter(|it| !it.is_empty())
    }

    /// Returns what the kubelet reports of this container.
    pub fn container_status(&self, container: &str) -> Option<&ContainerStatus> {
        self.status.container_statuses.iter().find(|status| status.name == container)
    }

    /// Returns whether a container fails again and again, or cannot start at all: this pod does not become Ready by
    /// waiting.
    pub fn stuck(&self) -> bool {
        const HOPELESS: [&str; 3] =
            ["CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"];
        let PodStatus { init_container_statuses, container_statuses, phase, .. } = &self.status;
        let mut all = init_container_statuses.iter().chain(container_statuses);
        phase == "Failed" || all.any(|it| it.waits_for(&HOPELESS) || it.waits_for(&NO_IMAGE))
    }

    /// Returns whether the image of this container, or of one before it, cannot be pulled.
    pub fn lacks_an_image(&self, container: &str) -> bool {
        let before = self.status.init_container_statuses.iter();
        before.chain(self.container_status(container)).any(|it| it.waits_for(&NO_IMAGE))
    }
}

pub(super) fn condition(conditions: &[PodCondition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}
