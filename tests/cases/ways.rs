//! The same new object, judged in every way that gatera offers: in both calls of an API server, in a file that `gatera check`
//! reads, and in the audit of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use engine::verdict::{Decision, Effect, Judged};
use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use inspect::audit;
use inspect::check::{self, CheckFindingKind, CheckOptions, Input, Level};
use objects::Kind;
use serde_json::Value;

use super::asked::body;
use super::{Case, all};
use crate::scene::{self, NAMESPACE};

/// The messages of a verdict, each with whether it refuses.
type Messages = BTreeSet<(bool, String)>;

fn messages(subject: &str, decision: &Decision) -> Messages {
    let judged = [(Effect::Refused, true), (Effect::Warned, false)].into_iter();
    let judged = judged
        .flat_map(|(effect, refused)| decision.with(effect).map(move |it| (refused, words(subject, it))));
    judged.chain(decision.remarks.iter().map(|it| (false, it.clone()))).collect()
}

fn words(subject: &str, judged: &Judged) -> String {
    let because =
        judged.softened.as_ref().map(|it| format!("\n  only a warning: {}", report::downgrade_reason(it)));
    report::text(subject, &judged.finding, &Pages::Program) + &because.unwrap_or_default()
}

/// Returns the messages of each way; `None` if the request creates nothing, or the case is about a view that only a guard has.
fn ways(case: &Case) -> Option<BTreeMap<&'static str, Messages>> {
    let body = body(&case.asked(), &case.user);
    let request = &body["request"];
    let new =
        request["operation"] == "CREATE" && request["subResource"].as_str().unwrap_or_default().is_empty();
    if case.given.view != "current" || !new {
        return None;
    }
    let settings = Settings::default();
    let world = case.given.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let bytes = body.to_string().into_bytes();
    let at = |origin| review::read(&bytes, origin, rulebook().kinds()).unwrap().review;
    let subject = at(Origin::Validating).subject();
    let mut ways = BTreeMap::new();
    ways.insert("validate", messages(&subject, &rulebook().evaluate(&at(Origin::Validating), &view)));
    ways.insert("mutate", messages(&subject, &rulebook().evaluate(&at(Origin::Mutating), &view)));
    let object = &request["object"];
    ways.insert("check", checked(case, object, &settings));
    let Case { given, .. } = case;
    let mut given = given.clone();
    given.also.push(object.clone());
    let world = given.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let kind = scene::kind_of(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let audited =
        audit::run(rulebook(), &view).objects.into_iter().find(|it| it.kind == kind && it.id.name == name);
    let judges = matches!(
        kind,
        Kind::StatefulSet | Kind::Deployment | Kind::ConfigMap | Kind::Service | Kind::Claim | Kind::Budget
    );
    if judges {
        ways.insert("audit", audited.map(|it| messages(&subject, &it.decision)).unwrap_or_default());
    }
    Some(ways)
}

const THIS: &str = "this.yaml";

fn input(file: &str, object: &Value) -> Input {
    Input { name: file.into(), below: Path::new(file).into(), text: Ok(object.to_string()) }
}

/// Returns the messages of `gatera check` about the object when the other objects of the scene are in files beside it.
fn checked(case: &Case, object: &Value, settings: &Settings) -> Messages {
    let name = |object: &Value| (scene::kind_of(object), object["metadata"]["name"].clone());
    let others =
        case.given.objects().into_iter().map(|(_, other)| other).filter(|it| name(it) != name(object));
    let mut files: Vec<_> =
        others.enumerate().map(|(number, it)| input(&format!("{number}.yaml"), &it)).collect();
    files.push(input(THIS, object));
    let question =
        CheckOptions { rulebook: rulebook(), settings, namespace: NAMESPACE, now: scene::now(), rules: &[] };
    let checked = check::run(&files, None, &question);
    let of_this = checked.findings.iter().filter(|finding| *finding.location.file == *THIS);
    let messages = of_this.filter_map(|finding| match &finding.what {
        CheckFindingKind::Finding { judged, .. } => {
            let subject = &finding.object.as_ref().unwrap().subject;
            Some((finding.level() == Level::Refused, words(subject, judged)))
        }
        CheckFindingKind::Remark(words) => Some((false, words.clone())),
        _ => None,
    });
    messages.collect()
}

/// Every message that differs from the answer to a request is listed in the table of docs/check.md, by way and rule, with its
/// reason; and every row of that table occurs in a case. A snapshot records which messages differ in which case.
#[test]
fn differences_between_the_ways_are_listed_in_the_docs() {
    let (mut cases, mut seen, mut page) = (0, BTreeMap::<(String, String), String>::new(), String::new());
    for (name, case) in all() {
        let Some(mut ways) = ways(case) else { continue };
        cases += 1;
        let asked = ways.remove("validate").unwrap();
        for (way, messages) in ways {
            for one in asked.symmetric_difference(&messages) {
                let (refused, words) = one;
                let (effect, first) = (if *refused { "refused" } else { "warned" }, words.lines().next());
                let only = if asked.contains(one) { "not by" } else { "only by" };
                page.push_str(&format!("{name}\n  {only} {way}, {effect}: {}\n", first.unwrap_or_default()));
                let rule =
                    words.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("-", |it| it.0);
                let example =
                    format!("{name}: refused: {refused}: {}", words.lines().next().unwrap_or_default());
                seen.entry((way.to_owned(), rule.to_owned())).or_insert(example);
            }
        }
    }
    assert!(cases > 150, "only {cases} cases in which something is created");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("ways", page);
    });
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/check.md")).unwrap();
    let (_, table) = page.split_once("| way | rule | what differs, and why |\n").unwrap();
    let rows = table.lines().skip(1).map_while(|line| line.strip_prefix("| "));
    let listed: BTreeSet<_> = rows
        .map(|row| {
            let mut cells = row.split(" | ").map(str::to_owned);
            (cells.next().unwrap(), cells.next().unwrap())
        })
        .collect();
    let unlisted: Vec<_> = seen.iter().filter(|(key, _)| !listed.contains(key)).collect();
    assert!(unlisted.is_empty(), "docs/check.md does not say that these differ: {unlisted:#?}");
    let unseen: Vec<_> = listed.iter().filter(|key| !seen.contains_key(key)).collect();
    assert!(unseen.is_empty(), "no case shows what docs/check.md says of {unseen:?}");
}
