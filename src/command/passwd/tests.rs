//! Tests without MariaDB, against a stand-in for the API server: which changes are refused before anything is written, and what
//! each write contains.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::http::{Request, Response};
use facts::settings::Settings;
use facts::view::{Freshness, Id, World};
use kube::Client;
use kube::client::Body;
use leader::password::{PasswordStep, Underway, WhichPassword};
use objects::{Kind, Object};
use serde_json::{Value, json};
use tower::service_fn;

use super::observation::{PasswordObservation, observe, without_statement};
use super::*;
use crate::command::look::ObservedCluster;
use crate::command::site::Clock;

type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Returns a StatefulSet with one member, which is not Ready, so no statement is run in its pod.
fn set(name: &str, env: &Value) -> Value {
    let labels = json!({ "gatera.dev/cluster": name });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": name, "namespace": "db", "uid": "u-1", "labels": labels },
        "spec": {
            "replicas": 1, "serviceName": "g-hs", "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": env }] } },
        },
    })
}

fn root() -> Value {
    json!([{ "name": "MARIADB_ROOT_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "s", "key": "root" } } }])
}

/// Returns a look at cluster `g` in a world of these StatefulSets, and the log of requests to its API server, which holds these
/// Secrets and no pods.
fn cluster(sets: &[Value], secrets: &Value) -> (ObservedCluster, Asked) {
    let asked = Asked::default();
    let (log, secrets) = (Arc::clone(&asked), secrets.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (log, secrets) = (Arc::clone(&log), secrets.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let path = parts.uri.path().to_owned();
            log.lock().unwrap().push((parts.method.to_string(), path.clone(), body));
            let name = path.rsplit('/').next().unwrap_or_default();
            let missing = json!({ "kind": "Status", "code": 404, "reason": "NotFound" });
            let (code, answer) = match (path.ends_with("/pods"), secrets.get(name)) {
                (true, _) => {
                    (200, json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [] }))
                }
                (_, Some(secret)) => (200, secret.clone()),
                _ => (404, missing),
            };
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    let settings = Settings::default();
    let mut facts = crate::rulebook().facts(&settings.adoption);
    for set in sets {
        facts.put(Object::read(Kind::StatefulSet, &set.to_string()).unwrap());
    }
    let world = World::build(facts, Freshness::Current);
    let (client, clock, id) = (Client::new(service, "db"), Clock::of_this_machine(), Id::new("db", "g"));
    (ObservedCluster { client, clock, settings, world, id }, asked)
}

/// The password "old" in base64.
const OLD: &str = "b2xk";

fn secret(more: &Value) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "s", "namespace": "db", "uid": "s-1", "resourceVersion": "7" },
        "data": { "root": OLD },
    });
    json_patch::merge(&mut secret, more);
    secret
}

async fn refusal(env: &Value, more: &Value, user: &str, other: Option<Value>) -> String {
    let sets: Vec<_> = [Some(set("g", env)), other].into_iter().flatten().collect();
    let (seen, asked) = cluster(&sets, &json!({ "s": secret(more) }));
    let refused = observe(&seen, user, &Password::new("new").unwrap()).await.err().unwrap();
    assert!(asked.lock().unwrap().iter().all(|it| it.0 == "GET"), "nothing is written");
    format!("{refused:#}")
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_before_anything_is_written() {
    let nothing = json!({});
    for (env, more, user, other, words) in [
        (root(), nothing.clone(), "shop", None, "no password of shop was found in a Secret"),
        (root(), nothing.clone(), "shop", None, "found: root (key root of Secret s)"),
        (
            json!([{ "name": "MARIADB_ROOT_PASSWORD", "value": "plain" }]),
            nothing.clone(),
            "root",
            None,
            "found: none",
        ),
        (root(), json!({ "immutable": true }), "root", None, "Secret s is immutable"),
        (
            root(),
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "a/v1", "kind": "SealedSecret", "name": "s", "uid": "x", "controller": true }] } }),
            "root",
            None,
            "managed by SealedSecret s, which would set it back",
        ),
        (
            root(),
            json!({ "data": { "root": "b2xkCg==" } }),
            "root",
            None,
            "key root of Secret s is not one line",
        ),
        (
            root(),
            nothing.clone(),
            "root",
            Some(set("h", &root())),
            "cluster h reads key root of Secret s, too",
        ),
        (
            json!([
                root()[0],
                { "name": "MARIADB_USER", "value": "root" },
                { "name": "MARIADB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "s", "key": "more" } } },
            ]),
            json!({ "data": { "more": OLD } }),
            "root",
            None,
            "is in two keys, root of Secret s and more of s",
        ),
    ] {
        let refused = refusal(&env, &more, user, other).await;
        assert!(refused.contains(words) && !refused.contains("old"), "{refused}");
    }
}

/// Looks at a change with this progress; returns what was observed, and an empty log of requests.
async fn observation(underway: &Underway) -> (ObservedCluster, Asked, PasswordObservation) {
    let text = |which| if which == WhichPassword::New { "new" } else { "old" };
    let yes = |it| if it { "yes" } else { "no" };
    let own = json!({
        "account": "root", "secret": "s", "key": "root", "old": "old", "new": "new", "target": text(underway.target),
        "turn": underway.turn, "touched": yes(underway.touched), "sealed": yes(underway.sealed),
    });
    let own: Value = own
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), json!(change::bytes(&[("v", value.as_str().unwrap())])["v"])))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let own = json!({
        "apiVersion": "v1", "kind": "Secret", "data": own,
        "metadata": { "name": "gatera-passwd-g", "namespace": "db", "uid": "o-1", "resourceVersion": "9" },
    });
    let (seen, asked) =
        cluster(&[set("g", &root())], &json!({ "s": secret(&json!({})), "gatera-passwd-g": own }));
    let observation = observe(&seen, "root", &Password::new("other").unwrap()).await.unwrap();
    assert_eq!(observation.state.change.underway.as_ref(), Some(underway));
    assert!(observation.state.not_now.is_some() && observation.is_asked_for);
    asked.lock().unwrap().clear();
    (seen, asked, observation)
}

fn underway(touched: bool) -> Underway {
    Underway { target: WhichPassword::New, turn: "t".to_owned(), touched, sealed: false }
}

#[tokio::test]
async fn each_write_names_the_version_that_was_looked_at() {
    let (seen, asked, observation) = observation(&underway(false)).await;
    actions::act(&seen, &observation, &PasswordStep::Write).await.unwrap();
    let writes = asked.lock().unwrap().clone();
    let [(_, own, noted), (method, path, written)] = &writes[..] else { panic!("{writes:?}") };
    assert!(own.ends_with("/secrets/gatera-passwd-g"));
    assert_eq!(noted, &json!({ "metadata": { "resourceVersion": "9" }, "data": { "touched": "eWVz" } }));
    assert_eq!((&**method, &**path), ("PATCH", "/api/v1/namespaces/db/secrets/s"));
    assert_eq!(written["metadata"]["resourceVersion"], "7");
    assert_eq!(written["data"], json!({ "root": "bmV3" }));
    let mark = written["metadata"]["annotations"]["gatera.dev/password"].as_str().unwrap();
    let mark = facts::marks::password::PasswordMark::read(mark).unwrap();
    assert!(mark.permits("g", "root", "7") && mark.turn == "t", "{mark}");
}

#[tokio::test]
async fn a_change_is_reversed_by_one_write() {
    for touched in [false, true] {
        let (seen, asked, observation) = observation(&underway(touched)).await;
        actions::reverse(&seen, &observation).await.unwrap();
        let writes = asked.lock().unwrap().clone();
        let [(_, path, noted)] = &writes[..] else { panic!("{writes:?}") };
        assert!(path.ends_with("/secrets/gatera-passwd-g"));
        assert_eq!(noted["data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["target", "turn"]);
        assert_eq!(noted["data"]["target"], OLD);
        assert_eq!(noted["metadata"]["resourceVersion"], "9");
    }
}

#[test]
fn error_messages_of_the_client_have_no_hashes() {
    let said = "--------------\nALTER USER a USING '*HASH'\n--------------\n\nERROR 1064 (42000): You have an error near 'USING '*HASH'";
    assert_eq!(without_statement(said), "ERROR 1064 (42000): You have an error");
    assert_eq!(without_statement("there is no client"), "there is no client");
}
