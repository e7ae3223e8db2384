//! Owners (`metadata.ownerReferences`) that would make Kubernetes delete what a cluster needs: owners of every shape, very many
//! owners, the way out that a refusal prints, and what a real API server with its garbage collector does.

use std::time::Duration;

use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use serde_json::{Value, json};

use crate::cases::asked::{Action, body};
use crate::cpu_time;
use crate::lab::{User, eventually};
use crate::router::{ask, guard};
use crate::scene::{self, STATEFUL_SET, Scene};

const CLAIM: &str = "PersistentVolumeClaim/datadir-galera-instance-galera-1";

/// Returns the response to this change of an object by this user.
async fn answer(scene: &Scene, what: &str, change: &Value, user: &str) -> Value {
    let asked = Action::ChangeObject { what: what.to_owned(), change: change.clone() }.asked(scene);
    ask(&guard(scene.world(&Settings::default())), "/validate", &body(&asked, user)).await["response"].clone()
}

fn owned_by(owners: &Value) -> Value {
    json!({ "metadata": { "ownerReferences": owners } })
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true, "controller": true })
}

#[tokio::test]
async fn an_owner_of_any_shape_is_refused_for_a_claim() {
    let scene = Scene { stateful_set: json!({ "metadata": { "uid": "7" } }), ..Scene::default() };
    for shape in [
        owner("v1", "ConfigMap", "nope", "1"),
        owner("v1", "ConfigMap", "nope", ""),
        owner("v1", "Namespace", scene::NAMESPACE, ""),
        owner("v1", "Node", "node-0", "1"),
        owner("rbac.authorization.k8s.io/v1", "ClusterRole", "edit", "1"),
        // The Secret of this name is in another namespace, but an owner is looked up in the namespace of what it owns.
        owner("v1", "Secret", "elsewhere", "1"),
        owner("apps/v1", "StatefulSet", STATEFUL_SET, "7"),
        owner("apps/v1", "StatefulSet", STATEFUL_SET, "6"),
        owner("example.org/v1", "StatefulSet", STATEFUL_SET, "7"),
        owner("", "", "", ""),
        owner("a/b/c", "ConfigMap", "nope", "1"),
        json!({ "name": "nope" }),
        json!({}),
        owner("v1", "ConfigMap", &"n".repeat(100_000), "1"),
        json!("no owner at all"),
    ] {
        let response = answer(&scene, CLAIM, &owned_by(&json!([shape])), "editor").await;
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(response["allowed"] == false && message.starts_with("[G0"), "{shape}: {response}");
        assert!(message.len() < 2000, "the message has {} bytes", message.len());
    }
    for none in [json!([]), Value::Null] {
        assert_eq!(answer(&scene, CLAIM, &owned_by(&none), "editor").await["allowed"], true, "{none}");
    }
}

/// The cost grows with the number of owners, not with its square.
#[test]
fn a_hundred_thousand_owners_are_judged_in_linear_time() {
    let settings = Settings::default();
    let (scene, name) = (Scene::default(), CLAIM.split_once('/').unwrap().1);
    let world = scene.world(&settings);
    let is_allowed = |old: &[Value], new: &[Value]| {
        let claim = |owners: &[Value]| json!({ "metadata": { "name": name, "namespace": scene::NAMESPACE, "ownerReferences": owners } });
        let request = json!({ "uid": "u", "kind": { "group": "", "version": "v1", "kind": "PersistentVolumeClaim" }, "operation": "UPDATE", "namespace": scene::NAMESPACE, "name": name, "object": claim(new), "oldObject": claim(old) });
        let body =
            json!({ "apiVersion": review::API_VERSION, "kind": "AdmissionReview", "request": request });
        let review =
            review::read(&serde_json::to_vec(&body).unwrap(), Origin::Validating, rulebook().kinds())
                .unwrap()
                .review;
        rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings)).allowed()
    };
    let before: Vec<_> = (0..100_000).map(|it| owner("v1", "ConfigMap", "x", &it.to_string())).collect();
    let mut after: Vec<_> = before.iter().rev().cloned().collect();
    let took = cpu_time::of(|| {
        assert!(is_allowed(&before, &after), "refused, although no owner is added");
        after.push(owner("v1", "ConfigMap", "nope", "new"));
        assert!(!is_allowed(&before, &after), "allowed, although an owner is added");
    });
    assert!(took < Duration::from_secs(60), "judging took {took:?}");
}

/// After the command that a refusal prints, the same change is admitted.
#[tokio::test]
async fn the_printed_override_permits_the_refused_change() {
    let nope = owned_by(&json!([owner("v1", "ConfigMap", "nope", "1")]));
    let operator = owned_by(&json!([owner("example.org/v1", "Operator", "nope", "1")]));
    for (what, change) in [
        (CLAIM, &nope),
        ("Pod/galera-instance-galera-1", &nope),
        ("Secret/galera", &nope),
        ("Service/galera-instance-hs", &nope),
        ("PodDisruptionBudget/galera-instance-pdb", &nope),
        ("StatefulSet/galera-instance-galera", &nope),
        ("StatefulSet/galera-instance-galera", &operator),
    ] {
        let scene = Scene::default();
        let refused = answer(&scene, what, change, "editor").await;
        let message = refused["status"]["message"].as_str().expect("it is refused");
        let (_, command) = message.split_once("kubectl -n db annotate ").expect("a command is printed");
        let (target, rest) = command.split_once(" 'gatera.dev/override=").unwrap();
        let (value, _) = rest.split_once('\'').unwrap();
        let (kind, object) = scene.object(what);
        let named =
            format!("{} {}", kind.name().to_lowercase(), object["metadata"]["name"].as_str().unwrap());
        assert_eq!(target, named, "{message}");

        let annotations = json!({ "gatera.dev/override": value.replace("reason=…", "reason=as advised") });
        let annotate = json!({ "metadata": { "annotations": annotations } });
        assert_eq!(answer(&scene, what, &annotate, "editor").await["allowed"], true, "{what}: {command}");
        let mut object = object;
        json_patch::merge(&mut object, &annotate);
        let overridden = Scene { also: vec![object], ..Scene::default() };
        let response = answer(&overridden, what, change, "editor").await;
        assert_eq!(response["allowed"], true, "{what}: {response}");
        assert_eq!(
            answer(&scene, what, change, "editor").await["allowed"],
            false,
            "{what} without the override"
        );
    }
}

/// The real garbage collector deletes none of the objects whose new owner was refused.
#[test]
fn an_editor_deletes_nothing_by_an_owner_that_does_not_exist() {
    let (plane, ns) = crate::cluster::running_cluster("owners");
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    let patch = owned_by(&json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "nope", "uid": "11111111-1111-1111-1111-111111111111" }])).to_string();
    let set = crate::cluster::STATEFUL_SET;
    let claim = format!("persistentvolumeclaim/galera-instance-datadir-{set}-1");
    let pod = format!("pod/{set}-1");
    let things = [
        (&*claim, "G07"),
        (&*pod, "G02"),
        ("secret/galera-instance", "G10"),
        ("service/galera-instance-hs", "G10"),
        ("configmap/galera-instance-nodeconfig", "G10"),
        ("statefulset/galera-instance-galera", "G03"),
    ];
    let uid = |what: &str| plane.get(&ns, what)["metadata"]["uid"].clone();
    let before: Vec<_> = things.iter().map(|(what, _)| uid(what)).collect();
    for (what, rule) in things {
        let output = run(&["patch", what, "--type=merge", "--patch", &patch]);
        assert!(output.status == 1 && output.stderr.contains(&format!("[{rule}] ")), "{what}: {output}");
        assert!(output.stderr.contains("its new owner ConfigMap nope"), "{what}: {output}");
    }
    // A ConfigMap that is not guarded is collected for such an owner, so the garbage collector has run.
    let stranger = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "stranger", "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "nope", "uid": "11111111-1111-1111-1111-111111111111" }] } });
    let create = ["--namespace", &*ns, "create", "--filename=-"];
    plane.kubectl_stdin(User::Editor, &create, &stranger.to_string()).succeeded();
    eventually("the garbage collector to delete the ConfigMap that is not guarded", || {
        (run(&["get", "configmap", "stranger"]).status != 0).then_some(())
    });
    let after: Vec<_> = things.iter().map(|(what, _)| uid(what)).collect();
    assert_eq!(after, before, "an object was deleted");
}
