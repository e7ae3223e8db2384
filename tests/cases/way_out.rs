//! The way out of every denial, followed as printed: no rule refuses its first step, and afterwards the rule that printed it
//! allows the same request.
//!
//! Followed are the kubectl commands that annotate, scale or delete, and the waits for members to be Ready. `tests/advice.rs`
//! follows some of them to their end on a real API server.

use gatera::rulebook;
use std::collections::BTreeSet;

use engine::verdict::{Decision, Effect};
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use facts::way_out::{CommandLine, Step, WayOut, Word};
use serde_json::{Value, json};

use super::all;
use super::asked::{Asked, body};
use crate::scene::{self, Scene};

fn judged(given: &Scene, asked: &Asked, user: &str) -> Decision {
    let settings = Settings::default();
    let world = given.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let bytes = serde_json::to_vec(&body(asked, user)).unwrap();
    rulebook().evaluate(&review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review, &view)
}

/// Lists the first command of each step, and whether it applies only when all members are Ready.
fn ways(instead: &WayOut) -> impl Iterator<Item = (&CommandLine, bool)> {
    instead.ways().iter().flatten().filter_map(|step| first(step, &mut String::new()))
}

fn first<'s>(step: &'s Step, before: &mut String) -> Option<(&'s CommandLine, bool)> {
    step.words().iter().find_map(|word| match word {
        Word::Command(command) => Some((command, before.contains("all members Ready"))),
        Word::Text(text) => {
            before.push_str(text);
            None
        }
        Word::Edit { live, .. } | Word::Exception { live, .. } => first(live, before),
        Word::Page(_) => None,
    })
}

/// Returns the same cluster with all members Ready.
fn all_ready(given: &Scene) -> Scene {
    let count = match given.replicas {
        None | Some(0) => given.members.len().max(3),
        Some(replicas) => replicas.try_into().unwrap(),
    };
    let also = given.also.iter().filter(|object| object["kind"] != "Pod").cloned().collect();
    Scene {
        members: vec!["ready".to_owned(); count],
        replicas: None,
        also,
        view: "current".to_owned(),
        ..given.clone()
    }
}

/// Returns the request that a command makes, the scene after it, and the first request as it is in that scene.
fn followed(command: &CommandLine, given: &Scene, asked: Asked) -> Option<(Option<Asked>, Scene, Asked)> {
    let rest: Vec<_> = command
        .words()
        .iter()
        .map(|word| if word == "pvc" { "persistentvolumeclaim" } else { word })
        .filter(|word| !["-n", "db"].contains(word))
        .collect();
    let object = |kind: &str, name: &str| {
        let mut all = given.objects().into_iter();
        all.find(|(it, object)| it.name().eq_ignore_ascii_case(kind) && object["metadata"]["name"] == name)
    };
    match *rest.strip_prefix(&["kubectl"])? {
        ["annotate", kind, name, ref marks @ ..] => {
            let mark = marks.iter().find(|it| !it.starts_with("--"))?;
            let annotated = |object: &Value| {
                let mut object = object.clone();
                if let Some((key, value)) = mark.split_once('=') {
                    object["metadata"]["annotations"][key] = json!(value.replace('…', "as printed"));
                }
                object
            };
            let same = asked.of.name().eq_ignore_ascii_case(kind) && asked.name() == name;
            let mut after = given.clone();
            let step = object(kind, name).map(|(_, old)| {
                let new = annotated(&old);
                after.also.push(new.clone());
                Asked::write(old, new)
            });
            let sent = |object: Value| if same && object.is_object() { annotated(&object) } else { object };
            let asked = match asked.subresource {
                "" | "status" | "resize" => Asked { old: sent(asked.old), new: sent(asked.new), ..asked },
                _ => asked,
            };
            Some((step, after, asked))
        }
        ["wait", what, ready, ..] if what.starts_with("statefulset/") && ready.contains("readyReplicas") => {
            Some((None, all_ready(given), asked))
        }
        ["delete", kind, name, ref flags @ ..] => {
            let (kind, old) = object(kind, name)?;
            let orphan = flags.contains(&"--cascade=orphan").then_some("Orphan");
            let options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": orphan });
            let delete =
                Asked { operation: "DELETE", new: Value::Null, options, ..Asked::write(old.clone(), old) };
            let step = Asked { kind, of: kind, ..delete };
            Some((Some(step), given.clone(), asked))
        }
        ["scale", "statefulset", name, to] if name == scene::STATEFUL_SET => {
            let to: i64 = to.strip_prefix("--replicas=")?.parse().ok()?;
            let from = given.stateful_set()["spec"]["replicas"].as_i64()?;
            let step = Asked::scale(objects::Kind::StatefulSet, name, from, to);
            Some((Some(step), given.clone(), asked))
        }
        _ => None,
    }
}

#[test]
fn every_printed_step_is_allowed_and_resolves_the_refusal() {
    let (mut walked, mut stuck) = (0, BTreeSet::new());
    for (name, case) in all() {
        let decision = judged(&case.given, &case.asked(), &case.user);
        for judged_before in decision.with(Effect::Refused) {
            let (rule, instead) = (judged_before.finding.rule, &judged_before.finding.instead);
            for (command, when_ready) in ways(instead) {
                let given = if when_ready { all_ready(&case.given) } else { case.given.clone() };
                let Some((step, after, again)) = followed(command, &given, case.asked()) else {
                    continue;
                };
                walked += 1;
                let line = command.to_string();
                if let Some(step) =
                    step.map(|step| judged(&given, &step, "editor")).filter(|it| !it.allowed())
                {
                    let says: Vec<_> = step.with(Effect::Refused).map(|it| it.finding.says.clone()).collect();
                    stuck.insert(format!("{name}: {line}: refused by {says:?}"));
                }
                let leads_on = command.words().iter().any(|word| ["annotate", "wait"].contains(&&**word));
                let refuses = judged(&after, &again, &case.user);
                if leads_on && refuses.with(Effect::Refused).any(|it| it.finding.rule == rule) {
                    let says =
                        refuses.with(Effect::Refused).map(|it| it.finding.says.clone()).collect::<Vec<_>>();
                    stuck.insert(format!("{name}: {line}: refused all the same: {says:?}"));
                }
            }
        }
    }
    assert!(walked > 60, "only {walked} ways were walked");
    assert!(stuck.is_empty(), "no way out: {stuck:#?}");
}
