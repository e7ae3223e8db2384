//! The bootstrap node is removed once no member needs it: what is planned in small worlds (`bootstrap/small.rs`), what
//! happens on a control plane with nodes, and what happens when the leader is killed between any two steps
//! (`bootstrap/crash.rs`).

pub mod crash;
mod forged;
mod forged_live;
pub mod gate;
pub mod live;
mod small;

use facts::settings::Settings;
use facts::view::View;
use inspect::status::ClusterStatus;
use leader::plan::bootstrap::{self, BootstrapStage};
use leader::plan::{self, LeaderStep};
use report::status;
use serde_json::{Value, json};

use crate::scene::{self, BOOTSTRAP, NAMESPACE, STATEFUL_SET, Scene};
use small::Small;

const SERVICE: &str = "galera-instance-bootstrap-svc";
const WITHOUT: &str = "gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs";

/// Returns a cluster that has just formed and still has its bootstrap node.
fn formed() -> Scene {
    Scene { bootstrap: "running".into(), data: "none".into(), ..Scene::default() }
}

fn stage(small: &Small) -> BootstrapStage {
    small.look(|view| bootstrap::stage(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), view))
}

fn kept(small: &Small) -> String {
    match stage(small) {
        BootstrapStage::Kept(why) => why,
        other => panic!("it should be kept: {other:?}"),
    }
}

#[test]
fn a_formed_cluster_loses_its_bootstrap_node_step_by_step() {
    let mut small = Small::of(&formed());
    let done = small.run(1);
    let words: Vec<_> = done.iter().map(small::word).collect();
    assert_eq!(
        words,
        [
            "mark removing 1 Deployment/galera-instance-bootstrap/uid-0 Service/galera-instance-bootstrap-svc/uid-0 ConfigMap/galera-instance-bootstrap/uid-0",
            "address galera-instance-galera-0",
            "address galera-instance-galera-1",
            "address galera-instance-galera-2",
            "mark Deployment galera-instance-bootstrap",
            "mark Service galera-instance-bootstrap-svc",
            "mark ConfigMap galera-instance-bootstrap",
            "delete Deployment galera-instance-bootstrap",
            "delete Service galera-instance-bootstrap-svc",
            "finish Deployment galera-instance-bootstrap, Service galera-instance-bootstrap-svc, ConfigMap galera-instance-bootstrap",
        ]
    );
    assert_eq!(
        small.events,
        [
            "BootstrapRemoved: removed Deployment galera-instance-bootstrap, Service galera-instance-bootstrap-svc, ConfigMap \
          galera-instance-bootstrap: 3 of 3 members Synced"
        ]
    );
    small.is_clean();
    assert_eq!(stage(&small), BootstrapStage::Removed);
}

/// A new leader may repeat a step that was done but that it has not seen yet.
#[test]
fn every_step_may_be_done_twice() {
    let mut small = Small::of(&formed());
    small.run(2);
    small.is_clean();
    assert_eq!(small.events.len(), 1, "{:?}", small.events);
}

/// The Deployment and the leader that deleted it are gone: the mark on the StatefulSet still names what belonged to it.
#[test]
fn what_belonged_to_a_deployment_that_is_gone_is_known() {
    let mut small = Small::of(&formed());
    while small.object("Deployment", BOOTSTRAP).is_some() {
        small.step();
    }
    small.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] = json!([]);
    small.run(1);
    small.is_clean();
}

#[test]
fn it_is_kept_as_long_as_anybody_may_need_it_and_says_why() {
    let scene =
        |members: &[&str]| Scene { members: members.iter().map(|it| (*it).into()).collect(), ..formed() };
    let rolling = json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } });
    let rolls = json!({ "status": { "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 2 } });
    let on_delete = json!({ "spec": { "updateStrategy": { "type": "OnDelete" } }, "status": { "currentRevision": "a", "updateRevision": "b" } });
    for (scene, why) in [
        (
            scene(&["ready", "ready", "starting"]),
            "2 of 3 members Synced, galera-instance-galera-2 is not Ready yet",
        ),
        (
            scene(&["ready", "ready", "absent"]),
            "2 of 3 members Synced, galera-instance-galera-2 does not exist",
        ),
        (
            scene(&["ready", "going", "ready"]),
            "2 of 3 members Synced, galera-instance-galera-1 is being deleted",
        ),
        (
            Scene { replicas: Some(2), ..formed() },
            "2 of 2 members Synced, galera-instance-galera-2 is leaving",
        ),
        (Scene { replicas: Some(0), members: vec![], ..formed() }, "the StatefulSet has 0 replicas"),
        (Scene { stateful_set: rolling, ..formed() }, "a rollout of the StatefulSet is under way"),
        (Scene { stateful_set: rolls, ..formed() }, "a rollout of the StatefulSet is under way"),
        (
            Scene { mode: Some("audit".into()), ..formed() },
            "namespace db is in mode audit, in which gatera removes and restarts nothing",
        ),
        (
            scene(&["unverified", "ready", "unverified"]),
            "galera-instance-galera-0, galera-instance-galera-2 started without gatera, so Ready does not prove Synced; \
             unless wsrep_cluster_state_uuid is zeros (gatera explain G04), restart them one at a time, each when the one before is Ready again: kubectl -n db delete pod galera-instance-galera-0",
        ),
    ] {
        let small = Small::of(&scene);
        assert_eq!(kept(&small), why);
        let note = format!("the bootstrap node stays: {why}");
        let reported = |step: &LeaderStep| matches!(step, LeaderStep::Announce(reported) if reported.reason == "BootstrapKept" && reported.note == note);
        let steps = small.look(plan::next);
        assert!(steps.iter().any(reported), "{steps:?}");
        assert!(!steps.iter().any(LeaderStep::destroys), "{steps:?}");
    }
    assert!(matches!(
        stage(&Small::of(&Scene { stateful_set: on_delete, ..formed() })),
        BootstrapStage::Going(..)
    ));
}

#[test]
fn a_member_that_fails_midway_stops_it_before_the_node_goes() {
    let mut small = Small::of(&formed());
    for _ in 0..4 {
        small.step();
    }
    small.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] = json!([]);
    assert_eq!(kept(&small), "2 of 3 members Synced, galera-instance-galera-1 is not Ready yet");
    small.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] =
        json!([{ "type": "Ready", "status": "True" }]);
    small.run(1);
    small.is_clean();
}

#[test]
fn nothing_is_done_to_what_ends_or_is_not_known() {
    for scene in [
        Scene { namespace_going: true, ..formed() },
        Scene { view: "stale".into(), ..formed() },
        Scene { view: "loading".into(), ..formed() },
        Scene {
            stateful_set: json!({ "metadata": { "deletionTimestamp": "2026-12-01T09:29:00Z" } }),
            ..formed()
        },
        Scene { bootstrap: "held".into(), data: "present".into(), ..formed() },
        Scene { bootstrap: "absent".into(), data: "present".into(), ..formed() },
    ] {
        let mut small = Small::of(&scene);
        small.without_bootstrap_in_addresses();
        assert_eq!(small.look(plan::next), [], "{scene:?}");
    }
}

/// The namespace begins to terminate midway: no further step is planned.
#[test]
fn a_namespace_that_goes_midway_is_left_alone() {
    let mut small = Small::of(&formed());
    small.step();
    small.object("Namespace", NAMESPACE).unwrap()["metadata"]["deletionTimestamp"] =
        json!("2026-12-01T09:29:00Z");
    assert_eq!(small.look(plan::next), []);
}

#[test]
fn what_was_applied_again_stays_and_is_not_reported_again() {
    let mut small = Small::of(&formed());
    let before = small.clone();
    small.run(1);
    small.bring_back(&before);
    assert_eq!(small.look(plan::next), []);
    assert_eq!(
        stage(&small),
        BootstrapStage::LeftAlone("Deployment galera-instance-bootstrap was applied again after it was removed; remove it from what you apply".into())
    );
    // The same holds when the objects are applied again between two steps.
    let mut small = before.clone();
    while small.object("Deployment", BOOTSTRAP).is_some() {
        small.step();
    }
    small.bring_back(&before);
    small.run(1);
    for (kind, name) in [("Deployment", BOOTSTRAP), ("Service", SERVICE), ("ConfigMap", BOOTSTRAP)] {
        assert!(small.object(kind, name).is_some(), "{kind} {name} is somebody's");
    }
    assert_eq!(small.events.len(), 1);
}

/// Only what the bootstrap node alone uses is removed: nothing that another cluster, a member or anything else needs.
#[test]
fn what_others_need_stays() {
    let reads = |map: &str| json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "config", "configMap": { "name": map } }] } } } });
    let targets = |small: &Small| {
        let Some(LeaderStep::Mark(mark)) = small.look(plan::next).into_iter().next() else {
            panic!("{:?}", stage(small))
        };
        let note = mark.bootstrap.unwrap();
        let kinds = note.split(' ').skip(2).map(|it| it.split('/').next().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    };
    let member_reads = Small::of(&Scene { stateful_set: reads(BOOTSTRAP), ..formed() });
    assert_eq!(targets(&member_reads), ["Deployment", "Service"]);

    let mut other = scene::bootstrap_deployment(0);
    json_patch::merge(
        &mut other,
        &json!({ "metadata": { "name": "other" }, "spec": { "template": { "metadata": { "labels": { "instance": "other" } } } } }),
    );
    json_patch::merge(&mut other, &reads(BOOTSTRAP));
    assert_eq!(targets(&Small::of(&Scene { also: vec![other], ..formed() })), ["Deployment", "Service"]);

    let mut plain = Small::of(&formed());
    plain.object("ConfigMap", BOOTSTRAP).unwrap()["data"] = json!({ "ca.crt": "…" });
    assert_eq!(targets(&plain), ["Deployment", "Service"], "it does not show that it is Galera's");

    let mut governing = Small::of(&formed());
    governing.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["serviceName"] = json!(SERVICE);
    assert_eq!(targets(&governing), ["Deployment", "ConfigMap"]);
}

#[test]
fn a_bootstrap_pod_without_a_deployment_is_left_to_its_owner() {
    let mut pod = scene::bootstrap_pod("alone");
    pod["metadata"]["ownerReferences"] = json!([]);
    let small = Small::of(&Scene { bootstrap: "absent".into(), also: vec![pod], ..formed() });
    assert_eq!(
        kept(&small),
        "pod galera-instance-bootstrap-alone has no Deployment, so gatera does not remove it; when all members are Ready: \
         kubectl -n db delete pod galera-instance-bootstrap-alone"
    );
}

#[test]
fn addresses_follow_replicas_and_nobody_founds() {
    let mut small = Small::of(&Scene { data: "present".into(), ..Scene::default() });
    small.without_bootstrap_in_addresses();
    assert_eq!(small.look(plan::next), []);
    small.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(4);
    let steps = small.run(1);
    assert_eq!(steps.len(), 3, "{steps:?}");
    let more = format!("{WITHOUT},galera-instance-galera-3.galera-instance-hs");
    assert_eq!(small.address(0), more);
    // The owner of one member asked to leave its address unchanged, and another member was never injected.
    small.object("Pod", &format!("{STATEFUL_SET}-0")).unwrap()["metadata"]["annotations"]["gatera.dev/address"] =
        json!("keep");
    small.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["metadata"]["annotations"] = json!({});
    small.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(3);
    assert_eq!(small.run(1).len(), 1);
    assert_eq!((small.address(0), small.address(2)), (more, WITHOUT.to_owned()));
    // During recovery from DOWN the members found a cluster, and the address list would keep them from doing so.
    small.object("ConfigMap", "galera-instance-nodeconfig").unwrap()["data"] =
        json!({ "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" });
    small.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(1);
    assert_eq!(small.look(plan::next), []);
}

#[test]
fn status_tells_the_story() {
    let story = |small: &Small, name: &str| {
        let (text, json) = small.look(|view| {
            let all = ClusterStatus::all(view);
            (status::text(&all, false), status::json(&all, &[]))
        });
        let steps = json["clusters"][0]["plan"]["steps"].as_array().unwrap().len();
        assert_eq!(steps, 5);
        format!("# {name}\n{text}\n")
    };
    let mut text = String::new();
    let joining = Scene { members: ["ready", "starting", "absent"].map(String::from).into(), ..formed() };
    text += &story(&Small::of(&joining), "a member joins");
    let mut small = Small::of(&formed());
    text += &story(&small, "formed");
    small.step();
    text += &story(&small, "the address goes first");
    small.run(1);
    text += &story(&small, "removed");
    let note = |note: &str| {
        let bootstrap = json!({ "metadata": { "annotations": { "gatera.dev/bootstrap": note } } });
        let mut small =
            Small::of(&Scene { data: "present".into(), stateful_set: bootstrap, ..Scene::default() });
        small.without_bootstrap_in_addresses();
        small
    };
    let forged = note("removing 1 Service/galera-instance-hs/uid-0");
    text += &story(&forged, "somebody wrote a note that names what is not the bootstrap node's");
    text += &story(&note("gone"), "somebody wrote a note that says nothing");
    let unverified =
        Scene { members: ["unverified", "ready", "unverified"].map(String::from).into(), ..formed() };
    text += &story(&Small::of(&unverified), "members from before");
    text += &story(
        &Small::of(&Scene { bootstrap: "held".into(), data: "present".into(), ..formed() }),
        "applied again",
    );
    let claim = |ordinal: u8| {
        let name = format!("datadir-galera-instance-galera-{ordinal}");
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "db" }, "status": { "phase": "Bound" } })
    };
    let shrunk = Scene { also: vec![claim(3), claim(4)], ..Scene::default() };
    text += &story(&Small::of(&shrunk), "five members became three");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status", text);
    });
}

/// The JSON output is a contract with other programs.
#[test]
fn status_is_also_for_programs() {
    let small = Small::of(&formed());
    let json = small.look(|view: &View<'_>| {
        let all = ClusterStatus::all(view);
        status::json(&all, &[])
    });
    let cluster = &json["clusters"][0];
    assert_eq!(
        cluster["members"][0],
        json!({ "name": "galera-instance-galera-0", "says": "Synced", "condition": null, "ready": true, "revision": null, "verified": true, "node": "node-0", "seen": null, "start": null })
    );
    assert_eq!(cluster["plan"]["status"], "IN_PROGRESS");
    assert_eq!(
        cluster["plan"]["steps"][2],
        json!({ "name": "remove the bootstrap node", "status": "IN_PROGRESS", "says": "all members are Synced" })
    );
}

fn settings() -> Settings {
    Settings::default()
}

fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}
