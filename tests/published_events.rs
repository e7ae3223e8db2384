//! Events that the guard publishes because of a request: a client that only reaches the port cannot make up their content.

use std::sync::Arc;

use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{View, World};
use gatera::act::events;
use gatera::act::guard::Guard;
use gatera::rulebook;
use serde_json::{Value, json};

use crate::router::{self, ask};
use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

/// Returns a review of the deletion of this object.
pub fn deletion(plural: &str, kind: &str, group: &str, object: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": { "group": group, "version": "v1", "kind": kind },
        "resource": { "group": group, "version": "v1", "resource": plural }, "operation": "DELETE",
        "namespace": NAMESPACE, "name": object["metadata"]["name"], "userInfo": { "username": "mallory" },
        "object": null, "oldObject": object,
    } })
}

/// Returns a review of the deletion of the StatefulSet, with these changes to the object in the review.
fn deletion_of_set(change: impl Fn(&mut Value)) -> Value {
    let (_, mut object) = Scene::default().object(&format!("StatefulSet/{STATEFUL_SET}"));
    change(&mut object);
    deletion("statefulsets", "StatefulSet", "apps", &object)
}

fn reported(world: &World, body: &Value, proven: bool) -> Vec<String> {
    reported_by(Origin::Validating, world, body, proven)
}

fn reported_by(origin: Origin, world: &World, body: &Value, proven: bool) -> Vec<String> {
    let (settings, bytes) = (Settings::default(), body.to_string());
    let view = View::new(world, scene::now(), &settings);
    let review = review::read(bytes.as_bytes(), origin, rulebook().kinds()).unwrap().review;
    let decision = rulebook().evaluate(&review, &view);
    events::notices(&review, &decision, &view, proven).iter().map(|it| format!("{it:?}")).collect()
}

/// Returns the only Event of this list.
fn only(events: Vec<String>) -> String {
    let [event] = <[String; 1]>::try_from(events).unwrap_or_else(|all| panic!("not one Event: {all:?}"));
    event
}

#[test]
fn events_are_published_only_about_objects_in_the_view() {
    let world = Scene::default().world(&Settings::default());
    let known = reported(&world, &deletion_of_set(|_| {}), false);
    assert_eq!(known.len(), 1, "{known:?}");
    assert!(known[0].contains("\"this may not be deleted: ") && !known[0].contains("mallory"), "{known:?}");
    for (what, body) in [
        ("another uid", deletion_of_set(|it| it["metadata"]["uid"] = json!("made-up"))),
        ("no uid", deletion_of_set(|it| it["metadata"]["uid"] = Value::Null)),
        ("another name", deletion_of_set(|it| it["metadata"]["name"] = json!("made-up"))),
    ] {
        assert_eq!(reported(&world, &body, false), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_caller_is_named_only_if_the_api_server_is_authenticated() {
    let world = Scene::default().world(&Settings::default());
    let proven = reported(&world, &deletion_of_set(|_| {}), true);
    assert!(proven[0].contains("\"mallory may not delete this: "), "{proven:?}");
    let overridden = json!({ "gatera.dev/override": "G03 until=2026-12-01T10:00:00Z reason=moving house" });
    let body = deletion_of_set(|it| it["metadata"]["annotations"] = overridden.clone());
    let [without_name, with_name] = [false, true].map(|proven| reported(&world, &body, proven).concat());
    assert!(without_name.contains("G03 was overridden: ") && !without_name.contains("mallory"));
    assert!(without_name.contains("(reason: moving house)"), "{without_name}");
    assert!(with_name.contains("G03 was allowed to mallory: "), "{with_name}");
}

/// The view holds no Secrets, so an Event about one is on the cluster that uses it, with the uid that the view has.
#[test]
fn an_event_about_an_object_that_the_view_lacks_is_about_its_cluster() {
    let world = Scene::default().world(&Settings::default());
    let (secret, uid) = {
        let cluster = world.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let mut secrets = cluster.workload.spec.template.spec.secrets();
        (secrets.next().expect("the members read a Secret").to_owned(), &cluster.workload.metadata.uid)
    };
    let object = |name: &str| json!({ "metadata": { "name": name, "uid": "any" } });
    let notes = reported(&world, &deletion("secrets", "Secret", "", &object(&secret)), false);
    assert!(!notes.is_empty(), "deleting a Secret in use is refused");
    let about = format!("name: Some(\"{STATEFUL_SET}\")");
    assert!(
        notes.iter().all(|it| it.contains(&about) && it.contains(&format!("uid: Some({uid:?})"))),
        "{notes:?}"
    );
    let which = format!("\"Secret {secret} may not be deleted: ");
    assert!(
        notes.iter().all(|it| it.contains(&which)),
        "the Event names the Secret, although it is on another object: {notes:?}"
    );
    assert_eq!(
        reported(&world, &deletion("secrets", "Secret", "", &object("strange")), false),
        Vec::<String>::new()
    );
}

/// The Event is needed because many clients drop warnings and take the changed object for an error of their own.
#[test]
fn a_bootstrap_deployment_that_is_kept_at_zero_is_reported_on_the_stateful_set() {
    let applied = |dry_run: bool| {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "Deployment" },
            "resource": { "group": "apps", "version": "v1", "resource": "deployments" }, "operation": "CREATE",
            "namespace": NAMESPACE, "name": scene::BOOTSTRAP, "userInfo": { "username": "mallory" }, "dryRun": dry_run,
            "object": scene::bootstrap_deployment(1), "oldObject": null,
        } })
    };
    let world = Scene::default().world(&Settings::default());
    let reported = only(reported_by(Origin::Mutating, &world, &applied(false), true));
    let says = format!(
        "Deployment {} is kept at 0 replicas: cluster {STATEFUL_SET} already has data (3 of 3 members Synced, seen now); remove this \
         Deployment from your manifests",
        scene::BOOTSTRAP
    );
    assert!(reported.contains("\"BootstrapKeptAtZero\"") && reported.contains(&says), "{reported}");
    assert!(reported.contains("kind: Some(\"StatefulSet\")"), "{reported}");
    let none = Vec::<String>::new();
    assert_eq!(reported_by(Origin::Mutating, &world, &applied(true), true), none, "an Event about a dry run");
    let first = Scene {
        data: "none".to_owned(),
        members: vec!["absent".to_owned(); 3],
        claims: false,
        ..Scene::default()
    };
    let first = first.world(&Settings::default());
    assert_eq!(
        reported_by(Origin::Mutating, &first, &applied(false), true),
        none,
        "an Event about a first install, which needs its bootstrap node"
    );
}

#[tokio::test]
async fn few_events_a_minute_are_published_about_one_object() {
    let (sender, mut notices) = events::channel();
    let mut guard = Arc::into_inner(router::guard(Scene::default().world(&Settings::default()))).unwrap();
    guard.events = Some(sender);
    let guard: Arc<Guard> = Arc::new(guard);
    for _ in 0..20 {
        assert_eq!(ask(&guard, "/validate", &deletion_of_set(|_| {})).await["response"]["allowed"], false);
    }
    let mut count = 0;
    while notices.try_recv().is_ok() {
        count += 1;
    }
    assert_eq!(count, 6, "Events about 20 refusals within a minute");
}

/// Events about the recovery of a cluster that is down show every user from which position it starts, and who asked for it.
#[test]
fn a_recovery_is_reported_when_it_is_granted_and_when_it_is_over() {
    let world = Scene::default().world(&Settings::default());
    let (_, before) = Scene::default().object(&format!("StatefulSet/{STATEFUL_SET}"));
    let with = |marks: Value| {
        let mut object = before.clone();
        object["metadata"]["annotations"] = marks;
        object
    };
    let change = |old: &Value, new: &Value| {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "StatefulSet" },
            "resource": { "group": "apps", "version": "v1", "resource": "statefulsets" }, "operation": "UPDATE",
            "namespace": NAMESPACE, "name": STATEFUL_SET, "userInfo": { "username": "alice" },
            "object": new, "oldObject": old,
        } })
    };
    let asked =
        format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z accept-loss=12 transactions");
    let marks = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    let granted = with(marks.clone());
    let event = only(reported(&world, &change(&granted, &with(json!({}))), true));
    let done = format!("the recovery is done: {STATEFUL_SET}-1 started the cluster from {ID}:363, by alice");
    assert!(event.contains("\"RecoveryOver\"") && event.contains(&done), "{event}");
    assert_eq!(
        reported(&world, &change(&granted, &with(marks)), true),
        Vec::<String>::new(),
        "an Event about an unchanged recovery"
    );
    let alone = with(json!({ "gatera.dev/recover": "any" }));
    assert_eq!(
        reported(&world, &change(&alone, &with(json!({}))), true),
        Vec::<String>::new(),
        "an Event about a recovery that was not granted"
    );
    let reported_at =
        |seqno| format!("reported position {ID}:{seqno}, stopped in order, safe_to_bootstrap 0");
    let down = Scene { members: [375, 363, 360].map(reported_at).to_vec(), ..Scene::default() };
    let down = down.world(&Settings::default());
    let event = only(reported(&down, &change(&granted, &with(json!({}))), true));
    let back = format!("before {STATEFUL_SET}-1 was Ready, the recovery request was withdrawn, by alice");
    assert!(event.contains("\"RecoveryOver\"") && event.contains(&back), "{event}");
    let event = only(reported(&down, &change(&with(json!({})), &granted), true));
    let note = format!(
        "{STATEFUL_SET}-1 may start the cluster again from {ID}:363, until 2026-12-01T10:00:00Z, by alice; accepted as lost: 12 transactions"
    );
    assert!(event.contains("\"RecoveryGranted\"") && event.contains(&note), "{event}");
    // A cluster that serves needs no recovery, so this request is refused, and no Event says that it was granted.
    let refused = reported(&world, &change(&with(json!({})), &granted), true);
    assert!(!refused.concat().contains("RecoveryGranted"), "{refused:?}");
}
