//! People: the commands that users enter, good and bad ones, and some of them repeatedly.
//!
//! Must not know: what is refused. Data: a roll of the dice becomes any number of [`Intent`]s; each of them sends requests to the
//! API server, and the answers go into the story.

use objects::Kind;
use serde_json::{Value, json};

use super::api::Refusal;
use super::clock::{SECOND, timestamp};
use super::manifests::{
    BOOTSTRAP, BOOTSTRAP_CONFIG, BOOTSTRAP_SERVICE, CLUSTER, CONFIG, NODES, bootstrap_objects, claim, config,
    config_with_address, member, node_name, stateful_set,
};
use super::stage::{Sim, SimEvent};
use super::store::text;

const PERSON: &str = "ops@example.com";
/// How often a drain tries to evict the pods of its node.
const DRAIN_TRIES: u32 = 20;

/// One command.
#[derive(Clone, Debug)]
pub enum Intent {
    Apply(Kind, Value),
    Delete(Kind, String, Value),
    Scale(Kind, String, i64),
    /// Drains a node, until it is empty or the tries are used up.
    Drain {
        node: String,
        tries: u32,
    },
    Uncordon(String),
    /// Sets the server's image.
    Image(String),
    /// Does what `kubectl rollout restart` does.
    Restart,
    /// Does what `kubectl rollout undo` does.
    Undo,
    /// Adds an argument of the server to the template.
    Argument(String),
}

impl Sim {
    /// Chooses a command, sometimes after setting an override, and schedules the choice of the next one.
    pub fn command(&mut self) {
        if self.is_quiet() {
            return;
        }
        let idle = self.knobs.idle;
        let after = self.dice.between(idle / 8, idle);
        self.agenda.put(after, SimEvent::Command);
        if self.dice.chance(self.knobs.overrides) {
            self.set_override();
        }
        for (after, intent) in self.choose() {
            self.agenda.put(after, SimEvent::Intent(Box::new(intent)));
        }
    }

    /// Returns the intents of one random command, each with the time until it is carried out.
    fn choose(&mut self) -> Vec<(u64, Intent)> {
        let members = self.asked_for().unwrap_or(self.knobs.members);
        let any = i64::try_from(self.dice.below(members.max(1).unsigned_abs())).unwrap();
        let delete = |kind, name: String| vec![(0, Intent::Delete(kind, name, json!({})))];
        let scale = |to: i64| vec![(0, Intent::Scale(Kind::StatefulSet, CLUSTER.to_owned(), to))];
        if self.asked_for().is_none() && self.dice.chance(250) {
            return vec![(0, Intent::Apply(Kind::StatefulSet, stateful_set(self.knobs.members)))];
        }
        match self.dice.below(100) {
            0..14 => delete(Kind::Pod, member(any)),
            14..20 => (0..members)
                .map(|it| (self.dice.below(300), Intent::Delete(Kind::Pod, member(it), json!({}))))
                .collect(),
            20..24 => scale(members + 1).into_iter().filter(|_| members < 5).collect(),
            24..30 => scale((members - 1).max(0)),
            30..32 => scale(0),
            32..34 => scale(1),
            34..38 => scale(self.knobs.members),
            38..40 => delete(Kind::StatefulSet, CLUSTER.to_owned()),
            40..42 => {
                let orphan = Intent::Delete(
                    Kind::StatefulSet,
                    CLUSTER.to_owned(),
                    json!({ "propagationPolicy": "Orphan" }),
                );
                let back = self.dice.between(5, 90) * SECOND;
                vec![(0, orphan), (back, Intent::Apply(Kind::StatefulSet, stateful_set(members)))]
            }
            42..48 => {
                bootstrap_objects().into_iter().map(|(kind, it)| (0, Intent::Apply(kind, it))).collect()
            }
            48..50 => vec![(0, Intent::Scale(Kind::Deployment, BOOTSTRAP.to_owned(), 1))],
            50..58 => {
                let node = node_name(usize::try_from(self.dice.below(NODES as u64)).unwrap());
                let back = self.dice.between(60, 200) * SECOND;
                vec![
                    (0, Intent::Drain { node: node.clone(), tries: DRAIN_TRIES }),
                    (back, Intent::Uncordon(node)),
                ]
            }
            58..62 => self.configure("max_connections = 300\n"),
            62..65 => self.configure("sim_fatal = 1\n"),
            65..67 => self.configure("innodb_page_size = 8k\n"),
            67..70 => self.configure(""),
            70..72 => vec![(0, Intent::Apply(Kind::ConfigMap, config_with_address("gcomm://", "")))],
            72..75 => vec![(0, Intent::Image(format!("mariadb:10.11.{}", self.dice.between(8, 11))))],
            75..79 => vec![(0, Intent::Restart)],
            79..82 => vec![(0, Intent::Undo)],
            82..84 => vec![(0, Intent::Argument("--wsrep-new-cluster".to_owned()))],
            84..88 => delete(Kind::Claim, claim(any)),
            88..90 => vec![
                (0, Intent::Delete(Kind::Claim, claim(any), json!({}))),
                (SECOND, Intent::Delete(Kind::Pod, member(any), json!({}))),
            ],
            90..92 => delete(
                Kind::ConfigMap,
                if self.dice.chance(500) { CONFIG } else { BOOTSTRAP_CONFIG }.to_owned(),
            ),
            92..94 => delete(Kind::Service, BOOTSTRAP_SERVICE.to_owned()),
            94..96 => vec![(0, Intent::Delete(Kind::Pod, member(any), json!({ "gracePeriodSeconds": 0 })))],
            96..98 => delete(Kind::Deployment, BOOTSTRAP.to_owned()),
            _ => {
                let bootstrap_pods =
                    self.store.names(Kind::Pod).into_iter().filter(|it| it.starts_with(BOOTSTRAP));
                bootstrap_pods.map(|it| (0, Intent::Delete(Kind::Pod, it, json!({})))).collect()
            }
        }
    }

    fn configure(&self, extra: &str) -> Vec<(u64, Intent)> {
        vec![(0, Intent::Apply(Kind::ConfigMap, config(self.knobs.members, extra)))]
    }

    /// Sets an override for half an hour, for the rules that refuse most commands.
    fn set_override(&mut self) {
        let until = timestamp(self.agenda.now + 1800 * SECOND);
        let text = format!("G01,G02,G03,G04,G07,G14 until={until:.0} reason=a drill");
        let outcome = self.change(PERSON, Kind::StatefulSet, CLUSTER, |it| {
            it["metadata"]["annotations"]["gatera.dev/override"] = json!(text);
        });
        self.record_answer("sets an override on StatefulSet galera", outcome);
    }

    pub fn carry_out(&mut self, intent: Intent) {
        let command = command_line(&intent);
        let outcome = match intent {
            Intent::Apply(kind, object) => {
                self.apply(PERSON, kind, with_live_annotations(self, kind, object))
            }
            Intent::Delete(kind, name, options) => self.delete(PERSON, kind, &name, options),
            Intent::Scale(kind, name, replicas) => self.scale(PERSON, kind, &name, replicas),
            Intent::Drain { node, tries } => return self.drain(&node, tries),
            Intent::Uncordon(node) => return self.cordon(&node, false),
            Intent::Image(image) => {
                self.edit_template(|it| it["spec"]["containers"][0]["image"] = json!(image))
            }
            Intent::Restart => {
                let now = timestamp(self.agenda.now).to_string();
                self.edit_template(|it| {
                    it["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = json!(now);
                })
            }
            Intent::Undo => {
                let before = self.previous_template();
                self.edit_template(|it| *it = before.unwrap_or(it.clone()))
            }
            Intent::Argument(argument) => {
                self.edit_template(|it| it["spec"]["containers"][0]["args"] = json!(["mariadbd", argument]))
            }
        };
        self.record_answer(&command, outcome);
    }

    fn edit_template(&mut self, edit: impl FnOnce(&mut Value)) -> Result<(), Refusal> {
        self.change(PERSON, Kind::StatefulSet, CLUSTER, |it| edit(&mut it["spec"]["template"]))
    }

    /// Writes the answer to a command into the story. The laws check a refusal.
    fn record_answer(&mut self, command: &str, outcome: Result<(), Refusal>) {
        let now = self.agenda.now;
        match outcome {
            Ok(()) => self.story.record(now, "ops", || format!("{command}: allowed")),
            Err(refusal) => {
                self.story.record(now, "ops", || {
                    format!("{command}: refused, {}", refusal.message.lines().next().unwrap_or_default())
                });
                self.laws.check_refusal(&refusal);
            }
        }
    }

    /// Drains a node roughly as `kubectl drain` does: cordons it, and evicts its pods every five seconds until it is empty.
    fn drain(&mut self, node: &str, tries: u32) {
        if tries == DRAIN_TRIES {
            self.cordon(node, true);
        }
        let on_it = self.store.all(Kind::Pod).filter(|(_, it)| text(it, "/spec/nodeName") == node);
        let pods: Vec<_> = on_it.map(|(name, _)| name.to_owned()).collect();
        for pod in &pods {
            let outcome = self.evict(PERSON, pod);
            self.record_answer(&format!("evicts {pod}"), outcome);
        }
        let cordoned = self.store.get(Kind::Node, node).is_some_and(|it| it["spec"]["unschedulable"] == true);
        if !pods.is_empty() && tries > 1 && cordoned {
            let again = Intent::Drain { node: node.to_owned(), tries: tries - 1 };
            self.agenda.put(5 * SECOND, SimEvent::Intent(Box::new(again)));
        }
    }

    fn cordon(&mut self, node: &str, unschedulable: bool) {
        self.story.record(self.agenda.now, "ops", || {
            format!("{} {node}", if unschedulable { "cordons" } else { "uncordons" })
        });
        self.store
            .edit(self.agenda.now, Kind::Node, node, |it| it["spec"]["unschedulable"] = json!(unschedulable));
    }
}

/// Adds the annotations of the live object, as `kubectl apply` leaves those alone that it did not write.
fn with_live_annotations(sim: &Sim, kind: Kind, mut object: Value) -> Value {
    let live = sim.store.get(kind, text(&object, "/metadata/name"));
    let annotations = live.and_then(|it| it["metadata"]["annotations"].as_object());
    for (key, value) in annotations.into_iter().flatten() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    object
}

/// Describes a command for the story.
fn command_line(intent: &Intent) -> String {
    match intent {
        Intent::Apply(kind, it) => format!(
            "applies {} {} {}",
            kind.name(),
            text(it, "/metadata/name"),
            text(it, "/data/galera.cnf").lines().last().unwrap_or_default()
        ),
        Intent::Delete(kind, name, options) if options["gracePeriodSeconds"] == 0 => {
            format!("deletes {} {name} --force", kind.name())
        }
        Intent::Delete(kind, name, options) if options["propagationPolicy"] == "Orphan" => {
            format!("deletes {} {name} --cascade=orphan", kind.name())
        }
        Intent::Delete(kind, name, _) => format!("deletes {} {name}", kind.name()),
        Intent::Scale(kind, name, replicas) => format!("scales {} {name} to {replicas}", kind.name()),
        Intent::Drain { node, .. } => format!("drains {node}"),
        Intent::Uncordon(node) => format!("uncordons {node}"),
        Intent::Image(image) => format!("sets image {image}"),
        Intent::Restart => "rollout restart".to_owned(),
        Intent::Undo => "rollout undo".to_owned(),
        Intent::Argument(argument) => format!("adds argument {argument}"),
    }
}
