//! The way out of every denial, followed as printed: no rule refuses any of its steps, and afterwards the rule that printed it
//! allows the same request.
//!
//! The kubectl commands that annotate, label, patch, scale, delete or wait are followed, in Galera's rules and in those of packs;
//! `PASSED_OVER` lists the others. `real/followed.rs` runs those of the packs on a real API server, and `tests/advice.rs`
//! and `tests/packs.rs` follow some to their end.

use gatera::rulebook;
use std::collections::BTreeSet;

use engine::verdict::{Decision, Effect};
use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use facts::way_out::{CommandLine, Step, Word};
use objects::Kind;
use serde_json::{Value, json};

use super::all;
use super::asked::{Asked, body};
use crate::scene::{self, NAMESPACE, Scene};

/// The beginnings of the commands that are not followed here (without the namespace), each with the reason.
const PASSED_OVER: [(&str, &str); 17] = [
    ("gatera ", "each subcommand has tests of its own"),
    ("helm ", "it names a chart, or a revision to choose"),
    ("mariadbd ", "it changes nothing"),
    ("kubectl get ", "it changes nothing"),
    ("kubectl describe ", "it changes nothing"),
    ("kubectl logs ", "it changes nothing"),
    ("kubectl port-forward ", "it changes nothing"),
    ("kubectl rollout status ", "it changes nothing"),
    ("kubectl wait --for=delete pod/", "it changes nothing"),
    ("kubectl edit ", "it opens an editor"),
    ("kubectl set image ", "changes of an image are judged in cases of their own"),
    ("kubectl rollout restart ", "a restart is judged in cases of its own"),
    ("kubectl drain ", "evictions are judged in cases of their own"),
    ("kubectl exec ", "it opens a shell"),
    ("kubectl taint node ", "no rule judges taints"),
    ("kubectl -n NAMESPACE create rolebinding ", "no rule judges RoleBindings"),
    ("kubectl kudo ", "the drill `kudo` runs KUDO"),
];

/// Returns the decision about a request of this user in a scene.
pub fn judged(given: &Scene, asked: &Asked, user: &str) -> Decision {
    let settings = Settings::default();
    let world = given.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let bytes = serde_json::to_vec(&body(asked, user)).unwrap();
    rulebook().evaluate(&review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review, &view)
}

/// Lists the commands of a way, and whether each applies only when all members are Ready.
pub fn commands(way: &[Step]) -> Vec<(&CommandLine, bool)> {
    let (mut before, mut found) = (String::new(), Vec::new());
    for step in way {
        collect(step, &mut before, &mut found);
    }
    found
}

fn collect<'s>(step: &'s Step, before: &mut String, found: &mut Vec<(&'s CommandLine, bool)>) {
    for word in step.words() {
        match word {
            Word::Command(command) => found.push((command, before.contains("all members Ready"))),
            Word::Text(text) => before.push_str(text),
            Word::Edit { live, .. } | Word::Exception { live, .. } => collect(live, before, found),
            Word::Page(_) => {}
        }
    }
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

/// Returns whether kubectl accepts this word as the kind.
fn is_called(kind: Kind, word: &str) -> bool {
    let short = match kind {
        Kind::Claim => "pvc",
        Kind::Autoscaler => "hpa",
        _ => "",
    };
    kind.name().eq_ignore_ascii_case(word) || word == short
}

/// Returns the object of a scene that kubectl calls by this kind and name.
fn object(given: &Scene, kind: &str, name: &str) -> Option<(Kind, Value)> {
    let mut all = given.objects().into_iter();
    all.find(|(it, object)| is_called(*it, kind) && object["metadata"]["name"] == name)
}

/// A command that was followed: its requests, the scene after them, and the refused request as it is in that scene.
struct Followed {
    requests: Vec<Asked>,
    after: Scene,
    again: Asked,
}

impl Followed {
    fn new(given: &Scene, asked: &Asked, requests: Vec<Asked>) -> Self {
        Self { requests, after: given.clone(), again: asked.clone() }
    }

    /// Merges a change into the objects of these names, and into the refused request if it is about one of them.
    fn change(given: &Scene, asked: &Asked, kind: &str, names: &[&str], change: &Value) -> Self {
        let mut followed = Self::new(given, asked, Vec::new());
        for name in names {
            if let Some((_, old)) = object(given, kind, name) {
                let mut new = old.clone();
                json_patch::merge(&mut new, change);
                followed.after.also.push(new.clone());
                followed.requests.push(Asked::write(old, new));
            }
            let is_same = is_called(asked.of, kind) && asked.name() == *name;
            if is_same && ["", "status", "resize"].contains(&asked.subresource) {
                let sides = [&mut followed.again.old, &mut followed.again.new].into_iter();
                sides.filter(|it| it.is_object()).for_each(|it| json_patch::merge(it, change));
            }
        }
        followed
    }
}

/// Returns the words of a kubectl command without the namespace, which all scenes have in common.
fn arguments(command: &[String]) -> Option<Vec<&str>> {
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    let rest = words.strip_prefix(&["kubectl"])?;
    Some(rest.strip_prefix(&["-n", NAMESPACE]).unwrap_or(rest).to_vec())
}

fn follow(command: &[String], given: &Scene, asked: &Asked) -> Option<Followed> {
    let words = arguments(command)?;
    let (flags, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|it| it.starts_with("--"));
    match *words {
        ["annotate", kind, name, mark] => {
            let change = match mark.split_once('=') {
                Some((key, value)) => json!({ "metadata": { "annotations": { key: value } } }),
                None => json!({}),
            };
            Some(Followed::change(given, asked, kind, &[name], &change))
        }
        ["label", kind, ref names @ .., label] => {
            let (key, value) = label.split_once('=')?;
            let change = json!({ "metadata": { "labels": { key: value } } });
            Some(Followed::change(given, asked, kind, names, &change))
        }
        ["patch", kind, name, .., change] => {
            let change = serde_json::from_str(change).ok()?;
            Some(Followed::change(given, asked, kind, &[name], &change))
        }
        ["wait", what] => {
            let (kind, name) = what.split_once('/')?;
            if kind == "statefulset" && flags.iter().any(|it| it.contains("readyReplicas")) {
                return Some(Followed { after: all_ready(given), ..Followed::new(given, asked, Vec::new()) });
            }
            let active = flags.contains(&"--for=jsonpath={.status.status}=ACTIVE");
            let change = json!({ "status": { "status": "ACTIVE" } });
            let followed = active.then(|| Followed::change(given, asked, kind, &[name], &change))?;
            Some(Followed { requests: Vec::new(), ..followed })
        }
        ["delete", kind, ref names @ ..] => {
            let orphan = flags.contains(&"--cascade=orphan").then_some("Orphan");
            let options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": orphan });
            let delete = |name: &&str| {
                let (kind, old) = object(given, kind, name)?;
                let write = Asked::write(old.clone(), old);
                Some(Asked {
                    operation: "DELETE",
                    kind,
                    of: kind,
                    new: Value::Null,
                    options: options.clone(),
                    ..write
                })
            };
            Some(Followed::new(given, asked, names.iter().map(delete).collect::<Option<_>>()?))
        }
        ["scale", "statefulset", name] if name == scene::STATEFUL_SET => {
            let to: i64 = flags.first()?.strip_prefix("--replicas=")?.parse().ok()?;
            let from = given.stateful_set()["spec"]["replicas"].as_i64()?;
            let scale = Asked::scale(Kind::StatefulSet, name, from, to);
            Some(Followed::new(given, asked, vec![scale]))
        }
        _ => None,
    }
}

/// Returns what the refusals say.
fn refusals(decision: &Decision) -> Vec<&str> {
    decision.with(Effect::Refused).map(|it| &*it.finding.says).collect()
}

#[derive(Default)]
struct Walk {
    /// The commands that were followed, by the rule that printed them.
    walked: Vec<&'static str>,
    stuck: BTreeSet<String>,
    used: BTreeSet<&'static str>,
}

impl Walk {
    fn ways_out(&mut self, name: &str, given: &Scene, asked: &Asked, user: &str) {
        let decision = judged(given, asked, user);
        for refusal in decision.with(Effect::Refused) {
            for way in refusal.finding.instead.ways() {
                self.way_out(name, given, asked, user, (refusal.finding.rule, way));
            }
        }
    }

    fn way_out(
        &mut self,
        name: &str,
        given: &Scene,
        asked: &Asked,
        user: &str,
        printed: (&'static str, &[Step]),
    ) {
        let (rule, way) = printed;
        let (mut scene, mut again) = (given.clone(), asked.clone());
        let text: String = way.iter().map(|step| step.line(&Pages::Program)).collect();
        for (index, (command, when_ready)) in commands(way).into_iter().enumerate() {
            if when_ready {
                scene = all_ready(&scene);
            }
            // The first command shows whether the guard answers from what it sees now.
            if index > 0 {
                "current".clone_into(&mut scene.view);
            }
            let line = command.to_string();
            let is_address = |word: &String| word.contains("https://NAME/…");
            let filled: Vec<_> = command.words().iter().map(|it| filled(it)).collect();
            let Some(followed) = follow(&filled, &scene, &again) else {
                self.pass_over(name, command);
                continue;
            };
            self.walked.push(rule);
            let refused = |it: &Asked| !judged(&scene, it, "editor").allowed();
            if command.words().iter().any(is_address)
                && !follow(command.words(), &scene, &again).is_some_and(|it| it.requests.iter().any(refused))
            {
                self.stuck.insert(format!("{name}: {line}: the placeholder is accepted"));
            }
            for request in &followed.requests {
                let decision = judged(&scene, request, "editor");
                if !decision.allowed() {
                    self.stuck.insert(format!("{name}: {line}: refused by {:?}", refusals(&decision)));
                }
            }
            (scene, again) = (followed.after, followed.again);
            if !filled.iter().any(|word| ["annotate", "wait"].contains(&&**word)) {
                continue;
            }
            let decision = judged(&scene, &again, user);
            let is_refused = decision.with(Effect::Refused).any(|it| it.finding.rule == rule);
            // The way out says so if another refusal follows, whose ways out are followed, too.
            let needs_more = text.contains("which then needs a confirmation");
            if is_refused != needs_more {
                let says = refusals(&decision);
                self.stuck
                    .insert(format!("{name}: {line}: then refused: {is_refused}, unlike printed: {says:?}"));
            } else if needs_more {
                self.ways_out(name, &scene, &again, user);
            }
        }
    }

    fn pass_over(&mut self, name: &str, command: &CommandLine) {
        let rest = arguments(command.words()).map(|words| format!("kubectl {}", words.join(" ")));
        let line = rest.unwrap_or_else(|| command.words().join(" "));
        match PASSED_OVER.iter().find(|(begins, _)| line.starts_with(begins)) {
            Some((begins, _)) => self.used.insert(begins),
            None => self.stuck.insert(format!(
                "{name}: {command}: it can neither be followed (is there an object?) nor be passed over"
            )),
        };
    }
}

/// Returns a word of a command with what a user writes in place of the placeholders.
fn filled(word: &str) -> String {
    word.replace("https://NAME/…", "https://rds.example.com/").replace('…', "as printed")
}

#[test]
fn every_printed_step_is_allowed_and_resolves_the_refusal() {
    let mut walk = Walk::default();
    for (name, case) in all() {
        walk.ways_out(name, &case.given, &case.asked(), &case.user);
    }
    let Walk { walked, stuck, used } = walk;
    assert!(stuck.is_empty(), "{} steps that do not work: {stuck:#?}", stuck.len());
    let of_packs = walked.iter().filter(|rule| !rule.starts_with('G')).count();
    assert!(
        walked.len() > 150 && of_packs > 40,
        "only {} commands were followed, {of_packs} of packs",
        walked.len()
    );
    let unused: Vec<_> = PASSED_OVER.iter().filter(|(begins, _)| !used.contains(begins)).collect();
    assert!(unused.is_empty(), "PASSED_OVER lists commands that no way out has: {unused:?}");
}
