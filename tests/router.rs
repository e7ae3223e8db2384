//! The router without a socket: request bodies and the answers to them.

mod gets;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use facts::settings::Settings;
use facts::view::World;
use gatera::act::answer::{MAX_BODY_BYTES, admission, operations};
use gatera::act::guard::Guard;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::scene::{self, Scene};

pub fn guard(world: World) -> Arc<Guard> {
    guard_at(world, scene::now)
}

pub fn guard_at(world: World, clock: fn() -> Timestamp) -> Arc<Guard> {
    Arc::new(Guard::new(Arc::new(ArcSwap::from_pointee(world)), Settings::default(), clock))
}

pub fn guard_with(world: World, settings: Settings) -> Arc<Guard> {
    Arc::new(Guard::new(Arc::new(ArcSwap::from_pointee(world)), settings, scene::now))
}

/// Sends an `AdmissionReview` and returns the answer, which must be an `AdmissionReview`.
pub async fn ask(guard: &Arc<Guard>, path: &str, body: &Value) -> Value {
    let (status, text) = send(guard, path, "application/json", serde_json::to_vec(body).unwrap()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["apiVersion"], body["apiVersion"], "the version is echoed");
    assert_eq!(answer["kind"], "AdmissionReview");
    answer
}

async fn send(guard: &Arc<Guard>, path: &str, kind: &str, body: Vec<u8>) -> (StatusCode, String) {
    let request = Request::post(path).header("content-type", kind).body(Body::from(body)).unwrap();
    let response = admission(Arc::clone(guard)).oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

fn healthy() -> Arc<Guard> {
    guard(Scene::default().world(&Settings::default()))
}

#[tokio::test]
async fn malformed_bodies_are_refused_with_the_reason() {
    let guard = healthy();
    let review = |request: Value| {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
            .to_string()
    };
    let http = |text: &str| text.to_owned();
    for (what, kind, body, status, says) in [
        (
            "truncated",
            "application/json",
            http(r#"{"apiVersion":"admission.k8s.io/v1","kind":"Admiss"#),
            400,
            "it ends too early",
        ),
        ("empty", "application/json", http(""), 400, "it ends too early"),
        ("not JSON", "application/json", http("apiVersion: v1"), 400, "it is not JSON"),
        (
            "another content type",
            "application/yaml",
            review(json!({ "uid": "u" })),
            400,
            "the Content-Type must be application/json",
        ),
        (
            "without a request",
            "application/json",
            review(Value::Null),
            400,
            "a field is missing or of the wrong type",
        ),
        (
            "an unknown verb",
            "application/json",
            review(json!({ "uid": "u", "kind": { "group": "", "kind": "Pod" }, "operation": "EXPLODE" })),
            400,
            "a field is missing or of the wrong type",
        ),
        (
            "another version",
            "application/json",
            http(
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","kind":"Pod"},"operation":"CREATE"}}"#,
            ),
            400,
            "it is not of kind AdmissionReview, version admission.k8s.io/v1",
        ),
    ] {
        let (code, text) = send(&guard, "/validate", kind, body.into_bytes()).await;
        assert_eq!(code.as_u16(), status, "{what}");
        assert!(text.contains(says), "{what}: {text}");
    }
    let (code, text) =
        send(&guard, "/validate", "application/json", b"{\"request\":{\"uid\":\"\xff\xfe\"}}".to_vec()).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{text}");
    let (code, text) = send(&guard, "/validate", "application/json", vec![b' '; MAX_BODY_BYTES + 1]).await;
    assert_eq!(
        (code, &*text),
        (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large: gatera reads at most 8 MiB")
    );
    let metrics = metrics(&guard).await;
    assert!(
        metrics.contains(r#"gatera_reviews_total{endpoint="/validate",answer="malformed"} 9"#),
        "{metrics}"
    );
}

/// A client that does not read its answers leaves them in the guard's memory, so what it sends must not make them long.
#[tokio::test]
async fn long_input_is_not_repeated_in_the_answer() {
    let guard = healthy();
    let long = "A".repeat(1024 * 1024);
    let kind = json!({ "group": "apps", "version": "v1", "kind": "StatefulSet" });
    let review = |version: &str, request: Value| {
        json!({ "apiVersion": version, "kind": "AdmissionReview", "request": request }).to_string()
    };
    let request =
        |uid: &str, name: &str| json!({ "uid": uid, "name": name, "kind": kind, "operation": "CREATE" });
    for (what, body, status) in [
        ("a uid and nothing else", json!({ "request": { "uid": long } }).to_string(), 400),
        ("a uid in a review", review("admission.k8s.io/v1", request(&long, "x")), 400),
        ("a uid in another version", review("admission.k8s.io/v1beta1", request(&long, "x")), 400),
        ("a version", review(&long, request("u", "x")), 400),
        ("a version and nothing else", review(&long, json!({ "uid": "u" })), 400),
        ("a name", review("admission.k8s.io/v1", request("u", &long)), 400),
    ] {
        let (code, text) = send(&guard, "/validate", "application/json", body.into_bytes()).await;
        assert_eq!(code.as_u16(), status, "{what}: {} bytes", text.len());
        assert!(text.len() < 500, "{what}: {} bytes", text.len());
        assert!(text.contains("gatera cannot read this AdmissionReview: "), "{what}: {text}");
    }
}

/// Thousands of findings about an object of 200 KB, each with a long name, once made an answer of hundreds of megabytes.
#[tokio::test]
async fn an_answer_with_many_findings_is_short() {
    let guard = healthy();
    let asked = async |container: &str| {
        let (_, mut object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
        let variable = |turn: usize| json!({ "name": format!("P{turn}_PASSWORD"), "value": "x" });
        let server = &mut object["spec"]["template"]["spec"]["containers"][0];
        server["name"] = json!(container);
        server["env"] = (0..2700).map(variable).collect();
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "StatefulSet" }, "operation": "CREATE",
            "namespace": "db", "name": scene::STATEFUL_SET, "object": object,
        } });
        let answer = ask(&guard, "/validate", &body).await;
        assert!(answer.to_string().len() < 100_000, "{} bytes", answer.to_string().len());
        assert_eq!(answer["response"]["allowed"], false);
        answer["response"].clone()
    };
    let refused = asked("mariadb").await;
    let message = refused["status"]["message"].as_str().unwrap();
    assert_eq!(message.matches("[G11] ").count(), 100, "{message}");
    let warnings = refused["warnings"].as_array().unwrap();
    let more = json!("G11 has 2700 findings here; the worst 100 are listed");
    assert!(warnings.contains(&more), "{warnings:?}");
    let refused = asked(&"c".repeat(100_000)).await;
    let message = refused["status"]["message"].as_str().unwrap();
    let says = "[G00] StatefulSet db/galera-instance-galera: cannot be read as a StatefulSet: \
                spec.template.spec.containers[0].name: a name has 100000 bytes; the limit is 253";
    assert!(message.starts_with(says), "{message}");
}

#[tokio::test]
async fn unusual_requests_are_answered_with_their_uid() {
    let guard = healthy();
    let kind = json!({ "group": "apps", "version": "v1", "kind": "StatefulSet" });
    let scale = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    let sets = json!({ "group": "apps", "version": "v1", "resource": "statefulsets" });
    let stranger = json!({ "group": "example.com", "version": "v1", "kind": "Galera" });
    for (what, request, allowed, says) in [
        (
            "an unknown kind",
            json!({ "kind": stranger, "operation": "CREATE", "object": { "spec": 1 } }),
            true,
            "",
        ),
        (
            "an unknown field",
            json!({ "kind": kind, "operation": "CREATE", "tomorrow": 1, "object": {} }),
            true,
            "",
        ),
        (
            "object null on DELETE",
            json!({ "kind": kind, "operation": "DELETE", "object": null, "oldObject": {} }),
            true,
            "",
        ),
        ("no object at all", json!({ "kind": kind, "operation": "UPDATE" }), true, ""),
        (
            "a wrong type",
            json!({ "kind": kind, "operation": "CREATE", "object": { "spec": { "replicas": "3" } } }),
            false,
            "[G00] StatefulSet db/x: cannot be read as a StatefulSet: spec.replicas: expected a whole number, found a string",
        ),
        (
            "a Scale without a spec, which means 0 replicas",
            json!({ "kind": scale, "resource": sets, "subResource": "scale", "name": scene::STATEFUL_SET, "operation": "UPDATE", "oldObject": { "spec": { "replicas": 3 } }, "object": {} }),
            false,
            "3 -> 0 replicas stops every member",
        ),
        (
            "a Scale of a cluster that is not in the view",
            json!({ "kind": scale, "resource": sets, "subResource": "scale", "operation": "UPDATE", "oldObject": { "spec": { "replicas": 3 } }, "object": {} }),
            true,
            "",
        ),
    ] {
        let mut request = request;
        request["uid"] = json!("u1");
        request["namespace"] = json!("db");
        if request.get("name").is_none() {
            request["name"] = json!("x");
        }
        let answer = ask(
            &guard,
            "/validate",
            &json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }),
        )
        .await;
        assert_eq!(answer["response"]["uid"], "u1", "{what}");
        assert_eq!(answer["response"]["allowed"], allowed, "{what}: {answer}");
        let message = answer["response"]["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(says), "{what}: {message}");
    }
}

/// The removals of three members of a healthy cluster are requested before a watch reports the first one.
#[tokio::test]
async fn only_one_of_several_simultaneous_removals_is_allowed() {
    let guard = healthy();
    let removal = |ordinal: usize, subresource: &str, dry_run: bool| {
        let name = format!("{}-{ordinal}", scene::STATEFUL_SET);
        let (_, pod) = Scene::default().object(&format!("Pod/{name}"));
        let eviction = subresource == "eviction";
        let kind = if eviction {
            json!({ "group": "policy", "version": "v1", "kind": "Eviction" })
        } else {
            json!({ "group": "", "version": "v1", "kind": "Pod" })
        };
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": kind, "resource": { "group": "", "version": "v1", "resource": "pods" },
            "subResource": subresource, "namespace": "db", "name": name, "dryRun": dry_run,
            "operation": if eviction { "CREATE" } else { "DELETE" },
            "object": if eviction { json!({ "metadata": { "name": name } }) } else { Value::Null },
            "oldObject": if eviction { Value::Null } else { pod },
        } })
    };
    let asked = async |body: Value| ask(&guard, "/validate", &body).await["response"].clone();
    assert_eq!(asked(removal(0, "", true)).await["allowed"], true, "a dry run reserves nothing");
    let at_once: Vec<_> = (0..3)
        .map(|ordinal| {
            let (guard, body) =
                (Arc::clone(&guard), removal(ordinal, if ordinal == 1 { "eviction" } else { "" }, false));
            tokio::spawn(async move { ask(&guard, "/validate", &body).await["response"].clone() })
        })
        .collect();
    let mut answers = Vec::new();
    for answer in at_once {
        answers.push(answer.await.unwrap());
    }
    let gone = answers.iter().position(|answer| answer["allowed"] == true).expect("one removal is allowed");
    assert_eq!(
        answers.iter().filter(|answer| answer["allowed"] == true).count(),
        1,
        "several are allowed: {answers:#?}"
    );
    for refused in answers.iter().filter(|answer| answer["allowed"] == false) {
        let message = refused["status"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!(
                "{}-{gone} was allowed to leave 0s ago (3 of 3 members Synced, seen now)",
                scene::STATEFUL_SET
            )),
            "{message}"
        );
    }
    // The removal of the same member may be requested again, and scaling down has to wait, too.
    assert_eq!(asked(removal(gone, "", false)).await["allowed"], true, "the same removal, again");
    let scale = |replicas: i64| json!({ "metadata": { "name": scene::STATEFUL_SET }, "spec": { "replicas": replicas } });
    let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": { "group": "autoscaling", "version": "v1", "kind": "Scale" }, "resource": { "group": "apps", "version": "v1", "resource": "statefulsets" },
        "subResource": "scale", "namespace": "db", "name": scene::STATEFUL_SET, "operation": "UPDATE", "object": scale(2), "oldObject": scale(3),
    } });
    let message = asked(body).await["status"]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("[G01]")
            && message.as_str().unwrap().contains("was allowed to leave"),
        "{message}"
    );
    // A member whose claim is being deleted has to wait as well.
    let next = (gone + 1) % 3;
    let mut losing = Scene::default();
    let (_, mut claim) =
        losing.object(&format!("PersistentVolumeClaim/datadir-{}-{next}", scene::STATEFUL_SET));
    claim["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:00:00Z");
    losing.also.push(claim);
    guard.world.store(Arc::new(losing.world(&Settings::default())));
    let message = asked(removal(next, "", false)).await["status"]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("is being deleted, so its data is lost with the pod"),
        "{message}"
    );
    // The watch shows that the pod is back with another uid, so the next member may leave.
    let mut back = Scene::default();
    let (_, mut pod) = back.object(&format!("Pod/{}-{gone}", scene::STATEFUL_SET));
    pod["metadata"]["uid"] = json!("another");
    back.also.push(pod);
    guard.world.store(Arc::new(back.world(&Settings::default())));
    assert_eq!(asked(removal(next, "", false)).await["allowed"], true, "the first member is back");
}

/// Any client that reaches the port can send a forged review. Only the removal of an existing pod is allowed and reserved.
#[tokio::test]
async fn a_forged_deletion_reserves_nothing() {
    let guard = healthy();
    let deletion = |ordinal: usize, uid: Option<&str>| {
        let name = format!("{}-{ordinal}", scene::STATEFUL_SET);
        let (_, mut pod) = Scene::default().object(&format!("Pod/{name}"));
        if let Some(uid) = uid {
            pod["metadata"]["uid"] = json!(uid);
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "resource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": "db", "name": name, "operation": "DELETE", "oldObject": pod,
        } })
    };
    for (what, body, allowed) in [
        ("a uid that no pod has", deletion(0, Some("made-up")), false),
        ("an existing pod", deletion(1, None), true),
        ("a second one", deletion(2, None), false),
    ] {
        let answer = ask(&guard, "/validate", &body).await;
        assert_eq!(answer["response"]["allowed"], allowed, "{what}: {answer}");
    }
}

async fn metrics(guard: &Arc<Guard>) -> String {
    operation(guard, "/metrics").await.1
}

async fn operation(guard: &Arc<Guard>, path: &str) -> (StatusCode, String) {
    let response =
        operations(Arc::clone(guard)).oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn readyz_gives_the_reasons() {
    let loading = guard(World::default());
    let (status, text) = operation(&loading, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        text,
        "[-] view: still listing the objects of the cluster\n[-] certificate: no certificate yet\n[+] webhooks: not registered yet\n[+] settings: current\n[+] server: serving\n"
    );
    let stale = guard(Scene { view: "stale".into(), ..Scene::default() }.world(&Settings::default()));
    stale.ready.leaf_ends.store(Some(Arc::new("2027-01-01T00:00:00Z".parse().unwrap())));
    let (status, text) = operation(&stale, "/readyz").await;
    assert_eq!(
        status,
        StatusCode::OK,
        "a stale view is reported, but does not make the guard unready: {text}"
    );
    assert!(text.contains("stale for 42s"), "{text}");
    assert_eq!(operation(&stale, "/livez").await.0, StatusCode::OK);
    // An unusable Secret is reported while another leaf is in use; a leaf that is not valid yet makes the guard unready.
    let words =
        "the Secret gatera-tls cannot be used: a certificate is not valid before 2999-01-01T00:00:00Z";
    stale.ready.certificates.store(Some(Arc::new(words.to_owned())));
    let (status, text) = operation(&stale, "/readyz").await;
    let line = format!("[+] certificate: valid until 2027-01-01T00:00:00Z; {words}\n");
    assert!(status == StatusCode::OK && text.contains(&line), "{text}");
    stale.ready.leaf_begins.store(Some(Arc::new("2999-01-01T00:00:00Z".parse().unwrap())));
    let (status, text) = operation(&stale, "/readyz").await;
    let line = format!("[-] certificate: not valid before 2999-01-01T00:00:00Z; {words}\n");
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains(&line), "{text}");
}
