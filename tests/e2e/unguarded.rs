//! What happens without the guard: after a power failure members differ, and two everyday commands erase the database, while
//! every pod is shown as 1/1 Running. Part of `make drills`, in its own lab, which has no guard.

use crate::galera::{Galera, SEED, patiently};
use crate::install::helm;
use crate::lab::User;
use crate::nodes::lab;
use crate::power;

#[test]
fn deleting_the_pods_and_applying_the_manifests_again_erases_the_database() {
    let lab = lab();
    lab.have_volumes(3);
    let namespace = lab.namespace("unguarded");
    let galera = Galera::new(lab, &namespace, "galera-instance");
    galera.apply(SEED).succeeded();
    galera.until_ready(3);
    galera.until_synced(3, 4);
    // The clean-up that the seed documents prescribe.
    let bootstrap = ["deployment/galera-instance-bootstrap", "service/galera-instance-bootstrap-svc"];
    galera
        .kubectl(&["delete", bootstrap[0], bootstrap[1], "configmap/galera-instance-bootstrap"])
        .succeeded();
    let before = galera.until_synced(3, 3);
    galera.fill();
    assert_eq!(galera.rows(&galera.member(2)).succeeded().trim(), "3", "rows of member 2");

    power::publish_not_ready_addresses(&galera);
    // After the power failure no member compares positions: one that lacks rows serves, and every pod is Ready.
    power::kill_all_while_one_is_behind(&galera);
    galera.until_ready(3);
    let serves = |ordinal| galera.wsrep(&galera.member(ordinal)).is_ok_and(|it| it.component == "Primary");
    patiently("a member without the acknowledged rows serves", || {
        let rows: Vec<_> = (0..3).filter(|it| serves(*it)).map(|it| power::late_rows(&galera, it)).collect();
        if rows.contains(&Some(0)) { Ok(()) } else { Err(format!("{rows:?}")) }
    });

    let patch = r#"{"spec":{"publishNotReadyAddresses":false}}"#;
    galera.kubectl(&["patch", "service", "galera-instance-hs", "--patch", patch]).succeeded();
    // The first command: member 0 finds no member to join, so the cluster is down. The data is intact.
    galera.kubectl(&["delete", "pod", "--selector=app=galera", "--wait=false"]).succeeded();
    patiently("member 0 cannot start", || {
        let log = galera.kubectl(&["logs", &galera.member(0), "--container=mariadb", "--previous"]).stdout;
        if log.contains("No address to connect") { Ok(()) } else { Err(log) }
    });

    // The second command, which a person runs to repair the cluster.
    galera.apply(SEED).succeeded();
    galera.until_ready(3);
    let after = galera.until_synced(3, 4);
    assert_ne!(before, after, "a new cluster was founded");
    let pods =
        lab.kubectl(User::Admin, &["get", "pods", "--namespace", &namespace, "--no-headers"]).succeeded();
    let looks_healthy = |line: &&str| line.contains(" 1/1 ") && line.contains(" Running ");
    assert_eq!(pods.lines().filter(looks_healthy).count(), 4, "every pod looks healthy: {pods}");
    for ordinal in 0..3 {
        let rows = galera.rows(&galera.member(ordinal));
        assert!(
            rows.stderr.contains("Table 'shop.t' doesn't exist"),
            "member {ordinal} still has its table: {rows}"
        );
    }
}

/// charts/galera contains the step script, so its clusters need no guard to survive a power failure.
#[test]
fn the_chart_alone_survives_a_power_failure() {
    let lab = lab();
    lab.have_volumes(3);
    let namespace = lab.namespace("alone");
    let galera = Galera::new(lab, &namespace, "shop");
    helm(&galera, "install", &[]);
    galera.until_ready(3);
    let parts = ["deployment/shop-bootstrap", "service/shop-bootstrap-svc", "configmap/shop-bootstrap"];
    galera.kubectl(&["delete", parts[0], parts[1], parts[2]]).succeeded();
    let cluster = galera.until_synced(3, 3);
    galera.fill();

    power::a_power_failure_loses_nothing(&galera, &cluster);
    galera.until_ready(3);

    // The step script passes SIGTERM on to the server, so a stop is still orderly.
    let pod = galera.member(1);
    galera.kubectl(&["delete", "pod", &pod]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    let log = galera.kubectl(&["logs", &pod, "--container=mariadb"]).stdout;
    assert!(log.contains("stopped in order"), "the server did not stop in order: {log}");
    power::members_agree(&galera, "shop.t, shop.late");
}
