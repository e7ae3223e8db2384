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

/// Returns the pod as it starts, and the snapshots that must be created for it.
fn started(situation: &Situation, pod: &Value, made: &[String]) -> (Value, Vec<Value>) {
    let (world, settings) = (situation.world(), Settings::default());
    let view = View { made, ..View::new(&world, scene::now(), &settings) };
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
    let copies = inject::snapshots(&incoming.review, &view);
    let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else { panic!("{pod}") };
    let mut after = pod.clone();
    inject::into_pod(&mut after, &read, NAMESPACE, &view);
    (after, copies)
}

/// Returns the name of the ConfigMap that the server reads.
fn read(pod: &Value) -> &str {
    pod["spec"]["volumes"][0]["configMap"]["name"].as_str().unwrap()
}

fn copy_of(file: File) -> String {
    file.copy()["metadata"]["name"].as_str().unwrap().to_owned()
}

fn starts_with(situation: &Situation, ordinal: usize, file: File) {
    let (pod, _) = started(situation, &pod(ordinal, &json!({})), &[]);
    assert_eq!(read(&pod), copy_of(file));
    assert_eq!(pod["metadata"]["annotations"]["gatera.dev/revision"], file.revision());
}

#[test]
fn a_member_starts_with_what_was_good_until_its_turn_comes() {
    let old = ("ready", File::Old);
    let new = Situation { live: File::New.text(), ..Situation::noted() };
    starts_with(&new, 2, File::Old);
    let first = Situation::under_way(Some(2), [old, old, old]);
    starts_with(&first, 2, File::New);
    starts_with(&first, 1, File::Old);
    let proven = Situation::under_way(None, [old, old, ("ready", File::New)]);
    starts_with(&proven, 0, File::New);
    // The ConfigMap need not hold the file any more.
    starts_with(&Situation { live: "[broken", ..Situation::noted() }, 1, File::Old);
}

#[test]
fn a_pod_of_a_new_template_starts_with_the_new_file() {
    let set = json!({ "status": { "currentRevision": "a", "updateRevision": "b" } });
    let rolls = Situation { live: File::New.text(), set, ..Situation::noted() };
    starts_with(&rolls, 2, File::Old);
    let newer = json!({ "metadata": { "labels": { "controller-revision-hash": "b" } } });
    let (it, ..) = started(&rolls, &pod(2, &newer), &[]);
    assert_eq!(read(&it), copy_of(File::New));
    // A revision that failed before is not tried again…
    let failed =
        json!({ "good": File::Old.revision(), "stopped": { "revision": File::New.revision(), "why": "x" } });
    let mut failed = Situation { note: failed, ..rolls };
    let (it, ..) = started(&failed, &pod(2, &newer), &[]);
    assert_eq!(read(&it), copy_of(File::Old));
    // …unless a person asks for another try.
    failed.set["metadata"]["annotations"]["gatera.dev/rollout"] = json!("retry");
    let (it, ..) = started(&failed, &pod(2, &newer), &[]);
    assert_eq!(read(&it), copy_of(File::New));
}

#[test]
fn the_first_pod_gets_a_copy_that_is_made_for_it() {
    let nothing =
        Situation { live: File::New.text(), members: Vec::new(), data: "none", ..Situation::default() };
    let (it, copies) = started(&nothing, &pod(0, &json!({})), &[]);
    assert_eq!(read(&it), "galera-instance-nodeconfig", "nobody made it");
    assert_eq!(it["metadata"]["annotations"]["gatera.dev/revision"], Value::Null);
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "../fixtures" }, {
        insta::assert_snapshot!("copy", format!("{:#}", copies[0]));
    });
    let name = copies[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!((copies.len(), &name), (1, &copy_of(File::New)));
    let (it, _) = started(&nothing, &pod(0, &json!({})), &[name]);
    assert_eq!(read(&it), copy_of(File::New));
    // Only the volume that the server reads points to a snapshot.
    assert_eq!(it["spec"]["volumes"][1]["configMap"]["name"], "galera-instance-nodeconfig");
}

#[test]
fn asked_twice_it_points_at_copies_once() {
    let situation = Situation::noted();
    let (once, ..) = started(&situation, &pod(1, &json!({})), &[]);
    let (twice, ..) = started(&situation, &once, &[]);
    assert_eq!(once, twice);
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
fn a_copy_that_is_not_what_its_name_says_is_not_used() {
    let mut copy = File::Old.copy();
    copy["data"]["galera.cnf"] = json!(File::New.text());
    let situation = Situation { also: vec![copy], live: File::New.text(), ..Situation::noted() };
    let (it, copies) = started(&situation, &pod(1, &json!({})), &[]);
    assert_eq!((read(&it), copies.len()), ("galera-instance-nodeconfig", 0));
}

#[test]
fn where_gatera_only_looks_nothing_is_held_back() {
    for mode in ["audit", "off"] {
        let (it, copies) = started(&Situation { mode, ..Situation::noted() }, &pod(1, &json!({})), &[]);
        assert_eq!((read(&it), copies.len()), ("galera-instance-nodeconfig", 0), "{mode}");
    }
}

/// Formatting and the address of the cluster start no rollout, so a pod gets both as the ConfigMap has them now.
#[test]
fn what_means_the_same_is_read_as_it_is_written_now() {
    let text = "# mine\n[mysqld]\nmax_connections = 1\nwsrep_cluster_address = gcomm://a,b\n";
    let other = Situation { live: text, ..Situation::noted() };
    let (_, copies) = started(&other, &pod(1, &json!({})), &[]);
    assert_eq!(copies[0]["data"]["galera.cnf"], text);
    let name = copies[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let (it, _) = started(&other, &pod(1, &json!({})), std::slice::from_ref(&name));
    assert_eq!(read(&it), name);
    assert_ne!(name, copy_of(File::Old));
}

/// Where a person has a member found the cluster, the member does what the file says.
#[test]
fn a_member_that_is_to_found_reads_the_config_map_itself() {
    let founds = Situation {
        live: "[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://\n",
        ..Situation::noted()
    };
    let (it, copies) = started(&founds, &pod(1, &json!({})), &[]);
    assert_eq!((read(&it), copies.len()), ("galera-instance-nodeconfig", 0));
}

/// The guard never restarts a single member; only a person does.
#[test]
fn a_single_member_starts_with_the_new_file() {
    let one =
        Situation { live: File::New.text(), members: vec![("ready", Some(File::Old))], ..Situation::noted() };
    starts_with(&one, 0, File::New);
}
