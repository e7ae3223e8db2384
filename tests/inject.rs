//! Injection: the resulting pod for every kind of pod. A second injection changes nothing.

mod conflicts;
mod step;

use engine::inject::{self, PlannedInjection};
use facts::settings::Settings;
use facts::view::View;
use objects::{Kind, Object};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::marks::answer_and_pod;
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
            "terminationGracePeriodSeconds": 30,
            "containers": [server(&json!({}))],
            "volumes": [{ "name": "datadir", "persistentVolumeClaim": { "claimName": "datadir-0" } }],
        },
    });
    json_patch::merge(&mut pod, change);
    pod
}

fn server(change: &Value) -> Value {
    let mut container = json!({
        "name": "mariadb",
        "image": "mariadb:10.11",
        "livenessProbe": { "exec": { "command": ["mysqladmin", "ping"] } },
        "readinessProbe": { "exec": { "command": ["mysql", "-e", "SELECT 1"] } },
        "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }],
    });
    json_patch::merge(&mut container, change);
    container
}

fn with_server(change: &Value) -> Value {
    member(&json!({ "spec": { "containers": [server(change)] } }))
}

/// Returns the pod after injection.
fn injected(pod: &Value, scene: &Scene) -> Value {
    injected_with(pod, scene, &Settings::default())
}

pub fn injected_with(pod: &Value, scene: &Scene, settings: &Settings) -> Value {
    let world = scene.world(settings);
    let view = View::new(&world, scene::now(), settings);
    let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else {
        panic!("unreadable: {pod}")
    };
    let mut after = pod.clone();
    inject::into_pod(&mut after, &read, NAMESPACE, &view);
    after
}

/// Returns what rules expect of the injection into this pod.
fn planned_injection(pod: &Value) -> PlannedInjection {
    let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else {
        panic!("unreadable: {pod}")
    };
    PlannedInjection::of(&read.spec.containers[0], &read.metadata, &read.spec, [])
}

/// The snapshot is the whole pod, as the API server stores it after applying the guard's patch.
#[tokio::test]
async fn everything_is_injected_into_a_member() {
    let pod = member(&json!({}));
    let scene =
        Scene { members: vec!["absent".into(); 3], data: "none".into(), claims: false, ..Scene::default() };
    let (response, mut after) = answer_and_pod(&scene, "/mutate", &pod).await;
    assert_eq!(response["patchType"], "JSONPatch");
    assert_eq!(after, injected(&pod, &scene), "the patch from the port differs from the injection itself");
    after["metadata"]["annotations"]["gatera.dev/script"] = json!("(the script)");
    after["metadata"]["annotations"]["gatera.dev/start-script"] = json!("(the step)");
    after["metadata"]["annotations"]["gatera.dev/bitnami-script"] = json!("(for Bitnami's image)");
    let text = serde_json::to_string_pretty(&after).unwrap();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("injected-member", text);
    });
}

#[test]
fn fields_that_are_good_enough_stay_and_others_are_replaced() {
    let scene = Scene::default();
    for (what, pod, pointer, expected) in [
        (
            "a longer grace period",
            member(&json!({ "spec": { "terminationGracePeriodSeconds": 900 } })),
            "/spec/terminationGracePeriodSeconds",
            json!(900),
        ),
        (
            "a shorter grace period is replaced",
            member(&json!({})),
            "/spec/terminationGracePeriodSeconds",
            json!(600),
        ),
        (
            "a preStop hook",
            with_server(&json!({ "lifecycle": { "preStop": { "exec": { "command": ["/own"] } } } })),
            "/spec/containers/0/lifecycle/preStop/exec/command",
            json!(["/own"]),
        ),
        (
            "a readiness probe that sees Galera",
            with_server(
                &json!({ "readinessProbe": { "exec": { "command": ["healthcheck.sh", "--galera_online"] } } }),
            ),
            "/spec/containers/0/readinessProbe/exec/command",
            json!(["healthcheck.sh", "--galera_online"]),
        ),
        (
            "a chart's readiness probe with gatera's script",
            with_server(
                &json!({ "readinessProbe": { "exec": { "command": ["/etc/galera/wait-for-sync.sh", "ready"] } } }),
            ),
            "/spec/containers/0/readinessProbe/exec/command",
            json!(["/etc/galera/wait-for-sync.sh", "ready"]),
        ),
        (
            "another script of that name is replaced",
            with_server(
                &json!({ "readinessProbe": { "exec": { "command": ["/bin/bash", "/etc/galera/wait-for-sync.sh"] } } }),
            ),
            "/spec/containers/0/readinessProbe/exec/command",
            json!(["/etc/gatera/wait-for-sync.sh", "ready"]),
        ),
        (
            "a liveness probe by TCP",
            with_server(&json!({ "livenessProbe": { "exec": null, "tcpSocket": { "port": 1 } } })),
            "/spec/containers/0/livenessProbe",
            json!({ "tcpSocket": { "port": 1 } }),
        ),
        (
            "a patient startup probe",
            with_server(&json!({ "startupProbe": { "tcpSocket": { "port": 1 }, "failureThreshold": 720 } })),
            "/spec/containers/0/startupProbe",
            json!({ "tcpSocket": { "port": 1 }, "failureThreshold": 720 }),
        ),
        (
            "environment variables of Bitnami's image",
            with_server(
                &json!({ "image": "bitnami/mariadb-galera:10.11", "env": [{ "name": "MARIADB_EXTRA_FLAGS", "value": "--x=1" }] }),
            ),
            "/spec/containers/0/env",
            json!([{ "name": "MARIADB_EXTRA_FLAGS", "value": "--x=1" }, { "name": "BASH_ENV", "value": "/etc/gatera/bitnami.bash" }]),
        ),
        (
            "a readiness probe that is kept on purpose",
            member(&json!({ "metadata": { "annotations": { "gatera.dev/readiness": "keep" } } })),
            "/spec/containers/0/readinessProbe/exec/command",
            json!(["mysql", "-e", "SELECT 1"]),
        ),
        (
            "a startup limit from an annotation",
            member(&json!({ "metadata": { "annotations": { "gatera.dev/startup-limit": "7200" } } })),
            "/spec/containers/0/startupProbe/failureThreshold",
            json!(3600),
        ),
        (
            "no anti-affinity, because of an annotation",
            member(&json!({ "metadata": { "annotations": { "gatera.dev/anti-affinity": "none" } } })),
            "/spec/affinity",
            Value::Null,
        ),
    ] {
        let after = injected(&pod, &scene);
        assert_eq!(after.pointer(pointer).unwrap_or(&Value::Null), &expected, "{what}");
    }
}

/// An agent that answers over HTTP may know Galera's state, but the pod does not show whether it does.
#[test]
fn a_probe_that_asks_over_http_is_replaced() {
    let probe = json!({ "readinessProbe": { "exec": null, "httpGet": { "path": "/health", "port": 5555 } } });
    let after = injected(&with_server(&probe), &Scene::default());
    assert!(after["spec"]["containers"][0]["readinessProbe"]["exec"].is_object(), "{after}");
}

#[test]
fn unknown_servers_keep_their_probes_and_the_plan_says_why() {
    let scene = Scene::default();
    for (why, change) in [
        ("its command is replaced", json!({ "command": ["sleep", "infinity"] })),
        ("it is not known how its image reads options", json!({ "image": "example.com/our/db:1" })),
        ("it is not known how its image reads options", json!({ "args": ["--defaults-file=/own.cnf"] })),
        ("it sets MYSQL_HOME itself", json!({ "env": [{ "name": "MYSQL_HOME", "value": "/own" }] })),
        ("it sets wsrep_status_file itself", json!({ "args": ["--wsrep-status-file=/own.json"] })),
        (
            "it sets BASH_ENV itself, so gatera's options would have no effect",
            json!({ "image": "bitnami/mariadb-galera:10.11", "env": [{ "name": "BASH_ENV", "value": "/own" }] }),
        ),
        (
            "it sets wsrep_status_file itself",
            json!({ "image": "bitnami/mariadb-galera:10.11", "env": [{ "name": "MARIADB_EXTRA_FLAGS", "value": "--wsrep-status-file=/own.json" }] }),
        ),
    ] {
        let pod = with_server(&change);
        let after = injected(&pod, &scene);
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            assert_eq!(
                after["spec"]["containers"][0][probe], pod["spec"]["containers"][0][probe],
                "{change}"
            );
        }
        let kept = planned_injection(&pod).keeps_probes;
        assert!(kept.as_ref().is_some_and(|it| it.contains(why)), "{change}: {kept:?}");
        let mark = &after["metadata"]["annotations"]["gatera.dev/injected"];
        assert!(mark.as_str().is_some_and(|it| it.ends_with("unproven")), "{change}: {mark}");
    }
    for (pod, proven) in [
        (member(&json!({})), true),
        (
            with_server(
                &json!({ "readinessProbe": { "exec": { "command": ["sh", "-c", "mysql -e \"SHOW STATUS LIKE 'wsrep_ready'\""] } } }),
            ),
            true,
        ),
        (
            with_server(
                &json!({ "readinessProbe": { "exec": { "command": ["mysql", "-h", "galera-0", "-e", "SELECT 1"] } } }),
            ),
            true,
        ),
        (with_server(&json!({ "image": "example.com/our/db:1" })), false),
        (member(&json!({ "metadata": { "annotations": { "gatera.dev/readiness": "keep" } } })), false),
    ] {
        let mark = injected(&pod, &scene)["metadata"]["annotations"]["gatera.dev/injected"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(!mark.ends_with("readiness unproven"), proven, "{mark}: {pod}");
    }
    let named = member(
        &json!({ "metadata": { "annotations": { "gatera.dev/profile": "official" } }, "spec": { "containers": [server(&json!({ "image": "example.com/our/db:1" }))] } }),
    );
    assert_eq!(
        injected(&named, &scene)["spec"]["containers"][0]["readinessProbe"]["exec"]["command"][0],
        "/etc/gatera/wait-for-sync.sh"
    );
}

/// A script that ends in the image's entry point starts the server as the image does. Other commands may start anything.
#[test]
fn options_are_injected_only_if_the_command_reaches_the_entry_point() {
    let bitnami =
        "exec /opt/bitnami/scripts/mariadb-galera/entrypoint.sh /opt/bitnami/scripts/mariadb-galera/run.sh";
    for (image, command, added) in [
        ("bitnamilegacy/mariadb-galera:12.0.2", json!(["bash", "-ec", bitnami]), Some("BASH_ENV")),
        ("mariadb:10.11", json!(["docker-entrypoint.sh", "mariadbd"]), Some("MYSQL_HOME")),
        (
            "mariadb:10.11",
            json!(["sh", "-c", "sleep 1; exec docker-entrypoint.sh mariadbd"]),
            Some("MYSQL_HOME"),
        ),
        ("mariadb:10.11", json!(["sh", "-c", "exec docker-entrypoint.sh mariadbd --defaults-file=/x"]), None),
        ("bitnami/mariadb-galera:12.0.2", json!(["sleep", "infinity"]), None),
        ("mariadb:10.11", json!(["/scripts/entrypoint.sh"]), None),
        ("our/mariadb-galera:10.5", json!(null), None),
    ] {
        let pod = with_server(&json!({ "image": image, "command": command }));
        let after = injected(&pod, &Scene::default());
        let env = after["spec"]["containers"][0]["env"].as_array();
        let names: Vec<_> = env.into_iter().flatten().filter_map(|var| var["name"].as_str()).collect();
        assert_eq!(names, Vec::from_iter(added), "{image} {command}");
    }
}

#[test]
fn unrelated_pods_proxies_arbitrators_and_jobs_are_left_alone() {
    for pod in [
        member(&json!({ "metadata": { "labels": { "app": "web" } } })),
        member(&json!({ "spec": { "containers": [{ "name": "proxy", "image": "haproxy" }] } })),
        member(
            &json!({ "spec": { "containers": [{ "name": "garbd", "image": "our/galera", "args": ["garbd", "--group=g"] }] } }),
        ),
        member(
            &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "1", "controller": true }] } }),
        ),
        // This pod is an asynchronous replica.
        member(
            &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "replica-5d", "uid": "1", "controller": true }] }, "spec": { "containers": [{ "name": "db", "image": "mariadb:10.11", "args": ["--server-id=9"] }] } }),
        ),
        member(
            &json!({ "spec": { "containers": [{ "name": "dump", "image": "mariadb:10.11", "args": ["mariadb-dump"] }] } }),
        ),
    ] {
        assert_eq!(injected(&pod, &Scene::default()), pod, "a pod that is not a member's was injected");
    }
}

fn my_cnf(pod: &Value, scene: &Scene) -> String {
    injected(pod, scene)["metadata"]["annotations"]["gatera.dev/my-cnf"].as_str().unwrap().to_owned()
}

#[test]
fn the_address_lists_the_members_and_never_founds() {
    let members = "wsrep_cluster_address = gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs\n";
    assert!(my_cnf(&member(&json!({})), &Scene::default()).ends_with(members));
    for (what, pod, scene) in [
        ("the bootstrap node", scene::bootstrap_pod("x"), Scene::default()),
        (
            "a cluster without a Service",
            member(&json!({})),
            Scene { stateful_set: json!({ "spec": { "serviceName": "" } }), ..Scene::default() },
        ),
        (
            "a cluster without members",
            member(&json!({})),
            Scene { members: vec![], replicas: Some(0), ..Scene::default() },
        ),
        (
            "a cluster that is not in the view",
            member(&json!({})),
            Scene { exists: false, ..Scene::default() },
        ),
        (
            "a member that founds, by an override",
            member(
                &json!({ "spec": { "volumes": [{ "name": "config", "configMap": { "name": "galera-instance-nodeconfig" } }] } }),
            ),
            Scene {
                members: vec!["absent".into(); 3],
                config: json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } }),
                ..Scene::default()
            },
        ),
        (
            "a first install whose bootstrap Service is not seen",
            member(&json!({})),
            Scene {
                members: vec!["absent".into(); 3],
                data: "none".into(),
                claims: false,
                bootstrap: "running".into(),
                without: vec!["Service/galera-instance-bootstrap-svc".into()],
                ..Scene::default()
            },
        ),
        (
            "an address that is kept on purpose",
            member(&json!({ "metadata": { "annotations": { "gatera.dev/address": "keep" } } })),
            Scene::default(),
        ),
    ] {
        assert!(!my_cnf(&pod, &scene).contains("wsrep_cluster_address"), "{what} gets an address");
    }
}

#[test]
fn a_donor_that_blocks_is_not_ready() {
    let rsync = Scene {
        config: json!({ "data": { "galera.cnf": "[galera]\nwsrep_sst_method = rsync\n" } }),
        ..Scene::default()
    };
    let pod = member(
        &json!({ "spec": { "volumes": [{ "name": "config", "configMap": { "name": "galera-instance-nodeconfig" } }] } }),
    );
    let command = |scene: &Scene| {
        injected(&pod, scene)["spec"]["containers"][0]["readinessProbe"]["exec"]["command"].clone()
    };
    assert_eq!(command(&rsync), json!(["/etc/gatera/wait-for-sync.sh", "ready", "blocking"]));
    assert_eq!(command(&Scene::default()), json!(["/etc/gatera/wait-for-sync.sh", "ready"]));
}

proptest! {
    #![proptest_config(crate::anything::cases(500))]
    /// A second injection into any pod changes nothing, and the pod's own fields are not touched.
    #[test]
    fn injection_is_idempotent(change in crate::anything::json(), container in crate::anything::json()) {
        let mut pod = member(&json!({ "spec": { "extra": change } }));
        json_patch::merge(&mut pod["spec"]["containers"][0], &json!({ "extra": container }));
        let once = injected(&pod, &Scene::default());
        prop_assert_eq!(&once["spec"]["extra"], &pod["spec"]["extra"]);
        let twice = injected(&once, &Scene::default());
        prop_assert_eq!(once, twice);
    }
}
