//! The commands for a cluster that ways out name.

use super::{Cluster, Id};
use crate::way_out::{Command, WayOut, say};

impl Cluster {
    fn gatera(&self, verb: &str) -> Command {
        Command::new(format!("gatera {verb} {} -n {}", self.id.name, self.id.namespace))
    }

    /// Returns the command that recovers the cluster when it is down.
    pub fn recover_command(&self) -> Command {
        self.gatera("recover")
    }

    /// Returns the command that starts the cluster after an orderly stop.
    pub fn start_command(&self) -> Command {
        self.gatera("start")
    }

    /// Returns a command that ends by itself as soon as all members are Ready.
    pub fn wait_command(&self) -> Command {
        let (Id { namespace, name }, replicas) = (&self.id, self.workload.replicas());
        let wait = Command::new(format!("kubectl -n {namespace} wait"));
        let wait = if self.left {
            let pods = self.members.iter().filter_map(|member| member.pod.as_ref());
            pods.fold(wait, |wait, pod| wait.arg(format!("pod/{}", pod.name))).arg("--for=condition=Ready")
        } else {
            let ready = format!("--for=jsonpath={{.status.readyReplicas}}={replicas}");
            wait.arg(format!("statefulset/{name}")).arg(ready)
        };
        wait.arg("--timeout=10m")
    }

    /// Returns the command that stops the cluster in order.
    pub fn stop_command(&self) -> Command {
        self.gatera("stop")
    }

    /// Returns the command that changes the password of this account; `root` is the usual one.
    pub fn passwd_command(&self, account: &str) -> Command {
        let command = self.gatera("passwd");
        if account == "root" { command } else { command.arg("--user").arg(account) }
    }

    /// Returns the command that deletes the claims of members that are gone, with their data.
    pub fn delete_left_claims_command(&self) -> Command {
        let delete = Command::new(format!("kubectl -n {} delete pvc", self.id.namespace));
        self.left_claims().fold(delete, |command, claim| command.arg(&*claim.name))
    }

    /// Returns the command that shows what each member of its namespace does.
    pub fn status_command(&self) -> Command {
        Command::new(format!("gatera status -n {}", self.id.namespace))
    }
}

/// Returns what to do about pods of a node that does not answer: they neither serve nor disappear.
pub fn back_or_out_of_service(node: &str) -> WayOut {
    say(format!("bring node {node} back"))
        .then("its server may still run and serve. Only if the node is switched off: ")
        .run(out_of_service(node))
        .say(" lets its pod start on another node, if its volume can move there")
}

/// Returns the command that gives up a node that is switched off.
pub fn out_of_service(node: &str) -> Command {
    Command::new(format!(
        "kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    ))
}
