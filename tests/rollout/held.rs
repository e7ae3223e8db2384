//! The situations in which a changed configuration restarts no member.

use serde_json::{Value, json};

use super::planned::assert_stage;
use super::situation::{File, Situation};

#[test]
fn no_member_restarts_while_something_else_is_under_way() {
    let old = ("ready", Some(File::Old));
    let new = || Situation { live: File::New.text(), ..Situation::recorded() };
    let waits = |situation: Situation, why: &str| assert_stage(&situation, why, "");
    for (word, why) in [
        ("starting", "waits: 2 of 3 members Synced, galera-1 is not Ready yet"),
        ("going", "waits: 2 of 3 members Synced, galera-1 is being deleted"),
        ("absent", "waits: 2 of 3 members Synced, galera-1 does not exist"),
    ] {
        waits(Situation { members: vec![old, (word, Some(File::Old)), old], ..new() }, why);
    }
    let unverified = ("unverified", None);
    let unprepared = Situation { members: vec![old, unverified, old], ..new() };
    assert_eq!(
        unprepared.stage().0,
        "max_connections: galera-1 restarts first",
        "its pod was created while no guard ran"
    );
    let unverified = Situation { members: vec![old, unverified, unverified], ..new() };
    let (says, _) = unverified.stage();
    assert_eq!(
        says,
        "waits: galera-1 is Ready, but nothing proves that it is Synced: `gatera status` shows what to do"
    );
    let set = |set: Value| Situation { set, ..new() };
    waits(
        set(json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } })),
        "waits: a rollout of the StatefulSet is under way",
    );
    waits(set(json!({ "spec": { "replicas": 5 } })), "waits: 3 of 5 members Synced, galera-3 does not exist");
    waits(
        set(json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } })),
        "held: its updateStrategy is OnDelete, so a member restarts only when you delete its pod",
    );
    waits(
        set(json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 3 } } } })),
        "held: members below 3 are held back by the partition of its updateStrategy",
    );
    waits(Situation { bootstrap: "running", ..new() }, "waits: the bootstrap node still exists");
    waits(
        Situation { members: vec![old], ..new() },
        "waits: the cluster has only one member, so a restart would stop it",
    );
    waits(
        set(json!({ "metadata": { "annotations": { "gatera.dev/rollout": "paused" } } })),
        "held: paused by annotation gatera.dev/rollout; `gatera rollout resume` continues it",
    );
    waits(
        set(json!({ "metadata": { "annotations": { "gatera.dev/rollout": "Paused!" } } })),
        "held: annotation gatera.dev/rollout has an unknown value; `gatera rollout resume` removes it",
    );
    waits(
        Situation { mode: "audit", ..new() },
        "held: namespace db is in mode audit, in which gatera removes and restarts nothing",
    );
    waits(Situation { mode: "audit", record: Value::Null, ..new() }, "absent");
}

#[test]
fn an_unreadable_file_restarts_no_member_and_is_reported() {
    let live = |live| Situation { live, ..Situation::recorded() };
    assert_stage(
        &live("[mysqld]\na=1\n[broken\n"),
        "held: ConfigMap galera-instance-nodeconfig: galera.cnf cannot be read beyond line 3",
        "",
    );
    let old = ("ready", File::Old);
    let midway = Situation { live: "a", ..Situation::under_way(Some(2), [old, old, old]) };
    assert_stage(
        &midway,
        "held: ConfigMap galera-instance-nodeconfig: galera.cnf cannot be read beyond line 1",
        "",
    );
}

/// During a recovery a person may use a file with which a member founds the cluster: the guard does not roll it out.
#[test]
fn a_file_that_founds_a_cluster_is_never_rolled_out() {
    let founds = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://\n",
        ..Situation::recorded()
    };
    assert_stage(
        &founds,
        "held: ConfigMap galera-instance-nodeconfig makes every server that starts create a new cluster",
        "",
    );
    let other = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://a\n",
        ..Situation::recorded()
    };
    assert_stage(&other, "settled", "");
}
