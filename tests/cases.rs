//! Rule cases: one behaviour per file, `tests/cases/<rule>/<the sentence that fails>.yaml`.
//!
//! Every case runs through the router, as if an API server called it. The whole text is compared with a snapshot and with the
//! result of `evaluate` itself. `ways.rs` runs the same cases through `gatera check` and the audit, and `real.rs` through a
//! real API server. A meta-test finds states, verbs and rules without a case.

pub mod asked;
mod equivalents;
mod moved;
mod not_judged;
mod play;
mod real;
mod way_out;
mod ways;

use gatera::rulebook;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use engine::rule::{Rule, Verb};
use engine::rules::GALERA;
use engine::verdict::{Effect, Judged, Verdict};
use engine::webhooks::{ENTRIES, Endpoint};
use facts::galera::options::keys::KEYS;
use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{Facts, Freshness, Id, View, World};
use objects::Kind;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::router::{ask, guard};
use crate::scene::{self, NAMESPACE, Scene};
use crate::sim::asked::{to_amend, workload_changed};

use asked::{Action, Asked, body};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The state of the cluster in the scene. The case fails if the scene is in another one.
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
#[serde(deny_unknown_fields)]
struct Expect {
    /// One of allow, warn, amend, wait, unknown and deny.
    verdict: String,
    #[serde(default)]
    rules: Vec<String>,
}

impl Case {
    fn asked(&self) -> Asked {
        self.action.asked(&self.given)
    }

    /// Returns the AdmissionReview about an update that changes nothing in the object of this case; `None` if the case is not
    /// about a whole workload.
    fn unchanged_workload(&self) -> Option<Value> {
        let mut body = body(&self.asked(), &self.user);
        let request = &mut body["request"];
        let workload = matches!(request["kind"]["kind"].as_str(), Some("StatefulSet" | "Deployment"));
        let whole =
            request["object"].is_object() && request["subResource"].as_str().is_none_or(str::is_empty);
        (request["operation"], request["oldObject"]) = (json!("UPDATE"), request["object"].clone());
        (workload && whole).then_some(body)
    }
}

/// Returns all cases, which are read once for all tests because there are more than a thousand files.
fn all() -> &'static [(String, Case)] {
    static CASES: LazyLock<Vec<(String, Case)>> = LazyLock::new(read_all);
    &CASES
}

fn read_all() -> Vec<(String, Case)> {
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

/// Judges each case alone, then compares all messages, one page per rule: `tests/cases/G01.snap` is what users read.
#[test]
fn every_case_is_judged_as_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (mut failed, mut pages) = (Vec::new(), BTreeMap::<String, String>::new());
    for (name, case) in all() {
        let judged = std::panic::AssertUnwindSafe(|| runtime.block_on(judge(name, case)));
        let (rule, sentence) = name.split_once('/').expect("a case lies in the folder of its rule");
        match std::panic::catch_unwind(judged) {
            Ok(text) => pages
                .entry(rule.to_owned())
                .or_default()
                .push_str(&format!("{}\n{text}\n", sentence.replace('-', " "))),
            Err(_) => failed.push(name.clone()),
        }
    }
    assert!(failed.is_empty(), "{} cases failed: {failed:#?}", failed.len());
    for (rule, page) in pages {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "cases" }, {
            insta::assert_snapshot!(rule, page);
        });
    }
}

/// A way out does not repeat the reason: fewer than 70% of its words of more than three letters occur there.
#[test]
fn no_way_out_repeats_the_reason() {
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
        words.filter(|it| it.len() > 3).collect::<BTreeSet<_>>()
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let pages = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<_> = pages
        .filter(|path| path.extension().is_some_and(|it| it == "snap"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let known: Vec<_> = KEYS.iter().map(|row| (row.why, row.way_out("CLUSTER").to_string())).collect();
    let said = pages.iter().flat_map(|page| page.split("\n  why: ").skip(1)).filter_map(|rest| {
        let (why, rest) = rest.split_once("\n  do instead:")?;
        Some((why, rest.split("\n  more:").next()?))
    });
    let said = said.chain(known.iter().map(|(why, instead)| (*why, &**instead)));
    let repeats = said.filter(|(why, instead)| {
        let (why, instead) = (words(why), words(instead));
        instead.len() > 2 && why.intersection(&instead).count() * 10 >= instead.len() * 7
    });
    assert_eq!(repeats.collect::<Vec<_>>(), [], "these ways out repeat the reason");
}

/// Checks the verdict of one case and returns the text that the user reads.
async fn judge(name: &str, case: &Case) -> String {
    let settings = Settings::default();
    let world = case.given.world(&settings);
    assert_eq!(
        state(&world, &settings),
        case.state,
        "{name}: the scene is in another state than the case says"
    );
    let body = body(&case.asked(), &case.user);

    // The result of the engine alone, once for each of the two calls of an API server.
    let view = View::new(&world, scene::now(), &settings);
    let bytes = serde_json::to_vec(&body).unwrap();
    let mutating = rulebook()
        .evaluate(&review::read(&bytes, Origin::Mutating, rulebook().kinds()).unwrap().review, &view);
    let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
    // The mutating call reports what it corrects, so the validating call finds nothing of it.
    let amends = |it: &Judged| it.finding.verdict == Verdict::Amend && it.softened.is_none();
    let amended = mutating.allowed() && mutating.judged.iter().any(amends);
    let decision = if amended { &mutating } else { &rulebook().evaluate(&review, &view) };
    let worst = decision.judged.first();
    let verdict = match worst {
        _ if amended => "amend",
        None => "allow",
        Some(judged) if judged.effect == Effect::Refused => judged.finding.verdict.name(),
        Some(_) => "warn",
    };
    assert_eq!(verdict, case.expect.verdict, "{name}: {decision:#?}");
    let found: BTreeSet<_> = decision.judged.iter().map(|judged| judged.finding.rule.to_owned()).collect();
    assert_eq!(found, case.expect.rules.iter().cloned().collect(), "{name}: the rules that find something");

    // A request that needs a correction or a warning from the mutating call is sent to it; most updates are sent to /validate
    // only.
    let object = |field: &str| Some(&body["request"][field]).filter(|it| !it.is_null());
    let kind = &body["request"]["kind"];
    let kind = rulebook()
        .kinds()
        .named(kind["group"].as_str().unwrap_or_default(), kind["kind"].as_str().unwrap_or_default());
    assert!(
        !(amended || found.contains("G08")) || to_amend(kind, object("oldObject"), object("object")),
        "{name}: it would not be sent to /mutate"
    );
    let workload = matches!(kind, Kind::StatefulSet | Kind::Deployment) && review.subresource.is_empty();
    assert!(
        !workload || found.is_empty() || workload_changed(object("oldObject"), object("object")),
        "{name}: it would not be sent to /validate"
    );

    // The router gives the same result, in the form of an AdmissionReview.
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
        let eviction = review.subresource == "eviction";
        let (code, reason) = if eviction { (429, "TooManyRequests") } else { (403, "Forbidden") };
        assert_eq!(
            (&response["status"]["code"], &response["status"]["reason"]),
            (&json!(code), &json!(reason)),
            "{name}"
        );
        let message = response["status"]["message"].as_str().unwrap();
        assert_eq!(message, report::refusal(&subject, decision, &Pages::Program), "{name}");
        assert!(!message.contains("immutable"), "{name}: Flux deletes and re-creates at this word");
        format!("{message}\n")
    }
}

fn state(world: &World, settings: &Settings) -> String {
    let view = View::new(world, scene::now(), settings);
    view.cluster(NAMESPACE, scene::STATEFUL_SET)
        .map_or("NONE", |cluster| view.state(cluster).name())
        .to_owned()
}

/// Finds rules without a case, states that no case of a rule is in, and verbs that a rule judges without a case.
#[test]
fn no_rule_is_without_its_cases() {
    let cases = all();
    let mut missing = Vec::new();
    for rule in rulebook().rules() {
        let own = || cases.iter().filter(|(name, _)| name.starts_with(&format!("{}/", rule.id)));
        for allowed in [true, false] {
            let word = if allowed { "is allowed" } else { "is not allowed" };
            if !own().any(|(_, case)| (case.expect.verdict == "allow") == allowed) {
                missing.push(format!("{}: a case that {word}", rule.id));
            }
        }
        // The rules of a pack do not judge Galera clusters.
        let in_states = rule.depends_on_state && GALERA.iter().any(|it| it.id == rule.id);
        let states = ["HEALTHY", "DEGRADED", "JOINING", "FORMING", "DOWN", "UNKNOWN"];
        for state in states.into_iter().filter(|_| in_states) {
            if !own().any(|(_, case)| case.state == state) {
                missing.push(format!("{}: a case in state {state}", rule.id));
            }
        }
        for (kind, verbs, _) in rule.judges {
            for verb in *verbs {
                if !own().any(|(_, case)| (case.asked().of, case.asked().verb()) == (*kind, *verb)) {
                    missing.push(format!("{}: a case of {verb:?} {}", rule.id, kind.name()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{} cases are missing: {missing:#?}", missing.len());
}

/// The webhook entries send everything that a rule judges, and nothing else.
#[test]
fn rules_and_webhook_entries_agree() {
    let verb = |resource: &str, verb: &str| match (resource.split_once('/'), verb) {
        (Some((_, "scale")), _) => Verb::Scale,
        (Some((_, "eviction")), _) => Verb::Evict,
        (Some((_, "status")), "UPDATE") => Verb::Report,
        (_, "CREATE") => Verb::Create,
        (_, "UPDATE") => Verb::Update,
        (_, "DELETE") => Verb::Delete,
        other => panic!("no rule judges {other:?}"),
    };
    let entries = ENTRIES.iter().chain(rulebook().packs().iter().flat_map(|pack| pack.entries));
    let requests =
        entries.filter(|entry| entry.endpoint == Endpoint::Validate).flat_map(|entry| entry.requests);
    let sent: BTreeSet<_> = requests
        .flat_map(|(_, resource, verbs)| {
            verbs.iter().map(move |word| (plural(resource), verb(resource, word)))
        })
        .collect();
    let wanted: BTreeSet<_> = rulebook()
        .rules()
        .iter()
        .flat_map(|rule| rule.judges)
        .flat_map(|(kind, verbs, _)| verbs.iter().map(move |verb| (kind.plural().to_owned(), *verb)))
        .collect();
    assert_eq!(sent, wanted, "what the webhook entries send, and what rules judge");
}

fn plural(resource: &str) -> String {
    resource.split('/').next().unwrap_or_default().to_owned()
}

/// A rule that is declared independent of the state finds the same in each of its cases when the members are gone, and before
/// the view is loaded.
#[test]
fn a_rule_that_does_not_depend_on_the_state_finds_the_same_in_every_state() {
    let settings = Settings::default();
    for (name, case) in all() {
        let of_it = |rule: &&Rule| name.starts_with(&format!("{}/", rule.id)) && !rule.depends_on_state;
        let Some(rule) = rulebook().rules().iter().find(of_it) else { continue };
        let bytes = serde_json::to_vec(&body(&case.asked(), &case.user)).unwrap();
        let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
        let verb = Verb::of(&review);
        let Some(check) = verb.and_then(|verb| rule.check(review.kind, verb)) else { continue };
        let facts = case.given.facts(&settings);
        let mut alone = facts.clone();
        for pod in facts.pods() {
            alone.remove(Kind::Pod, &Id::new(NAMESPACE, &pod.name));
        }
        let found = |facts: Facts, freshness: Freshness| {
            let world = World::build(facts, freshness);
            check.judge(&review, &View::new(&world, scene::now(), &settings))
        };
        let as_it_is = found(facts.clone(), Freshness::Current);
        assert_eq!(found(alone, Freshness::Current), as_it_is, "{name}: without members");
        assert_eq!(found(facts, Freshness::Loading), as_it_is, "{name}: before the first lists");
    }
}
