//! Outages that do not end by themselves: `gatera status` says what each member waits for, and its way out brings the cluster
//! back without losing a row. Part of `make drills`, whose tests run one after the other: these pause kubelets of shared nodes.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::advice::refused;
use crate::galera::{Galera, patiently};
use crate::guard::{guarded, status};
use crate::install::{fill_heavy_table, formed, formed_with, password};
use crate::power::{self, Kill};
use crate::recover;
use crate::writer::Writer;
use crate::{chance, gate};

/// Waits until `gatera status` prints all of these texts.
pub fn until_status_reports(galera: &Galera<'_>, all: &[&str]) -> String {
    let text = patiently(&format!("`gatera status` prints {all:?}"), || {
        let text = status(galera);
        if all.iter().all(|it| text.contains(it)) { Ok(text) } else { Err(text) }
    });
    println!("{text}");
    text
}

/// Waits until all members are back, and checks that they agree and have every acknowledged row. Returns the cluster's id.
fn until_whole(galera: &Galera<'_>, writer: Writer<'_>, tables: &str, began: Instant) -> String {
    galera.until_ready(3);
    let cluster = galera.until_synced(3, 3);
    println!("{}: whole again after {:.1} s", galera.name, began.elapsed().as_secs_f64());
    writer.until_writes();
    power::members_agree(galera, tables);
    writer.finish(3);
    cluster
}

/// Creates a cluster with three rows and a writer. `incident` breaks it and follows the way out; afterwards all members must be
/// back, agree, and have every acknowledged row. Returns the cluster's id before and after.
pub fn outage(
    name: &str,
    tables: &str,
    incident: impl FnOnce(&Galera<'_>, &Writer<'_>, &[String; 3]),
) -> (String, String) {
    outage_with(&[], name, tables, incident)
}

/// Does the same as `outage`, with these values of the chart.
pub fn outage_with(
    values: &[&str],
    name: &str,
    tables: &str,
    incident: impl FnOnce(&Galera<'_>, &Writer<'_>, &[String; 3]),
) -> (String, String) {
    let galera = formed_with(guarded(), name, values);
    let before = galera.until_synced(3, 3);
    galera.fill();
    if tables.contains("shop.wide") {
        create_wide_table(&galera);
    }
    let writer = Writer::beside(&galera, &password(&galera), &galera.member(0));
    let began = Instant::now();
    incident(&galera, &writer, &[0, 1, 2].map(|ordinal| galera.member(ordinal)));
    (before, until_whole(&galera, writer, tables, began))
}

fn kill_all_servers(galera: &Galera<'_>, pods: &[String]) {
    let pods: Vec<_> = pods.iter().map(String::as_str).collect();
    power::kill_until_restarted(galera, Kill::Servers, &pods, Duration::ZERO);
}

/// All three servers die, and one node does not come back: `gatera status` names it, and the others wait for its member.
#[test]
fn status_names_a_node_that_is_away() {
    let (before, after) = outage("away", "shop.t", |galera, _, pods| {
        let paused = power::pause_kubelets_of(galera, &pods[2..]);
        power::kill_servers(&[&pods[2]]);
        kill_all_servers(galera, &pods[..2]);
        let waits = format!("WAITS {}, {}: they form the cluster again by themselves", pods[0], pods[1]);
        let awaited = format!("bring back {};", pods[2]);
        until_status_reports(
            galera,
            &["DOWN", &waits, &awaited, &format!("NODE-AWAY {}: bring node ", pods[2])],
        );
        // The guard receives the same reports, and quotes them when a person deletes a member.
        let refusal = patiently("the refusal contains what `gatera status` reports", || {
            let deleted = galera.kubectl(&["delete", "pod", &pods[0], "--wait=false"]);
            refused(&deleted, "G02", "no member of its cluster is Ready");
            if deleted.stderr.contains(&waits) { Ok(deleted.stderr) } else { Err(deleted.stderr) }
        });
        println!("{refusal}");
        drop(paused);
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}

/// All three servers die, and one node does not come back: `gatera recover` continues without its member.
#[test]
fn a_recovery_continues_without_a_node_that_is_away() {
    recover::a_recovery_continues_without_a_node_that_is_away();
}

/// The recovery command waits for the API server and the guard while they are away.
#[test]
fn a_recovery_survives_outages_of_the_api_server_and_the_guard() {
    recover::a_recovery_survives_outages_of_the_api_server_and_the_guard();
}

/// A recovery that is killed repeatedly is finished by the next run of the command, or by hand as docs/down.md says.
#[test]
fn a_recovery_that_is_killed_repeatedly_is_finished() {
    recover::a_recovery_that_is_killed_repeatedly_is_finished();
}

/// Clusters of one, two and five members recover, and one whose three pods are created at once.
#[test]
fn clusters_of_other_sizes_recover() {
    recover::clusters_of_other_sizes_recover();
}

/// Failures in an order chosen by a seed lose no acknowledged row.
#[test]
fn random_failures_lose_no_acknowledged_row() {
    chance::random_failures_lose_no_acknowledged_row();
}

/// One of three members is left, without a majority. It serves again once a person has decided that the others do not come
/// back.
#[test]
fn the_last_of_three_members_serves_after_its_way_out() {
    let (before, after) = outage("alone", "shop.t", |galera, writer, pods| {
        let paused = power::pause_kubelets_of(galera, &pods[1..]);
        power::kill_servers(&[&pods[1], &pods[2]]);
        let text = until_status_reports(
            galera,
            &[&format!("CUT-OFF {}: ", pods[0]), "on that one only: SET GLOBAL "],
        );
        follow_way_out_of_cut_off(galera, &pods[0], &text);
        patiently("the remaining member serves", || {
            let seen = galera.wsrep(&pods[0])?;
            if (seen.size, &*seen.state) == (1, "Synced") { Ok(()) } else { Err(format!("{seen:?}")) }
        });
        writer.until_writes();
        drop(paused);
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}

/// Runs the statement that `gatera status` prints for a member whose peers do not come back.
pub fn follow_way_out_of_cut_off(galera: &Galera<'_>, pod: &str, text: &str) {
    let (_, advice) = text.split_once("on that one only: ").expect("the way out");
    galera.ask(pod, advice.lines().next().unwrap());
}

/// The file with the last view of one member is truncated: the member looks for the others, which wait for it in their view.
#[test]
fn a_truncated_last_view_is_recovered_by_hand() {
    let (before, after) = outage("view", "shop.t", |galera, _, pods| {
        let view = "/var/lib/mysql/gvwstate.dat";
        galera.in_pod(&pods[2], &format!("head -c 60 {view} >/tmp/v && cat /tmp/v >{view}"));
        kill_all_servers(galera, pods);
        let runs = format!("{} runs, but does not know the last view", pods[2]);
        let text = until_status_reports(galera, &[&format!("LOOKS {}", pods[2]), &runs, "the newest is on "]);
        recover_by_hand_from(galera, newest_member(&text));
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}

/// All servers die in the middle of a long ALTER, so no member's `grastate.dat` has a position.
#[test]
fn a_crash_of_all_members_during_an_alter_is_recovered_by_hand() {
    outage("alter", "shop.t, shop.wide", |galera, _, pods| {
        thread::scope(|scope| {
            scope.spawn(|| galera.sql(&pods[0], ALTER));
            patiently("all members run the ALTER", || power::all_run_a_ddl(pods));
            kill_all_servers(galera, pods);
        });
        let text = until_status_reports(galera, &["in a DDL", "the newest is on "]);
        recover_by_hand_from(galera, newest_member(&text));
    });
}

/// All servers die after two members have finished the ALTER and while the third has not.
#[test]
fn a_crash_while_one_member_still_alters_is_recovered_by_hand() {
    outage("alone-alter", "shop.t, shop.wide", |galera, _, pods| {
        thread::scope(|scope| {
            scope.spawn(|| galera.sql(&pods[0], ALTER));
            patiently("all members run the ALTER", || power::all_run_a_ddl(pods));
            power::pause_server(&pods[2]);
            // The others remove it from their group after five seconds; this takes less.
            patiently("the other members have finished the ALTER", || {
                match power::all_run_a_ddl(&pods[..2]) {
                    Err(none) if none == "0" => Ok(()),
                    Err(some) => Err(some),
                    Ok(()) => Err("all".to_owned()),
                }
            });
            kill_all_servers(galera, pods);
        });
        let text = until_status_reports(galera, &["in a DDL", "the newest is on "]);
        recover_by_hand_from(galera, newest_member(&text));
    });
}

/// After a power failure, servers that start without the step script form a cluster whose identity is zeros. `gatera status`
/// reports that, restarts are refused, and a recovery by hand gives the cluster a new identity. GATERA_GIGABYTES sets the size of
/// its database.
#[test]
fn a_cluster_without_identity_is_recovered() {
    let galera = formed(guarded(), "zeros");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    fill_heavy_table(&galera);
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    let writer = Writer::beside(&galera, &password(&galera), &galera.member(0));
    let power_failure = |what: &str| {
        writer.until_writes();
        let began = Instant::now();
        kill_all_servers(&galera, &pods);
        galera.until_ready(3);
        let id = galera.until_synced(3, 3);
        println!("from power failure to HEALTHY, {what}: {:.1} s", began.elapsed().as_secs_f64());
        id
    };
    assert_eq!(power_failure("with the step"), cluster, "the cluster keeps its identity");
    let (without_step, with_step) = (
        json!(["docker-entrypoint.sh"]),
        json!(["sh", "/etc/galera/start-member.sh", "docker-entrypoint.sh"]),
    );
    set_start_command(&galera, &without_step, &json!("keep"));
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    let zeros = "00000000-0000-0000-0000-000000000000";
    assert_eq!(power_failure("without the step"), zeros, "the cluster has lost its identity");

    let began = Instant::now();
    until_status_reports(
        &galera,
        &["Identity none", "NO-IDENTITY: a member that leaves or restarts never joins again"],
    );
    let deleted = galera.kubectl(&["delete", "pod", &pods[1], "--wait=false"]);
    refused(&deleted, "G02", "its cluster has no identity");
    let restarted = galera.kubectl(&["rollout", "restart", "statefulset/zeros-galera"]);
    refused(&restarted, "G14", "a member that restarts never joins again");
    recover_by_hand_from(&galera, &pods[1]);
    let again = galera.until_synced(3, 3);
    assert_ne!(again, zeros, "the cluster has an identity again");
    assert_ne!(again, cluster, "the identity is a new one");
    gate::until_identity_is_recorded(&galera, &again);
    println!("the cluster has a new identity after {:.1} s", began.elapsed().as_secs_f64());
    set_start_command(&galera, &with_step, &Value::Null);
    assert_eq!(power_failure("with the step again"), again, "the cluster keeps its new identity");
    assert_eq!(until_whole(&galera, writer, "shop.t, shop.heavy", Instant::now()), again, "the new identity");
}

/// Restarts every member with this command, and with this value of `gatera.dev/start`.
fn set_start_command(galera: &Galera<'_>, command: &Value, start: &Value) {
    let container = json!({ "name": "mariadb", "command": command });
    let template = json!({ "metadata": { "annotations": { "gatera.dev/start": start } }, "spec": { "containers": [container] } });
    let (set, patch) = (galera.stateful_set(), json!({ "spec": { "template": template } }));
    galera.kubectl(&["patch", &set, "--patch", &patch.to_string()]).succeeded();
    galera.kubectl(&["rollout", "status", &set, "--timeout=600s"]).succeeded();
    galera.until_ready(3);
}

/// Returns the member that `gatera status` names as the newest.
fn newest_member(text: &str) -> &str {
    let (_, rest) =
        text.split_once("as reported, the newest is on ").expect("status names the newest member");
    rest.split([',', ':']).next().unwrap()
}

const ALTER: &str = "ALTER TABLE shop.wide ADD COLUMN more VARCHAR(20) DEFAULT 'more', ALGORITHM=COPY";

/// Creates a table that takes some seconds to copy.
fn create_wide_table(galera: &Galera<'_>) {
    let create = "CREATE TABLE shop.wide (id INT PRIMARY KEY, body VARCHAR(300))";
    let fill = "USE shop; INSERT INTO shop.wide SELECT seq, REPEAT('x', 300) FROM seq_1_to_300000";
    galera.ask(&galera.member(0), &format!("{create}; {fill}"));
}

/// Recovers the cluster from this member by hand, as `gatera explain G04` describes.
fn recover_by_hand_from(galera: &Galera<'_>, pod: &str) {
    let name = &galera.name;
    let ordinal: usize = pod.rsplit('-').next().unwrap().parse().unwrap();
    let (set, map) = (galera.stateful_set(), format!("configmap/{name}-nodeconfig"));
    for (object, rules) in [(&set, "G01,G02,G04"), (&map, "G04")] {
        galera.set_override(object, rules).succeeded();
    }
    let file: Value =
        serde_json::from_str(&galera.kubectl(&["get", &map, "--output=json"]).succeeded()).unwrap();
    let (key, file) = file["data"]
        .as_object()
        .unwrap()
        .iter()
        .find(|(_, text)| text.as_str().unwrap().contains("gcomm://"))
        .unwrap();
    let file = file.as_str().unwrap();
    let address = |address: &str| {
        let lines = file.lines().map(|line| match line.split_once("gcomm://") {
            Some((before, _)) => format!("{before}{address}\n"),
            None => format!("{line}\n"),
        });
        let patch = json!({ "data": { (key.as_str()): lines.collect::<String>() } }).to_string();
        galera.kubectl(&["patch", &map, "--type=merge", "--patch", &patch]).succeeded();
    };
    // Step 1, needed only if no member serves. The member that stopped last already has a 1 here.
    galera.in_pod(pod, "sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' /var/lib/mysql/grastate.dat");
    // Step 2.
    let was = file.lines().find_map(|line| line.split_once("gcomm://")).unwrap().1.to_owned();
    address("gcomm://");
    let ordinals = |start: usize, replicas: usize| {
        let patch = json!({ "spec": { "ordinals": { "start": start }, "replicas": replicas } }).to_string();
        galera.kubectl(&["patch", &set, "--type=merge", "--patch", &patch]).succeeded();
    };
    ordinals(ordinal, 1);
    // The StatefulSet's controller removes no pod while none is Ready.
    let others = (0..3).filter(|it| *it != ordinal).map(|it| galera.member(it));
    for pod in others.chain([pod.to_owned()]) {
        galera.kubectl(&["delete", "pod", &pod, "--ignore-not-found"]).succeeded();
    }
    patiently("the member founds the cluster with its data", || {
        if galera.is_ready(pod) {
            Ok(())
        } else {
            Err(galera.kubectl(&["logs", pod, "--container=mariadb", "--tail=5"]).stdout)
        }
    });
    // Step 3.
    address(&format!("gcomm://{was}"));
    ordinals(0, 3);
    galera.until_ready(3);
}
