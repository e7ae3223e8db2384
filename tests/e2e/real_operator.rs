//! The real mariadb-operator, built from a checkout of its repository and installed by its own chart. Its clusters have the
//! operator's defaults, among them TLS.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::galera::{Galera, patiently, series};
use crate::lab::{Asked, ControlPlane, User};
use crate::power::{self, Kill};
use crate::writer::Writer;

/// Returns the checkout of the operator's repository, if GATERA_MARIADB_OPERATOR names one.
fn checkout() -> Option<PathBuf> {
    env::var_os("GATERA_MARIADB_OPERATOR").filter(|it| !it.is_empty()).map(PathBuf::from)
}

/// Returns whether tests use the real operator.
pub fn is_used() -> bool {
    checkout().is_some()
}

/// Installs the operator's custom resource definitions, and then its chart with the defaults.
pub fn install(lab: &ControlPlane) {
    let checkout = checkout().expect("GATERA_MARIADB_OPERATOR names a checkout");
    let image = env::var_os("GATERA_MARIADB_OPERATOR_IMAGE").map(PathBuf::from);
    lab.import_image(&image.expect("GATERA_MARIADB_OPERATOR_IMAGE names its image: use `make e2e-driven`"));
    let definitions = format!("--filename={}", checkout.join("deploy/crds/crds.yaml").display());
    lab.kubectl(User::Admin, &["apply", "--server-side", &definitions]).succeeded();
    lab.until_defined();
    // Helm requires the dependency, the chart of the definitions, even though it is not used.
    let (charts, own) = (checkout.join("deploy/charts"), lab.folder().join("operator-chart"));
    copy_folder(&charts.join("mariadb-operator"), &own);
    std::fs::create_dir(own.join("charts")).unwrap();
    copy_folder(&charts.join("mariadb-operator-crds"), &own.join("charts"));
    let own = own.display().to_string();
    let install = ["install", "mariadb-operator", &own, "--namespace=mariadb-system", "--create-namespace"];
    lab.helm(User::Admin, &install).succeeded();
    patiently("the operator runs", || {
        let get = ["get", "deployments", "--namespace=mariadb-system", "--output=json"];
        let list: Value = serde_json::from_str(&lab.kubectl(User::Admin, &get).succeeded()).unwrap();
        let list = list["items"].as_array().unwrap();
        let ready = list.iter().filter(|it| it["status"]["readyReplicas"] == 1).count();
        if ready == 3 { Ok(()) } else { Err(format!("{ready} of {} ready", list.len())) }
    });
}

fn copy_folder(folder: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([folder, to]).status().unwrap().success());
}

/// Creates a MariaDB, whose pods have the guard's label if `adopted`. Returns when it is Ready.
pub fn create(galera: &Galera<'_>, adopted: bool) {
    let lab = galera.lab;
    lab.have_local_volumes(10);
    let labels = if adopted { json!({ "gatera.dev/cluster": "ours-galera" }) } else { json!({}) };
    let claim = json!({ "storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "100Mi" } } });
    let selector =
        json!({ "app.kubernetes.io/name": "mariadb", "app.kubernetes.io/instance": "ours-galera" });
    let named = |name: &str| json!({ "name": name, "namespace": galera.namespace });
    lab.create(&json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "ours-root", "namespace": galera.namespace, "labels": { "k8s.mariadb.com/watch": "" } }, "stringData": { "password": "a-drill" } },
        { "apiVersion": "v1", "kind": "Service", "metadata": named("ours-cs"), "spec": { "selector": selector, "ports": [{ "port": 3306 }] } },
        { "apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "MariaDB", "metadata": named("ours-galera"), "spec": {
            "image": format!("mariadb:{}", series()),
            "rootPasswordSecretKeyRef": { "name": "ours-root", "key": "password" },
            "storage": { "size": "1Gi", "storageClassName": "local" },
            "replicas": 3,
            "galera": { "enabled": true, "config": { "volumeClaimTemplate": claim } },
            "podMetadata": { "labels": labels },
        } },
    ] }));
    until_ready(galera, 3);
}

/// Waits until the operator reports the cluster as Ready, and all members are Ready with the newest template.
fn until_ready(galera: &Galera<'_>, members: usize) {
    patiently(&format!("a MariaDB of {members} is Ready"), || {
        let it = galera.lab.get(&galera.namespace, "mariadb/ours-galera");
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|it| it["type"] == "Ready").cloned().unwrap_or_default();
        let set = ["get", "statefulset", "ours-galera", "--output=jsonpath={.status.updatedReplicas}"];
        let updated = galera.kubectl(&set).stdout;
        let all = ready["status"] == "True" && updated == members.to_string();
        if all { Ok(()) } else { Err(format!("{updated} are updated; {ready}")) }
    });
    galera.until_ready(members);
    galera.until_synced(members, members);
}

/// Waits until all members are Ready. Returns whether the operator recovered the cluster meanwhile.
pub fn until_healed(galera: &Galera<'_>) -> bool {
    let recoveries = || {
        let get = ["get", "events", "--field-selector=reason=GaleraClusterBootstrap", "--output=json"];
        let list: Value = serde_json::from_str(&galera.kubectl(&get).succeeded()).unwrap();
        let counts = list["items"].as_array().unwrap().iter().map(|it| {
            // An Event that is repeated within minutes becomes a series.
            it["series"]["count"].as_u64().or(it["count"].as_u64()).unwrap_or(1)
        });
        counts.sum::<u64>()
    };
    let before = recoveries();
    until_ready(galera, 3);
    recoveries() > before
}

/// Changes the template of the pods. Returns when the operator has restarted all members.
pub fn restart_members(galera: &Galera<'_>, value: &str) {
    patch_spec(galera, &json!({ "podMetadata": { "annotations": { "restarted": value } } }));
    patiently("every member has restarted", || {
        let pods = (0..3).filter_map(|it| galera.pod(&galera.member(it)));
        let new = pods.filter(|pod| pod["metadata"]["annotations"]["restarted"] == value).count();
        if new == 3 { Ok(()) } else { Err(format!("{new} of 3 members have")) }
    });
    until_ready(galera, 3);
}

/// Changes the spec of the MariaDB.
fn patch_spec(galera: &Galera<'_>, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    galera.kubectl(&["patch", "mariadb", "ours-galera", "--type=merge", "--patch", &patch]).succeeded();
}

/// Runs drills that are impossible with the stand-in: all members die while the operator does not run; two nodes are drained at
/// once; the cluster is resized; an option that no server knows is set and removed; the operator waits longer before a recovery.
pub fn further_drills(galera: &Galera<'_>, writer: &Writer<'_>) {
    let lab = galera.lab;
    let replicas = |count: &str| {
        let scale = ["scale", "deployment/mariadb-operator", "--namespace=mariadb-system", count];
        lab.kubectl(User::Admin, &scale).succeeded();
    };
    let timed = |what: &str, members: usize| {
        let began = Instant::now();
        until_ready(galera, members);
        println!("{what}: Ready after {:.0} s", began.elapsed().as_secs_f64());
        writer.until_writes();
        writer.counted(members);
    };
    let pods = [0, 1, 2].map(|it| galera.member(it));
    replicas("--replicas=0");
    power::kill_until_restarted(
        galera,
        Kill::Servers,
        &pods.each_ref().map(String::as_str),
        Duration::from_secs(2),
    );
    let began = Instant::now();
    galera.until_ready(3);
    galera.until_synced(3, 3);
    println!("all servers killed, without an operator: Ready after {:.0} s", began.elapsed().as_secs_f64());
    replicas("--replicas=1");

    drain_at_once(galera, &pods[..2]);
    timed("two nodes drained at once, and uncordoned", 3);

    for size in [5, 3] {
        galera.kubectl(&["scale", "mariadb", "ours-galera", &format!("--replicas={size}")]).succeeded();
        patiently("the StatefulSet has this size", || {
            let set = lab.get(&galera.namespace, "statefulset/ours-galera");
            if set["status"]["replicas"] == size { Ok(()) } else { Err(set["status"].to_string()) }
        });
        timed(&format!("size {size}"), size);
    }

    patch_spec(galera, &json!({ "myCnf": "[mariadb]\nno_such_option=1\n" }));
    patiently("one server does not start", || {
        let restarts = power::restarts(galera);
        let dead = (0..3).filter(|it| restarts[*it] > 0 && !galera.is_ready(&pods[*it])).count();
        if dead == 1 { Ok(()) } else { Err(format!("{dead} of 3 servers do not start")) }
    });
    writer.until_writes();
    // Without `myCnf`, the operator would keep the ConfigMap with the last text.
    patch_spec(galera, &json!({ "myCnf": "[mariadb]\n" }));
    timed("an option that no server knows, removed again", 3);

    patch_spec(
        galera,
        &json!({ "galera": { "recovery": { "enabled": true, "clusterHealthyTimeout": "2m" } } }),
    );
    until_ready(galera, 3);
    power::kill_all_while_one_is_behind(galera);
    timed("all servers killed while one was behind, with clusterHealthyTimeout 2m", 3);
}

/// Drains the nodes of two members at the same time: one member is evicted, and the other only when that one is Ready again.
fn drain_at_once(galera: &Galera<'_>, pods: &[String]) {
    let node = |pod: &String| galera.pod(pod).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let nodes: Vec<_> = pods.iter().map(node).collect();
    let drain = |node: &String| {
        let members = "--pod-selector=app.kubernetes.io/instance=ours-galera";
        let drain =
            ["drain", node, "--delete-emptydir-data", "--ignore-daemonsets", members, "--timeout=80s"];
        galera.lab.kubectl(User::Admin, &drain)
    };
    let outputs: Vec<_> = thread::scope(|scope| {
        let drains: Vec<_> = nodes.iter().map(|node| scope.spawn(|| drain(node))).collect();
        drains.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let waited = outputs.iter().filter(|it| it.stderr.contains("[G02]")).count();
    assert!(
        waited == 1 && outputs.iter().all(|it| it.status == 0),
        "a drain failed, or not exactly one had to wait: {outputs:#?}"
    );
    for node in &nodes {
        galera.lab.kubectl(User::Admin, &["uncordon", node]).succeeded();
    }
}

/// Prints how long the API server took for the operator's writes of each kind, by namespace: one has the guard, the other has
/// not.
pub fn print_write_latencies(lab: &ControlPlane) {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for it in lab.asked_by_accounts_of("mariadb-system").into_iter().filter(Asked::writes) {
        all.entry((format!("{} {}", it.verb, it.resource), it.namespace)).or_default().push(it.took);
    }
    for ((what, namespace), mut took) in all {
        took.sort_unstable();
        let at = |part: usize| took[(took.len() - 1) * part / 100];
        println!("{what} in {namespace:?}: {} times, median {:?}, p95 {:?}", took.len(), at(50), at(95));
    }
}

/// Changes the root password in its Secret. Returns when each server accepts the new one and the pods have restarted with it.
pub fn change_root_password(galera: &Galera<'_>) {
    let patch = r#"{"stringData":{"password":"another-drill"}}"#;
    galera.kubectl(&["patch", "secret", "ours-root", "--patch", patch]).succeeded();
    patiently("each server accepts the new password", || {
        let line = "MYSQL_PWD=another-drill exec mariadb --user=root --execute='SELECT 1'";
        for it in 0..3 {
            let exec = ["exec", &galera.member(it), "--container=mariadb", "--", "sh", "-c", line];
            let output = galera.kubectl(&exec);
            if output.status != 0 {
                return Err(output.stderr);
            }
        }
        Ok(())
    });
    (0..3).for_each(|it| {
        assert!(galera.is_ready(&galera.member(it)), "{it} is not Ready with the new password");
    });
    restart_members(galera, "again");
}

/// Checks that the guard writes nothing for a minute, while the operator reconciles its cluster every ten seconds.
pub fn guard_writes_nothing(galera: &Galera<'_>) {
    let counts = || {
        [galera.lab.asked_by_accounts_of("mariadb-system"), galera.lab.asked_by_the_guard()]
            .map(|all| all.iter().filter(|it| it.writes() && it.namespace == galera.namespace).count())
    };
    let before = counts();
    thread::sleep(Duration::from_secs(60));
    let after = counts();
    let [operator, guard] = [0, 1].map(|it| after[it] - before[it]);
    println!("in a minute the operator wrote {operator} times, the guard {guard} times");
    assert_eq!(guard, 0, "the guard writes to a cluster of the operator");
}
