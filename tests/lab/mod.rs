//! The control-plane lab: a real etcd, kube-apiserver and kube-controller-manager, and the real kubectl and Helm, on
//! loopback, as an ordinary user, for tests and for the demo. It has no scheduler and no kubelet, unless a plane is started
//! with nodes: pods stay Pending until a test reports on them as a node would.
//!
//! A start passes through these files in this order:
//!
//! | file | owns |
//! |---|---|
//! | `tools.rs`, `tools/` | where the programs are, and building them once from a pinned Go module |
//! | `users.rs` | the users of the API server: tokens, keys, one kubeconfig per user |
//! | `supervise.rs`, `supervise.sh` | processes that cannot outlive the test process |
//! | `control_plane.rs` | the start itself: ports, flags, readiness |
//! | `nodes.rs`, `kwok.yaml` | nodes, if requested: scheduler and kwok |
//! | `machines.rs`, `machines/` | real nodes: containerd, kubelet, network, DNS, images, volumes (root, Linux) |
//! | `command.rs` | one run of a tool, and what it printed |
//! | `kubectl.rs`, `helm.rs`, `kudo.rs`, `checkers.rs` | the tools themselves; fresh namespaces |
//! | `requests.rs` | the requests of the lab itself |
//! | `engines.rs`, `git.rs` | Flux and Argo CD, and the repositories that they read |
//! | `prometheus.rs` | Prometheus, which collects metrics and answers PromQL |
//! | `audit.rs` | what the guard and the engines requested from the API server |
//! | `stored.rs` | objects that are written directly into etcd |
//! | `standins.rs`, `pod_status.rs`, `volumes.rs` | what a scheduler, a kubelet and a volume provisioner would do |
//!
//! A test holds a [`ControlPlane`], names a [`User`] and gets an [`Output`] or the path of a kubeconfig.
//!
//! Environment: `KUBEBUILDER_ASSETS` names a folder with ready-made programs, `GATERA_LAB_KEEP=1` keeps the temp folder
//! with all logs.
#![allow(dead_code, unused_imports, reason = "tests and the demo each use a part of the lab")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a lab that does not work fails the test that uses it, with a message"
)]

mod audit;
mod checkers;
mod command;
mod control_plane;
mod engines;
mod error;
mod git;
mod helm;
mod kubectl;
mod kudo;
mod machines;
mod nodes;
mod pod_status;
mod prometheus;
mod requests;
#[cfg(test)]
mod selftest;
mod standins;
mod stored;
mod supervise;
mod tools;
mod users;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use audit::Asked;
pub(crate) use command::Output;
pub(crate) use control_plane::ControlPlane;
pub(crate) use engines::Engine;
pub(crate) use git::Repository;
pub(crate) use helm::is_helm_3;
pub(crate) use supervise::ends_with_this_process;
pub(crate) use tools::sources_of;
pub(crate) use users::User;

/// The control plane that all tests of this process share, each in its own namespace. The first use starts it. A static is
/// never dropped; the supervisors end the programs when the process has ended.
pub(crate) fn shared() -> &'static ControlPlane {
    static SHARED: LazyLock<ControlPlane> = LazyLock::new(ControlPlane::start);
    &SHARED
}

/// Returns the path of another file of the lab. `file!()` is relative to the package, or absolute where this module is included
/// by an absolute path; `join` handles both.
fn lab_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file!()).with_file_name(name)
}

/// The time limit for anything in the lab. Far more than the usual second: a loaded machine is slow, not broken. On one that was
/// busy with other work, a rollout of three members was once not over after 90 s.
const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the pause before the next look at something that has been waited for this long. Most looks start a program,
/// which takes processor time from what is waited for.
fn pause(waited: Duration) -> Duration {
    (waited / 4).clamp(Duration::from_millis(20), Duration::from_millis(600))
}

/// Calls `probe` again and again until it finds something. Panics with `what` when it never does.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {} s in vain: {what}", PATIENCE.as_secs());
        thread::sleep(pause(begun.elapsed()));
    }
}
