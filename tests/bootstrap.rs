//! The bootstrap node is removed once no member needs it: what is planned against a fake API server (`bootstrap/fake_api.rs`),
//! what happens on a control plane with nodes (`bootstrap/live.rs`), and what happens when the leader is killed between any two
//! steps (`bootstrap/crash.rs`).

pub mod crash;
mod fake_api;
mod forged;
mod forged_live;
pub mod gate;
pub mod live;

use facts::settings::Settings;
use facts::view::View;
use inspect::status::ClusterStatus;
use leader::plan::bootstrap::{self, BootstrapStage};
use leader::plan::{self, LeaderStep, PlannedStep};
use report::status;
use serde_json::{Value, json};

use crate::scene::{self, BOOTSTRAP, NAMESPACE, STATEFUL_SET, Scene};
use fake_api::FakeApi;

const SERVICE: &str = "galera-instance-bootstrap-svc";
const MEMBER_ADDRESSES: &str = "gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs";

/// Returns a cluster that has just formed and still has its bootstrap node.
fn formed() -> Scene {
    Scene { bootstrap: "running".into(), data: "none".into(), ..Scene::default() }
}

fn stage(api: &FakeApi) -> BootstrapStage {
    api.with_view(|view| bootstrap::stage(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), view))
}

/// Returns why the bootstrap node is kept.
fn reason_kept(api: &FakeApi) -> String {
    match stage(api) {
        BootstrapStage::Kept(why) => why,
        other => panic!("the bootstrap node should be kept: {other:?}"),
    }
}

#[test]
fn a_formed_cluster_loses_its_bootstrap_node_step_by_step() {
    let mut api = FakeApi::of(&formed());
    let done = api.run(1);
    let words: Vec<_> = done.iter().map(fake_api::description).collect();
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
        api.events,
        [
            "BootstrapRemoved: removed Deployment galera-instance-bootstrap, Service galera-instance-bootstrap-svc, ConfigMap \
          galera-instance-bootstrap: 3 of 3 members Synced"
        ]
    );
    api.assert_removed();
    assert_eq!(stage(&api), BootstrapStage::Removed);
}

/// A new leader may repeat a step that was done but that it has not seen yet.
#[test]
fn every_step_is_idempotent() {
    let mut api = FakeApi::of(&formed());
    api.run(2);
    api.assert_removed();
    assert_eq!(api.events.len(), 1, "{:?}", api.events);
}

/// The Deployment is gone when a new leader takes over: the annotation on the StatefulSet still names what belonged to it.
#[test]
fn objects_of_a_deleted_deployment_are_still_removed() {
    let mut api = FakeApi::of(&formed());
    while api.object("Deployment", BOOTSTRAP).is_some() {
        api.step();
    }
    api.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] = json!([]);
    api.run(1);
    api.assert_removed();
}

#[test]
fn the_bootstrap_node_is_kept_while_it_may_be_needed_and_the_reason_is_reported() {
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
        let api = FakeApi::of(&scene);
        assert_eq!(reason_kept(&api), why);
        let note = format!("the bootstrap node stays: {why}");
        let reported = |step: &PlannedStep| matches!(&step.step, LeaderStep::Announce(reported) if reported.reason == "BootstrapKept" && reported.note == note);
        let steps = api.with_view(plan::next);
        assert!(steps.iter().any(reported), "{steps:?}");
        assert!(!steps.iter().any(PlannedStep::destroys), "{steps:?}");
    }
    assert!(matches!(
        stage(&FakeApi::of(&Scene { stateful_set: on_delete, ..formed() })),
        BootstrapStage::Going(..)
    ));
}

#[test]
fn a_member_that_fails_midway_delays_the_removal() {
    let mut api = FakeApi::of(&formed());
    for _ in 0..4 {
        api.step();
    }
    api.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] = json!([]);
    assert_eq!(reason_kept(&api), "2 of 3 members Synced, galera-instance-galera-1 is not Ready yet");
    api.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["status"]["conditions"] =
        json!([{ "type": "Ready", "status": "True" }]);
    api.run(1);
    api.assert_removed();
}

#[test]
fn nothing_is_planned_for_terminating_objects_or_an_old_view() {
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
        let mut api = FakeApi::of(&scene);
        api.drop_bootstrap_from_addresses();
        assert_eq!(api.with_view(plan::next), [], "{scene:?}");
    }
}

/// The namespace begins to terminate midway: no further step is planned.
#[test]
fn a_namespace_that_terminates_midway_is_left_alone() {
    let mut api = FakeApi::of(&formed());
    api.step();
    api.object("Namespace", NAMESPACE).unwrap()["metadata"]["deletionTimestamp"] =
        json!("2026-12-01T09:29:00Z");
    assert_eq!(api.with_view(plan::next), []);
}

#[test]
fn objects_that_are_applied_again_stay_and_are_not_reported_again() {
    let mut api = FakeApi::of(&formed());
    let before = api.clone();
    api.run(1);
    api.apply_again(&before);
    assert_eq!(api.with_view(plan::next), []);
    assert_eq!(
        stage(&api),
        BootstrapStage::LeftAlone("Deployment galera-instance-bootstrap was applied again after it was removed; remove it from what you apply".into())
    );
    // The same holds when the objects are applied again between two steps.
    let mut api = before.clone();
    while api.object("Deployment", BOOTSTRAP).is_some() {
        api.step();
    }
    api.apply_again(&before);
    api.run(1);
    for (kind, name) in [("Deployment", BOOTSTRAP), ("Service", SERVICE), ("ConfigMap", BOOTSTRAP)] {
        assert!(api.object(kind, name).is_some(), "{kind} {name} was applied again and must stay");
    }
    assert_eq!(api.events.len(), 1);
}

/// Only what the bootstrap node alone uses is removed: nothing that another cluster, a member or anything else needs.
#[test]
fn objects_that_others_need_stay() {
    let reads = |map: &str| json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "config", "configMap": { "name": map } }] } } } });
    let targets = |api: &FakeApi| {
        let Some(LeaderStep::Mark(mark)) = api.with_view(plan::next).into_iter().next().map(|it| it.step)
        else {
            panic!("{:?}", stage(api))
        };
        let note = mark.bootstrap.unwrap();
        let kinds = note.split(' ').skip(2).map(|it| it.split('/').next().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    };
    let member_reads = FakeApi::of(&Scene { stateful_set: reads(BOOTSTRAP), ..formed() });
    assert_eq!(targets(&member_reads), ["Deployment", "Service"]);

    let mut other = scene::bootstrap_deployment(0);
    json_patch::merge(
        &mut other,
        &json!({ "metadata": { "name": "other" }, "spec": { "template": { "metadata": { "labels": { "instance": "other" } } } } }),
    );
    json_patch::merge(&mut other, &reads(BOOTSTRAP));
    assert_eq!(targets(&FakeApi::of(&Scene { also: vec![other], ..formed() })), ["Deployment", "Service"]);

    let mut plain = FakeApi::of(&formed());
    plain.object("ConfigMap", BOOTSTRAP).unwrap()["data"] = json!({ "ca.crt": "…" });
    assert_eq!(
        targets(&plain),
        ["Deployment", "Service"],
        "nothing in the ConfigMap shows that it is Galera's"
    );

    let mut governing = FakeApi::of(&formed());
    governing.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["serviceName"] = json!(SERVICE);
    assert_eq!(targets(&governing), ["Deployment", "ConfigMap"]);
}

#[test]
fn a_bootstrap_pod_without_a_deployment_is_left_to_its_owner() {
    let mut pod = scene::bootstrap_pod("alone");
    pod["metadata"]["ownerReferences"] = json!([]);
    let api = FakeApi::of(&Scene { bootstrap: "absent".into(), also: vec![pod], ..formed() });
    assert_eq!(
        reason_kept(&api),
        "pod galera-instance-bootstrap-alone has no Deployment, so gatera does not remove it; when all members are Ready: \
         kubectl -n db delete pod galera-instance-bootstrap-alone"
    );
}

#[test]
fn addresses_follow_replicas_and_no_member_founds_a_cluster() {
    let mut api = FakeApi::of(&Scene { data: "present".into(), ..Scene::default() });
    api.drop_bootstrap_from_addresses();
    assert_eq!(api.with_view(plan::next), []);
    api.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(4);
    let steps = api.run(1);
    assert_eq!(steps.len(), 3, "{steps:?}");
    let more = format!("{MEMBER_ADDRESSES},galera-instance-galera-3.galera-instance-hs");
    assert_eq!(api.address(0), more);
    // One member has an annotation to keep its address, and another one was never injected.
    api.object("Pod", &format!("{STATEFUL_SET}-0")).unwrap()["metadata"]["annotations"]["gatera.dev/address"] =
        json!("keep");
    api.object("Pod", &format!("{STATEFUL_SET}-1")).unwrap()["metadata"]["annotations"] = json!({});
    api.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(3);
    assert_eq!(api.run(1).len(), 1);
    assert_eq!((api.address(0), api.address(2)), (more, MEMBER_ADDRESSES.to_owned()));
    // During recovery from DOWN the members found a cluster, and the address list would keep them from doing so.
    api.object("ConfigMap", "galera-instance-nodeconfig").unwrap()["data"] =
        json!({ "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" });
    api.object("StatefulSet", STATEFUL_SET).unwrap()["spec"]["replicas"] = json!(1);
    assert_eq!(api.with_view(plan::next), []);
}

#[test]
fn status_shows_every_stage() {
    let section = |api: &FakeApi, name: &str| {
        let (text, json) = api.with_view(|view| {
            let all = ClusterStatus::all(view);
            (status::text(&all, false), status::json(&all, &[]))
        });
        let steps = json["clusters"][0]["plan"]["steps"].as_array().unwrap().len();
        assert_eq!(steps, 5, "{name}: the steps of the plan in JSON");
        format!("# {name}\n{text}\n")
    };
    let mut text = String::new();
    let joining = Scene { members: ["ready", "starting", "absent"].map(String::from).into(), ..formed() };
    text += &section(&FakeApi::of(&joining), "a member joins");
    let mut api = FakeApi::of(&formed());
    text += &section(&api, "formed");
    api.step();
    text += &section(&api, "the addresses change first");
    api.run(1);
    text += &section(&api, "removed");
    let note = |note: &str| {
        let bootstrap = json!({ "metadata": { "annotations": { "gatera.dev/bootstrap": note } } });
        let mut api =
            FakeApi::of(&Scene { data: "present".into(), stateful_set: bootstrap, ..Scene::default() });
        api.drop_bootstrap_from_addresses();
        api
    };
    let forged = note("removing 1 Service/galera-instance-hs/uid-0");
    text += &section(&forged, "a forged annotation that names objects of others");
    text += &section(&note("gone"), "a forged annotation in another format");
    let unverified =
        Scene { members: ["unverified", "ready", "unverified"].map(String::from).into(), ..formed() };
    text += &section(&FakeApi::of(&unverified), "members that are older than the guard");
    text += &section(
        &FakeApi::of(&Scene { bootstrap: "held".into(), data: "present".into(), ..formed() }),
        "applied again",
    );
    let claim = |ordinal: u8| {
        let name = format!("datadir-galera-instance-galera-{ordinal}");
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "db" }, "status": { "phase": "Bound" } })
    };
    let shrunk = Scene { also: vec![claim(3), claim(4)], ..Scene::default() };
    text += &section(&FakeApi::of(&shrunk), "five members became three");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status", text);
    });
}

/// The JSON output is a contract with other programs.
#[test]
fn status_as_json() {
    let api = FakeApi::of(&formed());
    let json = api.with_view(|view: &View<'_>| {
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
