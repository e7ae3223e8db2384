//! A Galera cluster in real pods: the status of each server, its rows, and the manifests that it was created from.
//!
//! Owns: SQL through `kubectl exec`, and waiting for MariaDB. Must not know: the guard.

use std::env;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::{ControlPlane, Output, User};

/// The manifests of the seed documents, from which this project started (docs/seeds.md).
pub const SEED: &str = include_str!("../fixtures/seed.yaml");

/// Returns the series of the server: GATERA_MARIADB, or 10.11. images/build.sh builds its image.
pub fn series() -> String {
    env::var("GATERA_MARIADB").ok().filter(|it| !it.is_empty()).unwrap_or_else(|| "10.11".to_owned())
}

/// The time limit for one step of a cluster with a small database. Even on a busy machine, each step takes less.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Calls `probe` twice a second until it succeeds. Panics with `what`, a statement that should become true, and the last error
/// when the time limit is over.
pub fn patiently<T>(what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(found) => return found,
            Err(seen) => {
                assert!(
                    Instant::now() < deadline,
                    "not true after {} s: {what}; last seen: {seen}",
                    PATIENCE.as_secs()
                );
            }
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// One cluster: instance `name`, StatefulSet `name-galera`.
#[derive(Clone)]
pub struct Galera<'a> {
    pub lab: &'a ControlPlane,
    pub namespace: String,
    pub name: String,
}

impl<'a> Galera<'a> {
    pub fn new(lab: &'a ControlPlane, namespace: &str, name: &str) -> Self {
        Self { lab, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Runs kubectl in the cluster's namespace, as the admin.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.lab.kubectl(User::Admin, &[&["--namespace", &*self.namespace], arguments].concat())
    }

    pub fn apply(&self, manifests: &str) -> Output {
        let arguments = ["apply", "--namespace", &self.namespace, "--filename=-"];
        let manifests = manifests.replace("mariadb:10.11", &format!("mariadb:{}", series()));
        self.lab.kubectl_stdin(User::Admin, &arguments, &manifests)
    }

    pub fn member(&self, ordinal: usize) -> String {
        format!("{}-galera-{ordinal}", self.name)
    }

    /// Returns the cluster's StatefulSet as kubectl addresses it.
    pub fn stateful_set(&self) -> String {
        format!("statefulset/{}-galera", self.name)
    }

    /// Returns the name of a member's claim, as charts/galera names it.
    pub fn claim(&self, ordinal: usize) -> String {
        format!("{}-datadir-{}", self.name, self.member(ordinal))
    }

    /// Returns the folder on this machine that holds the data of a member.
    pub fn volume(&self, ordinal: usize) -> PathBuf {
        self.lab.volume_of(&self.namespace, &self.claim(ordinal))
    }

    /// Runs a statement on a server, with the password that its container has in the environment.
    pub fn sql(&self, pod: &str, statement: &str) -> Output {
        const CLIENT: &str = "MYSQL_PWD=${MARIADB_ROOT_PASSWORD:-$MYSQL_ROOT_PASSWORD} \
            exec mariadb --user=root --batch --skip-column-names --execute=\"$1\"";
        self.kubectl(&["exec", pod, "--container=mariadb", "--", "sh", "-c", CLIENT, "sh", statement])
    }

    /// Runs a statement that must succeed. Returns its trimmed output.
    pub fn ask(&self, pod: &str, statement: &str) -> String {
        self.sql(pod, statement).succeeded().trim().to_owned()
    }

    /// Runs a line of shell in the server's container. Returns its output.
    pub fn in_pod(&self, pod: &str, line: &str) -> String {
        self.kubectl(&["exec", pod, "--container=mariadb", "--", "sh", "-c", line]).succeeded()
    }

    /// Returns what the server reports about its cluster, from its status variables.
    pub fn wsrep(&self, pod: &str) -> Result<Wsrep, String> {
        let status = self.sql(pod, "SHOW GLOBAL STATUS LIKE 'wsrep_%'");
        if status.status != 0 {
            return Err(status.stderr);
        }
        let value = |name: &str| {
            let line = status.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            line.unwrap_or_default().to_owned()
        };
        Ok(Wsrep {
            size: value("wsrep_cluster_size").parse().unwrap_or(0),
            state: value("wsrep_local_state_comment"),
            component: value("wsrep_cluster_status"),
            uuid: value("wsrep_cluster_state_uuid"),
        })
    }

    /// Waits until each of these members is Synced in one Primary component of `size`. Returns the cluster's id.
    pub fn until_synced(&self, members: usize, size: usize) -> String {
        patiently(&format!("{members} members of {} are Synced in a component of {size}", self.name), || {
            let mut uuid = String::new();
            for ordinal in 0..members {
                let pod = self.member(ordinal);
                let seen = self.wsrep(&pod).map_err(|error| format!("{pod}: {error}"))?;
                let good = seen.size == size && seen.state == "Synced" && seen.component == "Primary";
                if !good || !uuid.is_empty() && uuid != seen.uuid {
                    return Err(format!("{pod}: {seen:?}"));
                }
                uuid = seen.uuid;
            }
            Ok(uuid)
        })
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        let output = self.kubectl(&["get", "pod", name, "--output=json", "--ignore-not-found"]);
        serde_json::from_str(&output.succeeded()).ok()
    }

    /// Returns the address of a pod.
    pub fn address(&self, pod: &str) -> Option<String> {
        let address = self.kubectl(&["get", "pod", pod, "--output=jsonpath={.status.podIP}"]);
        Some(address.stdout).filter(|it| !it.is_empty())
    }

    /// Drains a node, but evicts only this cluster's pods.
    pub fn drain(&self, node: &str, timeout: &str) -> Output {
        let selector = format!("--pod-selector=app=galera,instance={}", self.name);
        let drain = ["drain", node, "--delete-emptydir-data", "--ignore-daemonsets", &selector, timeout];
        self.lab.kubectl(User::Admin, &drain)
    }

    /// Returns whether the kubelet reports the pod as Ready and it is not being deleted.
    pub fn is_ready(&self, pod: &str) -> bool {
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        self.pod(pod).is_some_and(|pod| ready(&pod) && pod["metadata"]["deletionTimestamp"].is_null())
    }

    pub fn until_ready(&self, members: usize) {
        patiently(&format!("{members} members of {} are Ready", self.name), || {
            let not_yet = (0..members).map(|it| self.member(it)).find(|pod| !self.is_ready(pod));
            not_yet.map_or(Ok(()), |pod| Err(format!("{pod} is not Ready")))
        });
    }

    pub fn until_gone(&self, what: &str) {
        patiently(&format!("{what} is gone"), || {
            let output = self.kubectl(&["get", what, "--output=name", "--ignore-not-found"]).succeeded();
            if output.trim().is_empty() { Ok(()) } else { Err(output) }
        });
    }

    /// Creates the table `shop.t` with three rows.
    pub fn fill(&self) {
        self.ask(
            &self.member(0),
            "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, word VARCHAR(20)); \
             INSERT INTO shop.t VALUES (1,'one'),(2,'two'),(3,'three')",
        );
    }

    /// Counts the rows of `shop.t` on a server.
    pub fn rows(&self, pod: &str) -> Output {
        self.sql(pod, "SELECT COUNT(*) FROM shop.t")
    }
}

/// Prints the pods, Events and last log lines after a test has failed.
impl Drop for Galera<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        eprintln!("{}", self.kubectl(&["get", "pods,events", "--output=wide"]).stdout);
        for pod in (0..3).map(|it| self.member(it)) {
            for which in ["--previous=true", "--previous=false"] {
                let log =
                    self.kubectl(&["logs", &pod, "--all-containers", "--timestamps", "--tail=2000", which]);
                // A server logs these lines once a second for every unreachable member.
                let noise = ["Failed to establish", "connection to peer", "reconnecting to"];
                let lines = log.stdout.lines().filter(|line| !noise.iter().any(|it| line.contains(it)));
                let lines: Vec<_> = lines.collect();
                eprintln!("{pod} {which}:\n{}", lines[lines.len().saturating_sub(300)..].join("\n"));
            }
        }
    }
}

/// What a server reports about its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wsrep {
    pub size: usize,
    pub state: String,
    pub component: String,
    pub uuid: String,
}
