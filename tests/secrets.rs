//! No secret is ever printed: random secrets are put into every place of a manifest that can hold one, and searched for in
//! everything that leaves the process: answers, warnings, audit annotations, Events, logs, metrics, `check`, the audit.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use gatera::act::events;
use gatera::rulebook;
use inspect::audit;
use inspect::check::{self, CheckOptions, Input};
use inspect::status::ClusterStatus;
use objects::{Kind, Object};
use proptest::prelude::*;
use report::check::{Format, lay_out};
use serde_json::{Value, json};

use crate::router::{ask, guard};
use crate::scene::{self, NAMESPACE, Scene};

/// The places in which people put secrets, as JSON pointers into `objects()`, each with the text around the secret.
const PLACES: &[(usize, &str, &str)] = &[
    (0, "/spec/template/spec/containers/0/env/0/value", "@"),
    (0, "/spec/template/spec/containers/0/args/0", "--wsrep-sst-auth=root:@"),
    (
        0,
        "/spec/template/spec/containers/0/args/1",
        "--wsrep_provider_options=socket.ssl_password=@;pc.bootstrap=1",
    ),
    (0, "/spec/template/spec/containers/0/command/0", "MYSQL_PWD=@ mariadbd"),
    (0, "/spec/template/spec/containers/0/livenessProbe/exec/command/0", "mysqladmin -p@ ping"),
    (
        0,
        "/spec/template/spec/containers/0/readinessProbe/exec/command/0",
        "mysql -u root -p'@' -e 'SELECT 1'",
    ),
    (
        0,
        "/spec/template/spec/containers/0/lifecycle/preStop/exec/command/0",
        "mariadb --password=\"@\" -e x | grep -q y",
    ),
    (0, "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration", "{\"password\":\"@\"}"),
    (0, "/spec/replicas", "@"),
    (0, "/spec/template/spec/terminationGracePeriodSeconds", "@"),
    (1, "/data/galera.cnf", "[galera]\nwsrep_sst_auth = root:@\nwsrep_cluster_address = gcomm://\n"),
    (
        1,
        "/data/galera.cnf",
        "[innodb]\ninnodb_x = @\n[mysqld]\nbinlog_format = MIXED\nssl_passphrase=\"@\"\n",
    ),
    (
        1,
        "/data/galera.cnf",
        "@\n[galera\nwsrep_provider_options=\"socket.ssl_key=/k;socket.ssl_password=@\"\nwsrep_provider_options=pc.ignore_sb=1\n",
    ),
    (1, "/data/galera.cnf", "[client]\npassword=@\n!include /@\n"),
    (1, "/data/wait-for-sync.sh", "until mysql -u root -p@ -e \"SHOW STATUS\"\ndo sleep 5\ndone\n"),
    (1, "/data/root-password", "@"),
    (2, "/data/root", "@"),
    (2, "/stringData/root", "@"),
    (3, "/spec/template/spec/containers/0/env/0/value", "@"),
    (3, "/spec/replicas", "@"),
    (4, "/spec/containers/0/env/0/value", "@"),
    (4, "/spec/containers/0/ports/0/containerPort", "@"),
];

/// Returns a StatefulSet, ConfigMap, Secret, bootstrap Deployment and bootstrap pod that contain all of the places.
fn objects() -> [Value; 5] {
    let scene = Scene::default();
    let mut set = scene.stateful_set();
    let container = json!({
        "env": [{ "name": "MARIADB_ROOT_PASSWORD" }], "args": ["", ""], "command": [""],
        "livenessProbe": { "exec": { "command": [""] } }, "readinessProbe": { "exec": { "command": [""] } },
        "lifecycle": { "preStop": { "exec": { "command": [""] } } },
    });
    json_patch::merge(&mut set["spec"]["template"]["spec"]["containers"][0], &container);
    let (_, secret) = scene.object("Secret/galera");
    let mut deployment = scene::bootstrap_deployment(1);
    deployment["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "MYSQL_ROOT_PASSWORD" }]);
    let mut pod = scene::bootstrap_pod("x");
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "MYSQL_ROOT_PASSWORD" }]);
    pod["metadata"]["ownerReferences"] = Value::Null;
    [set, scene.config_map(), secret, deployment, pod]
}

/// Puts a text into a place and creates what is missing on its path.
fn plant(object: &mut Value, pointer: &str, text: &str) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/");
        at = match step.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[step],
        };
    }
    *at = json!(text);
}

fn request(operation: &str, new: &Value, old: &Value) -> Value {
    let object = if new.is_null() { old } else { new };
    let kind = scene::kind_of(object);
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "namespace": NAMESPACE, "name": object["metadata"]["name"],
        "kind": { "group": kind.group(), "version": "v1", "kind": kind.name() },
        "resource": { "group": kind.group(), "version": "v1", "resource": kind.plural() },
        "userInfo": { "username": "editor" }, "object": new, "oldObject": old,
    } })
}

/// Returns everything that the process outputs about this object.
fn output_about(object: &Value, before: &Value, log: &Log) -> String {
    let settings = Settings::default();
    let world = Scene::default().world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let guard = guard(world.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut all = String::new();
    let (null, kind) = (Value::Null, scene::kind_of(object));
    for (operation, new, old) in [
        ("CREATE", object, &null),
        ("UPDATE", object, before),
        ("UPDATE", before, object),
        ("DELETE", &null, object),
    ] {
        let body = request(operation, new, old);
        for path in ["/mutate", "/validate"] {
            let mut answer = runtime.block_on(ask(&guard, path, &body));
            // The patch repeats what the object itself contains, and only the API server reads it.
            answer["response"]["patch"] = Value::Null;
            all.push_str(&answer.to_string());
        }
        let bytes = serde_json::to_vec(&body).unwrap();
        let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
        let decision = rulebook().evaluate(&review, &view);
        all.push_str(&format!(
            "{review:?} {decision:?} {:?}",
            events::notices(&review, &decision, &view, true)
        ));
    }
    all.push_str(&guard.metrics.text());

    let mut facts = rulebook().facts(&settings.adoption);
    if let Ok(read) = Object::read(kind, &object.to_string()) {
        facts.put(read);
    }
    for (other, name) in [
        (Kind::StatefulSet, "StatefulSet/galera-instance-galera"),
        (Kind::ConfigMap, "ConfigMap/galera-instance-nodeconfig"),
    ] {
        if kind != other {
            facts.put(Object::read(other, &Scene::default().object(name).1.to_string()).unwrap());
        }
    }
    let held = World::build(facts, Freshness::Current);
    let view = View::new(&held, scene::now(), &settings);
    let (found, clusters) = (audit::run(rulebook(), &view), ClusterStatus::all(&view));
    all.push_str(&format!("{found:?} {held:?}"));
    all.push_str(&report::audit::text(&found, &clusters, false));
    all.push_str(&report::audit::json(&found, &clusters, &[]).to_string());
    all.push_str(&report::bundle::shape(object).to_string());

    let file =
        |name: &str, text: String| Input { name: name.into(), below: Path::new("").into(), text: Ok(text) };
    let text = |name: &str, it: &Value| file(name, serde_json::to_string_pretty(it).unwrap());
    // The object in few lines, as in YAML in flow style, with the spaces of `kubectl get -o json`.
    let flow = |it: &Value| {
        let text = it.to_string().replace("\",\"", "\",\n \"").replace("\"value\":", "\"value\": ");
        [file("flow.yaml", text)]
    };
    // The StatefulSet is added because a Secret is judged by its readers.
    let beside = text("beside.yaml", &Scene::default().stateful_set());
    let input = |it: &Value| [text("object.yaml", it), beside.clone()];
    let options = CheckOptions {
        rulebook: rulebook(),
        settings: &settings,
        namespace: NAMESPACE,
        now: scene::now(),
        rules: &[],
    };
    for checked in [
        check::run(&[file("line.json", object.to_string())], None, &options),
        check::run(&input(object), None, &options),
        check::run(&input(object), Some(&input(before)), &options),
        check::run(&input(before), Some(&input(object)), &options),
        check::run(&[], Some(&input(object)), &options),
        check::run(&flow(object), None, &options),
    ] {
        for (format, ..) in Format::ALL {
            let text = lay_out(&checked, format, true);
            // The pages of all rules, which SARIF contains, are left out because they contain the words that are searched for.
            let (before, after) =
                if format == Format::Sarif { text.split_once("\"rules\": [").unwrap() } else { (&*text, "") };
            let (_, after) = after.split_once("\n          ]").unwrap_or_default();
            all.push_str(&format!("{before}{after}"));
        }
    }
    all.push_str(&log.take());
    all
}

/// A writer that collects the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.0.lock().unwrap())).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Gatera reports a secret in nearly every place, which proves that the test below examines real output.
#[test]
fn planted_secrets_are_reported() {
    let unreported = PLACES.iter().filter(|(object, pointer, around)| {
        let (mut planted, clean) = (objects(), objects());
        plant(&mut planted[*object], pointer, &around.replace('@', "hunter2hunter2"));
        let all = output_about(&planted[*object], &clean[*object], &Log::default());
        !["[G06]", "[G09]", "[G11]", "[G12]", "cannot be read"].iter().any(|words| all.contains(words))
    });
    // Annotations of other programs are skipped while reading.
    let unreported: Vec<_> = unreported.map(|(_, pointer, _)| *pointer).collect();
    assert_eq!(unreported, ["/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"]);
}

proptest! {
    #![proptest_config(crate::anything::cases(30))]

    #[test]
    fn no_secret_is_ever_printed(
        places in prop::collection::vec(prop::sample::select((0..PLACES.len()).collect::<Vec<_>>()), 1..4),
        secret in "[A-Za-z0-9]{4}[A-Za-z0-9+/=!#%&*.:;<>?@^_~-]{8,24}[A-Za-z0-9]{4}",
    ) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_max_level(tracing::Level::TRACE).finish();
        tracing::subscriber::with_default(subscriber, || {
            let (mut planted, clean) = (objects(), objects());
            for place in &places {
                let (object, pointer, around) = PLACES[*place];
                plant(&mut planted[object], pointer, &around.replace('@', &secret));
            }
            for index in 0..planted.len() {
                if planted[index] != clean[index] {
                    let all = output_about(&planted[index], &clean[index], &log);
                    // Quotes and backslashes could hide the secret, but they are not among its first characters.
                    let part = &secret[..8];
                    if let Some(at) = all.find(part) {
                        let from = all[..at].char_indices().rev().nth(160).map_or(0, |(at, _)| at);
                        panic!("{:?} was printed: …{}…", places, &all[from..(at + 40).min(all.len())]);
                    }
                }
            }
        });
    }
}
