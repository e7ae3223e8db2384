//! A stand-in for mariadb-operator. As in its sources (8970edf8), it founds and recovers a cluster, and sends the same requests
//! from the same account in the same order. Where the operator uses its agents in the pods, the stand-in uses `kubectl exec`. The
//! same tests also run with the real operator (`real_operator.rs`).

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::galera::{Galera, patiently};
use crate::lab::{ControlPlane, Output, User};
use crate::power;
use crate::real_operator;

pub const ACCOUNT: &str = "system:serviceaccount:mariadb-system:mariadb-operator";
const FOUNDING_FILE: &str = "/etc/mysql/mariadb.conf.d/1-bootstrap.cnf";
const NOT_READY: &str = "/etc/mysql/mariadb.conf.d/not-ready";
const STATE: &str = "/var/lib/mysql/grastate.dat";

/// The operator of one cluster: the stand-in, unless the real one is installed.
pub struct Operator<'a> {
    pub galera: Galera<'a>,
}

/// The position of a member's data, as its agent or its recovery Job reports it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    uuid: String,
    seqno: i64,
    safe: bool,
}

impl Position {
    fn is_known(&self) -> bool {
        self.safe || self.seqno >= 0
    }
}

impl<'a> Operator<'a> {
    /// Creates a MariaDB and its cluster, in a namespace with these labels. If there are any, the pods have the guard's label,
    /// too. Returns when all members are Ready.
    pub fn create(lab: &'a ControlPlane, name: &str, labels: &[(&str, &str)]) -> Self {
        let namespace = lab.namespace_with_labels(name, labels);
        let galera = Galera::new(lab, &namespace, "ours");
        if real_operator::is_used() {
            real_operator::create(&galera, !labels.is_empty());
            return Self { galera };
        }
        let resource = json!({ "apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "MariaDB",
            "metadata": { "name": "ours-galera", "namespace": namespace }, "spec": { "replicas": 3, "galera": { "enabled": true } } });
        lab.create(&resource);
        let it = Self { galera };
        let owner =
            lab.get(&namespace, "mariadb/ours-galera")["metadata"]["uid"].as_str().unwrap().to_owned();
        let mut manifests = include_str!("driven.yaml").replace("OWNER", &owner);
        if !labels.is_empty() {
            // As with spec.podMetadata.labels.
            let app = "      labels: {app.kubernetes.io/name: mariadb, ";
            manifests = manifests.replace(app, &format!("{app}gatera.dev/cluster: ours-galera, "));
        }
        let apply = ["--as", ACCOUNT, "apply", "--namespace", &namespace, "--filename=-"];
        lab.kubectl_stdin(User::Admin, &apply, &manifests).succeeded();
        it.galera.until_ready(3);
        it.galera.until_synced(3, 3);
        let configured = ["create", "configmap", "ours-configured", "--from-literal=yes=yes"];
        it.galera.kubectl(&configured).succeeded();
        it.exec_in_agent(0, &format!("rm -f {FOUNDING_FILE}"));
        it
    }

    /// Runs kubectl as the operator's account.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.galera.kubectl(&[&["--as", ACCOUNT], arguments].concat())
    }

    /// Runs a line of shell in the container of a member's agent. Tries again until that succeeds.
    pub fn exec_in_agent(&self, ordinal: usize, line: &str) -> String {
        let pod = self.galera.member(ordinal);
        patiently("the command succeeds in the member's agent", || {
            let done = self.galera.kubectl(&["exec", &pod, "--container=agent", "--", "sh", "-c", line]);
            if done.status == 0 { Ok(done.stdout) } else { Err(done.stderr) }
        })
    }

    fn scale(&self, to: usize) -> Output {
        let patch = format!(r#"{{"spec":{{"replicas":{to}}}}}"#);
        self.kubectl(&["patch", "statefulset", "ours-galera", "--type=merge", "--patch", &patch])
    }

    /// Restarts the members one after the other, as the operator does. Returns when all are Synced.
    pub fn restart_members(&self) {
        let galera = &self.galera;
        if real_operator::is_used() {
            return real_operator::restart_members(galera, "once");
        }
        for ordinal in [2, 1, 0] {
            let pod = galera.member(ordinal);
            patiently("the pod is deleted", || {
                let deleted = self.kubectl(&["delete", "pod", &pod, "--timeout=120s"]);
                if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
            });
            galera.until_ready(3);
            galera.until_synced(3, 3);
        }
    }

    /// Deletes the StatefulSet without its pods and creates it again, without the guard's annotations, as the operator does to
    /// resize the storage.
    pub fn recreate_stateful_set(&self) {
        let galera = &self.galera;
        let mut set = galera.lab.get(&galera.namespace, "statefulset/ours-galera");
        self.kubectl(&["delete", "statefulset", "ours-galera", "--cascade=orphan"]).succeeded();
        if real_operator::is_used() {
            return;
        }
        set.as_object_mut().unwrap().remove("status");
        let meta = set["metadata"].as_object_mut().unwrap();
        meta.retain(|key, _| matches!(&**key, "name" | "namespace" | "ownerReferences"));
        let create = ["--as", ACCOUNT, "create", "--filename=-"];
        galera.lab.kubectl_stdin(User::Admin, &create, &set.to_string()).succeeded();
    }

    fn ready(&self) -> usize {
        (0..3).filter(|it| self.galera.is_ready(&self.galera.member(*it))).count()
    }

    /// Recovers the cluster whenever no member has been Ready for half a minute. Waits until all members are Ready. Returns
    /// whether it recovered the cluster.
    pub fn until_healed(&self) -> bool {
        if real_operator::is_used() {
            return real_operator::until_healed(&self.galera);
        }
        let (began, mut since, mut recovered) = (Instant::now(), None, false);
        while self.ready() < 3 {
            assert!(began.elapsed() < Duration::from_secs(900), "{} of 3 members are Ready", self.ready());
            let down = (self.ready() == 0).then(|| *since.get_or_insert_with(Instant::now));
            if down.is_some_and(|down| down.elapsed() > Duration::from_secs(30)) {
                self.recover();
                (since, recovered) = (None, true);
            } else if down.is_none() {
                since = None;
            }
            thread::sleep(Duration::from_secs(1));
        }
        recovered
    }

    /// Recovers the cluster as pkg/controller/galera/recovery.go does.
    fn recover(&self) {
        (0..3).for_each(|it| drop(self.exec_in_agent(it, &format!(": >{NOT_READY}"))));
        let reported: Vec<_> = (0..3).map(|it| self.position(it)).collect();
        let source = member_to_start_from(&reported, true).unwrap_or_else(|| {
            member_to_start_from(&self.positions_by_jobs(), false).expect("a member has data")
        });
        println!("the operator starts from member {}: {:?}", source.0, source.1);
        for other in (0..3).filter(|it| *it != source.0) {
            self.exec_in_agent(other, &format!("rm -f {FOUNDING_FILE}"));
        }
        let Position { uuid, seqno, .. } = &source.1;
        let state = format!("version: 2.1\\nuuid: {uuid}\\nseqno: {seqno}\\nsafe_to_bootstrap: 1");
        let found = format!(
            r#"printf '{state}' >{STATE} && printf '[galera]\nwsrep_new_cluster="ON"\n' >{FOUNDING_FILE}"#
        );
        self.exec_in_agent(source.0, &found);
        for ordinal in std::iter::once(source.0).chain((0..3).filter(|it| *it != source.0)) {
            self.restart_unless_synced(ordinal);
        }
        (0..3).for_each(|it| drop(self.exec_in_agent(it, &format!("rm -f {FOUNDING_FILE} {NOT_READY}"))));
    }

    fn position(&self, ordinal: usize) -> Position {
        let text = self.exec_in_agent(ordinal, &format!("cat {STATE} || true"));
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        Position {
            uuid: value("uuid:"),
            seqno: value("seqno:").parse().unwrap_or(-1),
            safe: value("safe_to_bootstrap:") == "1",
        }
    }

    /// Stops all members and reads the position of each member's data by a Job.
    fn positions_by_jobs(&self) -> Vec<Position> {
        let galera = &self.galera;
        let node = |it: usize| galera.pod(&galera.member(it)).unwrap()["spec"]["nodeName"].clone();
        let nodes: Vec<_> = (0..3).map(node).collect();
        self.scale(0).succeeded();
        (0..3).for_each(|it| galera.until_gone(&format!("pod/{}", galera.member(it))));
        let found =
            nodes.iter().enumerate().map(|(ordinal, node)| self.position_by_job(ordinal, node)).collect();
        self.scale(3).succeeded();
        found
    }

    fn position_by_job(&self, ordinal: usize, node: &Value) -> Position {
        let (galera, member) = (&self.galera, self.galera.member(ordinal));
        let name = format!("{member}-recovery");
        let set = galera.lab.get(&galera.namespace, "statefulset/ours-galera");
        let template = &set["spec"]["template"];
        let mut server = template["spec"]["containers"][0].clone();
        for field in ["startupProbe", "livenessProbe", "readinessProbe", "ports"] {
            server.as_object_mut().unwrap().remove(field);
        }
        server["command"] = json!(["mariadbd"]);
        server["args"] = json!(["--log-error=/dev/stderr", "--wsrep-recover", "--user=mysql"]);
        let claim = |of: &str| json!({ "name": of, "persistentVolumeClaim": { "claimName": format!("{of}-{member}") } });
        let mut volumes = template["spec"]["volumes"].as_array().unwrap().clone();
        volumes.extend([claim("storage"), claim("galera")]);
        let guard_labels = template["metadata"]["labels"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| key.starts_with("gatera.dev/"));
        let labels: serde_json::Map<_, _> =
            guard_labels.map(|(key, value)| (key.clone(), value.clone())).collect();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": galera.namespace },
            "spec": { "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "restartPolicy": "OnFailure",
                    "nodeSelector": { "kubernetes.io/hostname": node },
                    "containers": [server],
                    "volumes": volumes,
                },
            } },
        });
        let create = ["--as", ACCOUNT, "create", "--filename=-"];
        galera.lab.kubectl_stdin(User::Admin, &create, &job.to_string()).succeeded();
        galera
            .kubectl(&["wait", "--for=condition=Complete", "--timeout=120s", &format!("job/{name}")])
            .succeeded();
        let log = galera.kubectl(&["logs", &format!("job/{name}")]).succeeded();
        self.kubectl(&["delete", "job", &name]).succeeded();
        let line = log
            .lines()
            .rev()
            .find_map(|line| line.split_once("WSREP: Recovered position: "))
            .expect("the server logs its position")
            .1;
        let (uuid, seqno) = line.trim().split(',').next().unwrap().split_once(':').unwrap();
        Position { uuid: uuid.to_owned(), seqno: seqno.parse().unwrap_or(-1), safe: false }
    }

    /// Deletes the pod of a member unless the member is Synced within ten seconds. Returns when the member is Synced.
    fn restart_unless_synced(&self, ordinal: usize) {
        let (galera, pod) = (&self.galera, self.galera.member(ordinal));
        let synced = || galera.wsrep(&pod).is_ok_and(|it| it.state == "Synced" && it.component == "Primary");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if synced() {
                return;
            }
            thread::sleep(Duration::from_secs(1));
        }
        patiently("the pod is deleted", || {
            let deleted = self.kubectl(&["delete", "pod", &pod, "--wait=false"]);
            if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
        });
        patiently("the member is Synced", || {
            if synced() { Ok(()) } else { Err(format!("{:?}", galera.wsrep(&pod))) }
        });
    }

    /// Returns each member's cluster id and its number of late rows: those that `power::kill_all_while_one_is_behind` commits
    /// while one member is behind.
    pub fn identities_and_late_rows(&self) -> Vec<(String, Option<u64>)> {
        let look = |it: usize| {
            let uuid = self.galera.wsrep(&self.galera.member(it)).map_or_else(|error| error, |it| it.uuid);
            (uuid, power::late_rows(&self.galera, it))
        };
        (0..3).map(look).collect()
    }
}

/// Returns the member from which the operator starts the cluster: the first that is safe to bootstrap, or else the newest. With
/// `only_if_all_known`, the newest counts only if every position is known. Identities are not compared.
fn member_to_start_from(found: &[Position], only_if_all_known: bool) -> Option<(usize, Position)> {
    let safe = found.iter().position(|it| it.safe);
    let known = !only_if_all_known || found.iter().all(Position::is_known);
    let newest =
        || (0..found.len()).filter(|it| found[*it].seqno >= 0).max_by_key(|it| (found[*it].seqno, *it));
    let source = safe.or_else(|| known.then(newest).flatten())?;
    Some((source, found[source].clone()))
}

/// Installs the operator; for the stand-in, its custom resource definition and its account.
pub fn install_operator(lab: &ControlPlane) {
    if real_operator::is_used() {
        return real_operator::install(lab);
    }
    lab.kubectl_stdin(User::Admin, &["apply", "--filename=-"], include_str!("../fixtures/mariadb-crd.yaml"))
        .succeeded();
    let role =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    let account =
        json!({ "kind": "ServiceAccount", "name": "mariadb-operator", "namespace": "mariadb-system" });
    lab.create(&json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "mariadb-system" } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "mariadb-operator", "namespace": "mariadb-system" } },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "mariadb-operator" },
            "roleRef": role, "subjects": [account] },
    ] }));
    lab.until_defined();
}
