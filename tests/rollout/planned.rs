//! The next step of a rollout in each situation.

use serde_json::{Value, json};

use super::situation::{File, Situation};
use crate::scene::{STATEFUL_SET, Scene};

fn is(situation: &Situation, says: &str, does: &str) {
    let (said, done) = situation.stage();
    assert_eq!((&*said, &*done), (says, does));
}

#[test]
fn what_members_run_is_written_down_once() {
    let first = "note {\"good\":\"OLD\"} after 0s";
    is(&Situation::default(), "writing down which configuration members run", first);
    // A StatefulSet that was created anew: the revision of its pods counts, not a change to the ConfigMap in the meantime.
    let orphaned = Situation { note: Value::Null, live: File::New.text(), ..Situation::noted() };
    is(&orphaned, "writing down which configuration members run", first);
    is(&Situation::noted(), "settled", "");
    let comments = "# hello\n[server]\n  max-connections = 1 # same\n";
    is(&Situation { live: comments, ..Situation::noted() }, "settled", "");
    // A snapshot that was deleted is made again, and one whose text found no room is not: it exists.
    let without = || Situation { copies: Vec::new(), ..Situation::noted() };
    is(&without(), "making a missing snapshot again", first);
    is(&Situation { unread: vec![File::Old], ..without() }, "settled", "");
}

#[test]
fn a_change_goes_to_one_then_to_all() {
    let new = |members| Situation { live: File::New.text(), members, ..Situation::noted() };
    let (old, ready, new_file) = (("ready", Some(File::Old)), "ready", File::New);
    is(
        &new(vec![old; 3]),
        "max_connections: galera-2 is the first",
        "note {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\",\"canary\":2}} after 10s tell RollingOut: max_connections: galera-2 restarts with \
         the new configuration, then the others, one at a time (NEW)",
    );
    let under_way = |canary, members| Situation::under_way(canary, members);
    let old = (ready, File::Old);
    let first = under_way(Some(2), [old, old, old]);
    is(&first, "0 of 3 run with max_connections; galera-2 is next", "evict galera-2 after 0s");
    let starts = under_way(Some(2), [old, old, ("pending", new_file)]);
    assert_eq!(starts.stage().0, "galera-2 starts with max_connections");
    assert!(starts.stage().1.contains("does not become Ready with max_connections\"}} after 600s"));
    let well = under_way(Some(2), [old, old, (ready, new_file)]);
    is(
        &well,
        "galera-2 is Ready with max_connections, and is watched for some seconds",
        "note {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\"}} after 10s",
    );
    let second = under_way(None, [old, old, (ready, new_file)]);
    is(&second, "1 of 3 run with max_connections; galera-1 is next", "evict galera-1 after 0s");
    let unwell = under_way(None, [("starting", File::Old), old, (ready, new_file)]);
    is(&unwell, "1 of 3 run with max_connections; 2 of 3 members Synced, galera-0 is not Ready yet", "");
    let done = under_way(None, [(ready, new_file); 3]);
    is(
        &done,
        "every member runs the new configuration",
        "note {\"good\":\"NEW\"} after 0s tell RolledOut: all 3 members run max_connections (NEW)",
    );
}

#[test]
fn a_canary_that_fails_goes_back_and_nobody_follows() {
    let old = ("ready", File::Old);
    let fails = Situation::under_way(Some(2), [old, old, ("stuck", File::New)]);
    is(
        &fails,
        "galera-2 keeps failing with max_connections",
        "note {\"good\":\"OLD\",\"stopped\":{\"revision\":\"NEW\",\"why\":\"galera-2 keeps failing with max_connections\"}} after 20s tell \
         RolloutStopped: galera-2 keeps failing with max_connections: it goes back to the previous configuration, and no other member restarts; its \
         log is lost with its pod unless logs are collected; correct ConfigMap galera-instance-nodeconfig, or revert the change (NEW)",
    );
    let (says, does) = Situation::under_way(Some(2), [old, old, ("starting", File::New)]).stage();
    assert_eq!(says, "galera-2 starts with max_connections");
    assert!(does.contains("after 600s"), "{does}");
    let note = json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "galera-2 fails" } });
    let stopped = |members: [(&'static str, File); 3]| Situation {
        note: note.clone(),
        ..Situation::under_way(None, members)
    };
    is(
        &stopped([old, old, ("stuck", File::New)]),
        "stopped: galera-2 fails; galera-2 goes back to the previous configuration",
        "evict galera-2 after 0s",
    );
    is(&stopped([old, old, ("starting", File::Old)]), "stopped: galera-2 fails", "");
    let given_up = stopped([old; 3]);
    is(&given_up, "stopped: galera-2 fails", "");
    let says = "galera-2 fails; correct ConfigMap galera-instance-nodeconfig, which starts a new try, or try the same again: \
                gatera rollout retry galera-instance-galera -n db";
    let status = given_up.status();
    assert!(status.contains("\n└── Steps of the guard: given up\n"), "{status}");
    assert!(status.contains(&format!("configuration: given up ({says})\n")), "{status}");
    // Members that ran well with it also go back, one at a time.
    is(
        &stopped([old, ("starting", File::Old), ("ready", File::New)]),
        "stopped: galera-2 fails; galera-2 goes back later: 2 of 3 members Synced, galera-1 is not Ready yet",
        "",
    );
    // A person says that the cause was something else: each new value of the annotation starts one more try.
    let again = |wish: &str, retried: Option<&str>| {
        let mut again = Situation {
            set: json!({ "metadata": { "annotations": { "gatera.dev/rollout": wish } } }),
            ..stopped([old; 3])
        };
        if let Some(retried) = retried {
            again.note["stopped"]["retried"] = json!(retried);
        }
        again.stage()
    };
    for (wish, retried) in [("retry", None), ("retry 2", Some("")), ("retry 2", Some("1"))] {
        let (says, does) = again(wish, retried);
        assert_eq!(says, "max_connections: galera-2 is the first");
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
    let lost = Situation { copies: vec![File::New], ..stopped([old, old, ("stuck", File::New)]) };
    is(&lost, "stopped: there is no snapshot of OLD to go back to", "");
    // The ConfigMap holds another revision: it is tried.
    let newer = Situation { live: File::Newer.text(), ..stopped([old; 3]) };
    let (says, does) = newer.stage();
    assert_eq!(says, "innodb_log_file_size, max_connections: galera-2 is the first");
    assert!(
        does.starts_with("note {\"good\":\"OLD\",\"next\":{\"revision\":\"NEWER\",\"canary\":2}} after 10s"),
        "{does}"
    );
    // The ConfigMap holds the good revision again.
    let back = Situation { live: File::Old.text(), ..stopped([old; 3]) };
    is(&back, "clearing the record of what failed", "note {\"good\":\"OLD\"} after 0s");
}

#[test]
fn only_what_the_new_file_may_have_done_is_blamed_on_it() {
    let old = ("ready", File::Old);
    let canary = |word| Situation::under_way(Some(2), [old, old, (word, File::New)]);
    // An init container of its pod also reads the file.
    let (says, does) = canary("preparing").stage();
    assert_eq!(says, "galera-2 keeps failing with max_connections");
    assert!(does.contains("after 20s"), "{does}");
    assert!(canary("ended unknown variable x").stage().0.ends_with("(unknown variable x)"));
    is(
        &canary("unpulled"),
        "galera-2 has no image to start from with max_connections",
        "tell RolloutWaits: galera-2 has no image to start from with max_connections: kubectl -n db describe pod galera-2 shows why; no other member restarts until the image is there or the change is reverted",
    );
    let waiting = ("starting", File::Old);
    let nobody_serves = Situation::under_way(Some(2), [waiting, waiting, ("starting", File::New)]);
    is(&nobody_serves, "galera-2 starts with max_connections", "");
    // The others wait for the canary, which fails for another reason.
    let cured = [("stuck", Some(File::Old)), ("starting", Some(File::New)), ("starting", Some(File::New))];
    let cured = Situation { members: cured.to_vec(), ..Situation::under_way(Some(0), [waiting; 3]) };
    is(&cured, "2 of 3 run with max_connections; galera-0 is next", "evict galera-0 after 0s");
}

#[test]
fn whoever_restarted_is_to_be_ready_for_as_long_as_the_stateful_set_asks() {
    let (old, new) = (("ready", File::Old), ("ready", File::New));
    let slow = |canary| Situation {
        set: json!({ "spec": { "minReadySeconds": 30 } }),
        ..Situation::under_way(canary, [old, old, new])
    };
    assert!(slow(Some(2)).stage().1.ends_with("after 30s"));
    assert_eq!(slow(None).stage().1, "evict galera-1 after 30s");
}

#[test]
fn nobody_restarts_while_something_else_goes_on() {
    let old = ("ready", Some(File::Old));
    let new = || Situation { live: File::New.text(), ..Situation::noted() };
    let waits = |situation: Situation, why: &str| is(&situation, why, "");
    for (word, why) in [
        ("starting", "waits: 2 of 3 members Synced, galera-1 is not Ready yet"),
        ("going", "waits: 2 of 3 members Synced, galera-1 is being deleted"),
        ("absent", "waits: 2 of 3 members Synced, galera-1 does not exist"),
    ] {
        waits(Situation { members: vec![old, (word, Some(File::Old)), old], ..new() }, why);
    }
    let unverified = ("unverified", None);
    let healed = Situation { members: vec![old, unverified, old], ..new() };
    assert_eq!(healed.stage().0, "max_connections: galera-1 is the first", "it was made without the guard");
    let unverified = Situation { members: vec![old, unverified, unverified], ..new() };
    let (says, _) = unverified.stage();
    assert_eq!(
        says,
        "waits: galera-1 is Ready, and nothing proves it Synced: gatera status names the way out"
    );
    let set = |set: Value| Situation { set, ..new() };
    waits(
        set(json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } })),
        "waits: a rollout of the StatefulSet is under way",
    );
    waits(set(json!({ "spec": { "replicas": 5 } })), "waits: 3 of 5 members Synced, galera-3 does not exist");
    waits(
        set(json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } })),
        "held: its updateStrategy is OnDelete, so members restart when you delete them",
    );
    waits(
        set(json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 3 } } } })),
        "held: members below 3 are held back by the partition of its updateStrategy",
    );
    waits(Situation { bootstrap: "running", ..new() }, "waits: the bootstrap node still exists");
    waits(
        Situation { members: vec![old], ..new() },
        "waits: it has one member, and a restart stops the cluster",
    );
    waits(
        set(json!({ "metadata": { "annotations": { "gatera.dev/rollout": "paused" } } })),
        "held: paused by gatera.dev/rollout",
    );
    waits(
        set(json!({ "metadata": { "annotations": { "gatera.dev/rollout": "Paused!" } } })),
        "held: gatera.dev/rollout has a value that gatera does not know",
    );
    waits(
        Situation { mode: "audit", ..new() },
        "held: namespace db is in mode audit, in which gatera removes and restarts nothing",
    );
    waits(Situation { mode: "audit", note: Value::Null, ..new() }, "absent");
}

#[test]
fn a_file_that_cannot_be_followed_rolls_nobody_and_says_so() {
    let live = |live| Situation { live, ..Situation::noted() };
    is(
        &live("[mysqld]\na=1\n[broken\n"),
        "held: ConfigMap galera-instance-nodeconfig: galera.cnf cannot be read beyond line 3",
        "",
    );
    let old = ("ready", File::Old);
    let midway = Situation { live: "a", ..Situation::under_way(Some(2), [old, old, old]) };
    is(&midway, "held: ConfigMap galera-instance-nodeconfig: galera.cnf cannot be read beyond line 1", "");
}

#[test]
fn a_member_that_fails_anyway_is_the_first_to_get_the_cure() {
    let (old, stuck) = (("ready", Some(File::Old)), ("stuck", Some(File::Old)));
    let cure = Situation { live: File::New.text(), members: vec![old, stuck, old], ..Situation::noted() };
    let (says, does) = cure.stage();
    assert_eq!(says, "max_connections: galera-1 is the first");
    assert!(does.contains("\"canary\":1"), "{does}");
    let next =
        Situation::under_way(Some(1), [("ready", File::Old), ("stuck", File::Old), ("ready", File::Old)]);
    is(&next, "0 of 3 run with max_connections; galera-1 is next", "evict galera-1 after 0s");
}

#[test]
fn a_change_during_a_change_begins_anew_with_who_restarted_already() {
    let (old, new) = (("ready", File::Old), ("ready", File::New));
    let turned = |members| Situation { live: File::Newer.text(), ..Situation::under_way(None, members) };
    is(
        &turned([old, new, new]),
        "the configuration changed again",
        "note {\"good\":\"OLD\",\"next\":{\"revision\":\"NEWER\",\"canary\":2}} after 10s",
    );
    is(&turned([old; 3]), "the configuration changed again", "note {\"good\":\"OLD\"} after 10s");
    let back = Situation { live: File::Old.text(), ..Situation::under_way(None, [old, old, new]) };
    is(&back, "the configuration changed again", "note {\"good\":\"OLD\"} after 10s");
    let then = Situation { note: json!({ "good": File::Old.revision() }), ..back };
    is(&then, "stopped: galera-2 goes back to the previous configuration", "evict galera-2 after 0s");
}

#[test]
fn a_person_may_keep_a_revision_until_the_config_map_changes() {
    let keep = |of: File, instead: File| {
        let wish = format!("keep {} instead of {}", of.revision(), instead.revision());
        json!({ "metadata": { "annotations": { "gatera.dev/rollout": wish } } })
    };
    let new = Situation { live: File::New.text(), ..Situation::noted() };
    is(&Situation { set: keep(File::Old, File::New), ..new }, "settled", "");
    let newer = Situation { live: File::Newer.text(), set: keep(File::Old, File::New), ..Situation::noted() };
    assert!(newer.stage().1.contains("\"revision\":\"NEWER\""));
    let lost = Situation { live: File::New.text(), set: keep(File::Newer, File::New), ..Situation::noted() };
    is(&lost, "held: there is no snapshot of NEWER, which gatera.dev/rollout asks for", "");
}

#[test]
fn what_a_template_brought_is_taken_over_when_everybody_runs_it() {
    let new = ("ready", Some(File::New));
    let done = Situation { live: File::New.text(), members: vec![new; 3], ..Situation::noted() };
    is(
        &done,
        "every member runs the new configuration",
        "note {\"good\":\"NEW\"} after 0s tell RolledOut: all 3 members run max_connections (NEW)",
    );
    // Before any member holds data, a wrong file is simply replaced.
    let forming = Situation {
        live: File::New.text(),
        members: vec![("stuck", Some(File::Old))],
        data: "none",
        ..Situation::noted()
    };
    is(&forming, "no member holds data yet", "note {\"good\":\"NEW\"} after 0s");
    let then = Situation { note: json!({ "good": File::New.revision() }), ..forming };
    is(&then, "stopped: galera-0 goes back to the previous configuration", "evict galera-0 after 0s");
}

#[test]
fn a_pod_that_is_broken_by_a_template_that_was_taken_back_is_replaced() {
    let set = json!({ "status": { "currentRevision": "a", "updateRevision": "a" } });
    let mut it = Situation {
        set,
        members: vec![("ready", Some(File::Old)), ("ready", Some(File::Old)), ("stuck", None)],
        ..Situation::noted()
    };
    is(&it, "settled", "");
    let scene = Scene { members: ["ready", "ready", "stuck"].map(String::from).into(), ..Scene::default() };
    let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-2"));
    pod["metadata"]["labels"]["controller-revision-hash"] = json!("b");
    it.also = vec![pod];
    is(&it, "galera-2 keeps failing with an earlier template and is replaced", "evict galera-2 after 30s");
    // It would be created again from the template that it has.
    let status = json!({ "status": { "currentRevision": "b", "updateRevision": "a", "currentReplicas": 3 } });
    it.set = status;
    is(&it, "settled", "");
    it.set["spec"] =
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } });
    assert_eq!(it.stage().1, "evict galera-2 after 30s");
}

/// A failing member serves no one, so its replacement does not wait for the others to be well.
#[test]
fn who_fails_gets_another_file_whatever_the_others_do() {
    let (old, stuck) = (("ready", File::Old), ("stuck", File::New));
    let note =
        json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "x" } });
    let two = Situation { note: note.clone(), ..Situation::under_way(None, [old, stuck, stuck]) };
    is(&two, "stopped: x; galera-2 goes back to the previous configuration", "evict galera-2 after 0s");
    // A pod that was created while no guard ran reads the ConfigMap, which holds the revision that failed.
    let mut unmarked = Situation { note, ..Situation::under_way(None, [old, old, old]) };
    unmarked.members[1] = ("stuck", None);
    is(&unmarked, "stopped: x; galera-1 goes back to the previous configuration", "evict galera-1 after 0s");
    // A first installation: the other members do not exist yet.
    let forming = Situation {
        live: File::New.text(),
        note: json!({ "good": File::New.revision() }),
        members: vec![("stuck", Some(File::Old)), ("absent", None), ("absent", None)],
        data: "none",
        bootstrap: "running",
        ..Situation::noted()
    };
    is(&forming, "stopped: galera-0 goes back to the previous configuration", "evict galera-0 after 0s");
    // The failing member comes from a template rollout under way, and the file was corrected since.
    let set = json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } });
    let rolls = Situation { live: File::Newer.text(), set, ..Situation::noted() };
    let rolls = Situation {
        members: vec![("ready", Some(File::Old)), ("ready", Some(File::Old)), ("stuck", Some(File::New))],
        ..rolls
    };
    let (says, does) = rolls.stage();
    assert_eq!(says, "innodb_log_file_size, max_connections: galera-2 is the first");
    assert!(does.contains("\"canary\":2"), "{does}");
}

/// A member that is created without a snapshot a second time is not restarted again.
#[test]
fn a_member_that_nobody_can_give_a_copy_ends_it() {
    let old = ("ready", File::Old);
    let mut it = Situation::under_way(Some(2), [old, old, old]);
    it.members[2] = ("ready", None);
    is(
        &it,
        "0 of 3 run with max_connections; galera-2 is next",
        "note {\"good\":\"OLD\",\"next\":{\"revision\":\"NEW\",\"canary\":2,\"healed\":[\"galera-2\",\"pod-2\"]}} after 0s",
    );
    it.note["next"]["healed"] = json!([format!("{STATEFUL_SET}-2"), "pod-2"]);
    is(&it, "0 of 3 run with max_connections; galera-2 is next", "evict galera-2 after 0s");
    it.note["next"]["healed"] = json!([format!("{STATEFUL_SET}-2"), "another"]);
    let (says, does) = it.stage();
    assert_eq!(says, "galera-2 starts without a snapshot of its configuration");
    assert!(does.contains("\"stopped\"") && does.contains("after 0s"), "{does}");
}

/// Recovery from DOWN may have one member found the cluster: the guard neither rolls out such a file nor prevents it.
#[test]
fn a_file_that_founds_is_never_copied() {
    let founds = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://\n",
        ..Situation::noted()
    };
    is(
        &founds,
        "held: ConfigMap galera-instance-nodeconfig makes every server that starts create a new cluster",
        "",
    );
    let other = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://a\n",
        ..Situation::noted()
    };
    is(&other, "settled", "");
}
