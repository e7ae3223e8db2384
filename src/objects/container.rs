//! Containers: image, command lines, environment, probes and hooks. Manifests keep passwords here, so text is read as
//! [`Literal`], which cannot be printed by accident.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::hidden::Hidden;
use super::meta::{TextVisitor, list, name, variable};
use super::quantity::Quantity;
use super::references::SourceRef;
use super::workload::Resources;

/// Text of a manifest that may hold a password. A clone shares the text.
pub type Literal = Hidden<Arc<str>>;

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_str(TextVisitor(|text| text.map(Self::from).unwrap_or_default()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// The container's name in the pod.
    #[serde(deserialize_with = "name")]
    pub name: String,
    pub image: String,
    #[serde(deserialize_with = "list")]
    pub command: Vec<Literal>,
    #[serde(deserialize_with = "list")]
    pub args: Vec<Literal>,
    #[serde(deserialize_with = "list")]
    pub env: Vec<EnvVar>,
    /// ConfigMaps and Secrets whose keys all become variables.
    #[serde(deserialize_with = "list")]
    pub env_from: Vec<EnvFrom>,
    #[serde(deserialize_with = "list")]
    pub ports: Vec<Port>,
    pub resources: Resources,
    /// Whether the container restarts when its resources change while it runs.
    #[serde(deserialize_with = "list")]
    pub resize_policy: Vec<ResizePolicy>,
    #[serde(deserialize_with = "list")]
    pub volume_mounts: Vec<Mount>,
    /// Restarts the container when it fails.
    pub liveness_probe: Option<Handler>,
    /// Takes the pod out of its Services when it fails.
    pub readiness_probe: Option<Handler>,
    /// Delays the other two probes until it succeeds.
    pub startup_probe: Option<Handler>,
    pub lifecycle: Lifecycle,
}

impl Container {
    /// Returns whether a running container restarts when it gets the resources of `new`.
    pub fn restarts_with(&self, new: &Self) -> bool {
        let (before, after) = (&self.resources, &new.resources);
        let changes = |name: &str| {
            before.requests.get(name) != after.requests.get(name)
                || before.limits.get(name) != after.limits.get(name)
        };
        let mut restarts = self.resize_policy.iter().filter(|it| it.restart_policy == "RestartContainer");
        restarts.any(|it| changes(&it.resource_name))
    }

    /// Returns every command line that the container can run, with its field.
    pub fn command_lines(&self) -> impl Iterator<Item = (&'static str, &[Literal])> {
        let handlers = [
            ("livenessProbe.exec.command", &self.liveness_probe),
            ("readinessProbe.exec.command", &self.readiness_probe),
            ("startupProbe.exec.command", &self.startup_probe),
            ("lifecycle.preStop.exec.command", &self.lifecycle.pre_stop),
            ("lifecycle.postStart.exec.command", &self.lifecycle.post_start),
        ];
        let commands = handlers.map(|(field, handler)| Some((field, &*handler.as_ref()?.exec.command)));
        let main = [("command", &*self.command), ("args", &*self.args)];
        main.into_iter().chain(commands.into_iter().flatten()).filter(|(_, words)| !words.is_empty())
    }
}

/// The policy that decides whether a change of one resource restarts the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResizePolicy {
    resource_name: String,
    restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    #[serde(deserialize_with = "variable")]
    pub name: String,
    /// The value, if the manifest contains it.
    pub value: Literal,
    /// The source of the value, if the manifest does not contain it.
    pub value_from: Option<Box<ValueFrom>>,
}

/// The source of a variable's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "as the API calls them")]
pub struct ValueFrom {
    /// A key of a ConfigMap.
    pub config_map_key_ref: Option<SourceRef>,
    /// A key of a Secret.
    pub secret_key_ref: Option<SourceRef>,
    /// A field of the pod, whose value may differ in each pod.
    pub field_ref: Option<super::Present>,
}

/// A ConfigMap or Secret whose keys all become variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFrom {
    pub config_map_ref: Option<SourceRef>,
    pub secret_ref: Option<SourceRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// The name by which probes and Services may refer to the port.
    pub name: String,
    pub container_port: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "as Kubernetes calls them")]
pub struct Mount {
    #[serde(deserialize_with = "name")]
    pub name: String,
    pub mount_path: String,
    /// One file or folder of the volume, instead of all of it.
    pub sub_path: String,
    /// The same as `sub_path`, with variables in it.
    pub sub_path_expr: String,
}

/// A probe or hook: its command, and the timing of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Handler {
    /// The command; empty for HTTP, TCP and gRPC.
    pub exec: Exec,
    /// An HTTP probe; its content is not read.
    pub http_get: Option<super::Present>,
    /// A TCP probe.
    pub tcp_socket: Option<TcpSocket>,
    /// Seconds before the first try.
    pub initial_delay_seconds: i64,
    /// Seconds between tries; the API server sets an absent number to 10.
    pub period_seconds: Option<i64>,
    /// Failures in a row after which the probe has failed; the API server sets an absent number to 3.
    pub failure_threshold: Option<i64>,
}

impl Handler {
    /// Returns the seconds until the probe gives up on a container that has just started.
    pub fn seconds_to_failure(&self) -> i64 {
        let tries = self.period_seconds.unwrap_or(10).saturating_mul(self.failure_threshold.unwrap_or(3));
        self.initial_delay_seconds.saturating_add(tries)
    }
}

/// The port of a TCP probe: its number, or the name of a declared port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    pub port: Option<Quantity>,
}

/// A command that is run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Exec {
    #[serde(deserialize_with = "list")]
    pub command: Vec<Literal>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Lifecycle {
    pub pre_stop: Option<Handler>,
    pub post_start: Option<Handler>,
    /// The stop signal, if it differs from the image's.
    pub stop_signal: String,
}
