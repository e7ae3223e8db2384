//! The official image's `healthcheck.sh` as the readiness probe of servers that run as the image's user with a read-only root.
//! The lab's image has its own script, which gives the same answers. Part of `make drills`.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::json;

use crate::galera::{Galera, patiently};
use crate::guard::guarded;
use crate::install::{formed, password};
use crate::lab::Output;
use crate::power;
use crate::transfer;
use crate::writer::Writer;

const SET: &str = "statefulset/healthcheck-galera";
const ONLINE: [&str; 3] = ["--connect", "--innodb_initialized", "--galera_online"];

fn check(galera: &Galera<'_>, pod: &str, arguments: &[&str]) -> Output {
    galera.kubectl(&[&["exec", pod, "--container=mariadb", "--", "healthcheck.sh"], arguments].concat())
}

fn until_rolled_out(galera: &Galera<'_>) {
    patiently("every member has the new template", || {
        let reported = galera.kubectl(&["rollout", "status", SET, "--watch=false"]).stdout;
        if reported.contains("rolling update complete 3 pods") { Ok(()) } else { Err(reported) }
    });
    galera.until_ready(3);
}

/// Returns the patch for the chart's template. Volumes of the lab are folders, on which `fsGroup` has no effect: the init
/// container gives a new volume to the server's user.
fn template() -> serde_json::Value {
    let probe = [&["healthcheck.sh"], &ONLINE[..]].concat();
    json!({ "spec": { "template": { "spec": {
        "securityContext": { "fsGroup": 999 },
        "initContainers": [{
            "name": "healthcheck-init",
            "command": ["sh", "-c", "mkdir -p /datadir/mysql && chown 999:999 /datadir /datadir/mysql"],
            "securityContext": { "capabilities": { "drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE"] } },
        }],
        "containers": [{
            "name": "mariadb",
            "readinessProbe": { "exec": { "command": probe }, "periodSeconds": 5, "timeoutSeconds": 5 },
            "securityContext": {
                "runAsUser": 999,
                "runAsGroup": 999,
                "runAsNonRoot": true,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"], "add": [] },
            },
            "volumeMounts": [
                { "name": "tmp", "mountPath": "/tmp" },
                { "name": "socket", "mountPath": "/run/mysqld" },
            ],
        }],
        "volumes": [{ "name": "tmp", "emptyDir": {} }, { "name": "socket", "emptyDir": {} }],
    } } } })
}

/// Checks that members that copied their data lack the file with the check's password: only the data directory in which the
/// database was initialised has it. Then creates a user that the check can use on every member.
fn members_lack_the_file_with_its_login(galera: &Galera<'_>) {
    for ordinal in 0..3 {
        let pod = galera.member(ordinal);
        assert_eq!(check(galera, &pod, &ONLINE[..1]).status, 0, "the server of {pod} listens");
        let denied = check(galera, &pod, &ONLINE);
        assert!(denied.stderr.contains("healthcheck innodb_initialized failed"), "{denied}");
    }
    // A user without a password, which exists on every member.
    galera.ask(&galera.member(0), "CREATE USER mysql@localhost IDENTIFIED VIA unix_socket");
    for ordinal in 0..3 {
        let pod = galera.member(ordinal);
        patiently("the user exists on the member", || {
            let passed = check(galera, &pod, &[&["--su-mysql"], &ONLINE[..]].concat());
            if passed.status == 0 { Ok(()) } else { Err(passed.stderr) }
        });
    }
}

/// Checks that with MARIADB_AUTO_UPGRADE a member without data never joins: the entrypoint upgrades each member's system tables
/// before its server joins, and this member would have to copy them first. The member stays in this state.
fn auto_upgrade_starts_only_members_with_data(galera: &Galera<'_>) {
    galera.kubectl(&["set", "env", SET, "--containers=mariadb", "MARIADB_AUTO_UPGRADE=1"]).succeeded();
    until_rolled_out(galera);
    let hash = "SELECT JSON_VALUE(Priv, '$.authentication_string') FROM mysql.global_priv WHERE User = 'healthcheck' AND Host = '::1'";
    let hashes: BTreeSet<_> = (0..3).map(|ordinal| galera.ask(&galera.member(ordinal), hash)).collect();
    println!("{} different passwords of healthcheck on three members", hashes.len());
    assert_eq!(hashes.len(), 3, "each member has created its own password");

    transfer::lose_volume(galera, 2);
    let error = patiently("the member without data fails", || {
        let log = galera.kubectl(&["logs", &galera.member(2), "--container=mariadb", "--previous"]).stdout;
        let error = log.lines().rfind(|line| line.starts_with("ERROR ")).map(str::to_owned);
        error.ok_or(log)
    });
    println!("{}: {error}", galera.member(2));
}

/// Checks that the user, the root and the probe are those of the template, and that the guard added the rest to the pod.
fn pods_follow_the_template(galera: &Galera<'_>) {
    for ordinal in 0..3 {
        let pod = galera.member(ordinal);
        let user_and_root = galera.in_pod(&pod, "id -u; touch /x 2>/dev/null || echo read-only");
        assert_eq!(user_and_root, "999\nread-only\n", "the user and the root file system of {pod}");
        let seen = galera.pod(&pod).expect("the pod exists");
        assert!(seen["metadata"]["annotations"]["gatera.dev/injected"].is_string(), "{seen}");
        let server = &seen["spec"]["containers"][0];
        assert_eq!(server["readinessProbe"]["exec"]["command"][0], "healthcheck.sh");
        assert_eq!(check(galera, &pod, &ONLINE).status, 0, "the check passes in {pod}");
    }
}

#[test]
fn healthcheck_sh_works_as_a_readiness_probe_without_root() {
    let galera = formed(guarded(), "healthcheck");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    members_lack_the_file_with_its_login(&galera);
    let writer = Writer::start(&galera, &password(&galera));

    let began = Instant::now();
    let patched = galera.kubectl(&["patch", SET, "--patch", &template().to_string()]);
    assert_eq!(patched.status, 0, "{patched}");
    println!("{}", patched.stderr.trim());
    until_rolled_out(&galera);
    println!("three members restarted in {:.0} s", began.elapsed().as_secs_f64());
    pods_follow_the_template(&galera);
    writer.until_writes();

    transfer::lose_volume(&galera, 2);
    galera.until_ready(3);
    pods_follow_the_template(&galera);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
    auto_upgrade_starts_only_members_with_data(&galera);
}
