//! Nodes for a control plane: the real scheduler, and kwok as the kubelet of every node. Pods then run without help: they
//! get a volume and a node, become Ready after a moment and go when they are deleted. `kwok.yaml` defines what kwok does.
//!
//! A plane with nodes does not need the stand-ins of `standins.rs`.

use super::control_plane::ControlPlane;
use super::error::Error;
use super::lab_file;
use super::tools::Tools;
use super::users::{Machine, User};

impl ControlPlane {
    /// Starts a control plane with nodes named `node-0`, `node-1` and so on, ready for pods.
    pub(crate) fn start_with_nodes(count: usize) -> Self {
        let mut plane = Self::start();
        let working = plane.bring_up_nodes(count);
        working.unwrap_or_else(|error| panic!("the nodes did not start: {error}"));
        plane
    }

    fn bring_up_nodes(&mut self, count: usize) -> Result<(), Error> {
        self.run_scheduler()?;
        let kubelet = self.files().machine_kubeconfig(Machine::Kwok);
        let flags = [
            format!("--kubeconfig={}", kubelet.display()),
            format!("--config={}", lab_file("kwok.yaml").display()),
            "--manage-all-nodes".to_owned(),
            "--cidr=10.244.0.0/16".to_owned(),
            "--node-ip=192.0.2.1".to_owned(),
            // The controller that would check leases is switched off.
            "--node-lease-duration-seconds=0".to_owned(),
        ];
        self.run("kwok", &Tools::also("kwok")?, &flags)?;
        for number in 0..count {
            self.ensure_node(&format!("node-{number}"));
        }
        Ok(())
    }

    pub(super) fn run_scheduler(&mut self) -> Result<(), Error> {
        let scheduler = self.files().machine_kubeconfig(Machine::Scheduler);
        let flags = [
            format!("--kubeconfig={}", scheduler.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--profiling=false".to_owned(),
        ];
        self.run("kube-scheduler", &Tools::also("kube-scheduler")?, &flags)
    }

    /// Makes a pod Ready or not, as if its readiness probe succeeded or failed, and waits until its condition shows it.
    pub(crate) fn set_ready(&self, namespace: &str, pod: &str, ready: bool) {
        let mark = format!("gatera.lab/ready={ready}");
        let annotate = ["annotate", "pod", pod, "--namespace", namespace, "--overwrite", &mark];
        self.kubectl(User::Admin, &annotate).succeeded();
        let condition = format!("--for=condition=Ready={ready}");
        self.kubectl(User::Admin, &["wait", "--namespace", namespace, &format!("pod/{pod}"), &condition])
            .succeeded();
    }
}
