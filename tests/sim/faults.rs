//! Faults: servers that crash, nodes that lose power or network, replicas of the guard that restart or receive no events.
//!
//! Must not know: rules. No request causes these faults; the guard's answers must still be right after each of them.

use jiff::SignedDuration;
use leader::plan::{IncrementalPlanner, StepScheduler};
use objects::Kind;
use serde_json::json;

use super::api::Permission;
use super::clock::{Millis, SECOND, api_time};
use super::stage::{CONTROLLERS, KUBELETS, LEADER, Sim, SimEvent};
use super::store::text;

/// How long the node controller waits for a kubelet's report before it marks the node as not Ready.
const NODE_MONITOR_GRACE_PERIOD: Millis = 40 * SECOND;
/// How long after that the pods of the node are kept before they are deleted.
const TOLERATION: Millis = 300 * SECOND;

impl Sim {
    /// Causes a random fault and schedules the next one.
    pub fn fault(&mut self) {
        if self.is_quiet() {
            return;
        }
        let calm = self.knobs.calm;
        let after = self.dice.between(calm / 4, calm);
        self.agenda.put(after, SimEvent::Fault);
        match self.dice.below(100) {
            0..25 => self.crash_server(),
            25..35 => self.fail_node(true),
            35..45 => self.fail_node(false),
            45..48 => self.fail_all_power(),
            48..65 => self.restart_a_replica(),
            65..90 => self.stall_watches(),
            90..94 => self.move_leadership(),
            94..97 => self.set_clock_wrong(),
            _ => self.restart_all_replicas(),
        }
    }

    fn crash_server(&mut self) {
        let all: Vec<_> = self.galera.servers.iter().map(|(pod, it)| (pod.clone(), it.run)).collect();
        if let Some((pod, run)) = self.dice.one_of(&all).cloned() {
            self.story.record(self.agenda.now, "fault", || format!("the server of {pod} crashes"));
            self.laws.member_failed(&pod, self.agenda.now);
            self.server_ended(&pod, run);
        }
    }

    /// Cuts the power or only the network of a random node.
    fn fail_node(&mut self, power: bool) {
        let nodes = self.store.names(Kind::Node);
        let reachable: Vec<_> = nodes.into_iter().filter(|it| !self.is_unreachable(it)).collect();
        let Some(node) = self.dice.one_of(&reachable).cloned() else { return };
        self.story.record(self.agenda.now, "fault", || {
            format!("{node} loses its {}", if power { "power" } else { "network" })
        });
        let back = self.dice.between(5, 420) * SECOND;
        self.disconnect_node(&node, power, back);
    }

    fn pods_on(&self, node: &str) -> Vec<String> {
        let on_it = self.containers.iter().filter(|(_, it)| it.node == node);
        on_it.map(|(pod, _)| pod.clone()).collect()
    }

    fn disconnect_node(&mut self, node: &str, power: bool, back: Millis) {
        let now = self.agenda.now;
        for pod in self.pods_on(node) {
            self.laws.member_failed(&pod, self.agenda.now);
            if power {
                // The only serving member has every row on its disk. If others serve, too, its last rows may not be there yet.
                let alone = self.galera.servers.keys().filter(|it| self.galera.synced(it)).count() <= 1;
                let unwritten = if alone { 0 } else { self.dice.below(3) };
                self.galera.kill(&pod, unwritten);
                self.containers.remove(&pod);
            }
        }
        if power {
            self.without_power.insert(node.to_owned(), now);
        } else {
            self.galera.isolated.insert(node.to_owned());
        }
        self.agenda.put(back, SimEvent::NodeBack(node.to_owned()));
        for after in [NODE_MONITOR_GRACE_PERIOD, NODE_MONITOR_GRACE_PERIOD + TOLERATION] {
            self.agenda.put(after, SimEvent::NodeSilent { node: node.to_owned(), since: now });
        }
    }

    fn fail_all_power(&mut self) {
        self.story.record(self.agenda.now, "fault", || "the power fails on all nodes".to_owned());
        for node in self.store.names(Kind::Node) {
            if !self.is_unreachable(&node) {
                let back = self.dice.between(10, 120) * SECOND;
                self.disconnect_node(&node, true, back);
            }
        }
    }

    pub fn node_back(&mut self, node: &str) {
        self.story.record(self.agenda.now, "fault", || format!("{node} is back"));
        self.without_power.remove(node);
        self.galera.isolated.remove(node);
        self.set_node(node, "True");
        for pod in self.pods_on(node) {
            let container = self.containers[&pod].clone();
            self.report(&pod);
            if container.stopping {
                self.agenda.put(SECOND, SimEvent::Stopped { pod, uid: container.uid });
            } else {
                self.agenda.put(SECOND, SimEvent::Start { pod, uid: container.uid });
            }
        }
        self.wake(KUBELETS, SECOND);
        self.wake(CONTROLLERS, SECOND);
    }

    /// Marks a node and its pods as not Ready, and after the toleration deletes the pods.
    pub fn node_silent(&mut self, node: &str, since: Millis) {
        let now = self.agenda.now;
        if !self.is_unreachable(node) || self.without_power.get(node).is_some_and(|at| *at != since) {
            return;
        }
        self.set_node(node, "Unknown");
        let on_it = self.store.all(Kind::Pod).filter(|(_, it)| text(it, "/spec/nodeName") == node);
        for pod in on_it.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            let away = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": api_time(now) }]);
            self.store.edit(now, Kind::Pod, &pod, |it| it["status"]["conditions"] = away);
            if now - since > NODE_MONITOR_GRACE_PERIOD {
                self.mark_terminating(Kind::Pod, &pod, None, Permission::FailedOpen);
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

    fn restart_a_replica(&mut self) {
        let index = self.any_replica();
        self.restart_replica(index);
    }

    fn restart_replica(&mut self, index: usize) {
        self.story.record(self.agenda.now, "fault", || format!("guard-{index} restarts"));
        self.guard.replicas[index].up = false;
        let after = self.dice.between(2, 40) * SECOND;
        self.agenda.put(after, SimEvent::ReplicaBack(index));
        if index == self.guard.leader {
            self.move_leadership();
        }
    }

    fn restart_all_replicas(&mut self) {
        for index in self.guard.ready() {
            self.restart_replica(index);
        }
    }

    pub fn replica_back(&mut self, index: usize) {
        if !self.guard.replicas[index].up {
            self.guard.restart(index, &self.store, self.agenda.now);
            self.wake(LEADER, SECOND);
        }
    }

    fn stall_watches(&mut self) {
        let index = self.any_replica();
        let lasts = self.dice.between(1, 40) * SECOND;
        self.story.record(self.agenda.now, "fault", || {
            format!("guard-{index} receives no events for {} s", lasts / SECOND)
        });
        self.guard.replicas[index].no_events_until = self.agenda.now + lasts;
        self.agenda.put(lasts + 1, SimEvent::WatchesResume);
    }

    /// Sets the clock of a replica, or of a node with its members, to a wrong time, and sometimes to the right one again.
    fn set_clock_wrong(&mut self) {
        let minutes = *self.dice.one_of(&[0, 0, -180, -10, -1, 1, 10, 180]).unwrap();
        let off_by = SignedDuration::from_mins(minutes);
        let whose = if self.dice.below(2) == 0 {
            let index = self.any_replica();
            self.guard.replicas[index].clock_is_off_by = off_by;
            format!("guard-{index}")
        } else {
            let nodes = self.store.names(Kind::Node);
            let node = self.dice.one_of(&nodes).unwrap().clone();
            self.clock_errors.insert(node.clone(), off_by);
            node
        };
        self.story
            .record(self.agenda.now, "fault", || format!("the clock of {whose} is off by {minutes} min"));
        self.wake(LEADER, SECOND);
    }

    /// Makes a random ready replica the leader (perhaps the same one again), without the state of the previous leader.
    fn move_leadership(&mut self) {
        let ready = self.guard.ready();
        if let Some(index) = self.dice.one_of(&ready).copied() {
            self.story.record(self.agenda.now, "fault", || format!("guard-{index} leads now"));
            self.guard.leader = index;
            (self.scheduler, self.planner) = (StepScheduler::default(), IncrementalPlanner::default());
            self.wake(LEADER, SECOND);
        }
    }
}
