//! Nothing is deleted because of an annotation or mark that the guard did not write, and a ConfigMap stays if any other object
//! reads it. These tests use a fake API server; `forged_live.rs` tries the attack on a control plane.

use facts::view::RemovalTarget;
use leader::plan::{self, Finish, LeaderStep, LookedUp, Warrant};
use objects::{ConfigMapReader, Kind, Object};
use serde_json::{Value, json};

use super::fake_api::{FakeApi, description};
use super::{SERVICE, formed, reason_kept};
use crate::scene::{BOOTSTRAP, NAMESPACE, STATEFUL_SET, Scene};

const MARK: &str = "gatera.dev/removing";

/// Returns a cluster without a bootstrap node, beside objects that do not belong to it.
fn cluster_beside_others(also: Vec<Value>) -> FakeApi {
    let mut theirs = vec![
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "uid": "uid-web" }, "spec": { "selector": { "app": "web" } } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "uid": "uid-web" }, "data": { "key": "value" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "uid": "uid-web" }, "spec": { "template": { "metadata": { "labels": { "app": "web" } } } } }),
    ];
    theirs.extend(also);
    let mut api = FakeApi::of(&Scene { data: "present".into(), also: theirs, ..Scene::default() });
    api.drop_bootstrap_from_addresses();
    api
}

fn write_annotation(api: &mut FakeApi, annotation: &str) {
    api.object("StatefulSet", STATEFUL_SET).unwrap()["metadata"]["annotations"]["gatera.dev/bootstrap"] =
        json!(annotation);
}

fn write_mark(api: &mut FakeApi, kind: &str, name: &str) {
    let object = api.object(kind, name).unwrap();
    json_patch::merge(object, &json!({ "metadata": { "annotations": { MARK: "1" } } }));
}

fn annotation(api: &mut FakeApi) -> Value {
    api.object("StatefulSet", STATEFUL_SET).unwrap()["metadata"]["annotations"]["gatera.dev/bootstrap"]
        .clone()
}

/// The attack, without and with forged marks.
#[test]
fn a_forged_annotation_deletes_nothing() {
    for marked in [false, true] {
        let mut api = cluster_beside_others(vec![]);
        let theirs = [("Service", "web"), ("ConfigMap", "web"), ("Deployment", "web")];
        let governing = ("Service", "galera-instance-hs");
        let own = ("ConfigMap", "galera-instance-nodeconfig");
        for (kind, name) in theirs.into_iter().chain([governing, own]).filter(|_| marked) {
            write_mark(&mut api, kind, name);
        }
        let uid = |name| if name == "web" { "uid-web" } else { "uid-0" };
        let named = theirs.into_iter().chain([governing, own]);
        let named = named.map(|(kind, name)| format!(" {kind}/{name}/{}", uid(name))).collect::<String>();
        write_annotation(&mut api, &format!("removing 1{named}"));
        let before = api.clone();
        let steps: Vec<_> = api.run(1).iter().map(description).collect();
        assert_eq!(steps.len(), 1, "{steps:?}");
        for (kind, name) in theirs.into_iter().chain([governing, own]) {
            assert_eq!(api.object(kind, name), before.clone().object(kind, name), "{kind} {name}");
        }
        let reported = |target: &str, why: &str| {
            let (kind, name) = target.split_once(' ').unwrap();
            let kind = kind.to_ascii_lowercase();
            format!(
                "NotRemoved: {target} is not removed: {why}; if nothing needs it: kubectl -n db delete {kind} {name}"
            )
        };
        assert_eq!(
            api.events,
            [
                reported("Service web", "it does not lead to the bootstrap node of galera-instance-galera"),
                reported(
                    "Service galera-instance-hs",
                    "it does not lead to the bootstrap node of galera-instance-galera"
                ),
                reported("ConfigMap web", "nothing in it shows that it is Galera's"),
                reported("Deployment web", "it is not the bootstrap node of galera-instance-galera"),
                reported(
                    "ConfigMap galera-instance-nodeconfig",
                    "StatefulSet galera-instance-galera reads it"
                ),
            ]
        );
        assert_eq!(annotation(&mut api), "removed 1", "the removal has ended");
    }
}

#[test]
fn an_annotation_that_the_guard_cannot_have_written_is_removed_and_reported_once() {
    for (annotation, data, members, why) in [
        ("removing 1 Secret/root/uid", "present", "ready", "its value is not one that gatera writes"),
        ("removing 1 Service/x", "present", "ready", "its value is not one that gatera writes"),
        ("gone", "present", "ready", "its value is not one that gatera writes"),
        ("removing 1 Service/x/y", "none", "starting", "no member ever held data"),
    ] {
        let scene =
            Scene { data: data.into(), members: vec![members.into(); 3], claims: false, ..Scene::default() };
        let mut api = FakeApi::of(&scene);
        api.drop_bootstrap_from_addresses();
        write_annotation(&mut api, annotation);
        let steps: Vec<_> = api.run(2).iter().map(description).collect();
        assert_eq!(steps, ["correct nothing"], "{annotation}");
        assert_eq!(self::annotation(&mut api), Value::Null);
        assert_eq!(
            api.events,
            [format!(
                "NotRemoved: annotation gatera.dev/bootstrap was not written by gatera: {why}; nothing was removed because of it, and gatera deletes \
                 the annotation; to see who wrote it: kubectl -n db get statefulset {STATEFUL_SET} --show-managed-fields --output=yaml"
            )]
        );
    }
}

/// Members that have yet to join still find the bootstrap node.
#[test]
fn a_forged_annotation_does_not_hide_the_bootstrap_service() {
    let mut api = FakeApi::of(&Scene { members: vec!["starting".into(); 3], claims: false, ..formed() });
    write_annotation(&mut api, "removing 1");
    let service = api.with_view(|view| {
        view.bootstrap_service(view.cluster(NAMESPACE, STATEFUL_SET).unwrap()).map(str::to_owned)
    });
    assert_eq!(service.as_deref(), Some(SERVICE));
}

/// An annotation copied from another cluster does not apply to this one.
#[test]
fn an_annotation_with_another_uid_is_ignored() {
    let mut api = cluster_beside_others(vec![]);
    write_annotation(&mut api, "removing 2 Service/web/uid-web");
    assert_eq!(api.with_view(plan::next), []);
}

/// While the bootstrap node exists, a wrong annotation is replaced by the right one, which is then carried out.
#[test]
fn a_wrong_annotation_is_replaced_while_the_bootstrap_node_exists() {
    let web = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "uid": "uid-web" }, "spec": { "selector": { "app": "web" } } });
    for named in
        ["", " Service/web/uid-web", " Service/web/uid-web ConfigMap/other/uid-other Deployment/web/uid-web"]
    {
        let mut api = FakeApi::of(&Scene { also: vec![web.clone()], ..formed() });
        write_annotation(&mut api, &format!("removing 1{named}"));
        api.drop_bootstrap_from_addresses();
        let steps: Vec<_> = api.run(1).iter().map(description).collect();
        assert!(
            steps.contains(&format!(
                "correct removing 1 Deployment/{BOOTSTRAP}/uid-0 Service/{SERVICE}/uid-0 ConfigMap/{BOOTSTRAP}/uid-0"
            )),
            "{steps:?}"
        );
        api.assert_removed();
        assert!(api.object("Service", "web").is_some(), "Service web was deleted because of {named:?}");
        let reported =
            |name: &str| api.events.iter().any(|it| it.starts_with(&format!("NotRemoved: {name} ")));
        assert_eq!(reported("Service web"), !named.is_empty(), "{:?}", api.events);
        assert_eq!(reported("ConfigMap other"), named.contains("other"), "{:?}", api.events);
    }
}

/// Returns a pod, or an object of a kind that creates pods, that reads the ConfigMap.
fn reader(kind: &str, api: &str) -> Value {
    let spec =
        json!({ "containers": [{ "name": "a", "envFrom": [{ "configMapRef": { "name": BOOTSTRAP } }] }] });
    let template = json!({ "template": { "spec": spec } });
    let spec = match kind {
        "Pod" => spec,
        "CronJob" => json!({ "jobTemplate": { "spec": template } }),
        _ => template,
    };
    let version = api.trim_start_matches("apis/").trim_start_matches("api/");
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "theirs", "uid": "uid-theirs" }, "spec": spec })
}

#[test]
fn a_config_map_with_another_reader_stays() {
    for (kind, path, _) in ConfigMapReader::KINDS {
        let mut api = FakeApi::of(&Scene { also: vec![reader(kind, path)], ..formed() });
        api.run(1);
        assert!(api.object("ConfigMap", BOOTSTRAP).is_some(), "{kind}");
        let left = [("Service", SERVICE), ("Deployment", BOOTSTRAP)];
        assert!(
            left.iter().all(|(kind, name)| api.object(kind, name).is_none()),
            "{kind}: more than the ConfigMap is left"
        );
        assert_eq!(
            api.events,
            [
                format!(
                    "NotRemoved: ConfigMap {BOOTSTRAP} is not removed: {kind} theirs reads it; if nothing needs it: \
                     kubectl -n db delete configmap {BOOTSTRAP}"
                ),
                format!(
                    "BootstrapRemoved: removed Deployment {BOOTSTRAP}, Service {SERVICE}: 3 of 3 members Synced"
                ),
            ]
        );
    }
}

/// Each reason for which a ConfigMap stays, must wait, or may be deleted.
#[test]
fn in_doubt_a_config_map_stays() {
    let target = |kind, name: &str| RemovalTarget { kind, name: name.into(), uid: "uid-0".into() };
    let finish = Finish {
        remaining: vec![target(Kind::Deployment, "gone"), target(Kind::ConfigMap, BOOTSTRAP)],
        left: vec![],
        count: String::new(),
    };
    let api = FakeApi::of(&Scene { data: "present".into(), ..Scene::default() });
    let map = |change: Value| {
        let mut it = json!({
            "metadata": { "name": BOOTSTRAP, "namespace": NAMESPACE, "uid": "uid-0", "resourceVersion": "7", "annotations": { MARK: "1" } },
            "data": { "galera.cnf": "[galera]\nwsrep_on = ON\nwsrep_cluster_address = gcomm://\n" },
        });
        json_patch::merge(&mut it, &change);
        match Object::read(Kind::ConfigMap, &it.to_string()).unwrap() {
            Object::ConfigMap(map) => map,
            other => panic!("{other:?}"),
        }
    };
    let owned = |kind: &'static str, uid: &str, owner: Value| {
        let mut it = reader(kind, "");
        it["metadata"]["uid"] = json!(uid);
        it["metadata"]["ownerReferences"] = json!([owner]);
        vec![ConfigMapReader::read(kind, &it.to_string()).unwrap()]
    };
    let set =
        || owned("ReplicaSet", "rs", json!({ "kind": "Deployment", "uid": "uid-0", "controller": true }));
    let pod = || owned("Pod", "pod", json!({ "kind": "ReplicaSet", "uid": "rs", "controller": true }));
    let alive = || {
        let it = json!({ "metadata": { "name": "gone", "uid": "uid-0" } });
        vec![ConfigMapReader::read("Deployment", &it.to_string()).unwrap()]
    };
    let stays = |why: &str| Warrant::Stays(why.to_owned());
    let unmarked = || {
        stays("gatera had not marked it while the bootstrap node existed, so it may belong to something else")
    };
    for (case, map, readers, warrant) in [
        ("it may be deleted", Some(map(json!({}))), Ok(vec![]), Warrant::Given("7".into())),
        ("gone", None, Ok(vec![]), Warrant::Gone),
        (
            "another object of that name",
            Some(map(json!({ "metadata": { "uid": "new" } }))),
            Ok(vec![]),
            Warrant::Gone,
        ),
        (
            "being deleted",
            Some(map(json!({ "metadata": { "deletionTimestamp": "2026-12-01T09:29:00Z" } }))),
            Ok(vec![]),
            Warrant::Gone,
        ),
        ("unmarked", Some(map(json!({ "metadata": { "annotations": null } }))), Ok(vec![]), unmarked()),
        (
            "another's mark",
            Some(map(json!({ "metadata": { "annotations": { MARK: "2" } } }))),
            Ok(vec![]),
            unmarked(),
        ),
        (
            "not Galera's",
            Some(map(json!({ "data": { "galera.cnf": "x" } }))),
            Ok(vec![]),
            stays("nothing in it shows that it is Galera's"),
        ),
        (
            "its readers are unknown",
            Some(map(json!({}))),
            Err("gatera may not list cronjobs".to_owned()),
            stays("gatera may not list cronjobs, so its readers are unknown"),
        ),
        (
            "its ReplicaSet still exists",
            Some(map(json!({}))),
            Ok(set()),
            Warrant::Waits("ReplicaSet theirs must be deleted first".into()),
        ),
        (
            "its pod still exists",
            Some(map(json!({}))),
            Ok([pod(), set()].concat()),
            Warrant::Waits("Pod theirs must be deleted first".into()),
        ),
        (
            "a Deployment of that uid is alive",
            Some(map(json!({}))),
            Ok([set(), alive()].concat()),
            stays("ReplicaSet theirs reads it"),
        ),
        ("a pod of another owner", Some(map(json!({}))), Ok(pod()), stays("Pod theirs reads it")),
    ] {
        let found = LookedUp { map, readers };
        assert_eq!(api.warrant_given(&finish, &finish.remaining[1], &found), warrant, "{case}");
    }
}

/// If the labels do not show to which cluster the bootstrap node belongs, it is not removed, even if its removal has begun.
#[test]
fn a_bootstrap_node_of_two_clusters_stays() {
    let mut twin = Scene::default().stateful_set();
    twin["metadata"]["name"] = json!("twin");
    let why = "twin has the same instance label, so it is unclear which of the two it belongs to; give one of them another label, or remove the bootstrap node yourself";
    assert_eq!(reason_kept(&FakeApi::of(&Scene { also: vec![twin.clone()], ..formed() })), why);
    let mut api = FakeApi::of(&formed());
    while api.object("Deployment", BOOTSTRAP).is_some() {
        api.step();
    }
    api.add(Kind::StatefulSet, twin);
    api.run(1);
    assert!(api.object("Service", SERVICE).is_some());
    let reported =
        format!("NotRemoved: Service {SERVICE} is not removed: it leads to the bootstrap node of twin too;");
    assert!(api.events[0].starts_with(&reported), "{:?}", api.events);
}

/// In these modes the guard changes nothing, even if a removal has begun.
#[test]
fn a_removal_pauses_in_modes_audit_and_off() {
    for (steps, mode) in [(4, "audit"), (5, "off"), (9, "off")] {
        let mut api = FakeApi::of(&formed());
        for _ in 0..steps {
            api.step();
        }
        api.object("Namespace", NAMESPACE).unwrap()["metadata"]["labels"]["gatera.dev/mode"] = json!(mode);
        assert_eq!(
            reason_kept(&api),
            format!("namespace db is in mode {mode}, in which gatera removes and restarts nothing")
        );
        assert!(api.with_view(plan::next).iter().all(|step| matches!(step.step, LeaderStep::Announce(_))));
    }
}

#[test]
fn a_service_that_others_name_stays() {
    for (address, stays) in [
        (SERVICE.to_owned(), true),
        (format!("{SERVICE}.db"), true),
        (format!("pod.{SERVICE}:4567"), true),
        (format!("{SERVICE}.db.svc.cluster.local"), true),
        (format!("{SERVICE}.elsewhere"), false),
        ("other".to_owned(), false),
    ] {
        let mut other = Scene::default().stateful_set();
        let labels = json!({ "app": "galera", "instance": "other" });
        json_patch::merge(
            &mut other,
            &json!({
                "metadata": { "name": "other", "uid": "9" },
                "spec": { "template": { "metadata": { "labels": labels }, "spec": { "volumes": null, "containers": [{
                    "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }],
                    "args": [format!("--wsrep-cluster-address=gcomm://{address}")],
                }] } } },
            }),
        );
        let mut api = FakeApi::of(&Scene { also: vec![other], ..formed() });
        while api.object("Deployment", BOOTSTRAP).is_some() {
            api.step();
        }
        api.run(1);
        assert_eq!(api.object("Service", SERVICE).is_some(), stays, "{address}");
    }
}
