//! The commands for a cluster that ways out name.

use super::{Cluster, Id};
use crate::way_out::{CommandLine, WayOut, say};

impl Cluster {
    fn gatera(&self, verb: &str) -> CommandLine {
        CommandLine::new(format!("gatera {verb} {} -n {}", self.id.name, self.id.namespace))
    }

    /// Returns the command that recovers the cluster when it is down.
    pub fn recover_command(&self) -> CommandLine {
        self.gatera("recover")
    }

    /// Returns the command that starts the cluster after an orderly stop.
    pub fn start_command(&self) -> CommandLine {
        self.gatera("start")
    }

    /// Returns a command that ends by itself as soon as all members are Ready.
    pub fn wait_command(&self) -> CommandLine {
        let (Id { namespace, name }, replicas) = (&self.id, self.workload.replicas());
        let wait = CommandLine::new(format!("kubectl -n {namespace} wait"));
        let wait = if self.orphaned {
            let pods = self.members.iter().filter_map(|member| member.pod.as_ref());
            pods.fold(wait, |wait, pod| wait.arg(format!("pod/{}", pod.name))).arg("--for=condition=Ready")
        } else {
            let ready = format!("--for=jsonpath={{.status.readyReplicas}}={replicas}");
            wait.arg(format!("statefulset/{name}")).arg(ready)
        };
        wait.arg("--timeout=10m")
    }

    /// Returns the command that stops the cluster in order.
    pub fn stop_command(&self) -> CommandLine {
        self.gatera("stop")
    }

    /// Returns the command that changes the password of this account; `root` is the usual one.
    pub fn passwd_command(&self, account: &str) -> CommandLine {
        let command = self.gatera("passwd");
        if account == "root" { command } else { command.arg("--user").arg(account) }
    }

    /// Returns the command that deletes the claims of members that are gone, with their data.
    pub fn delete_left_claims_command(&self) -> CommandLine {
        let delete = CommandLine::new(format!("kubectl -n {} delete pvc", self.id.namespace));
        self.left_claims().fold(delete, |command, claim| command.arg(&*claim.name))
    }

    /// Returns the command that shows the state of each member in its namespace.
    pub fn status_command(&self) -> CommandLine {
        CommandLine::new(format!("gatera status -n {}", self.id.namespace))
    }
}

/// Returns what to do about the pods of a node that does not answer: they stay until the node is back or given up.
pub fn way_out_of_silent_node(node: &str) -> WayOut {
    say(format!("bring node {node} back"))
        .then("its server may still run and serve. Only if the node is switched off: ")
        .run(out_of_service_command(node))
        .say(" lets its pod start on another node, if its volume can move there")
}

/// Returns the command that gives up a node that is switched off.
pub fn out_of_service_command(node: &str) -> CommandLine {
    CommandLine::new(format!(
        "kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    ))
}
