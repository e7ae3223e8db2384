//! Hundreds of objects that editors of one namespace may write, in every watched kind: a guard lists them within the memory that
//! its chart allows, and judges all other namespaces as usual.
//!
//! The API server is a stand-in that generates its lists while it sends them. `GATERA_HOSTILE=2000` sets the number of objects in
//! every kind.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use gatera::rulebook;
use objects::Kind;
use serde_json::{Value, json};

use super::{MEMORY_LIMIT_KIB, certificates, peak_memory};
use crate::caller::{Caller, config};
use crate::guarded::{Guard, Start, program};
use crate::lab::eventually;
use crate::scene::{self, Scene};

/// The number of objects in every kind if `GATERA_HOSTILE` is not set; full runs have 2000.
const DEFAULT_COUNT: usize = 100;
/// The size of one annotation, close to the largest possible.
const ANNOTATION_BYTES: usize = 250 << 10;
/// A name before all others, so that its objects are listed first.
const NAMESPACE: &str = "a-hostile";
/// The number of objects that change at the beginning of each watch.
const CHANGES: usize = 5;

fn hostile_count() -> usize {
    std::env::var("GATERA_HOSTILE").map_or(DEFAULT_COUNT, |count| count.parse().unwrap())
}

/// Returns the kind that is listed at this path.
fn kind_at(path: &str) -> Option<Kind> {
    let plural = path.rsplit('/').next()?;
    let kind = rulebook().kinds().all().find(|kind| kind.plural() == plural)?;
    // Paths within a namespace are left out: the guard lists all namespaces at once.
    (!path.contains("/namespaces/")).then_some(kind)
}

/// Returns an object that is large because of foreign annotations, annotations that look like gatera's, labels, or the
/// environment of its containers.
fn large(kind: Kind, number: usize) -> String {
    let text = "x".repeat(ANNOTATION_BYTES);
    let labels: String =
        (0..ANNOTATION_BYTES / 200).map(|at| format!(r#","l{at}":"{}""#, "x".repeat(190))).collect();
    let (annotations, more) = match number % 3 {
        0 => (format!(r#""kubectl.kubernetes.io/last-applied-configuration":"{text}""#), ""),
        1 => (format!(r#""gatera.dev/identity":"{text}""#), ""),
        _ => (String::new(), &*labels),
    };
    let env = if number.is_multiple_of(3) { text.as_str() } else { "" };
    let containers =
        format!(r#"[{{"name":"mariadb","image":"mariadb:10.11","env":[{{"name":"A","value":"{env}"}}]}}]"#);
    let adopted = r#""app":"galera","galera":"galera","instance":"it""#;
    let spec = match kind {
        Kind::StatefulSet | Kind::Deployment => {
            format!(
                r#"{{"replicas":0,"template":{{"metadata":{{"labels":{{{adopted}}}}},"spec":{{"containers":{containers}}}}}}}"#
            )
        }
        Kind::Pod => format!(r#"{{"containers":{containers}}}"#),
        _ => "{}".to_owned(),
    };
    format!(
        r#"{{"metadata":{{"name":"a-{number}","uid":"u-{number}","resourceVersion":"5","namespace":"{NAMESPACE}","labels":{{{adopted}{more}}},"annotations":{{{annotations}}}}},"spec":{spec}}}"#
    )
}

fn query_value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
}

type Lines = Vec<Result<Bytes, std::io::Error>>;

/// Returns a page of a list, or a watch in which some objects change.
async fn answer(request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Some(kind) = kind_at(request.uri().path()).filter(|_| request.method() == "GET") else {
        let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none" });
        return Response::builder().status(404).body(Body::from(status.to_string())).unwrap();
    };
    if query_value(&query, "watch") == Some("true") {
        let seconds = query_value(&query, "timeoutSeconds").and_then(|it| it.parse().ok()).unwrap_or(8);
        let changes = if kind.is_cluster_wide() { 0 } else { CHANGES };
        let event = move |number| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", large(kind, number));
        let changes =
            stream::iter((0..changes).map(move |number| Ok::<_, std::io::Error>(Bytes::from(event(number)))));
        let rest = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Bytes::new())
        });
        return Response::new(Body::from_stream(changes.chain(rest)));
    }
    let good: Vec<_> = Scene::default().objects().into_iter().filter(|(of, _)| *of == kind).collect();
    // Editors of a namespace cannot write cluster-wide objects.
    let hostile_count = if kind.is_cluster_wide() { 0 } else { hostile_count() };
    let all = hostile_count + good.len();
    let from: usize = query_value(&query, "continue").map_or(0, |it| it.parse().unwrap());
    let to = query_value(&query, "limit").map_or(all, |it| from + it.parse::<usize>().unwrap()).min(all);
    let next = if to < all { to.to_string() } else { String::new() };
    let head =
        format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"5","continue":"{next}"}},"items":["#);
    let items = (from..to).map(move |number| {
        let text = match number.checked_sub(hostile_count) {
            Some(number) => good[number].1.to_string(),
            None => large(kind, number),
        };
        Ok(Bytes::from(if number == from { text } else { format!(",{text}") }))
    });
    let ends: Lines = vec![Ok(Bytes::from("]}"))];
    let begins: Lines = vec![Ok(Bytes::from(head))];
    Response::new(Body::from_stream(stream::iter(begins.into_iter().chain(items).chain(ends))))
}

fn review(operation: &str, kind: (&str, &str), object: &Value) -> Bytes {
    let (group, kind) = kind;
    let (new, old) = if operation == "DELETE" { (&Value::Null, object) } else { (object, object) };
    let meta = &object["metadata"];
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-000000000000", "operation": operation,
        "kind": { "group": group, "version": "v1", "kind": kind }, "namespace": meta["namespace"], "name": meta["name"],
        "userInfo": { "username": "editor" }, "object": new, "oldObject": old,
    } });
    Bytes::from(review.to_string())
}

async fn answer_to(to: SocketAddr, bundle: &str, body: Bytes) -> Value {
    let mut caller = Caller::open(to, &config(bundle, None)).await.unwrap();
    let (status, _, text) = caller.ask("/validate", &body).await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"].clone()
}

#[test]
fn what_one_namespace_writes_takes_no_more_memory_than_the_chart_allows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let address = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    });
    let folder = tempfile::tempdir().unwrap();
    let bundle = certificates(folder.path());
    let file = folder.path().join("kubeconfig");
    let named = |name: &str, what: &str, value: Value| json!([{ "name": name, what: value }]);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": named("it", "cluster", json!({ "server": format!("http://{address}") })),
        "users": named("it", "user", json!({})),
        "contexts": named("it", "context", json!({ "cluster": "it", "user": "it" })),
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let start = Start {
        identity: "large".into(),
        arguments: vec![format!("--tls-folder={}", folder.path().display())],
        ..Start::default()
    };
    let guard = Guard::start_by(&file, folder.path(), &program(), &start);
    eventually("a guard that is ready", || {
        assert!(peak_memory(&guard) < MEMORY_LIMIT_KIB, "the guard took {} KiB", peak_memory(&guard));
        guard.get("/readyz").filter(|(status, text)| *status == 200 && text.contains("view: current"))
    });
    let at_start = peak_memory(&guard);
    let (_, set) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    runtime.block_on(async {
        let kind = ("apps", "StatefulSet");
        for _ in 0..20 {
            let answered = answer_to(guard.webhooks, &bundle, review("UPDATE", kind, &set)).await;
            assert_eq!(answered["allowed"], true, "{answered}");
            let answered = answer_to(guard.webhooks, &bundle, review("DELETE", kind, &set)).await;
            let words = answered["status"]["message"].as_str().unwrap_or_default();
            assert!(words.contains("[G03]") && words.contains("seen now"), "{answered}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // About the hostile namespace the guard says that it did not keep everything.
        let hostile_set: Value = serde_json::from_str(&large(Kind::StatefulSet, 1)).unwrap();
        let pod = json!({ "metadata": {
            "name": "a-1-0", "namespace": NAMESPACE, "labels": hostile_set["metadata"]["labels"],
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a-1", "uid": "u-1", "controller": true }],
        }, "spec": hostile_set["spec"]["template"]["spec"], "status": { "phase": "Running", "containerStatuses": [
            { "name": "mariadb", "ready": true, "started": true, "state": { "running": { "startedAt": "2026-11-21T08:20:00Z" } } },
        ] } });
        let answered = answer_to(guard.webhooks, &bundle, review("DELETE", ("", "Pod"), &pod)).await;
        let words = answered["status"]["message"].as_str().unwrap_or_default();
        assert!(answered["allowed"] == false && words.contains("did not fit into gatera's memory"), "{answered}");
    });
    let (_, text) = guard.get("/readyz").unwrap();
    assert!(text.contains("view: current") && text.contains("is not examined: "), "{text}");
    let peak = peak_memory(&guard);
    eprintln!("{at_start} KiB at the start, {peak} KiB at the peak");
    assert!(peak < MEMORY_LIMIT_KIB, "the guard took {peak} KiB; its limit is {MEMORY_LIMIT_KIB} KiB");
}
