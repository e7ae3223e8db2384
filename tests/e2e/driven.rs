//! A cluster of mariadb-operator, without and with the guard, goes through the failures that docs/compared.md compares. The
//! operator is the real one if GATERA_MARIADB_OPERATOR names a checkout of it (`real_operator.rs`), and otherwise a stand-in
//! (`mariadb_operator.rs`). Part of `make drills`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::galera::{Galera, patiently};
use crate::guard::{NAMESPACE, import_guard_image, install, refused, until_registered};
use crate::lab::{ControlPlane, User};
use crate::mariadb_operator::{ACCOUNT, Operator, install_operator};
use crate::nodes::lab;
use crate::power::{self, Kill};
use crate::real_operator;
use crate::writer::Writer;

const ZEROS: &str = "00000000-0000-0000-0000-000000000000";

/// Without the guard, the cluster has no identity after a power failure, or its members differ. This test fails when the operator
/// itself prevents that; the other test then proves less about the guard.
#[test]
fn the_operator_alone_lets_members_differ() {
    let lab = with_operator();
    lab.have_volumes(6);
    let it = Operator::create(lab, "alone", &[]);
    it.galera.fill();
    power::kill_all_while_one_is_behind(&it.galera);
    let began = Instant::now();
    let recovered = it.until_healed();
    let found = it.identities_and_late_rows();
    println!(
        "alone: Ready after {:.0} s, recovered by the operator: {recovered}; {found:?}",
        began.elapsed().as_secs_f64()
    );
    let equal = found.iter().all(|(uuid, rows)| !uuid.contains(ZEROS) && *rows == Some(10));
    assert!(!equal, "the operator alone keeps members equal: {found:?}");
    // Processes are found by the names of their pods, and the other test's pods have the same names.
    lab.kubectl(User::Admin, &["delete", "namespace", &it.galera.namespace, "--timeout=120s"]).succeeded();
}

fn with_operator() -> &'static ControlPlane {
    static INSTALLED: std::sync::LazyLock<()> = std::sync::LazyLock::new(|| {
        install_operator(lab());
    });
    std::sync::LazyLock::force(&INSTALLED);
    lab()
}

/// Checks that the common mistakes of people are refused, each by its rule.
fn mistakes_are_refused(galera: &Galera<'_>) {
    refused(
        &galera.kubectl(&["scale", "statefulset", "ours-galera", "--replicas=0"]),
        "G01",
        "stops every member",
    );
    refused(
        &galera.kubectl(&["delete", "statefulset", "ours-galera"]),
        "G03",
        "deleting it stops every member at once",
    );
    refused(
        &galera.kubectl(&["delete", "pvc", "storage-ours-galera-1"]),
        "G07",
        "it holds the data of member ours-galera-1",
    );
    refused(
        &galera.kubectl(&["delete", "mariadb", "ours-galera"]),
        "M01",
        "deleting it deletes cluster ours-galera",
    );
    // The operator's own webhook refuses several replicas without Galera.
    let off = r#"{"spec":{"replicas":1,"galera":{"enabled":false}}}"#;
    refused(
        &galera.kubectl(&["patch", "mariadb", "ours-galera", "--type=merge", "--patch", off]),
        "M02",
        "turning Galera off",
    );
    refused(
        &galera.kubectl(&["scale", "mariadb", "ours-galera", "--replicas=1"]),
        "M03",
        "would leave 1 of 3 members",
    );
    let older = r#"{"spec":{"image":"mariadb:10.5"}}"#;
    refused(
        &galera.kubectl(&["patch", "mariadb", "ours-galera", "--type=merge", "--patch", older]),
        "M04",
        "mariadb:10.5 is older than the data",
    );
}

#[test]
fn with_the_guard_nothing_is_lost_and_the_operator_works() {
    let lab = with_operator();
    import_guard_image(lab);
    install(lab, &["--set", &format!("mariadb.operators={{{ACCOUNT}}}")]).succeeded();
    until_registered(lab);
    lab.have_volumes(6);
    let it = Operator::create(lab, "belted", &[("gatera.dev/mode", "enforce")]);
    let galera = &it.galera;
    galera.fill();
    let cluster = galera.until_synced(3, 3);
    patiently("the cluster's identity is recorded", || {
        let set = lab.get(&galera.namespace, "statefulset/ours-galera");
        let recorded = set["metadata"]["annotations"]["gatera.dev/identity"].clone();
        if recorded == *cluster { Ok(()) } else { Err(recorded.to_string()) }
    });
    let password = json!({ "valueFrom": { "secretKeyRef": { "name": "ours-root", "key": "password" } } });
    let writer = Writer::start(galera, &password);

    mistakes_are_refused(galera);
    it.restart_members();
    writer.until_writes();

    let healed = |what: &str| {
        let began = Instant::now();
        let recovered = it.until_healed();
        let id = galera.until_synced(3, 3);
        println!(
            "{what}: Ready after {:.0} s, recovered by the operator: {recovered}",
            began.elapsed().as_secs_f64()
        );
        assert_eq!(id, cluster, "{what}: the cluster keeps its identity");
        power::members_agree(galera, "shop.t");
        writer.counted(3);
    };
    let pods = [0, 1, 2].map(|it| galera.member(it));
    let pods = pods.each_ref().map(String::as_str);
    power::kill_until_restarted(galera, Kill::Servers, &pods, Duration::ZERO);
    healed("all servers killed");
    power::kill_until_restarted(galera, Kill::Sandboxes, &pods, Duration::ZERO);
    healed("all sandboxes killed");
    power::kill_all_while_one_is_behind(galera);
    healed("all servers killed while one was behind");
    assert_eq!([0, 1, 2].map(|it| power::late_rows(galera, it)), [Some(10); 3], "late rows of each member");
    power::kill_until_restarted(galera, Kill::Servers, &pods[..2], Duration::ZERO);
    healed("two of three servers killed");

    // All pods are deleted against the guard's advice: the operator starts the cluster again, with its founding file.
    for pod in pods {
        galera.set_override(&format!("pod/{pod}"), "G02").succeeded();
    }
    let all = ["delete", "pod", pods[0], pods[1], pods[2], "--timeout=120s"];
    galera.kubectl(&all).succeeded();
    healed("all pods deleted");

    it.recreate_stateful_set();
    patiently("the cluster's identity is recorded again", || {
        let get = [
            "get",
            "statefulset",
            "ours-galera",
            "--output=jsonpath={.metadata.annotations.gatera\\.dev/identity}",
        ];
        let recorded = galera.kubectl(&get).stdout;
        if recorded == *cluster { Ok(()) } else { Err(recorded) }
    });

    if real_operator::is_used() {
        real_operator::further_drills(galera, &writer);
        real_operator::guard_writes_nothing(galera);
    }
    power::members_agree(galera, "shop.t, shop.late");
    writer.finish(3);
    power::members_agree(galera, "acknowledged.rows");
    if real_operator::is_used() {
        real_operator::change_root_password(galera);
        power::members_agree(galera, "shop.t, shop.late, acknowledged.rows");
        real_operator::print_write_latencies(lab);
    }
    let log = lab
        .kubectl(User::Admin, &["logs", "--namespace", NAMESPACE, "deployment/gatera", "--tail=-1"])
        .stdout;
    assert!(!log.contains(" ERROR "), "the guard logged an error: {log}");
}
