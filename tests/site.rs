//! Every command that looks at a cluster uses the settings of the guard there and the clock of its API server. The API server is
//! a stand-in with prepared answers: its clock is two hours ahead, and its guard adopts by a label that is not a default.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, DATE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use facts::marks::overrides::Override;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guarded;
use crate::lab::Output;
use crate::scene::{NAMESPACE, STATEFUL_SET, Scene};

/// The settings of the guard, which adopts by this label and no other.
const ADOPT: &str = "adopt: ['team=own,instance']\n";
const OVERRIDE: &str = "gatera.dev/override";

/// Returns the time by the stand-in's clock.
fn server_time() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(2)
}

/// The state of the stand-in.
struct StandIn {
    /// Its objects, each with the plural of its kind.
    objects: Vec<(&'static str, Value)>,
    /// The status code of the answer to a request for the guard's settings.
    settings_status: u16,
    /// The plural of a kind that the stand-in offers but cannot list.
    broken: Option<&'static str>,
    /// For each override that was written, how long it was to count, or why it did not count.
    overrides: Vec<Result<SignedDuration, String>>,
}

struct Server {
    stand_in: Arc<Mutex<StandIn>>,
    folder: TempDir,
}

impl Server {
    /// Starts a stand-in with this scene, whose members have the label of the guard's own selector.
    fn of(scene: &Scene, settings_status: u16) -> Self {
        let text = |object: &Value| object.to_string().replace(r#""app":"galera""#, r#""team":"own""#);
        let objects = scene.objects().into_iter().map(|(kind, mut object)| {
            object["metadata"]["resourceVersion"] = json!("1");
            (kind.plural(), serde_json::from_str(&text(&object)).unwrap())
        });
        let stand_in =
            StandIn { objects: objects.collect(), settings_status, broken: None, overrides: Vec::new() };
        let stand_in = Arc::new(Mutex::new(stand_in));
        let (shared, folder) = (Arc::clone(&stand_in), tempfile::tempdir().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, Router::new().fallback(answer).with_state(shared)).await
            })
        });
        let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{ "name": "a", "cluster": { "server": server } }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a", "namespace": NAMESPACE } }], "users": [{ "name": "a", "user": {} }] });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        Self { stand_in, folder }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn gatera(&self, arguments: &[&str]) -> Output {
        guarded::ask(&self.kubeconfig(), arguments)
    }
}

async fn answer(State(stand_in): State<Arc<Mutex<StandIn>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let (code, text) = if parts.uri.query().is_some_and(|it| it.contains("watch=")) {
        (200, String::new())
    } else {
        let mut stand_in = stand_in.lock().unwrap_or_else(PoisonError::into_inner);
        let (code, value) = stand_in.answer(&parts.method, parts.uri.path(), &body);
        (code, value.to_string())
    };
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&server_time()).unwrap();
    let headers = [(DATE, date), (CONTENT_TYPE, "application/json".to_owned())];
    (StatusCode::from_u16(code).unwrap(), headers, text).into_response()
}

fn status(code: u16, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": if code == 404 { "NotFound" } else { "" } }),
    )
}

impl StandIn {
    fn answer(&mut self, method: &Method, path: &str, body: &Bytes) -> (u16, Value) {
        let words: Vec<_> = path.split('/').filter(|it| !it.is_empty()).collect();
        let rest = match words[..] {
            ["version"] => {
                return (
                    200,
                    json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "" }),
                );
            }
            ["api", _, "namespaces", _, ref rest @ ..] | ["apis", _, _, "namespaces", _, ref rest @ ..]
                if !rest.is_empty() =>
            {
                rest
            }
            ["api", _, ref rest @ ..] | ["apis", _, _, ref rest @ ..] => rest,
            _ => return status(404, path),
        };
        match (method, rest) {
            (_, ["validatingwebhookconfigurations" | "mutatingwebhookconfigurations", "gatera"]) => {
                let client = json!({ "service": { "namespace": "guards", "name": "gatera" } });
                (
                    200,
                    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": "gatera" }, "webhooks": [{ "name": "a.gatera.dev", "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None" }] }),
                )
            }
            (_, ["configmaps", "gatera-settings"])
                if self.settings_status == 200 && path.contains("/guards/") =>
            {
                (
                    200,
                    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "gatera-settings" }, "data": { "settings.yaml": ADOPT } }),
                )
            }
            (_, ["configmaps", "gatera-settings"]) => status(self.settings_status, "it is not for you"),
            (&Method::GET, &[plural]) if self.broken == Some(plural) => {
                status(500, "conversion webhook failed")
            }
            (&Method::GET, &[plural]) => {
                let items: Vec<_> = self.objects.iter().filter(|it| it.0 == plural).map(|it| &it.1).collect();
                (
                    200,
                    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": items }),
                )
            }
            (method, &[plural, name, ref sub @ ..]) => {
                self.answer_about_one(method, plural, name, sub.first().copied(), body)
            }
            _ => status(405, path),
        }
    }

    fn answer_about_one(
        &mut self,
        method: &Method,
        plural: &str,
        name: &str,
        sub: Option<&str>,
        body: &Bytes,
    ) -> (u16, Value) {
        let found = self.objects.iter_mut().find(|it| it.0 == plural && it.1["metadata"]["name"] == name);
        let Some((_, object)) = found else { return status(404, name) };
        if *method == Method::PATCH {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let version = &patch["metadata"]["resourceVersion"];
            if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                return status(409, "the object has been modified");
            }
            let read = |object: &Value| {
                let text =
                    object["metadata"]["annotations"][OVERRIDE].as_str().unwrap_or_default().to_owned();
                Override::read(&text, server_time()).map_err(|why| why.to_string())
            };
            if sub == Some("scale") && read(object).is_err() {
                return status(403, "[G01] the last member stays");
            }
            json_patch::merge(object, &patch);
            object["metadata"]["resourceVersion"] =
                json!(format!("{}0", object["metadata"]["resourceVersion"].as_str().unwrap()));
            if patch["metadata"]["annotations"].get(OVERRIDE).is_some() {
                self.overrides.push(read(object).map(|it| server_time().duration_until(it.until)));
            }
            let object = object.clone();
            if object["spec"]["replicas"] == 0 {
                self.objects.retain(|it| it.0 != "pods");
            }
            return (200, as_subresource(&object, sub));
        }
        (200, as_subresource(object, sub))
    }
}

/// Returns an object as a subresource shows it.
fn as_subresource(object: &Value, sub: Option<&str>) -> Value {
    if sub != Some("scale") {
        return object.clone();
    }
    let replicas = &object["spec"]["replicas"];
    json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": object["metadata"], "spec": { "replicas": replicas }, "status": { "replicas": replicas } })
}

/// Returns a cluster that is being stopped: all claims record that, and one member is left.
fn one_member_left() -> Scene {
    Scene {
        replicas: Some(1),
        members: vec!["ready".into(), "absent".into(), "absent".into()],
        ended: vec![0; 3],
        ..Scene::default()
    }
}

/// The last member leaves by an override that is valid by the API server's clock, and the previous override is put back.
#[test]
fn stop_uses_the_clock_of_the_api_server_and_restores_an_override() {
    let old = "G07 until=2026-01-01T10:00:00Z reason=moving house";
    for before in [Some(old), None] {
        let mark = json!({ "metadata": { "annotations": { OVERRIDE: before } } });
        let server = Server::of(&Scene { stateful_set: mark, ..one_member_left() }, 200);
        let stopped = server.gatera(&["stop", STATEFUL_SET, "--namespace", NAMESPACE, "--yes"]);
        assert!(stopped.status == 0 && stopped.stdout.contains(" is stopped\n"), "{stopped}");
        let stand_in = server.stand_in.lock().unwrap();
        let [Ok(counts), Err(_)] = &stand_in.overrides[..] else {
            panic!("{:?} {stopped}", stand_in.overrides)
        };
        let about_two_minutes = SignedDuration::from_secs(90)..SignedDuration::from_secs(121);
        assert!(about_two_minutes.contains(counts), "the override counted for {counts}");
        let set = stand_in.objects.iter().find(|it| it.0 == "statefulsets").unwrap();
        assert_eq!(set.1["metadata"]["annotations"].get(OVERRIDE), before.map(Value::from).as_ref());
    }
}

/// A check prints which settings it uses: if it cannot read the guard's, those beside the manifests.
#[test]
fn a_check_names_the_settings_that_it_uses() {
    let server = Server::of(&Scene::default(), 403);
    let [settings, file] = [".gatera.yaml", "manifest.yaml"].map(|it| server.folder.path().join(it));
    std::fs::write(&settings, "mode: warn").unwrap();
    std::fs::write(&file, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").unwrap();
    let checked = server.gatera(&["check", "--live", "--namespace", NAMESPACE, &file.display().to_string()]);
    let said = format!(
        "gatera: settings: {}, found beside the manifests or in a folder above them\n",
        settings.canonicalize().unwrap().display()
    );
    assert_eq!((checked.status, &*checked.stderr), (0, &*said), "{checked}");
}

/// A kind cannot be listed if, for example, its conversion webhook is gone.
#[test]
fn a_kind_that_cannot_be_listed_is_reported_and_the_rest_is_audited() {
    let server = Server::of(&Scene::default(), 200);
    server.stand_in.lock().unwrap().broken = Some("wordpresses");
    let audited = server.gatera(&["audit", "--namespace", NAMESPACE]);
    assert!(audited.stdout.contains(STATEFUL_SET), "{audited}");
    let said = "gatera: wordpresses could not be listed; what depends on them is not judged\n";
    assert!(audited.stderr.ends_with(said), "{audited}");
}

/// Every command that looks at a cluster uses the settings of the guard, and prints where its settings come from.
#[test]
fn every_command_uses_the_settings_of_the_guard() {
    let ask = |code: u16, arguments: &[&str]| {
        let server = Server::of(&Scene::default(), code);
        let file = server.folder.path().join("manifest.yaml");
        std::fs::write(&file, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").unwrap();
        let file = file.display().to_string();
        let arguments: Vec<_> = arguments.iter().map(|it| if *it == "FILE" { &*file } else { *it }).collect();
        server.gatera(&[&arguments[..], &["--namespace", NAMESPACE]].concat())
    };
    let commands: [&[&str]; 8] = [
        &["recover", STATEFUL_SET, "--dry-run"],
        &["start", STATEFUL_SET, "--dry-run"],
        &["stop", STATEFUL_SET, "--dry-run"],
        &["rollout", "status", STATEFUL_SET],
        &["rollout", "history", STATEFUL_SET],
        &["audit"],
        &["doctor", "--canary"],
        &["check", "--live", "--verbose", "FILE"],
    ];
    for command in commands {
        let names_it = command.contains(&STATEFUL_SET);
        let by_the_guards = ask(200, command);
        let said = "settings: those of the guard (ConfigMap guards/gatera-settings)\n";
        // A check prints this with its result, on stdout.
        let says = if command[0] == "check" { &by_the_guards.stdout } else { &by_the_guards.stderr };
        assert!(says.contains(said), "{command:?} {by_the_guards}");
        assert!(!by_the_guards.stderr.contains("there is no Galera cluster"), "{command:?} {by_the_guards}");
        let by_defaults = ask(403, command);
        let said = "gatera: settings: the defaults, because those of the guard cannot be read: it is not for you; --config FILE names others\n";
        assert!(by_defaults.stderr.starts_with(said), "{command:?} {by_defaults}");
        let finds_none = by_defaults.stderr.contains("there is no Galera cluster");
        assert_eq!(finds_none, names_it, "the defaults adopt nothing here: {command:?} {by_defaults}");
        // While the settings cannot be fetched, judging by the defaults would be a guess.
        let away = ask(503, command);
        let said = "gatera: asking for the guard's settings: it is not for you\n";
        assert_eq!((away.status, &*away.stderr), (2, said), "{command:?} {away}");
    }
    let found = ask(200, &["status"]);
    assert!(found.stdout.contains(STATEFUL_SET), "{found}");
    let quiet = ask(200, &["audit", "--quiet"]);
    assert!(quiet.stderr.is_empty(), "{quiet}");
}
