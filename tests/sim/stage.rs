//! The stage: the state of the simulated world, the events in it, and the loop that processes them.
//!
//! Owns: [`Sim`] and [`Happening`]; each other module implements some of the events. Must not know: what is right (`laws.rs`).
//! Data: a seed and settings in, an [`Ending`] out; the same seed always has the same ending.

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
use super::kubelet::Life;
use super::laws::Laws;
use super::manifests;
use super::people::Intent;
use super::store::{Store, ordinal};
use super::story::Story;

/// An event.
#[derive(Clone, Debug)]
pub enum Happening {
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
    Hears,
}

/// The parameters that differ from seed to seed.
#[derive(Debug)]
pub struct Knobs {
    pub members: i64,
    /// The longest time between two commands.
    pub idle: Millis,
    /// The longest time between two faults; 0 means no faults.
    pub calm: Millis,
    /// How many of a thousand writes of the guard get no answer.
    pub lost_writes: u64,
    /// How many of a thousand commands come with an override.
    pub overrides: u64,
    /// The API server adds the details of RollingUpdate to a manifest that names no type.
    pub spells_out: bool,
    /// The time after which people and faults do nothing more.
    pub curtain: Millis,
}

/// The time in which everything must come to rest after the curtain, and for which it is then observed.
const REST: Millis = 12 * MINUTE;

pub struct Sim {
    pub agenda: Agenda<Happening>,
    pub dice: Dice,
    pub store: Store,
    pub guard: Guard,
    pub pace: StepScheduler,
    pub lookout: IncrementalPlanner,
    /// The time at which the leader looks although nothing has changed.
    pub looks_again: Millis,
    pub galera: Galera,
    pub lives: BTreeMap<String, Life>,
    /// The nodes without power, and since when.
    pub dark: BTreeMap<String, Millis>,
    /// The error of each node's clock.
    pub clocks: BTreeMap<String, SignedDuration>,
    pub controllers: Controllers,
    pub laws: Laws,
    pub story: Story,
    pub knobs: Knobs,
    /// The version of the store for which its readers were last woken.
    woken: u64,
    pub waking: [bool; 3],
}

/// The end of a story.
pub struct Ending {
    pub events: u64,
    /// The law that was broken, if any.
    pub broken: Option<String>,
    pub excused: Option<&'static str>,
    pub tally: String,
    pub story: String,
}

impl Sim {
    fn of(seed: u64, settings: Settings, listens: bool) -> Self {
        let mut dice = Dice::of(seed);
        let knobs = Knobs {
            members: if dice.chance(200) { 5 } else { 3 },
            idle: dice.between(5, 60) * SECOND,
            calm: if dice.chance(300) { 0 } else { dice.between(40, 300) * SECOND },
            lost_writes: if dice.chance(200) { 50 } else { 0 },
            overrides: if dice.chance(100) { 200 } else { 0 },
            spells_out: dice.chance(500),
            curtain: dice.between(10, 25) * MINUTE,
        };
        let guard = Guard::of(usize::try_from(dice.between(1, 3)).unwrap(), settings);
        Self {
            agenda: Agenda::empty(),
            dice,
            store: Store::default(),
            guard,
            pace: StepScheduler::default(),
            lookout: IncrementalPlanner::default(),
            looks_again: 0,
            galera: Galera::default(),
            lives: BTreeMap::new(),
            dark: BTreeMap::new(),
            clocks: BTreeMap::new(),
            controllers: Controllers::default(),
            laws: Laws::default(),
            story: Story::heard(listens),
            knobs,
            woken: 0,
            waking: [false; 3],
        }
    }

    /// Plays the story of a seed.
    pub fn play(seed: u64, settings: Settings, listens: bool) -> Ending {
        let mut sim = Self::of(seed, settings, listens);
        sim.install();
        let (mut events, end) = (0, sim.knobs.curtain + 2 * REST);
        while let Some(what) = sim.agenda.take().filter(|_| sim.agenda.now < end && !sim.laws.is_broken()) {
            events += 1;
            sim.happen(what);
            sim.draw_conclusions();
        }
        if !sim.laws.is_broken() {
            sim.laws_at_rest(end - REST);
        }
        Ending {
            events,
            broken: sim.laws.broken(),
            excused: sim.laws.excused(),
            tally: sim.laws.tally(),
            story: sim.story.whole(),
        }
    }

    fn install(&mut self) {
        for (kind, object) in manifests::ground() {
            self.store.put(0, kind, object);
        }
        for index in 0..self.guard.replicas.len() {
            self.guard.replicas[index].delay = self.dice.between(5, 300);
            self.guard.restart(index, &self.store, 0);
        }
        for (kind, object) in manifests::installed(self.knobs.members) {
            self.agenda
                .put(self.agenda.now + SECOND, Happening::Intent(Box::new(Intent::Apply(kind, object))));
        }
        self.agenda.put(3 * MINUTE, Happening::Command);
        self.agenda.put(10 * SECOND, Happening::Write);
        if self.knobs.calm > 0 {
            self.agenda.put(4 * MINUTE, Happening::Fault);
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Controllers => {
                self.waking[0] = false;
                self.control();
            }
            Happening::Kubelets => {
                self.waking[1] = false;
                self.kubelets();
            }
            Happening::Leader => {
                self.waking[2] = false;
                self.lead();
            }
            Happening::Commit(approved) => self.commit(*approved),
            Happening::Start { pod, uid } => self.start(&pod, &uid),
            Happening::Prepared { pod, run } => self.prepared(&pod, run),
            Happening::Transferred { pod, run } => {
                if self.galera.transferred(&pod, run) {
                    self.story.tell(self.agenda.now, &pod, || "is Synced".to_owned());
                }
            }
            Happening::GivesUp { pod, run } => self.gives_up(&pod, run),
            Happening::Stop { pod, uid } => self.stop(&pod, &uid),
            Happening::Stopped { pod, uid } => self.stopped(&pod, &uid),
            Happening::Probe { pod, uid } => self.probe(&pod, &uid),
            Happening::Write => self.write(),
            Happening::Command => self.command(),
            Happening::Intent(intent) => self.carry_out(*intent),
            Happening::Fault => self.fault(),
            Happening::NodeBack(node) => self.node_back(&node),
            Happening::NodeSilent { node, since } => self.node_silent(&node, since),
            Happening::ReplicaBack(index) => self.replica_back(index),
            Happening::Hears => self.wake(2, 0),
        }
    }

    fn write(&mut self) {
        let rows = self.dice.between(1, 5);
        self.galera.write(rows);
        let after = if self.is_over() { MINUTE } else { self.dice.between(2, 15) * SECOND };
        self.agenda.put(after, Happening::Write);
    }

    /// Whether people and faults have ended.
    pub fn is_over(&self) -> bool {
        self.agenda.now >= self.knobs.curtain
    }

    /// Concludes an event: Galera settles, kubelets probe, the laws are checked, and the readers of the store are woken.
    fn draw_conclusions(&mut self) {
        loop {
            self.galera.settle();
            let aborted = std::mem::take(&mut self.galera.aborted);
            if aborted.is_empty() {
                break;
            }
            for (pod, run) in aborted {
                self.story.tell(self.agenda.now, &pod, || "its server gives up joining".to_owned());
                self.laws.fails(&pod, self.agenda.now);
                self.server_ended(&pod, run);
            }
        }
        for (pod, run, full) in self.galera.begin_transfers() {
            let takes = if full { self.dice.between(5, 60) } else { self.dice.between(1, 4) };
            self.story.tell(self.agenda.now, &pod, || {
                format!("copies {}", if full { "everything" } else { "what it missed" })
            });
            self.agenda.put(takes * SECOND, Happening::Transferred { pod, run });
        }
        for alarm in std::mem::take(&mut self.galera.alarms) {
            self.story.tell(self.agenda.now, "galera", || match &alarm {
                Alarm::Founded { by, rows } => format!("{by} founds a cluster with {rows} rows"),
                Alarm::LostPrimary { of } => format!("no majority is left of {of:?}"),
                Alarm::Blind { by } => format!("{by:?} form without comparing positions"),
            });
            self.laws.hear(&alarm, &self.galera);
        }
        self.look_at_readiness();
        let asked_for = self.asked_for();
        self.laws
            .look(&self.galera, |pod| asked_for.is_none_or(|replicas| (0..replicas).contains(&ordinal(pod))));
        let line = || self.galera.servers.iter().map(|(pod, it)| format!("{pod}:{:?} ", it.doing)).collect();
        self.story.members(line);
        if self.store.version != self.woken {
            self.woken = self.store.version;
            let after = self.dice.between(20, 300);
            self.wake(0, after);
            self.wake(1, after / 2);
            let delay = self.guard.replicas[self.guard.leader].delay + after;
            self.wake(2, delay);
        }
    }

    /// Wakes controllers, kubelets or the leader, unless they are already about to run.
    pub fn wake(&mut self, who: usize, after: Millis) {
        if !self.waking[who] {
            self.waking[who] = true;
            let what = [Happening::Controllers, Happening::Kubelets, Happening::Leader][who].clone();
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
