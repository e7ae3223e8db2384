//! Marks, which are annotations that only the guard writes: one that another program wrote is never believed. The attacks are
//! tried here against the router, and in `live.rs` against a real API server.

mod live;

use engine::amend::amend;
use engine::inject;
use facts::review::{Origin, Review};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use leader::plan;
use objects::{Kind, Object};
use serde_json::{Value, json};

use crate::router::{ask, guard};
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

/// Returns a member's pod as the StatefulSet controller creates it, changed by a merge patch.
fn member(change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{STATEFUL_SET}-0"),
            "namespace": NAMESPACE,
            "labels": { "app": "galera", "galera": "galera", "instance": "galera-instance" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET, "uid": "1", "controller": true }],
        },
        "spec": {
            "containers": [{
                "name": "mariadb",
                "image": "mariadb:10.11",
                "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }],
            }],
            "volumes": [{ "name": "datadir", "persistentVolumeClaim": { "claimName": "datadir-0" } }],
        },
    });
    json_patch::merge(&mut pod, change);
    pod
}

/// Returns the guard's response to the creation of this pod, at the mutating or the validating endpoint, and the patched pod.
pub async fn answer_and_pod(scene: &Scene, endpoint: &str, pod: &Value) -> (Value, Value) {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": { "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE", "namespace": NAMESPACE, "object": pod },
    });
    let mut response =
        ask(&guard(scene.world(&Settings::default())), endpoint, &review).await["response"].take();
    let mut after = pod.clone();
    if let Some(patch) = response["patch"].take().as_str() {
        use base64::Engine as _;
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        json_patch::patch(&mut after, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
    }
    (response, after)
}

/// Lists the keys of the pod's annotations that begin with `gatera.dev/`.
fn mark_names(pod: &Value) -> Vec<&str> {
    let annotations = pod["metadata"]["annotations"].as_object();
    annotations
        .into_iter()
        .flatten()
        .map(|(key, _)| &**key)
        .filter(|key| key.starts_with("gatera.dev/"))
        .collect()
}

const INJECTED_MARKS: [&str; 6] = [
    "gatera.dev/bitnami-script",
    "gatera.dev/identity",
    "gatera.dev/injected",
    "gatera.dev/my-cnf",
    "gatera.dev/script",
    "gatera.dev/start-script",
];

/// Even from a pod that it does not inject, the guard removes every mark that was written into the template.
#[tokio::test]
async fn a_pod_that_is_not_injected_carries_no_marks() {
    let forged = json!({ "gatera.dev/injected": env!("CARGO_PKG_VERSION"), "gatera.dev/data": "none", "gatera.dev/later": "x", "gatera.dev/profile": "official" });
    let off = Scene { mode: Some("off".into()), ..Scene::default() };
    for (what, scene, change) in [
        (
            "a mount at the path of the guard's files",
            &Scene::default(),
            json!({ "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "volumeMounts": [{ "name": "own", "mountPath": "/etc/gatera" }] }] } }),
        ),
        (
            "no server",
            &Scene::default(),
            json!({ "spec": { "containers": [{ "name": "proxy", "image": "haproxy" }] } }),
        ),
        ("not adopted", &Scene::default(), json!({ "metadata": { "labels": { "app": "web" } } })),
        ("mode off", &off, json!({})),
    ] {
        let mut pod = member(&change);
        pod["metadata"]["annotations"] = forged.clone();
        let (_, after) = answer_and_pod(scene, "/mutate", &pod).await;
        assert_eq!(mark_names(&after), ["gatera.dev/profile"], "{what}");
        let spec = |pod: &Value| pod["spec"].clone();
        assert_eq!(spec(&after), spec(&pod), "{what}: the spec was changed");
    }
    let mut pod = member(&json!({}));
    pod["metadata"]["annotations"] = forged;
    let (response, after) = answer_and_pod(&Scene::default(), "/mutate", &pod).await;
    assert_eq!(
        mark_names(&after),
        [
            INJECTED_MARKS[0],
            INJECTED_MARKS[1],
            INJECTED_MARKS[2],
            INJECTED_MARKS[3],
            "gatera.dev/profile",
            INJECTED_MARKS[4],
            INJECTED_MARKS[5]
        ]
    );
    assert!(response["warnings"][0].as_str().unwrap().starts_with("[G18] Pod db/"), "{response}");
}

/// A pod is not refused because of what the API server and other webhooks change in it after injection.
#[tokio::test]
async fn an_injected_pod_is_accepted_as_the_api_server_sends_it() {
    let scene = Scene::default();
    for change in [
        json!({}),
        json!({ "metadata": { "annotations": { "gatera.dev/readiness": "keep" } } }),
        json!({ "spec": { "containers": [{ "name": "db", "image": "example.com/db:1", "ports": [{ "containerPort": 4567 }] }] } }),
        json!({ "spec": { "containers": [{ "name": "db", "image": "bitnami/mariadb-galera:10.11", "volumeMounts": [{ "name": "datadir", "mountPath": "/bitnami/mariadb" }] }] } }),
    ] {
        let (_, mut pod) = answer_and_pod(&scene, "/mutate", &member(&change)).await;
        assert!(mark_names(&pod).contains(&INJECTED_MARKS[0]), "{change}");
        let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
        volumes
            .iter_mut()
            .filter(|it| it["name"] == "gatera")
            .for_each(|it| it["downwardAPI"]["defaultMode"] = json!(420));
        volumes.push(json!({ "name": "sidecar", "emptyDir": {} }));
        let container = &mut pod["spec"]["containers"][0];
        container["volumeMounts"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }));
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "name": "sidecar", "image": "proxy" }));
        pod["metadata"]["annotations"]["sidecar.example.com/status"] = json!("injected");
        let (response, _) = answer_and_pod(&scene, "/validate", &pod).await;
        assert_eq!(
            (&response["allowed"], &response["warnings"]),
            (&json!(true), &Value::Null),
            "{change}: {response}"
        );
        // A second mutating call, as after a change by another webhook, causes no warning about the marks.
        let (response, again) = answer_and_pod(&scene, "/mutate", &pod).await;
        assert!(!response["warnings"].to_string().contains("G18"), "{response}");
        assert_eq!(mark_names(&again), mark_names(&pod), "{change}: the second call changed the marks");
    }
}

/// Each pod is otherwise as injection makes it. Its marks could be forged while the mutating call was not answered, or by a
/// webhook that is called later.
#[tokio::test]
async fn a_pod_with_marks_that_this_guard_did_not_write_does_not_start() {
    let scene = Scene::default();
    let (_, pod) = answer_and_pod(&scene, "/mutate", &member(&json!({}))).await;
    let note = |mark: &str, value: &str| json!({ "metadata": { "annotations": { format!("gatera.dev/{mark}"): value } } });
    let volume = |volume: Value| json!({ "spec": { "volumes": [{ "name": "datadir", "persistentVolumeClaim": { "claimName": "datadir-0" } }, volume, { "name": "gatera-run", "emptyDir": {} }] } });
    let container = |change: Value| {
        let mut container = pod["spec"]["containers"][0].clone();
        json_patch::merge(&mut container, &change);
        json!({ "spec": { "containers": [container] } })
    };
    let mounts = |path: &str| json!([{ "name": "datadir", "mountPath": "/var/lib/mysql" }, { "name": "gatera", "mountPath": path }, { "name": "gatera-run", "mountPath": "/run/gatera" }]);
    let mut covered = mounts("/etc/gatera");
    covered
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "datadir", "mountPath": "/etc/gatera/wait-for-sync.sh", "subPath": "x" }));
    for (what, change, says) in [
        (
            "another script",
            note("script", "exit 0"),
            "gatera.dev/script belongs to the guard: the script differs from the one that this guard injects",
        ),
        (
            "another option file",
            note("my-cnf", "[mysqld]\nskip-grant-tables\n"),
            "gatera.dev/my-cnf belongs to the guard: the option file differs from the one that this guard injects",
        ),
        (
            "an address that founds",
            note(
                "my-cnf",
                "# written by gatera\n[mysqld]\nloose-wsrep_status_file = /run/gatera/wsrep_status.json\nwsrep_cluster_address = gcomm://\n",
            ),
            "the option file differs from the one that this guard injects",
        ),
        ("another version", note("injected", "9.9.9"), "it was injected by another version of gatera"),
        (
            "an extra word in the mark",
            note("injected", concat!(env!("CARGO_PKG_VERSION"), " really")),
            "the readiness probe does not match it",
        ),
        (
            "a mark that does not belong on pods",
            note("data", "none"),
            "gatera.dev/data belongs to the guard: it does not belong on a pod",
        ),
        (
            "no mark of injection",
            json!({ "metadata": { "annotations": { "gatera.dev/injected": null } } }),
            "gatera did not inject this pod",
        ),
        (
            "another volume",
            volume(json!({ "name": "gatera", "configMap": { "name": "own" } })),
            "its volumes and mounts are missing",
        ),
        (
            "other files in the volume",
            volume(
                json!({ "name": "gatera", "downwardAPI": { "items": [{ "path": "wait-for-sync.sh", "fieldRef": { "fieldPath": "metadata.annotations['own']" } }] } }),
            ),
            "its volumes and mounts",
        ),
        ("no volume", json!({ "spec": { "volumes": null } }), "its volumes and mounts"),
        (
            "another mount",
            container(json!({ "volumeMounts": mounts("/elsewhere") })),
            "its volumes and mounts",
        ),
        ("a mount over the script", container(json!({ "volumeMounts": covered })), "its volumes and mounts"),
        (
            "another probe",
            container(json!({ "readinessProbe": { "exec": { "command": ["true"] } } })),
            "the readiness probe does not match it",
        ),
        (
            "another command",
            container(json!({ "command": ["sleep"] })),
            "the readiness probe does not match it",
        ),
        (
            "not adopted",
            json!({ "metadata": { "labels": { "app": "web" } } }),
            "gatera does not inject anything into such a pod",
        ),
    ] {
        let mut forged = pod.clone();
        json_patch::merge(&mut forged, &change);
        let (response, _) = answer_and_pod(&scene, "/validate", &forged).await;
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(403)),
            "{what}: {response}"
        );
        assert!(message.starts_with("[G18] Pod db/") && message.contains(says), "{what}: {message}");
    }
}

/// If the template of a cluster carries the mark of injection, the mark on its pods proves nothing.
#[test]
fn members_are_not_verified_if_their_template_carries_the_mark() {
    let unverified = |annotations: Value| {
        let settings = Settings::default();
        let change = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        let world = Scene { stateful_set: change, ..Scene::default() }.world(&settings);
        world.cluster(NAMESPACE, STATEFUL_SET).unwrap().unverified().count()
    };
    assert_eq!(unverified(json!({})), 0);
    assert_eq!(unverified(json!({ "gatera.dev/injected": env!("CARGO_PKG_VERSION") })), 3);
}

/// In mode off the leader has nothing to do, pods are not injected, and a new StatefulSet is not marked.
#[test]
fn a_namespace_in_mode_off_is_left_alone() {
    for (mode, left_alone) in [("enforce", false), ("warn", false), ("audit", false), ("off", true)] {
        let settings = Settings::default();
        let new = Scene { data: "none".into(), mode: Some(mode.into()), ..Scene::default() };
        let world = new.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        assert_eq!(plan::next(&view).is_empty(), left_alone, "{mode}");
        assert_eq!(injects(&view), !left_alone, "{mode}");
        let first = Scene {
            exists: false,
            members: vec![],
            claims: false,
            mode: Some(mode.into()),
            ..Scene::default()
        };
        let world = first.world(&settings);
        let set = Scene { data: String::new(), ..first }.stateful_set();
        let patch = patch_of_new(&set, &View::new(&world, scene::now(), &settings));
        assert_eq!(patch.is_none(), left_alone, "{mode}: {patch:?}");
    }
}

fn injects(view: &View<'_>) -> bool {
    let pod = member(&json!({}));
    let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else { panic!("unreadable") };
    let mut after = pod.clone();
    inject::into_pod(&mut after, &read, NAMESPACE, view);
    after != pod
}

/// Returns the patch that the guard applies to a new StatefulSet.
fn patch_of_new(set: &Value, view: &View<'_>) -> Option<json_patch::Patch> {
    let text = set.to_string();
    let read = Object::read(Kind::StatefulSet, &text);
    let review = Review::as_created(Origin::Mutating, Kind::StatefulSet, NAMESPACE, STATEFUL_SET, read);
    let decision = rulebook().evaluate(&review, view);
    amend(&review, &text, &decision, view)
}

/// A claim that waits for a volume may be about to get its old one back, so the mark in a manifest is not believed.
#[test]
fn a_saved_mark_is_not_believed_over_claims_from_before() {
    let settings = Settings::default();
    for (phase, written, mark) in [
        ("Pending", Some("none"), None),
        ("Pending", None, None),
        ("Bound", Some("none"), Some("present")),
        ("Bound", None, None),
    ] {
        let mut scene = Scene { exists: false, ..Scene::default() };
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": format!("datadir-{STATEFUL_SET}-0") }, "status": { "phase": phase } });
        (scene.members, scene.claims, scene.also) = (vec![], false, vec![claim]);
        let world = scene.world(&settings);
        let mut set = Scene { data: String::new(), ..scene }.stateful_set();
        if let Some(written) = written {
            set["metadata"]["annotations"]["gatera.dev/data"] = json!(written);
        }
        if let Some(patch) = patch_of_new(&set, &View::new(&world, scene::now(), &settings)) {
            json_patch::patch(&mut set, &patch).unwrap();
        }
        assert_eq!(set["metadata"]["annotations"]["gatera.dev/data"].as_str(), mark, "{phase} {written:?}");
    }
}

/// `gatera check` reports the marks of a manifest, from which the guard has not removed anything yet.
#[test]
fn a_check_reports_the_marks_of_a_manifest_that_the_guard_ignores() {
    let settings = Settings::default();
    let world = Scene { exists: false, members: vec![], claims: false, ..Scene::default() }.world(&settings);
    let mut set = Scene { data: "none".into(), ..Scene::default() }.stateful_set();
    set["spec"]["template"]["metadata"]["annotations"] = json!({ "gatera.dev/injected": "0.1.0" });
    for (origin, says) in [
        (
            Origin::Check,
            &[
                "gatera.dev/data belongs to the guard, which sets it itself",
                "gatera.dev/injected belongs to the guard and is removed from the pod template",
            ][..],
        ),
        (
            Origin::Mutating,
            &["gatera.dev/injected belongs to the guard and is removed from the pod template"],
        ),
        (Origin::Audit, &["gatera.dev/injected belongs to the guard and has no effect in a template"]),
        (Origin::Validating, &["gatera.dev/injected belongs to the guard"]),
    ] {
        let read = Object::read(Kind::StatefulSet, &set.to_string());
        let review = Review::as_created(origin, Kind::StatefulSet, NAMESPACE, STATEFUL_SET, read);
        let decision = rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings));
        let texts: Vec<_> = decision
            .judged
            .iter()
            .filter(|it| it.finding.rule == "G18")
            .map(|it| &*it.finding.says)
            .collect();
        assert_eq!(texts, says, "{origin:?}");
        assert_eq!(
            decision.allowed(),
            origin != Origin::Validating,
            "{origin:?}: only the validating call refuses, because only another webhook can have written the mark"
        );
    }
}
