//! Members whose pods do not run: a reader pod reads the position of the member's data, and the result counts until the member's
//! own pod has run.

use facts::marks::recovery::Recovery;
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use gatera::rulebook;
use leader::recovery::{self, NoReader, RecoveryOptions};
use objects::Object;
use serde_json::{Value, json};

use super::{ID, printed, reported_at};
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

/// Returns the pod that reads a member's data, as the command creates it for the member's own pod, with its result.
pub fn pod(own: &Value, reported: Option<u64>) -> Value {
    let member = own["metadata"]["name"].as_str().unwrap();
    let mut own = own.clone();
    let claim = json!({ "claimName": format!("datadir-{member}") });
    own["spec"]["volumes"] = json!([{ "name": "datadir", "persistentVolumeClaim": claim }]);
    own["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "datadir", "mountPath": "/var/lib/mysql" }]);
    let mut pod = recovery::reader_pod(&own, "mariadb", None).unwrap();
    pod["metadata"]["uid"] = json!(format!("reader-of-{member}"));
    let began = "2026-12-01T09:28:00Z";
    let state = reported.map_or_else(
        || json!({ "running": { "startedAt": began } }),
        |seqno| {
            let words = format!(
                "start of {began}: position {ID}:{seqno}, recovered after a crash, safe_to_bootstrap 0\n"
            );
            json!({ "terminated": { "exitCode": 0, "startedAt": began, "message": words } })
        },
    );
    pod["status"] =
        json!({ "phase": "Running", "containerStatuses": [{ "name": "mariadb", "state": state }] });
    pod
}

/// Returns the pod of a member that no node accepts.
fn unscheduled_pod(scene: &Scene, ordinal: usize) -> Value {
    let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

/// Returns a scene in which the pod of member 0 does not run and has a reader, with a change to both pods.
fn scene_with_reader(change: impl Fn(&mut Value, &mut Value), reported: Option<u64>) -> Scene {
    let mut scene = Scene {
        members: vec![reported_at(ID, 351), reported_at(ID, 363), reported_at(ID, 360)],
        ..Scene::default()
    };
    let mut own = unscheduled_pod(&scene, 0);
    let mut reader = pod(&own, reported);
    change(&mut own, &mut reader);
    scene.also.extend([own, reader]);
    scene
}

/// A change to the member's own pod and to its reader pod.
type Change = Box<dyn Fn(&mut Value, &mut Value)>;

fn unchanged(_: &mut Value, _: &mut Value) {}

#[test]
fn what_recover_prints_about_a_member_whose_pod_does_not_run() {
    let without = |ordinals: &[usize]| {
        let mut scene = Scene {
            members: vec![reported_at(ID, 351), reported_at(ID, 363), reported_at(ID, 360)],
            ..Scene::default()
        };
        let held: Vec<_> = ordinals.iter().map(|it| unscheduled_pod(&scene, *it)).collect();
        scene.also.extend(held);
        scene
    };
    let unpulled = Scene {
        members: vec!["unpulled".into(), reported_at(ID, 363), reported_at(ID, 360)],
        ..Scene::default()
    };
    let failed = |_: &mut Value, reader: &mut Value| {
        reader["status"] = json!({ "phase": "Failed", "containerStatuses": [{ "name": "mariadb", "state": { "terminated": { "exitCode": 2 } } }] });
    };
    let refused = |_: &mut Value, reader: &mut Value| {
        let words = "gatera did not start the server: there are prepared transactions\n";
        reader["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = json!(words);
    };
    let waits = |_: &mut Value, reader: &mut Value| reader["status"] = json!({ "phase": "Pending" });
    let runs = |own: &mut Value, _: &mut Value| own["status"]["phase"] = json!("Running");
    let mut serves = scene_with_reader(unchanged, Some(351));
    serves.members[1] = "ready".to_owned();
    let existed_before = || RecoveryOptions {
        before: vec![format!("reader-of-{STATEFUL_SET}-0")],
        ..RecoveryOptions::default()
    };
    let from = |name: &str| RecoveryOptions { from: Some(name.to_owned()), ..RecoveryOptions::default() };
    let asked = format!("{STATEFUL_SET}-0 at {ID}:370 until=2026-12-01T10:00:00Z");
    let marks = json!({ "metadata": { "annotations": { "gatera.dev/recover": asked, "gatera.dev/recovery": asked } } });
    let rows = [
        ("its pod waits for a node, since a moment ago", without(&[0]), RecoveryOptions::default(), 0),
        ("its pod waits for a node", without(&[0]), RecoveryOptions::default(), 30),
        ("its image cannot be pulled", unpulled, RecoveryOptions::default(), 30),
        (
            "its claim does not exist",
            Scene { claims: false, ..without(&[0]) },
            RecoveryOptions::default(),
            30,
        ),
        (
            "no other pod may read its volume",
            without(&[0]),
            RecoveryOptions { unreadable: vec!["pod-0".to_owned()], ..RecoveryOptions::default() },
            600,
        ),
        ("its data is being read", scene_with_reader(unchanged, None), RecoveryOptions::default(), 600),
        (
            "its data is being read, by a reader of an earlier command",
            scene_with_reader(unchanged, None),
            existed_before(),
            600,
        ),
        ("its reader waits for a node, too", scene_with_reader(waits, None), existed_before(), 30),
        ("its reader waits for ten minutes", scene_with_reader(waits, None), existed_before(), 600),
        ("its pod runs by now", scene_with_reader(runs, Some(351)), RecoveryOptions::default(), 0),
        ("its data is older", scene_with_reader(unchanged, Some(351)), RecoveryOptions::default(), 0),
        ("its data is newer", scene_with_reader(unchanged, Some(370)), RecoveryOptions::default(), 0),
        ("its data is newer, and --from names it", scene_with_reader(unchanged, Some(370)), from("0"), 0),
        ("its data could not be read", scene_with_reader(failed, Some(0)), RecoveryOptions::default(), 600),
        (
            "its data could not be read, by a reader of an earlier command",
            scene_with_reader(failed, Some(0)),
            existed_before(),
            600,
        ),
        (
            "the step script refused in the reader",
            scene_with_reader(refused, Some(0)),
            RecoveryOptions::default(),
            600,
        ),
        ("a member serves", serves, RecoveryOptions::default(), 0),
        ("no pod runs", without(&[0, 1, 2]), RecoveryOptions::default(), 600),
        (
            "it was to start the cluster 90 seconds ago",
            Scene { stateful_set: marks.clone(), ..without(&[0]) },
            RecoveryOptions::default(),
            90,
        ),
        (
            "it was to start the cluster five minutes ago",
            Scene { stateful_set: marks, ..without(&[0]) },
            RecoveryOptions::default(),
            300,
        ),
    ];
    let page = rows.map(|(what, scene, want, unchanged)| {
        format!("{what}\n{}\n", printed(&scene, &want, unchanged).trim_end())
    });
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".." }, {
        insta::assert_snapshot!("reader", page.join("\n"));
    });
}

/// A reader's report counts only if the reader has the member's claim and gatera's step script, and was created for the pod that
/// waits; and only until that pod has run. This limits which users can forge a report.
#[test]
fn the_report_of_a_reader_counts_until_the_member_has_run() {
    let run = json!({ "startedAt": "2026-12-01T09:28:30Z" });
    let ran = |state: Value| {
        move |own: &mut Value, _: &mut Value| {
            own["status"]["containerStatuses"] = json!([{ "name": "mariadb", "state": state }]);
        }
    };
    let counts = |scene: &Scene| {
        let settings = Settings::default();
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let asked =
            Recovery::of(&format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z")).unwrap();
        engine::grant::refusal(&asked, cluster, &view).is_none()
    };
    assert!(
        counts(&scene_with_reader(unchanged, Some(351))),
        "the report of an unchanged reader does not count"
    );
    let changes: [(&str, Change); 10] = [
        (
            "the kubelet rejected the member's pod after a restart",
            Box::new(|own, _| own["status"] = json!({ "phase": "Failed" })),
        ),
        (
            "the phase of the member's pod is unknown",
            Box::new(|own, _| own["status"] = json!({ "phase": "Unknown" })),
        ),
        (
            "the reader does not mount the volume",
            Box::new(|_, reader| reader["spec"]["containers"][0]["volumeMounts"] = json!([])),
        ),
        ("the member's pod runs by now", Box::new(ran(json!({ "running": run })))),
        ("the member's pod has run since", Box::new(ran(json!({ "terminated": run })))),
        (
            "the reader was created for an earlier pod",
            Box::new(|own, _| own["metadata"]["uid"] = json!("pod-later")),
        ),
        ("the reader has no claim", Box::new(|_, reader| reader["spec"]["volumes"] = json!([]))),
        (
            "the reader has the claim of another member",
            Box::new(|_, reader| {
                reader["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] =
                    json!(format!("datadir-{STATEFUL_SET}-1"));
            }),
        ),
        (
            "the reader has no step script",
            Box::new(|_, reader| reader["spec"]["containers"][0]["command"] = json!(["sh", "-c", "true"])),
        ),
        ("the reader has no label", Box::new(|_, reader| reader["metadata"]["labels"] = json!({}))),
    ];
    for (what, change) in changes {
        assert!(!counts(&scene_with_reader(change, Some(351))), "its report counts, although: {what}");
    }
}

/// The reader is found by its label, in any order of the objects, and is not counted as a pod of the cluster.
#[test]
fn a_reader_is_not_a_pod_of_the_cluster() {
    let scene = scene_with_reader(unchanged, Some(351));
    let settings = Settings::default();
    for reversed in [false, true] {
        let mut objects = scene.objects();
        if reversed {
            objects.reverse();
        }
        let mut facts = rulebook().facts(&settings.adoption);
        for (kind, object) in &objects {
            facts.put(Object::read(*kind, &object.to_string()).unwrap());
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        assert_eq!(cluster.readers.len(), 1);
        assert_eq!(cluster.pods().count(), 3);
        assert!(cluster.leaving.is_empty() && cluster.bootstrap.pods.is_empty());
        assert!(view.clusters_in(NAMESPACE).all(|it| !it.orphaned));
    }
}

/// A reader is derived from the pod of the waiting member, as the API server holds it.
#[test]
fn a_reader_pod_lacks_what_keeps_the_member_from_running() {
    let own = waiting_member();
    let mut pod = recovery::reader_pod(&own, "mariadb", Some("mariadb:11.8")).unwrap();
    let script = pod["spec"]["containers"][0]["command"][2].take();
    let script = script.as_str().unwrap();
    let all_doubled = !script.replace("$$", "").contains('$');
    assert!(
        script.contains("$${GATERA_ONLY_TELLS:-}") && all_doubled,
        "a dollar sign is not doubled: {script}"
    );
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".." }, {
        insta::assert_snapshot!("reader_pod", serde_json::to_string_pretty(&pod).unwrap());
    });

    let mut bare = own.clone();
    bare["spec"]["containers"][1]["command"] = json!(["docker-entrypoint.sh"]);
    assert_eq!(recovery::reader_pod(&bare, "mariadb", None), Err(NoReader::NoStep));
    assert_eq!(recovery::reader_pod(&own, "database", None), Err(NoReader::NoServer));
    // An init container may create the server's option files at each start.
    let mut prepared = own;
    prepared["spec"]["volumes"][1] = json!({ "name": "config", "emptyDir": {} });
    prepared["spec"]["initContainers"][0]["volumeMounts"][0]["name"] = json!("config");
    assert_eq!(recovery::reader_pod(&prepared, "mariadb", None), Err(NoReader::Prepared));
}

/// Bitnami's chart copies folders of the image into an empty volume, so a reader, which has no init containers, finds its option
/// file elsewhere. The image's setup is not run.
#[test]
fn in_bitnamis_image_the_reader_runs_only_the_server() {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    for (mounts, option_file) in [
        (json!([mount("data", "/bitnami/mariadb")]), "/opt/bitnami/mariadb/conf/my.cnf"),
        (
            json!([mount("data", "/bitnami/mariadb"), mount("files", "/opt/bitnami/mariadb/conf")]),
            "/opt/bitnami/mariadb/conf.default/my.cnf",
        ),
        (
            json!([mount("files", "/opt/bitnami/mariadb/conf/"), mount("config", "/bitnami/conf/my.cnf")]),
            "/bitnami/conf/my.cnf",
        ),
    ] {
        let mut own = waiting_member();
        let server = &mut own["spec"]["containers"][1];
        server["command"] = json!([
            "bash",
            "-ec",
            "exec /opt/bitnami/scripts/mariadb-galera/entrypoint.sh /opt/bitnami/scripts/mariadb-galera/run.sh"
        ]);
        server["args"] = json!([]);
        server["env"] = json!([
            { "name": "BASH_ENV", "value": "/etc/gatera/bitnami.bash" },
            { "name": "MARIADB_EXTRA_FLAGS", "value": "--innodb-page-size=8k --x" },
        ]);
        server["volumeMounts"] = mounts;
        own["spec"]["volumes"] = json!([{ "name": "files", "emptyDir": {} }]);
        own["spec"]["initContainers"] =
            json!([{ "name": "logs", "volumeMounts": [mount("files", "/emptydir")] }]);
        let pod = recovery::reader_pod(&own, "mariadb", None).unwrap();
        let command = pod["spec"]["containers"][0]["command"].as_array().unwrap();
        let expected = json!([
            "start-member.sh",
            "/opt/bitnami/mariadb/sbin/mysqld",
            format!("--defaults-file={option_file}"),
            "--basedir=/opt/bitnami/mariadb",
            "--datadir=/bitnami/mariadb/data",
            "--innodb-page-size=8k",
            "--x",
        ]);
        assert_eq!(json!(command[3..]), expected);
    }
}

fn waiting_member() -> Value {
    let secret = json!({ "secretKeyRef": { "name": "passwords", "key": "root" } });
    let server = json!({
        "name": "mariadb",
        "image": "mariadb:11.8-typo",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"],
        "args": ["mariadbd", "--innodb-page-size=16k"],
        "env": [{ "name": "MYSQL_HOME", "value": "/etc/gatera" }, { "name": "MARIADB_ROOT_PASSWORD", "valueFrom": secret }],
        "envFrom": [{ "configMapRef": { "name": "settings" } }],
        "ports": [{ "containerPort": 4567 }],
        "lifecycle": { "preStop": { "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "leave", "540"] } } },
        "startupProbe": { "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } },
        "resources": { "requests": { "cpu": "64" }, "limits": { "memory": "8Gi", "example.org/gpu": "1" } },
        "securityContext": { "runAsUser": 999 },
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }, { "name": "config", "mountPath": "/etc/mysql/conf.d" }],
    });
    let claim = json!({ "name": "datadir", "persistentVolumeClaim": { "claimName": "datadir-galera-2" } });
    json!({
        "metadata": { "name": "galera-2", "namespace": "db", "uid": "u-2", "labels": { "app": "galera" }, "finalizers": ["example.org/kept"] },
        "spec": {
            "affinity": { "podAntiAffinity": {} },
            "nodeSelector": { "disk": "fast" },
            "topologySpreadConstraints": [{ "maxSkew": 1 }],
            "initContainers": [{ "name": "init", "volumeMounts": [{ "name": "datadir", "mountPath": "/datadir" }] }],
            "containers": [{ "name": "metrics" }, server],
            "hostname": "galera-2",
            "subdomain": "galera-hs",
            "nodeName": "node-2",
            "priority": 0,
            "restartPolicy": "Always",
            "securityContext": { "fsGroup": 999 },
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 600,
            "tolerations": [{ "key": "database", "operator": "Exists" }],
            "volumes": [claim, { "name": "config", "configMap": { "name": "nodeconfig" } }],
        },
    })
}
