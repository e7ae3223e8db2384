//! The next step of a rollout in each situation; `held.rs` has those in which no member restarts.

use serde_json::{Value, json};

use super::situation::{File, Situation};
use crate::scene::{STATEFUL_SET, Scene};

/// Asserts the stage of the rollout and its next step.
#[track_caller]
pub(super) fn assert_stage(situation: &Situation, says: &str, does: &str) {
    let (said, done) = situation.stage();
    assert_eq!((&*said, &*done), (says, does), "the stage of the rollout and its next step");
}

#[test]
fn the_running_configuration_is_recorded_once() {
    let first = "record {\"good\":\"OLD\"} after 0s";
    assert_stage(&Situation::default(), "recording which configuration members run", first);
    // A StatefulSet that was recreated: the revision of its pods counts, not a change to the ConfigMap in the meantime.
    let orphaned = Situation { record: Value::Null, live: File::New.text(), ..Situation::recorded() };
    assert_stage(&orphaned, "recording which configuration members run", first);
    assert_stage(&Situation::recorded(), "settled", "");
    let comments = "# hello\n[server]\n  max-connections = 1 # same\n";
    assert_stage(&Situation { live: comments, ..Situation::recorded() }, "settled", "");
    // A deleted snapshot is created again, but not one that exists and is too large for the view.
    let without = || Situation { snapshots: Vec::new(), ..Situation::recorded() };
    assert_stage(&without(), "creating a missing snapshot again", first);
    assert_stage(&Situation { unread: vec![File::Old], ..without() }, "settled", "");
}

#[test]
fn a_change_reaches_one_member_then_all() {
    let new = |members| Situation { live: File::New.text(), members, ..Situation::recorded() };
    let (old, ready, new_file) = (("ready", Some(File::Old)), "ready", File::New);
    assert_stage(
        &new(vec![old; 3]),
        "max_connections: galera-2 restarts first",
        "record {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\",\"canary\":2}} after 10s event RollingOut: max_connections: galera-2 restarts with \
         the new configuration, then the others, one at a time (NEW)",
    );
    let under_way = |canary, members| Situation::under_way(canary, members);
    let old = (ready, File::Old);
    let first = under_way(Some(2), [old, old, old]);
    assert_stage(
        &first,
        "0 of 3 run with max_connections; galera-2 restarts next",
        "evict galera-2 after 0s",
    );
    let starts = under_way(Some(2), [old, old, ("pending", new_file)]);
    assert_eq!(starts.stage().0, "galera-2 starts with max_connections");
    assert!(starts.stage().1.contains("does not become Ready with max_connections\"}} after 600s"));
    let well = under_way(Some(2), [old, old, (ready, new_file)]);
    assert_stage(
        &well,
        "galera-2 is Ready with max_connections, and is watched for some seconds",
        "record {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\"}} after 10s",
    );
    let second = under_way(None, [old, old, (ready, new_file)]);
    assert_stage(
        &second,
        "1 of 3 run with max_connections; galera-1 restarts next",
        "evict galera-1 after 0s",
    );
    let unwell = under_way(None, [("starting", File::Old), old, (ready, new_file)]);
    assert_stage(
        &unwell,
        "1 of 3 run with max_connections; 2 of 3 members Synced, galera-0 is not Ready yet",
        "",
    );
    let done = under_way(None, [(ready, new_file); 3]);
    assert_stage(
        &done,
        "every member runs the new configuration",
        "record {\"good\":\"NEW\"} after 0s event RolledOut: all 3 members run max_connections (NEW)",
    );
}

#[test]
fn a_failing_canary_is_reverted_and_no_other_member_restarts() {
    let old = ("ready", File::Old);
    let fails = Situation::under_way(Some(2), [old, old, ("stuck", File::New)]);
    assert_stage(
        &fails,
        "galera-2 keeps failing with max_connections",
        "record {\"good\":\"OLD\",\"stopped\":{\"revision\":\"NEW\",\"why\":\"galera-2 keeps failing with max_connections\"}} after 20s event \
         RolloutStopped: galera-2 keeps failing with max_connections: it returns to the previous configuration, and no other member restarts; its \
         log is lost with its pod unless logs are collected; correct ConfigMap galera-instance-nodeconfig, or revert the change (NEW)",
    );
    let (says, does) = Situation::under_way(Some(2), [old, old, ("starting", File::New)]).stage();
    assert_eq!(says, "galera-2 starts with max_connections");
    assert!(does.contains("after 600s"), "{does}");
    let record = json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "galera-2 fails" } });
    let stopped = |members: [(&'static str, File); 3]| Situation {
        record: record.clone(),
        ..Situation::under_way(None, members)
    };
    assert_stage(
        &stopped([old, old, ("stuck", File::New)]),
        "stopped: galera-2 fails; galera-2 returns to the previous configuration",
        "evict galera-2 after 0s",
    );
    assert_stage(&stopped([old, old, ("starting", File::Old)]), "stopped: galera-2 fails", "");
    let given_up = stopped([old; 3]);
    assert_stage(&given_up, "stopped: galera-2 fails", "");
    let says = "galera-2 fails; correct ConfigMap galera-instance-nodeconfig, which starts a new try, or try the same again: \
                gatera rollout retry galera-instance-galera -n db";
    let status = given_up.status();
    assert!(status.contains("\n└── Steps of the guard: given up\n"), "{status}");
    assert!(status.contains(&format!("configuration: given up ({says})\n")), "{status}");
    // Members that are Ready with it also go back, one at a time.
    assert_stage(
        &stopped([old, ("starting", File::Old), ("ready", File::New)]),
        "stopped: galera-2 fails; galera-2 returns to the previous configuration later: 2 of 3 members Synced, galera-1 is not Ready yet",
        "",
    );
    // A person found another cause for the failure: each new value of the annotation starts one more try.
    let again = |request: &str, retried: Option<&str>| {
        let mut again = Situation {
            set: json!({ "metadata": { "annotations": { "gatera.dev/rollout": request } } }),
            ..stopped([old; 3])
        };
        if let Some(retried) = retried {
            again.record["stopped"]["retried"] = json!(retried);
        }
        again.stage()
    };
    for (request, retried) in [("retry", None), ("retry 2", Some("")), ("retry 2", Some("1"))] {
        let (says, does) = again(request, retried);
        assert_eq!(says, "max_connections: galera-2 restarts first");
        assert!(does.contains("\"canary\":2}} after 10s"), "{does}");
    }
    assert_eq!(again("retry", Some("")).0, "stopped: galera-2 fails");
    assert_eq!(again("retry 2", Some("2")).0, "stopped: galera-2 fails");
    let fails_again = Situation {
        set: json!({ "metadata": { "annotations": { "gatera.dev/rollout": "retry 2" } } }),
        ..Situation::under_way(Some(2), [old, old, ("stuck", File::New)])
    };
    assert!(fails_again.stage().1.contains("\"retried\":\"2\""), "{:?}", fails_again.stage());
    // The snapshot of the good revision is gone.
    let lost = Situation { snapshots: vec![File::New], ..stopped([old, old, ("stuck", File::New)]) };
    assert_stage(&lost, "stopped: members cannot return to OLD, because no snapshot of it is kept", "");
    // The ConfigMap holds another revision: it is tried.
    let newer = Situation { live: File::Newer.text(), ..stopped([old; 3]) };
    let (says, does) = newer.stage();
    assert_eq!(says, "innodb_log_file_size, max_connections: galera-2 restarts first");
    assert!(
        does.starts_with(
            "record {\"good\":\"OLD\",\"next\":{\"revision\":\"NEWER\",\"canary\":2}} after 10s"
        ),
        "{does}"
    );
    // The ConfigMap holds the good revision again.
    let back = Situation { live: File::Old.text(), ..stopped([old; 3]) };
    assert_stage(
        &back,
        "clearing the record of the configuration that failed",
        "record {\"good\":\"OLD\"} after 0s",
    );
}

#[test]
fn only_failures_that_the_new_file_may_cause_stop_a_rollout() {
    let old = ("ready", File::Old);
    let canary = |word| Situation::under_way(Some(2), [old, old, (word, File::New)]);
    // An init container of its pod also reads the file.
    let (says, does) = canary("preparing").stage();
    assert_eq!(says, "galera-2 keeps failing with max_connections");
    assert!(does.contains("after 20s"), "{does}");
    assert!(canary("ended unknown variable x").stage().0.ends_with("(unknown variable x)"));
    assert_stage(
        &canary("unpulled"),
        "galera-2 cannot start with max_connections, because its image is not available",
        "event RolloutWaits: galera-2 cannot start with max_connections, because its image is not available: kubectl -n db describe pod galera-2 shows why; no other member restarts until the image is there or the change is reverted",
    );
    let waiting = ("starting", File::Old);
    let none_serves = Situation::under_way(Some(2), [waiting, waiting, ("starting", File::New)]);
    assert_stage(&none_serves, "galera-2 starts with max_connections", "");
    // The others wait for the canary, which fails for another reason.
    let cured = [("stuck", Some(File::Old)), ("starting", Some(File::New)), ("starting", Some(File::New))];
    let cured = Situation { members: cured.to_vec(), ..Situation::under_way(Some(0), [waiting; 3]) };
    assert_stage(
        &cured,
        "2 of 3 run with max_connections; galera-0 restarts next",
        "evict galera-0 after 0s",
    );
}

#[test]
fn a_restarted_member_must_stay_ready_for_min_ready_seconds() {
    let (old, new) = (("ready", File::Old), ("ready", File::New));
    let slow = |canary| Situation {
        set: json!({ "spec": { "minReadySeconds": 30 } }),
        ..Situation::under_way(canary, [old, old, new])
    };
    assert!(slow(Some(2)).stage().1.ends_with("after 30s"));
    assert_eq!(slow(None).stage().1, "evict galera-1 after 30s");
}

#[test]
fn a_failing_member_is_the_canary_of_the_corrected_file() {
    let (old, stuck) = (("ready", Some(File::Old)), ("stuck", Some(File::Old)));
    let cure = Situation { live: File::New.text(), members: vec![old, stuck, old], ..Situation::recorded() };
    let (says, does) = cure.stage();
    assert_eq!(says, "max_connections: galera-1 restarts first");
    assert!(does.contains("\"canary\":1"), "{does}");
    let next =
        Situation::under_way(Some(1), [("ready", File::Old), ("stuck", File::Old), ("ready", File::Old)]);
    assert_stage(&next, "0 of 3 run with max_connections; galera-1 restarts next", "evict galera-1 after 0s");
}

#[test]
fn a_change_during_a_rollout_starts_over_with_a_member_that_has_restarted() {
    let (old, new) = (("ready", File::Old), ("ready", File::New));
    let turned = |members| Situation { live: File::Newer.text(), ..Situation::under_way(None, members) };
    assert_stage(
        &turned([old, new, new]),
        "the configuration changed again",
        "record {\"good\":\"OLD\",\"next\":{\"revision\":\"NEWER\",\"canary\":2}} after 10s",
    );
    assert_stage(&turned([old; 3]), "the configuration changed again", "record {\"good\":\"OLD\"} after 10s");
    let back = Situation { live: File::Old.text(), ..Situation::under_way(None, [old, old, new]) };
    assert_stage(&back, "the configuration changed again", "record {\"good\":\"OLD\"} after 10s");
    let then = Situation { record: json!({ "good": File::Old.revision() }), ..back };
    assert_stage(&then, "stopped: galera-2 returns to the previous configuration", "evict galera-2 after 0s");
}

#[test]
fn a_person_may_keep_a_revision_until_the_config_map_changes() {
    let keep = |of: File, instead: File| {
        let request = format!("keep {} instead of {}", of.revision(), instead.revision());
        json!({ "metadata": { "annotations": { "gatera.dev/rollout": request } } })
    };
    let new = Situation { live: File::New.text(), ..Situation::recorded() };
    assert_stage(&Situation { set: keep(File::Old, File::New), ..new }, "settled", "");
    let newer =
        Situation { live: File::Newer.text(), set: keep(File::Old, File::New), ..Situation::recorded() };
    assert!(newer.stage().1.contains("\"revision\":\"NEWER\""));
    let lost =
        Situation { live: File::New.text(), set: keep(File::Newer, File::New), ..Situation::recorded() };
    assert_stage(
        &lost,
        "held: annotation gatera.dev/rollout asks for NEWER, but no snapshot of it is kept",
        "",
    );
}

#[test]
fn a_file_that_a_new_template_brought_is_good_once_all_members_run_it() {
    let new = ("ready", Some(File::New));
    let done = Situation { live: File::New.text(), members: vec![new; 3], ..Situation::recorded() };
    assert_stage(
        &done,
        "every member runs the new configuration",
        "record {\"good\":\"NEW\"} after 0s event RolledOut: all 3 members run max_connections (NEW)",
    );
    // Before any member holds data, a wrong file is simply replaced.
    let forming = Situation {
        live: File::New.text(),
        members: vec![("stuck", Some(File::Old))],
        data: "none",
        ..Situation::recorded()
    };
    assert_stage(&forming, "no member holds data yet", "record {\"good\":\"NEW\"} after 0s");
    let then = Situation { record: json!({ "good": File::New.revision() }), ..forming };
    assert_stage(&then, "stopped: galera-0 returns to the previous configuration", "evict galera-0 after 0s");
}

#[test]
fn a_pod_that_is_broken_by_a_template_that_was_taken_back_is_replaced() {
    let set = json!({ "status": { "currentRevision": "a", "updateRevision": "a" } });
    let mut it = Situation {
        set,
        members: vec![("ready", Some(File::Old)), ("ready", Some(File::Old)), ("stuck", None)],
        ..Situation::recorded()
    };
    assert_stage(&it, "settled", "");
    let scene = Scene { members: ["ready", "ready", "stuck"].map(String::from).into(), ..Scene::default() };
    let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-2"));
    pod["metadata"]["labels"]["controller-revision-hash"] = json!("b");
    it.also = vec![pod];
    assert_stage(
        &it,
        "galera-2 keeps failing with an earlier template and is replaced",
        "evict galera-2 after 30s",
    );
    // Its new pod would get the same template again.
    let status = json!({ "status": { "currentRevision": "b", "updateRevision": "a", "currentReplicas": 3 } });
    it.set = status;
    assert_stage(&it, "settled", "");
    it.set["spec"] =
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } });
    assert_eq!(it.stage().1, "evict galera-2 after 30s");
}

/// A failing member serves no clients, so its replacement does not wait until the others are Ready.
#[test]
fn a_failing_member_is_replaced_even_if_others_are_not_ready() {
    let (old, stuck) = (("ready", File::Old), ("stuck", File::New));
    let record =
        json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "x" } });
    let two = Situation { record: record.clone(), ..Situation::under_way(None, [old, stuck, stuck]) };
    assert_stage(
        &two,
        "stopped: x; galera-2 returns to the previous configuration",
        "evict galera-2 after 0s",
    );
    // A pod that was created while no guard ran reads the ConfigMap, which holds the revision that failed.
    let mut unmarked = Situation { record, ..Situation::under_way(None, [old, old, old]) };
    unmarked.members[1] = ("stuck", None);
    assert_stage(
        &unmarked,
        "stopped: x; galera-1 returns to the previous configuration",
        "evict galera-1 after 0s",
    );
    // A first installation: the other members do not exist yet.
    let forming = Situation {
        live: File::New.text(),
        record: json!({ "good": File::New.revision() }),
        members: vec![("stuck", Some(File::Old)), ("absent", None), ("absent", None)],
        data: "none",
        bootstrap: "running",
        ..Situation::recorded()
    };
    assert_stage(
        &forming,
        "stopped: galera-0 returns to the previous configuration",
        "evict galera-0 after 0s",
    );
    // The member fails during the rollout of a template, and the file has been corrected since.
    let set = json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } });
    let rolls = Situation { live: File::Newer.text(), set, ..Situation::recorded() };
    let rolls = Situation {
        members: vec![("ready", Some(File::Old)), ("ready", Some(File::Old)), ("stuck", Some(File::New))],
        ..rolls
    };
    let (says, does) = rolls.stage();
    assert_eq!(says, "innodb_log_file_size, max_connections: galera-2 restarts first");
    assert!(does.contains("\"canary\":2"), "{does}");
}

/// A member whose second pod is created without a snapshot, too, is not restarted again.
#[test]
fn a_second_pod_without_a_snapshot_stops_the_rollout() {
    let old = ("ready", File::Old);
    let mut it = Situation::under_way(Some(2), [old, old, old]);
    it.members[2] = ("ready", None);
    assert_stage(
        &it,
        "0 of 3 run with max_connections; galera-2 restarts next",
        "record {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\",\"canary\":2,\"healed\":[\"galera-2\",\"pod-2\"]}} after 0s",
    );
    it.record["next"]["healed"] = json!([format!("{STATEFUL_SET}-2"), "pod-2"]);
    assert_stage(&it, "0 of 3 run with max_connections; galera-2 restarts next", "evict galera-2 after 0s");
    it.record["next"]["healed"] = json!([format!("{STATEFUL_SET}-2"), "another"]);
    let (says, does) = it.stage();
    assert_eq!(says, "galera-2 starts without a snapshot of its configuration");
    assert!(does.contains("\"stopped\"") && does.contains("after 0s"), "{does}");
}
