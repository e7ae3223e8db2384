//! The stage: the state of the simulated world, the events in it, and the loop that processes them.
//!
//! Owns: [`Sim`] and [`SimEvent`]; each other module implements some of the events. Must not know: what is right (`laws.rs`).
//! Data: a seed and settings in, an [`Outcome`] out; the same seed always has the same outcome.

use std::collections::BTreeMap;

use facts::settings::Settings;
use jiff::SignedDuration;
use leader::plan::{IncrementalPlanner, StepScheduler};
use objects::Kind;
use serde_json::Value;

use super::api::Approved;
use super::clock::{Agenda, Dice, MINUTE, Millis, SECOND};
use super::controllers::Controllers;
use super::galera::{Alarm, Galera};
use super::guard::Guard;
use super::kubelet::Container;
use super::laws::Laws;
use super::manifests;
use super::people::Intent;
use super::store::{Store, ordinal};
use super::story::Story;

/// An event of the simulated world.
#[derive(Clone, Debug)]
pub enum SimEvent {
    Controllers,
    Kubelets,
    Leader,
    Commit(Box<Approved>),
    Start { pod: String, uid: String },
    Prepared { pod: String, run: u64 },
    Transferred { pod: String, run: u64 },
    GivesUp { pod: String, run: u64 },
    Stop { pod: String, uid: String },
    Stopped { pod: String, uid: String },
    Probe { pod: String, uid: String },
    Write,
    Command,
    Intent(Box<Intent>),
    Fault,
    NodeBack(String),
    NodeSilent { node: String, since: Millis },
    ReplicaBack(usize),
    WatchesResume,
}

/// The readers of the store, which are woken when it has changed; each is an index into [`Sim::waking`].
pub const CONTROLLERS: usize = 0;
pub const KUBELETS: usize = 1;
pub const LEADER: usize = 2;

/// The parameters that differ from seed to seed.
#[derive(Debug)]
pub struct Knobs {
    pub members: i64,
    /// The longest time between two commands.
    pub idle: Millis,
    /// The longest time between two faults; 0 means no faults.
    pub calm: Millis,
    /// How many of a thousand requests find that the guard cannot write its reservation.
    pub lost_writes: u64,
    /// Before how many of a thousand commands an override is set.
    pub overrides: u64,
    /// Whether the API server adds `rollingUpdate` to a StatefulSet.
    pub adds_partition: bool,
    /// The time after which people and faults do nothing more.
    pub quiet_from: Millis,
}

/// How long everything may take to come to rest after `quiet_from`, and how long the rest is then observed.
const REST: Millis = 12 * MINUTE;

pub struct Sim {
    pub agenda: Agenda<SimEvent>,
    pub dice: Dice,
    pub store: Store,
    pub guard: Guard,
    pub scheduler: StepScheduler,
    pub planner: IncrementalPlanner,
    /// The time of the leader's next pass, if nothing changes before.
    pub next_look: Millis,
    pub galera: Galera,
    pub containers: BTreeMap<String, Container>,
    /// The nodes without power, and since when.
    pub without_power: BTreeMap<String, Millis>,
    /// The error of each node's clock.
    pub clock_errors: BTreeMap<String, SignedDuration>,
    pub controllers: Controllers,
    pub laws: Laws,
    pub story: Story,
    pub knobs: Knobs,
    /// The version of the store for which its readers were last woken.
    woken: u64,
    /// Whether each reader of the store is about to run.
    pub waking: [bool; 3],
}

/// The result of a run.
pub struct Outcome {
    pub events: u64,
    /// The law that was broken, if any.
    pub broken: Option<String>,
    pub excused: Option<&'static str>,
    pub tally: String,
    pub story: String,
}

impl Sim {
    fn of(seed: u64, settings: Settings, records: bool) -> Self {
        let mut dice = Dice::of(seed);
        let knobs = Knobs {
            members: if dice.chance(200) { 5 } else { 3 },
            idle: dice.between(5, 60) * SECOND,
            calm: if dice.chance(300) { 0 } else { dice.between(40, 300) * SECOND },
            lost_writes: if dice.chance(200) { 50 } else { 0 },
            overrides: if dice.chance(100) { 200 } else { 0 },
            adds_partition: dice.chance(500),
            quiet_from: dice.between(10, 25) * MINUTE,
        };
        let guard = Guard::of(usize::try_from(dice.between(1, 3)).unwrap(), settings);
        Self {
            agenda: Agenda::empty(),
            dice,
            store: Store::default(),
            guard,
            scheduler: StepScheduler::default(),
            planner: IncrementalPlanner::default(),
            next_look: 0,
            galera: Galera::default(),
            containers: BTreeMap::new(),
            without_power: BTreeMap::new(),
            clock_errors: BTreeMap::new(),
            controllers: Controllers::default(),
            laws: Laws::default(),
            story: Story::new(records),
            knobs,
            woken: 0,
            waking: [false; 3],
        }
    }

    /// Runs a seed to its end, or until a law is broken.
    pub fn run(seed: u64, settings: Settings, records: bool) -> Outcome {
        let mut sim = Self::of(seed, settings, records);
        sim.install();
        let (mut events, end) = (0, sim.knobs.quiet_from + 2 * REST);
        while let Some(what) = sim.agenda.take().filter(|_| sim.agenda.now < end && !sim.laws.is_broken()) {
            events += 1;
            sim.process(what);
            sim.after_event();
        }
        if !sim.laws.is_broken() {
            sim.check_laws_at_rest(end - REST);
        }
        Outcome {
            events,
            broken: sim.laws.broken(),
            excused: sim.laws.excused(),
            tally: sim.laws.tally(),
            story: sim.story.text(),
        }
    }

    fn install(&mut self) {
        for (kind, object) in manifests::preconditions() {
            self.store.put(0, kind, object);
        }
        for index in 0..self.guard.replicas.len() {
            self.guard.replicas[index].delay = self.dice.between(5, 300);
            self.guard.restart(index, &self.store, 0);
        }
        for (kind, object) in manifests::installation(self.knobs.members) {
            self.agenda
                .put(self.agenda.now + SECOND, SimEvent::Intent(Box::new(Intent::Apply(kind, object))));
        }
        self.agenda.put(3 * MINUTE, SimEvent::Command);
        self.agenda.put(10 * SECOND, SimEvent::Write);
        if self.knobs.calm > 0 {
            self.agenda.put(4 * MINUTE, SimEvent::Fault);
        }
    }

    fn process(&mut self, what: SimEvent) {
        match what {
            SimEvent::Controllers => {
                self.waking[CONTROLLERS] = false;
                self.control();
            }
            SimEvent::Kubelets => {
                self.waking[KUBELETS] = false;
                self.kubelets();
            }
            SimEvent::Leader => {
                self.waking[LEADER] = false;
                self.lead();
            }
            SimEvent::Commit(approved) => self.commit(*approved),
            SimEvent::Start { pod, uid } => self.start(&pod, &uid),
            SimEvent::Prepared { pod, run } => self.prepared(&pod, run),
            SimEvent::Transferred { pod, run } => {
                if self.galera.transferred(&pod, run) {
                    self.story.record(self.agenda.now, &pod, || "is Synced".to_owned());
                }
            }
            SimEvent::GivesUp { pod, run } => self.gives_up(&pod, run),
            SimEvent::Stop { pod, uid } => self.stop(&pod, &uid),
            SimEvent::Stopped { pod, uid } => self.stopped(&pod, &uid),
            SimEvent::Probe { pod, uid } => self.probe(&pod, &uid),
            SimEvent::Write => self.write(),
            SimEvent::Command => self.command(),
            SimEvent::Intent(intent) => self.carry_out(*intent),
            SimEvent::Fault => self.fault(),
            SimEvent::NodeBack(node) => self.node_back(&node),
            SimEvent::NodeSilent { node, since } => self.node_silent(&node, since),
            SimEvent::ReplicaBack(index) => self.replica_back(index),
            SimEvent::WatchesResume => self.wake(LEADER, 0),
        }
    }

    fn write(&mut self) {
        let rows = self.dice.between(1, 5);
        self.galera.write(rows);
        let after = if self.is_quiet() { MINUTE } else { self.dice.between(2, 15) * SECOND };
        self.agenda.put(after, SimEvent::Write);
    }

    /// Whether people and faults have ended.
    pub fn is_quiet(&self) -> bool {
        self.agenda.now >= self.knobs.quiet_from
    }

    /// Concludes an event: Galera settles, kubelets probe, the laws are checked, and the readers of the store are woken.
    fn after_event(&mut self) {
        loop {
            self.galera.settle();
            let aborted = std::mem::take(&mut self.galera.aborted);
            if aborted.is_empty() {
                break;
            }
            for (pod, run) in aborted {
                self.story.record(self.agenda.now, &pod, || {
                    "its server gives up joining, because its donor or its component is gone".to_owned()
                });
                self.laws.member_failed(&pod, self.agenda.now);
                self.server_ended(&pod, run);
            }
        }
        for (pod, run, full) in self.galera.begin_transfers() {
            let takes = if full { self.dice.between(5, 60) } else { self.dice.between(1, 4) };
            self.story.record(self.agenda.now, &pod, || {
                format!("receives {}", if full { "a full copy" } else { "the missing rows" })
            });
            self.agenda.put(takes * SECOND, SimEvent::Transferred { pod, run });
        }
        for alarm in std::mem::take(&mut self.galera.alarms) {
            self.story.record(self.agenda.now, "galera", || match &alarm {
                Alarm::Founded { by, rows } => format!("{by} founds a cluster with {rows} rows"),
                Alarm::LostPrimary { of } => format!("the component of {of:?} has lost its majority"),
                Alarm::Uncompared { by } => format!("{by:?} form a component without comparing positions"),
            });
            self.laws.judge_alarm(&alarm, &self.galera);
        }
        self.schedule_probes();
        let asked_for = self.asked_for();
        self.laws.check_rows(&self.galera, |pod| {
            asked_for.is_none_or(|replicas| (0..replicas).contains(&ordinal(pod)))
        });
        let line = || self.galera.servers.iter().map(|(pod, it)| format!("{pod}:{:?} ", it.phase)).collect();
        self.story.members(line);
        if self.store.version != self.woken {
            self.woken = self.store.version;
            let after = self.dice.between(20, 300);
            self.wake(CONTROLLERS, after);
            self.wake(KUBELETS, after / 2);
            let delay = self.guard.replicas[self.guard.leader].delay + after;
            self.wake(LEADER, delay);
        }
    }

    /// Wakes controllers, kubelets or the leader, unless they are already about to run.
    pub fn wake(&mut self, reader: usize, after: Millis) {
        if !self.waking[reader] {
            self.waking[reader] = true;
            let what = [SimEvent::Controllers, SimEvent::Kubelets, SimEvent::Leader][reader].clone();
            self.agenda.put(after, what);
        }
    }

    /// Returns the number of members that the StatefulSet asks for, if it exists.
    pub fn asked_for(&self) -> Option<i64> {
        self.store.get(Kind::StatefulSet, manifests::CLUSTER)?["spec"]["replicas"].as_i64()
    }

    /// Returns the pod as it is now, if it still has this uid.
    pub fn this_pod(&self, pod: &str, uid: &str) -> Option<&Value> {
        self.store.get(Kind::Pod, pod).filter(|it| super::store::uid(it) == uid)
    }
}
