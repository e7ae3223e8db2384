//! Rule cases: one behaviour a file, `tests/cases/<rule>/<the sentence that fails>.yaml`.
//!
//! Every case runs through the router, as an API server would ask; what it says is compared whole with a snapshot, and
//! with what `evaluate` says by itself. A meta-test finds states, verbs and rules without a case.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gatera::config::Settings;
use gatera::report;
use gatera::review::{self, Origin};
use gatera::rules;
use gatera::verdict::Effect;
use gatera::view::{View, World};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::router::{ask, guard};
use crate::scene::{self, NAMESPACE, Scene};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The state the scene must add up to: a case that means another state than it says is no case.
    state: String,
    #[serde(default)]
    given: Scene,
    #[serde(default = "editor")]
    user: String,
    #[serde(rename = "do")]
    action: Action,
    expect: Expect,
}

fn editor() -> String {
    "editor".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Action {
    /// `statefulsets/scale` from the scene's replicas to so many.
    Scale(i64),
    /// `deployments/scale` of the bootstrap Deployment from 0.
    ScaleBootstrap(i64),
    /// UPDATE of the StatefulSet: a merge patch.
    Change(Value),
    /// CREATE of the StatefulSet: a merge patch on the usual one.
    Create(Value),
    /// UPDATE of the ConfigMap that members read: a merge patch.
    ChangeConfig(Value),
    /// CREATE of that ConfigMap: a merge patch on the usual one.
    CreateConfig(Value),
    /// CREATE of the bootstrap Deployment: a merge patch on the usual one.
    CreateBootstrap(Value),
    /// UPDATE of the bootstrap Deployment from so many replicas: a merge patch.
    ChangeBootstrap { from: i64, change: Value },
    /// CREATE of a pod of the bootstrap Deployment: a merge patch on the usual one.
    CreateBootstrapPod(Value),
    /// DELETE of the StatefulSet.
    Delete {},
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// allow, warn, amend, wait, unknown, deny
    verdict: String,
    #[serde(default)]
    rules: Vec<String>,
}

/// operation, group, kind, resource, subresource, name, old, new
struct Asked(&'static str, &'static str, &'static str, &'static str, &'static str, String, Value, Value);

impl Case {
    fn asked(&self) -> Asked {
        let merged = |mut base: Value, change: &Value| {
            json_patch::merge(&mut base, change);
            base
        };
        let scale = |name: &str, replicas: i64| {
            // As the API server sends it: no replicas at all means 0.
            let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
            json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec })
        };
        let sts = || self.given.stateful_set();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let write = |old: Value, new: Value, group, kind, resource| {
            let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
            Asked(operation, group, kind, resource, "", name(&new), old, new)
        };
        match &self.action {
            Action::Scale(to) => {
                let from = sts()["spec"]["replicas"].as_i64().unwrap();
                let (old, new) = (scale(scene::STATEFUL_SET, from), scale(scene::STATEFUL_SET, *to));
                Asked(
                    "UPDATE",
                    "autoscaling",
                    "Scale",
                    "statefulsets",
                    "scale",
                    scene::STATEFUL_SET.into(),
                    old,
                    new,
                )
            }
            Action::ScaleBootstrap(to) => {
                let (old, new) = (scale(scene::BOOTSTRAP, 0), scale(scene::BOOTSTRAP, *to));
                Asked(
                    "UPDATE",
                    "autoscaling",
                    "Scale",
                    "deployments",
                    "scale",
                    scene::BOOTSTRAP.into(),
                    old,
                    new,
                )
            }
            Action::Change(change) => {
                write(sts(), merged(sts(), change), "apps", "StatefulSet", "statefulsets")
            }
            Action::Create(change) => {
                let usual = Scene { data: String::new(), ..self.given.clone() }.stateful_set();
                write(Value::Null, merged(usual, change), "apps", "StatefulSet", "statefulsets")
            }
            Action::ChangeConfig(change) => {
                let old = self.given.config_map();
                write(old.clone(), merged(old, change), "", "ConfigMap", "configmaps")
            }
            Action::CreateConfig(change) => {
                write(Value::Null, merged(self.given.config_map(), change), "", "ConfigMap", "configmaps")
            }
            Action::CreateBootstrap(change) => write(
                Value::Null,
                merged(scene::bootstrap_deployment(1), change),
                "apps",
                "Deployment",
                "deployments",
            ),
            Action::ChangeBootstrap { from, change } => {
                let old = scene::bootstrap_deployment(*from);
                write(old.clone(), merged(old, change), "apps", "Deployment", "deployments")
            }
            Action::CreateBootstrapPod(change) => {
                let new = merged(scene::bootstrap_pod("7d9fc"), change);
                write(Value::Null, new, "", "Pod", "pods")
            }
            Action::Delete {} => Asked(
                "DELETE",
                "apps",
                "StatefulSet",
                "statefulsets",
                "",
                scene::STATEFUL_SET.into(),
                sts(),
                Value::Null,
            ),
        }
    }
}

/// The AdmissionReview an API server would send.
fn body(asked: &Asked, user: &str) -> Value {
    let Asked(operation, group, kind, resource, subresource, name, old, new) = asked;
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": group, "version": "v1", "kind": kind },
            "resource": { "group": group, "version": "v1", "resource": resource },
            "subResource": subresource,
            "name": name,
            "namespace": NAMESPACE,
            "operation": operation,
            "userInfo": { "username": user },
            "object": new,
            "oldObject": old,
            "dryRun": false,
        },
    })
}

fn all() -> Vec<(String, Case)> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|it| it == "yaml") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths = Vec::new();
    below(&root, &mut paths);
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().with_extension("").display().to_string();
        let case = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, case)
    };
    paths.into_iter().map(read).collect()
}

/// Each case alone, then everything that was said, one page per rule: `tests/cases/G01.snap` is what users read.
#[test]
fn every_case_is_judged_as_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (mut failed, mut pages) = (Vec::new(), BTreeMap::<String, String>::new());
    for (name, case) in all() {
        let judged = std::panic::AssertUnwindSafe(|| runtime.block_on(judge(&name, &case)));
        let (rule, sentence) = name.split_once('/').expect("a case lies in the folder of its rule");
        match std::panic::catch_unwind(judged) {
            Ok(text) => pages
                .entry(rule.to_owned())
                .or_default()
                .push_str(&format!("{}\n{text}\n", sentence.replace('-', " "))),
            Err(_) => failed.push(name),
        }
    }
    assert!(failed.is_empty(), "{} cases failed: {failed:#?}", failed.len());
    for (rule, page) in pages {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "cases" }, {
            insta::assert_snapshot!(rule, page);
        });
    }
}

/// What the person reads.
async fn judge(name: &str, case: &Case) -> String {
    let settings = Settings::default();
    let world = case.given.world(&settings);
    assert_eq!(
        state(&world, &settings),
        case.state,
        "{name}: the scene is in another state than the case says"
    );
    let body = body(&case.asked(), &case.user);

    // What the engine says by itself, once for each of the two calls of an API server.
    let view = View { world: &world, now: scene::now(), settings: &settings };
    let bytes = serde_json::to_vec(&body).unwrap();
    let mutating = rules::evaluate(&review::read(&bytes, Origin::Mutating).unwrap().review, &view);
    let review = review::read(&bytes, Origin::Validating).unwrap().review;
    let amended = rules::held_at_zero(&mutating);
    let decision = if amended { &mutating } else { &rules::evaluate(&review, &view) };
    let worst = decision.judged.first();
    let verdict = match worst {
        _ if amended => "amend",
        None => "allow",
        Some(judged) if judged.effect == Effect::Refused => judged.finding.verdict.name(),
        Some(_) => "warn",
    };
    assert_eq!(verdict, case.expect.verdict, "{name}: {decision:#?}");
    let found: BTreeSet<_> = decision.judged.iter().map(|judged| judged.finding.rule.to_owned()).collect();
    assert_eq!(found, case.expect.rules.iter().cloned().collect(), "{name}");

    // The router says the same, in the form of an AdmissionReview.
    let path = if amended { "/mutate" } else { "/validate" };
    let answer = ask(&guard(world.clone()), path, &body).await;
    let response = &answer["response"];
    assert_eq!(response["uid"], body["request"]["uid"], "{name}");
    let subject = review.subject();
    if response["allowed"] == true {
        assert_eq!(response.get("status"), None, "{name}");
        let lines = response["warnings"].as_array().cloned().unwrap_or_default();
        lines.iter().map(|line| format!("Warning: {}\n", line.as_str().unwrap())).collect::<String>()
    } else {
        assert_eq!(
            (&response["status"]["code"], &response["status"]["reason"]),
            (&json!(403), &json!("Forbidden")),
            "{name}"
        );
        let message = response["status"]["message"].as_str().unwrap();
        assert_eq!(message, report::refusal(&subject, decision), "{name}");
        assert!(!message.contains("immutable"), "{name}: Flux deletes and re-creates at this word");
        format!("{message}\n")
    }
}

fn state(world: &World, settings: &Settings) -> String {
    let view = View { world, now: scene::now(), settings };
    world
        .cluster(NAMESPACE, scene::STATEFUL_SET)
        .map_or("NONE", |cluster| view.state(cluster).name())
        .to_owned()
}

/// Rules without a case, and states that no case of a rule is in.
#[test]
fn no_rule_is_without_its_cases() {
    let cases = all();
    for rule in rules::RULES {
        let own = || cases.iter().filter(|(name, _)| name.starts_with(&format!("{}/", rule.id)));
        for allowed in [true, false] {
            let some = own().any(|(_, case)| (case.expect.verdict == "allow") == allowed);
            assert!(
                some,
                "{} has no case that is {}",
                rule.id,
                if allowed { "allowed" } else { "not allowed" }
            );
        }
        for state in ["HEALTHY", "DEGRADED", "TRANSFER", "FORMING", "DOWN", "UNKNOWN"] {
            assert!(own().any(|(_, case)| case.state == state), "{} has no case in state {state}", rule.id);
        }
    }
}
