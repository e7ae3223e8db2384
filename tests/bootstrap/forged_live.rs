//! The attack on a control plane: a user who may only get, list and patch StatefulSets writes a forged annotation while no guard
//! is running. Then a guard starts.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::live::events;
use crate::cluster::STATEFUL_SET;
use crate::guarded::{Guard, Start, install, kubeconfig_of, program};
use crate::lab::{ControlPlane, eventually};
use crate::living_cluster::{self, Alive};

/// Returns an attacker's cluster, another cluster, and objects that do not belong to Galera.
fn objects(ns: &str) -> Value {
    let stateful_set = |name: &str, service: &str| {
        let labels = json!({ "gatera.dev/cluster": name });
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "namespace": ns },
            "spec": {
                "serviceName": service, "replicas": 3, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [
                    { "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }] },
                ] } },
            },
        })
    };
    let service = |name: &str, selector: Value| {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": ns },
                "spec": { "clusterIP": "None", "selector": selector, "ports": [{ "port": 3306 }] } })
    };
    let map = |name: &str, data: Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": ns }, "data": data });
    let bystander = json!({ "containers": [{ "name": "a", "image": "a", "envFrom": [{ "configMapRef": { "name": "copy" } }] }] });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        stateful_set(STATEFUL_SET, "own"),
        stateful_set("other", "other"),
        service("other", json!({ "gatera.dev/cluster": "other" })),
        service("web", json!({ "app": "web" })),
        map("web", json!({ "a": "b" })),
        map("copy", json!({ "galera.cnf": "[galera]\nwsrep_on = ON\nwsrep_cluster_address = gcomm://\n" })),
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": ns }, "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": bystander },
        } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "mallory", "namespace": ns } },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "mallory", "namespace": ns },
          "rules": [{ "apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "patch"] }] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "mallory", "namespace": ns },
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mallory" },
          "subjects": [{ "kind": "ServiceAccount", "name": "mallory", "namespace": ns }] },
    ]})
}

/// The objects that the forged annotation names.
const THEIRS: [&str; 5] =
    ["service/other", "service/web", "configmap/web", "configmap/copy", "deployment/web"];

#[test]
fn a_forged_annotation_deletes_nothing_and_is_reported() {
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start()));
    install(plane);
    // Without marks, and with marks that a user with more rights wrote.
    let forged = [false, true].map(|marked| {
        let alive = Alive { plane, ns: plane.namespace("mallory") };
        plane.create(&objects(&alive.ns));
        let uid = |what: &str| plane.get(&alive.ns, what)["metadata"]["uid"].as_str().unwrap().to_owned();
        let own = uid(&format!("statefulset/{STATEFUL_SET}"));
        for what in THEIRS.iter().filter(|_| marked) {
            alive.admin(&["annotate", what, &format!("gatera.dev/removing={own}")]).succeeded();
        }
        let kinds = [("service", "Service"), ("configmap", "ConfigMap"), ("deployment", "Deployment")];
        let named = THEIRS.iter().map(|what| {
            let (word, name) = what.split_once('/').unwrap();
            let (_, kind) = kinds.iter().find(|(it, _)| *it == word).unwrap();
            format!(" {kind}/{name}/{}", uid(what))
        });
        let annotation = format!("gatera.dev/bootstrap=removing {own}{}", named.collect::<String>());
        let kubeconfig = kubeconfig_of(plane, &alive.ns, "mallory", &alive.ns, None);
        let output = Command::new(plane.tools_folder().join("kubectl"))
            .env("KUBECONFIG", kubeconfig)
            .args(["annotate", "statefulset", STATEFUL_SET, "--namespace", &alive.ns])
            .args(["gatera.dev/data=present", &annotation])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let before = THEIRS.map(uid);
        (alive, before, own)
    });

    let start = Start { identity: "late".into(), ..Start::default() };
    let guard = Guard::start(plane, &program(), &start);
    guard.until_registered();
    for (alive, before, own) in &forged {
        eventually("the guard to end the forged removal", || {
            let set = alive.stateful_set();
            (set["metadata"]["annotations"]["gatera.dev/bootstrap"] == format!("removed {own}")).then_some(())
        });
        let after =
            THEIRS.map(|what| plane.get(&alive.ns, what)["metadata"]["uid"].as_str().unwrap().to_owned());
        assert_eq!(after, *before);
        let mut reported = events(alive, "NotRemoved");
        reported.sort();
        let words = |what: &str, why: &str| {
            let (kind, name) = what.split_once(' ').unwrap();
            let kind = kind.to_ascii_lowercase();
            let ns = &alive.ns;
            format!("{what} is not removed: {why}; if nothing needs it: kubectl -n {ns} delete {kind} {name}")
        };
        let not_its = format!("it does not lead to the bootstrap node of {STATEFUL_SET}");
        assert_eq!(
            reported,
            [
                words("ConfigMap copy", "Deployment web reads it"),
                words("ConfigMap web", "nothing in it shows that it is Galera's"),
                words("Deployment web", &format!("it is not the bootstrap node of {STATEFUL_SET}")),
                words("Service other", &not_its),
                words("Service web", &not_its),
            ]
        );
        assert_eq!(events(alive, "BootstrapRemoved"), Vec::<String>::new());
        // With such a mark a stolen token of the guard could delete them.
        for what in THEIRS {
            assert_eq!(
                plane.get(&alive.ns, what)["metadata"]["annotations"]["gatera.dev/removing"],
                Value::Null
            );
        }
    }
    let deleted = plane.asked_by_the_guard().into_iter().filter(|it| it.verb == "delete");
    assert_eq!(deleted.collect::<Vec<_>>(), [], "the guard must not even try to delete");
    assert_eq!(plane.forbidden_to_the_guard(), []);
}

/// A CronJob mounts the ConfigMap. The guard does not watch CronJobs.
#[test]
fn a_config_map_that_a_cron_job_reads_stays_and_the_reason_is_reported() {
    let alive = Alive::empty("cron");
    let map = "galera-instance-bootstrap";
    let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }],
                       "volumes": [{ "name": "v", "configMap": { "name": map } }] });
    alive.plane.create(&json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "backup", "namespace": alive.ns },
        "spec": { "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": spec } } } },
    }));
    alive.apply(&[]).succeeded();
    alive.until_bootstrap_removed();
    assert_eq!(
        events(&alive, "NotRemoved"),
        [format!(
            "ConfigMap {map} is not removed: CronJob backup reads it; if nothing needs it: kubectl -n {} delete configmap {map}",
            alive.ns
        )]
    );
    let kept = alive.plane.get(&alive.ns, &format!("configmap/{map}"));
    assert_eq!(
        kept["metadata"]["annotations"]["gatera.dev/removing"],
        Value::Null,
        "a ConfigMap that stays loses the guard's mark"
    );
    assert_eq!(alive.admin(&["get", living_cluster::BOOTSTRAP]).status, 1);
}
