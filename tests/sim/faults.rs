//! Faults: servers that crash, nodes that lose power or network, replicas of the guard that restart or receive no events.
//!
//! Must not know: rules. No one causes these faults; the guard's answers must still be right after each of them.

use jiff::SignedDuration;
use leader::plan::{IncrementalPlanner, StepScheduler};
use objects::Kind;
use serde_json::json;

use super::api::Leave;
use super::clock::{Millis, SECOND, written};
use super::stage::{Happening, Sim};
use super::store::text;

/// How long the node controller waits for a kubelet's report.
const PATIENCE: Millis = 40 * SECOND;
/// How long after that pods are evicted from the node.
const TOLERANCE: Millis = 300 * SECOND;

impl Sim {
    pub fn fault(&mut self) {
        if self.is_over() {
            return;
        }
        let calm = self.knobs.calm;
        let after = self.dice.between(calm / 4, calm);
        self.agenda.put(after, Happening::Fault);
        match self.dice.below(100) {
            0..25 => self.server_crashes(),
            25..35 => self.a_node(true),
            35..45 => self.a_node(false),
            45..48 => self.power_fails(),
            48..65 => self.replica_restarts(),
            65..90 => self.replica_hears_nothing(),
            90..94 => self.leadership_moves(),
            94..97 => self.clock_jumps(),
            _ => self.guard_is_away(),
        }
    }

    fn server_crashes(&mut self) {
        let all: Vec<_> = self.galera.servers.iter().map(|(pod, it)| (pod.clone(), it.run)).collect();
        if let Some((pod, run)) = self.dice.one_of(&all).cloned() {
            self.story.tell(self.agenda.now, "fault", || format!("the server of {pod} crashes"));
            self.laws.fails(&pod, self.agenda.now);
            self.server_ended(&pod, run);
        }
    }

    /// Takes the power, or the network, from a node.
    fn a_node(&mut self, power: bool) {
        let nodes = self.store.names(Kind::Node);
        let lit: Vec<_> = nodes.into_iter().filter(|it| !self.silent(it)).collect();
        let Some(node) = self.dice.one_of(&lit).cloned() else { return };
        self.story.tell(self.agenda.now, "fault", || {
            format!("{node} loses its {}", if power { "power" } else { "network" })
        });
        let back = self.dice.between(5, 420) * SECOND;
        self.goes_silent(&node, power, back);
    }

    fn pods_on(&self, node: &str) -> Vec<String> {
        let on_it = self.lives.iter().filter(|(_, it)| it.node == node);
        on_it.map(|(pod, _)| pod.clone()).collect()
    }

    fn goes_silent(&mut self, node: &str, power: bool, back: Millis) {
        let now = self.agenda.now;
        for pod in self.pods_on(node) {
            self.laws.fails(&pod, self.agenda.now);
            if power {
                // The last serving member has its last rows on disk; others may not yet.
                let alone = self.galera.servers.keys().filter(|it| self.galera.synced(it)).count() <= 1;
                let unwritten = if alone { 0 } else { self.dice.below(3) };
                self.galera.vanish(&pod, unwritten);
                self.lives.remove(&pod);
            }
        }
        if power {
            self.dark.insert(node.to_owned(), now);
        } else {
            self.galera.isolated.insert(node.to_owned());
        }
        self.agenda.put(back, Happening::NodeBack(node.to_owned()));
        for after in [PATIENCE, PATIENCE + TOLERANCE] {
            self.agenda.put(after, Happening::NodeSilent { node: node.to_owned(), since: now });
        }
    }

    fn power_fails(&mut self) {
        self.story.tell(self.agenda.now, "fault", || "the power fails, everywhere".to_owned());
        for node in self.store.names(Kind::Node) {
            if !self.silent(&node) {
                let back = self.dice.between(10, 120) * SECOND;
                self.goes_silent(&node, true, back);
            }
        }
    }

    pub fn node_back(&mut self, node: &str) {
        self.story.tell(self.agenda.now, "fault", || format!("{node} is back"));
        self.dark.remove(node);
        self.galera.isolated.remove(node);
        self.set_node(node, "True");
        for pod in self.pods_on(node) {
            let life = self.lives[&pod].clone();
            self.report(&pod);
            if life.stopping {
                self.agenda.put(SECOND, Happening::Stopped { pod, uid: life.uid });
            } else {
                self.agenda.put(SECOND, Happening::Start { pod, uid: life.uid });
            }
        }
        self.wake(1, SECOND);
        self.wake(0, SECOND);
    }

    /// Marks a node and its pods as not Ready, and after the toleration deletes the pods.
    pub fn node_silent(&mut self, node: &str, since: Millis) {
        let now = self.agenda.now;
        if !self.silent(node) || self.dark.get(node).is_some_and(|at| *at != since) {
            return;
        }
        self.set_node(node, "Unknown");
        let on_it = self.store.all(Kind::Pod).filter(|(_, it)| text(it, "/spec/nodeName") == node);
        for pod in on_it.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            let away = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": written(now) }]);
            self.store.edit(now, Kind::Pod, &pod, |it| it["status"]["conditions"] = away);
            if now - since > PATIENCE {
                self.mark_going(Kind::Pod, &pod, None, Leave::Unasked);
            }
        }
    }

    fn set_node(&mut self, node: &str, status: &str) {
        self.store.edit(self.agenda.now, Kind::Node, node, |it| {
            it["status"]["conditions"][0]["status"] = json!(status);
        });
    }

    fn any_replica(&mut self) -> usize {
        usize::try_from(self.dice.below(self.guard.replicas.len() as u64)).unwrap()
    }

    fn replica_restarts(&mut self) {
        let index = self.any_replica();
        self.goes_down(index);
    }

    fn goes_down(&mut self, index: usize) {
        self.story.tell(self.agenda.now, "fault", || format!("guard-{index} restarts"));
        self.guard.replicas[index].up = false;
        let after = self.dice.between(2, 40) * SECOND;
        self.agenda.put(after, Happening::ReplicaBack(index));
        if index == self.guard.leader {
            self.leadership_moves();
        }
    }

    fn guard_is_away(&mut self) {
        for index in self.guard.ready() {
            self.goes_down(index);
        }
    }

    pub fn replica_back(&mut self, index: usize) {
        if !self.guard.replicas[index].up {
            self.guard.restart(index, &self.store, self.agenda.now);
            self.wake(2, SECOND);
        }
    }

    fn replica_hears_nothing(&mut self) {
        let index = self.any_replica();
        let lasts = self.dice.between(1, 40) * SECOND;
        self.story.tell(self.agenda.now, "fault", || {
            format!("guard-{index} hears nothing for {} s", lasts / SECOND)
        });
        self.guard.replicas[index].silent_until = self.agenda.now + lasts;
        self.agenda.put(lasts + 1, Happening::Hears);
    }

    /// Sets the clock of a replica, or of a node with its members, wrong, and sometimes right again.
    fn clock_jumps(&mut self) {
        let minutes = *self.dice.one_of(&[0, 0, -180, -10, -1, 1, 10, 180]).unwrap();
        let off_by = SignedDuration::from_mins(minutes);
        let whose = if self.dice.below(2) == 0 {
            let index = self.any_replica();
            self.guard.replicas[index].clock_is_off_by = off_by;
            format!("guard-{index}")
        } else {
            let nodes = self.store.names(Kind::Node);
            let node = self.dice.one_of(&nodes).unwrap().clone();
            self.clocks.insert(node.clone(), off_by);
            node
        };
        self.story.tell(self.agenda.now, "fault", || format!("the clock of {whose} is off by {minutes} min"));
        self.wake(2, SECOND);
    }

    /// Moves leadership to a replica, which starts without memory.
    fn leadership_moves(&mut self) {
        let ready = self.guard.ready();
        if let Some(index) = self.dice.one_of(&ready).copied() {
            self.story.tell(self.agenda.now, "fault", || format!("guard-{index} leads now"));
            self.guard.leader = index;
            (self.pace, self.lookout) = (StepScheduler::default(), IncrementalPlanner::default());
            self.wake(2, SECOND);
        }
    }
}
