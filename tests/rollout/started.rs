//! The configuration with which a pod starts: the snapshot of its revision, or the ConfigMap itself.

use engine::inject;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use objects::{Kind, Object};
use serde_json::{Value, json};

use super::situation::{File, Situation};
use crate::scene::{self, NAMESPACE, STATEFUL_SET};

fn pod(ordinal: usize, change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{STATEFUL_SET}-{ordinal}"), "namespace": NAMESPACE,
            "labels": { "app": "galera", "galera": "galera", "instance": "galera-instance", "controller-revision-hash": "a" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET, "uid": "1", "controller": true }],
        },
        "spec": {
            "containers": [{
                "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }],
                "volumeMounts": [{ "name": "config", "mountPath": "/etc/mysql/conf.d" }],
            }],
            "volumes": [
                { "name": "config", "configMap": { "name": "galera-instance-nodeconfig" } },
                { "name": "other", "configMap": { "name": "galera-instance-nodeconfig" } },
            ],
        },
    });
    json_patch::merge(&mut pod, change);
    pod
}

/// Returns the pod as it starts after these snapshots were created, and the snapshots that must still be created for it.
fn started(situation: &Situation, pod: &Value, created: &[String]) -> (Value, Vec<Value>) {
    let (world, settings) = (situation.world(), Settings::default());
    let view = View { new_snapshots: created, ..View::new(&world, scene::now(), &settings) };
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": NAMESPACE, "name": pod["metadata"]["name"],
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "userInfo": { "username": "system:serviceaccount:kube-system:statefulset-controller" }, "object": pod,
        },
    });
    let body = body.to_string();
    let incoming = review::read(body.as_bytes(), Origin::Mutating, rulebook().kinds()).unwrap();
    let snapshots = inject::missing_snapshots(&incoming.review, &view);
    let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else { panic!("{pod}") };
    let mut after = pod.clone();
    inject::into_pod(&mut after, &read, NAMESPACE, &view);
    (after, snapshots)
}

/// Returns the name of the ConfigMap that the server reads.
fn mounted(pod: &Value) -> &str {
    pod["spec"]["volumes"][0]["configMap"]["name"].as_str().unwrap()
}

fn snapshot_name(file: File) -> String {
    file.snapshot()["metadata"]["name"].as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_starts_with(situation: &Situation, ordinal: usize, file: File) {
    let (pod, _) = started(situation, &pod(ordinal, &json!({})), &[]);
    assert_eq!(mounted(&pod), snapshot_name(file), "the snapshot that member {ordinal} reads");
    let revision = &pod["metadata"]["annotations"]["gatera.dev/revision"];
    assert_eq!(*revision, file.revision(), "the revision of member {ordinal}");
}

#[test]
fn a_member_starts_with_the_good_file_until_its_turn_comes() {
    let old = ("ready", File::Old);
    let new = Situation { live: File::New.text(), ..Situation::recorded() };
    assert_starts_with(&new, 2, File::Old);
    let first = Situation::under_way(Some(2), [old, old, old]);
    assert_starts_with(&first, 2, File::New);
    assert_starts_with(&first, 1, File::Old);
    let proven = Situation::under_way(None, [old, old, ("ready", File::New)]);
    assert_starts_with(&proven, 0, File::New);
    // The ConfigMap need not hold the file any more.
    assert_starts_with(&Situation { live: "[broken", ..Situation::recorded() }, 1, File::Old);
}

#[test]
fn a_pod_of_a_new_template_starts_with_the_new_file() {
    let set = json!({ "status": { "currentRevision": "a", "updateRevision": "b" } });
    let rolls = Situation { live: File::New.text(), set, ..Situation::recorded() };
    assert_starts_with(&rolls, 2, File::Old);
    let newer = json!({ "metadata": { "labels": { "controller-revision-hash": "b" } } });
    let (it, ..) = started(&rolls, &pod(2, &newer), &[]);
    assert_eq!(mounted(&it), snapshot_name(File::New));
    // A revision that failed before is not tried again.
    let failed =
        json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "x" } });
    let mut failed = Situation { record: failed, ..rolls };
    let (it, ..) = started(&failed, &pod(2, &newer), &[]);
    assert_eq!(mounted(&it), snapshot_name(File::Old));
    // A person asks for another try.
    failed.set["metadata"]["annotations"]["gatera.dev/rollout"] = json!("retry");
    let (it, ..) = started(&failed, &pod(2, &newer), &[]);
    assert_eq!(mounted(&it), snapshot_name(File::New));
}

#[test]
fn the_first_pod_gets_a_snapshot_that_is_created_for_it() {
    let nothing =
        Situation { live: File::New.text(), members: Vec::new(), data: "none", ..Situation::default() };
    let (it, snapshots) = started(&nothing, &pod(0, &json!({})), &[]);
    assert_eq!(mounted(&it), "galera-instance-nodeconfig", "the snapshot does not exist yet");
    assert_eq!(it["metadata"]["annotations"]["gatera.dev/revision"], Value::Null);
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "../fixtures" }, {
        insta::assert_snapshot!("copy", format!("{:#}", snapshots[0]));
    });
    let name = snapshots[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!((snapshots.len(), &name), (1, &snapshot_name(File::New)));
    let (it, _) = started(&nothing, &pod(0, &json!({})), &[name]);
    assert_eq!(mounted(&it), snapshot_name(File::New));
    // Only the volume that the server reads points to a snapshot.
    assert_eq!(it["spec"]["volumes"][1]["configMap"]["name"], "galera-instance-nodeconfig");
}

#[test]
fn a_second_injection_changes_nothing() {
    let situation = Situation::recorded();
    let (once, ..) = started(&situation, &pod(1, &json!({})), &[]);
    let (twice, ..) = started(&situation, &once, &[]);
    assert_eq!(once, twice, "the second injection changed the pod");
    let (world, settings) = (situation.world(), Settings::default());
    let view = View::new(&world, scene::now(), &settings);
    let doubt = |pod: &Value| {
        let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else { panic!("{pod}") };
        format!("{:?}", inject::doubt(&read, &view))
    };
    assert_eq!(doubt(&once), "None");
    let mut forged = once;
    forged["spec"]["volumes"][0]["configMap"]["name"] = json!("galera-instance-nodeconfig");
    assert!(doubt(&forged).contains("refer to other snapshots"), "{}", doubt(&forged));
}

#[test]
fn a_snapshot_whose_content_does_not_match_its_name_is_not_used() {
    let mut snapshot = File::Old.snapshot();
    snapshot["data"]["galera.cnf"] = json!(File::New.text());
    let situation = Situation { also: vec![snapshot], live: File::New.text(), ..Situation::recorded() };
    let (it, snapshots) = started(&situation, &pod(1, &json!({})), &[]);
    assert_eq!((mounted(&it), snapshots.len()), ("galera-instance-nodeconfig", 0));
}

#[test]
fn in_modes_audit_and_off_pods_read_the_config_map_itself() {
    for mode in ["audit", "off"] {
        let (it, snapshots) = started(&Situation { mode, ..Situation::recorded() }, &pod(1, &json!({})), &[]);
        assert_eq!((mounted(&it), snapshots.len()), ("galera-instance-nodeconfig", 0), "{mode}");
    }
}

/// Formatting and the address of the cluster start no rollout, so a pod gets both as the ConfigMap has them now.
#[test]
fn an_equivalent_file_is_used_as_it_is_now() {
    let text = "# mine\n[mysqld]\nmax_connections = 1\nwsrep_cluster_address = gcomm://a,b\n";
    let other = Situation { live: text, ..Situation::recorded() };
    let (_, snapshots) = started(&other, &pod(1, &json!({})), &[]);
    assert_eq!(snapshots[0]["data"]["galera.cnf"], text);
    let name = snapshots[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let (it, _) = started(&other, &pod(1, &json!({})), std::slice::from_ref(&name));
    assert_eq!(mounted(&it), name);
    assert_ne!(name, snapshot_name(File::Old));
}

/// A person wants a member to found the cluster, so the member starts with the file as it is.
#[test]
fn a_founding_member_reads_the_config_map_itself() {
    let founds = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://\n",
        ..Situation::recorded()
    };
    let (it, snapshots) = started(&founds, &pod(1, &json!({})), &[]);
    assert_eq!((mounted(&it), snapshots.len()), ("galera-instance-nodeconfig", 0));
}

/// The guard never restarts a single member; only a person does.
#[test]
fn a_single_member_starts_with_the_new_file() {
    let one = Situation {
        live: File::New.text(),
        members: vec![("ready", Some(File::Old))],
        ..Situation::recorded()
    };
    assert_starts_with(&one, 0, File::New);
}
