//! The charts of the guard and of a cluster. A cluster forms, the bootstrap node is removed automatically, `helm test` passes,
//! the cluster grows to five members and shrinks to three, and all members are restarted, while a client commits rows.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chance::env_number;
use crate::galera::{Galera, patiently, series};
use crate::guard::{chart, guarded};
use crate::lab::{ControlPlane, Output, User, eventually};
use crate::writer::Writer;

/// Values for small members: the nodes of the lab have little memory.
pub const SMALL: &[&str] = &[
    "--set=resources.requests.cpu=10m",
    "--set=resources.requests.memory=128Mi",
    "--set=volumeSize=1Gi",
    "--set=gcacheSize=16M",
    "--set=config=innodb_buffer_pool_size = 32M",
];

/// Runs Helm with charts/galera. The command must succeed. Returns its output.
pub fn helm(galera: &Galera<'_>, verb: &str, more: &[&str]) -> String {
    try_helm(galera, verb, more).succeeded()
}

/// Does the same as `helm`, but the command may fail.
pub fn try_helm(galera: &Galera<'_>, verb: &str, more: &[&str]) -> Output {
    let image = format!("--set=image.tag={}", series());
    let base = [verb, &galera.name, &chart("galera"), "--namespace", &galera.namespace, &image];
    galera.lab.helm(User::Admin, &[&base[..], SMALL, more].concat())
}

/// Installs a cluster with charts/galera in its own namespace, and waits until its bootstrap node is removed.
pub fn formed<'a>(lab: &'a ControlPlane, name: &str) -> Galera<'a> {
    formed_with(lab, name, &[])
}

/// Does the same as `formed` with these values.
pub fn formed_with<'a>(lab: &'a ControlPlane, name: &str, values: &[&str]) -> Galera<'a> {
    let namespace = lab.namespace_with_labels(name, &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, name);
    helm(&galera, "install", values);
    galera.until_ready(3);
    until_bootstrap_is_removed(&galera);
    galera
}

/// Returns the root password of charts/galera as the source of an environment variable.
pub fn password(galera: &Galera<'_>) -> Value {
    let secret = format!("{}-secret", galera.name);
    json!({ "valueFrom": { "secretKeyRef": { "name": secret, "key": "root-password" } } })
}

/// Fills the table `shop.heavy` so that a full copy takes some seconds; GATERA_GIGABYTES sets its size.
pub fn fill_heavy_table(galera: &Galera<'_>) {
    let pod = galera.member(0);
    galera.ask(&pod, "CREATE TABLE shop.heavy (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB)");
    let rows = "USE shop; INSERT INTO shop.heavy (body) SELECT REPEAT('x', 1048576) FROM seq_1_to_16";
    for _ in 0..env_number("GATERA_GIGABYTES").map_or(4, |gigabytes| gigabytes * 64) {
        galera.ask(&pod, rows);
    }
}

/// Returns the time at which a server logged that it is Synced.
fn synced_at(galera: &Galera<'_>, pod: &str) -> String {
    let log = galera.kubectl(&["logs", pod, "--container=mariadb", "--timestamps"]).stdout;
    let line = log.lines().find(|line| line.contains("Synchronized with group"));
    line.and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned()
}

/// Returns the time at which the last of the members became Ready, according to the kubelets.
fn last_ready_at(galera: &Galera<'_>, members: usize) -> String {
    let time = |ordinal| {
        let pod = galera.pod(&galera.member(ordinal)).expect("the pod exists");
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|it| it["type"] == "Ready").expect("pods have the condition");
        ready["lastTransitionTime"].as_str().unwrap_or_default().to_owned()
    };
    (0..members).map(time).max().expect("there are members")
}

/// Returns the Events about the StatefulSet with this reason.
pub fn events(galera: &Galera<'_>, reason: &str) -> Vec<Value> {
    let field = format!("--field-selector=reason={reason}");
    let list = galera.kubectl(&["get", "events.events.k8s.io", &field, "--output=json"]).succeeded();
    let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until the objects of the bootstrap node are deleted. Returns the Event about that.
pub fn until_bootstrap_is_removed(galera: &Galera<'_>) -> Value {
    let event = patiently("the bootstrap node is removed", || {
        events(galera, "BootstrapRemoved").into_iter().next().ok_or_else(|| {
            let kept = events(galera, "BootstrapKept");
            let notes: Vec<_> = kept.iter().map(|it| it["note"].to_string()).collect();
            format!("no Event; kept: {notes:?}")
        })
    });
    let name = &galera.name;
    for what in [
        format!("deployment/{name}-bootstrap"),
        format!("service/{name}-bootstrap-svc"),
        format!("configmap/{name}-bootstrap"),
    ] {
        galera.until_gone(&what);
    }
    event
}

pub fn helm_test(lab: &ControlPlane, name: &str, namespace: &str) {
    let tested = lab.helm(User::Admin, &["test", name, "--namespace", namespace, "--timeout=80s", "--logs"]);
    assert_eq!(tested.status, 0, "{tested}");
}

/// Returns the pods behind the client Service, as kube-proxy sees them.
pub fn endpoints(galera: &Galera<'_>) -> Vec<String> {
    let selector = format!("--selector=kubernetes.io/service-name={}-cs", galera.name);
    let slices = galera.kubectl(&["get", "endpointslices", &selector, "--output=json"]).succeeded();
    let slices: Value = serde_json::from_str(&slices).expect("kubectl prints JSON");
    let items = slices["items"].as_array().cloned().unwrap_or_default();
    let all = items.iter().flat_map(|it| it["endpoints"].as_array().cloned().unwrap_or_default());
    let ready = all.filter(|it| it["conditions"]["ready"] == true);
    let mut names: Vec<_> =
        ready.map(|it| it["targetRef"]["name"].as_str().unwrap_or_default().to_owned()).collect();
    names.sort();
    names
}

/// Checks that `gatera doctor` queries the replicas and finds no problem.
fn doctor_finds_no_problem(lab: &ControlPlane, namespace: &str) {
    let doctor = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["doctor", "--namespace", namespace, "--kubeconfig"])
        .arg(lab.kubeconfig(User::Admin))
        .output()
        .unwrap();
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(0), "{report}");
    assert!(report.contains("ready, and none reports a problem"), "{report}");
}

#[test]
fn a_cluster_is_installed_tested_resized_and_restarted_and_no_row_is_lost() {
    let lab = guarded();
    let labels = [("gatera.dev/mode", "enforce"), ("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = lab.namespace_with_labels("install", &labels);
    let galera = Galera::new(lab, &namespace, "shop");
    let started = Instant::now();
    lab.have_local_volumes(5);
    // The first value lets five members run on three nodes.
    let values = [
        "--set=antiAffinity=false",
        "--set=podSecurity=restricted,storageClassName=local",
        "--set=auth.database=site,auth.username=app,auth.password=for-a-test",
        "--set-string=bootstrap.scripts.words\\.sql=CREATE TABLE words (word TEXT); INSERT INTO words VALUES ('hello');",
    ];
    helm(&galera, "install", &values);
    galera.until_ready(3);
    let formed = started.elapsed();
    let event = until_bootstrap_is_removed(&galera);
    let removed = started.elapsed();
    println!(
        "formed in {:.0} s, bootstrap node removed {:.1} s later",
        formed.as_secs_f64(),
        removed.saturating_sub(formed).as_secs_f64()
    );
    let last = synced_at(&galera, &galera.member(2));
    println!(
        "last member Synced at {last}, Ready at {}, Event at {}",
        last_ready_at(&galera, 3),
        event["eventTime"]
    );
    galera.until_synced(3, 3);
    helm_test(lab, "gatera", "gatera");
    doctor_finds_no_problem(lab, &namespace);
    helm_test(lab, "shop", &namespace);
    let word = "MYSQL_PWD=for-a-test mariadb --user=app --batch --skip-column-names site --execute='SELECT * FROM words'";
    assert_eq!(
        galera.in_pod(&galera.member(2), word).trim(),
        "hello",
        "the last member has the row of the script"
    );

    let writer = Writer::start(&galera, &password(&galera));
    let before = uids(&galera, 3);
    helm(&galera, "upgrade", &["--reuse-values", "--set=nodeCount=5"]);
    galera.until_ready(5);
    galera.until_synced(5, 5);
    writer.until_writes();
    assert_eq!(uids(&galera, 3), before, "no member restarts when the cluster grows");
    let all: Vec<_> = (0..5).map(|it| galera.member(it)).collect();
    eventually("the Service leads to all five", || (endpoints(&galera) == all).then_some(()));

    // Three of five is the smallest size that one step may leave.
    let scaled = galera.kubectl(&["scale", "statefulset/shop-galera", "--replicas=2"]);
    assert_eq!(
        (scaled.status, scaled.stderr.contains("[G01]")),
        (1, true),
        "G01 refuses to leave two of five: {scaled}"
    );
    galera.kubectl(&["scale", "statefulset/shop-galera", "--replicas=3"]).succeeded();
    galera.until_gone("pod/shop-galera-3");
    galera.until_synced(3, 3);
    writer.until_writes();
    assert_eq!(uids(&galera, 3), before, "no member restarts when the cluster shrinks");
    assert_eq!(endpoints(&galera), all[..3], "the Service leads to the members that are left");

    // Members restart one after the other, each after the previous one is Synced again.
    galera.kubectl(&["rollout", "restart", "statefulset/shop-galera"]).succeeded();
    patiently("every pod was replaced", || {
        let there = (0..3).all(|it| galera.is_ready(&galera.member(it)));
        if there && uids(&galera, 3).iter().zip(&before).all(|(now, then)| now != then) {
            Ok(())
        } else {
            Err(galera.kubectl(&["get", "pods"]).stdout)
        }
    });
    galera.until_synced(3, 3);
    writer.finish(3);
    let claims = galera.kubectl(&["get", "pvc", "--output=name"]).succeeded();
    assert_eq!(claims.lines().count(), 5, "claims of members that left are kept: {claims}");
    assert!(started.elapsed() < Duration::from_secs(1500), "the test took {:.0?}", started.elapsed());
}

/// Returns the uids of the members' pods. The uid of a pod that does not exist is empty.
fn uids(galera: &Galera<'_>, members: usize) -> Vec<String> {
    let uid = |pod: Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    (0..members).map(|it| galera.pod(&galera.member(it)).map(uid).unwrap_or_default()).collect()
}
