//! Containers: image, command lines, environment, probes and hooks. This is where manifests keep passwords, so text is
//! read as [`Literal`], which cannot be printed by accident.

use std::fmt;

use serde::Deserialize;

use super::meta::{list, name, or_default, variable};
use super::quantity::Quantity;
use super::references::SourceRef;
use super::workload::Resources;

/// Text that may hold a password. It can be looked at, but not printed by accident: its `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq, Hash, Deserialize)]
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

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name in the pod.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Image reference as written.
    #[serde(deserialize_with = "or_default")]
    pub image: String,
    /// Replaces the image's entrypoint.
    #[serde(deserialize_with = "list")]
    pub command: Vec<Literal>,
    /// Arguments of the entrypoint.
    #[serde(deserialize_with = "list")]
    pub args: Vec<Literal>,
    /// Environment, one by one.
    #[serde(deserialize_with = "list")]
    pub env: Vec<EnvVar>,
    /// Environment, whole ConfigMaps and Secrets.
    #[serde(deserialize_with = "list")]
    pub env_from: Vec<EnvFrom>,
    /// Declared ports.
    #[serde(deserialize_with = "list")]
    pub ports: Vec<Port>,
    /// CPU and memory.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
    /// What becomes of it when those change while it runs.
    #[serde(deserialize_with = "list")]
    pub resize_policy: Vec<ResizePolicy>,
    /// Where volumes appear.
    #[serde(deserialize_with = "list")]
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
    /// It is restarted when a running pod gives it the resources of this one.
    pub fn is_restarted_as(&self, new: &Self) -> bool {
        let (before, after) = (&self.resources, &new.resources);
        let changes = |name: &str| {
            before.requests.get(name) != after.requests.get(name)
                || before.limits.get(name) != after.limits.get(name)
        };
        let mut restarts = self.resize_policy.iter().filter(|it| it.restart_policy == "RestartContainer");
        restarts.any(|it| changes(&it.resource_name))
    }

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

/// Whether another amount of one resource restarts the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResizePolicy {
    #[serde(deserialize_with = "or_default")]
    resource_name: String,
    #[serde(deserialize_with = "or_default")]
    restart_policy: String,
}

/// One environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name.
    #[serde(deserialize_with = "variable")]
    pub name: String,
    /// Its value, when it is written into the manifest.
    #[serde(deserialize_with = "or_default")]
    pub value: Literal,
    /// Where its value comes from, when it is not.
    pub value_from: Option<Box<ValueFrom>>,
}

/// Where the value of a variable comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "as the API calls them")]
pub struct ValueFrom {
    /// A key of a ConfigMap.
    pub config_map_key_ref: Option<SourceRef>,
    /// A key of a Secret.
    pub secret_key_ref: Option<SourceRef>,
    /// A field of the pod, which is another in each.
    pub field_ref: Option<super::Present>,
}

/// All keys of one object as variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFrom {
    /// A ConfigMap.
    pub config_map_ref: Option<SourceRef>,
    /// A Secret.
    pub secret_ref: Option<SourceRef>,
}

/// A declared port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// By which others may refer to it.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The number.
    #[serde(deserialize_with = "or_default")]
    pub container_port: i64,
}

/// Where a volume appears.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "as Kubernetes calls them")]
pub struct Mount {
    /// Name of the volume.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Where in the container.
    #[serde(deserialize_with = "or_default")]
    pub mount_path: String,
    /// One file or folder of the volume, instead of all of it.
    #[serde(deserialize_with = "or_default")]
    pub sub_path: String,
    /// The same, with variables in it.
    #[serde(deserialize_with = "or_default")]
    pub sub_path_expr: String,
}

/// A probe or hook: its command, and of a probe its patience.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Handler {
    /// The command; empty for HTTP, TCP and gRPC.
    #[serde(deserialize_with = "or_default")]
    pub exec: Exec,
    /// It asks over HTTP: whom is not read.
    pub http_get: Option<super::Present>,
    /// It asks whether a port takes connections.
    pub tcp_socket: Option<TcpSocket>,
    /// Seconds before the first try.
    #[serde(deserialize_with = "or_default")]
    pub initial_delay_seconds: i64,
    /// Seconds between tries; the API server makes an absent number 10.
    pub period_seconds: Option<i64>,
    /// So many failures in a row count; the API server makes an absent number 3.
    pub failure_threshold: Option<i64>,
}

impl Handler {
    /// The seconds that may pass before it gives up on a container that just started.
    pub fn patience(&self) -> i64 {
        let tries = self.period_seconds.unwrap_or(10).saturating_mul(self.failure_threshold.unwrap_or(3));
        self.initial_delay_seconds.saturating_add(tries)
    }
}

/// A port that has to take connections: its number, or the name of a declared one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    /// As it is written.
    pub port: Option<Quantity>,
}

/// A command run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Exec {
    /// Program and arguments.
    #[serde(deserialize_with = "list")]
    pub command: Vec<Literal>,
}

/// Hooks of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Lifecycle {
    /// Before it stops.
    pub pre_stop: Option<Handler>,
    /// After it started.
    pub post_start: Option<Handler>,
    /// By what it is told to stop, if not by what its image says.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
}
