//! A model of three members and their data, for `search.rs`. Members behave as the step script and Galera make them. Servers
//! crash, users delete pods, no node accepts a pod, a granted request is withdrawn.
//!
//! Must not know: what the command does in a state.

use std::collections::BTreeSet;

use facts::settings::Settings;
use facts::view::{Freshness, Id, View, World};
use objects::{Kind, Object};
use serde_json::json;

use super::{ID, reader};
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

/// A member's pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// The position from which it may start the cluster.
    pub right: Option<u64>,
    /// It has started the cluster.
    pub started: bool,
    pub phase: Phase,
    /// It was started while a member served, so it finds that member.
    pub finds: bool,
    /// The pod that reads this member's data while this one does not run.
    pub read: Option<Reader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    Runs,
    Reported(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Starts,
    Reported,
    Refused,
    Serves,
    /// It is not Ready for a moment, because it is the donor of a joiner.
    Donor,
    /// Its server served and crashed, and its container waits in back-off. The view still holds an earlier end of its data.
    BackOff,
    Deleted,
    /// No node accepts the pod, which has never run.
    Pending,
}

impl Reader {
    pub fn reported(self) -> Option<u64> {
        if let Self::Reported(seqno) = self { Some(seqno) } else { None }
    }
}

impl Phase {
    /// Returns whether clients and members find a server there, Ready or not.
    pub fn serves(self) -> bool {
        matches!(self, Self::Serves | Self::Donor)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    pub pods: [Option<Pod>; 3],
    /// The last transaction on each disk.
    pub data: [u64; 3],
    /// For each member, a bit mask of the members with which it served when it crashed, itself included; 0 if it was stopped in
    /// order or has joined since. Started as an ordinary member, it waits for all of these.
    pub views: [u8; 3],
    /// The member that may start first, and the end of its data when that was verified.
    pub granted: Option<(usize, u64)>,
    /// The number of nodes, where members must not share one and their volumes are not local; `None`: enough for all members.
    pub nodes: Option<usize>,
    /// The pod that starts first goes back to its node, even if other pods wait for one.
    pub kept: bool,
}

pub const NEW: Pod = Pod { right: None, started: false, phase: Phase::Starts, finds: false, read: None };

impl State {
    pub fn serves(&self) -> bool {
        self.pods.iter().flatten().any(|pod| pod.phase.serves())
    }

    pub fn phase(&self, it: usize) -> Option<Phase> {
        self.pods[it].as_ref().map(|pod| pod.phase)
    }

    /// Returns the world as the objects at the API server show it.
    pub fn world(&self, settings: &Settings) -> World {
        let mut scene = Scene { members: vec!["absent".to_owned(); 3], ..Scene::default() };
        scene.stateful_set = json!({ "metadata": { "annotations": { "gatera.dev/identity": ID } } });
        if let Some(text) = self.mark() {
            scene.stateful_set["metadata"]["annotations"]["gatera.dev/recover"] = json!(text);
            scene.stateful_set["metadata"]["annotations"]["gatera.dev/recovery"] = json!(text);
        }
        for (ordinal, pod) in self.pods.iter().enumerate() {
            let Some(pod) = pod else { continue };
            let word = if pod.phase == Phase::Serves { "ready" } else { "starting" };
            let words = vec!["absent".to_owned(); ordinal].into_iter().chain([word.to_owned()]).collect();
            let one = Scene { members: words, ..Scene::default() };
            let (_, mut object) = one.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
            let identity = pod
                .right
                .map_or(ID.to_owned(), |right| format!("recovery {ID}:{right} until=20261201100000"));
            object["metadata"]["annotations"]["gatera.dev/identity"] = json!(identity);
            let began = if pod.finds { "2026-12-01T09:20:00Z" } else { "2026-12-01T09:00:00Z" };
            let status = &mut object["status"]["containerStatuses"][0];
            status["state"]["running"]["startedAt"] =
                json!(if pod.phase.serves() { "2026-12-01T09:10:00Z" } else { began });
            status["started"] = json!(pod.phase.serves());
            status["restartCount"] = json!(u8::from(pod.started && !pod.phase.serves()));
            if pod.phase == Phase::BackOff {
                let status = &mut object["status"]["containerStatuses"][0];
                status["restartCount"] = json!(1);
                status["state"] = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
                status["lastState"] = json!({ "terminated": { "exitCode": 137, "startedAt": began, "message": "WSREP: Synchronized" } });
            }
            if pod.phase == Phase::Deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:50Z");
            }
            if pod.phase == Phase::Refused {
                object["status"]["containerStatuses"][0]["state"] =
                    json!({ "waiting": { "reason": "CrashLoopBackOff" } });
                let words = "gatera did not start the server: it was to start the cluster from elsewhere";
                object["status"]["containerStatuses"][0]["lastState"] =
                    json!({ "terminated": { "exitCode": 1, "message": words } });
            }
            object["spec"]["containers"][0]["startupProbe"] =
                json!({ "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } });
            if pod.phase == Phase::Pending {
                object["spec"].as_object_mut().unwrap().remove("nodeName");
                object["status"] = json!({ "phase": "Pending" });
            }
            scene.also.extend(pod.read.map(|read| reader::pod(&object, read.reported())));
            scene.also.push(object);
        }
        let mut facts = scene.facts(settings);
        for (ordinal, pod) in self.pods.iter().enumerate() {
            let ends = match pod.as_ref().map(|pod| pod.phase) {
                Some(Phase::Reported) => self.data[ordinal],
                Some(Phase::BackOff) => self.data[ordinal].saturating_sub(1),
                _ => continue,
            };
            let said = format!(
                "Startup probe failed: the server is DISCONNECTED; start of 2026-12-01T09:25:00Z: position {ID}:{ends}, stopped in order, \
                 safe_to_bootstrap 0"
            );
            let id = Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}"));
            facts.add_report(&id, &format!("pod-{ordinal}"), "2026-12-01T09:25:00Z".parse().unwrap(), &said);
        }
        World::build(facts, Freshness::Current)
    }

    fn mark(&self) -> Option<String> {
        let (member, at) = self.granted?;
        let on = if self.kept { format!(" on node-{member}") } else { String::new() };
        Some(format!("{STATEFUL_SET}-{member} at {ID}:{at}{on} until=2026-12-01T10:00:00Z"))
    }

    /// Returns a new pod as the guard prepares it and the scheduler places it.
    pub fn new_pod(&self, ordinal: usize) -> Pod {
        let right = self.may_start_first(&Settings::default()).filter(|it| it.0 == ordinal);
        let placed = self.has_a_node() || right.is_some() && self.kept && self.goes_back(ordinal);
        let phase = if placed { Phase::Starts } else { Phase::Pending };
        Pod { right: right.map(|it| it.1), phase, finds: self.serves(), ..NEW }
    }

    /// Returns whether the guard sends the pod back to its node, even if other pods wait for one.
    fn goes_back(&self, ordinal: usize) -> bool {
        let settings = Settings::default();
        let world = self.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let own = json!({ "metadata": { "name": format!("{STATEFUL_SET}-{ordinal}") } });
        let Ok(Object::Pod(own)) = Object::read(Kind::Pod, &own.to_string()) else { panic!("a pod") };
        engine::grant::node_to_start_on(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), &own, &view).is_some()
    }

    fn has_a_node(&self) -> bool {
        let placed = self.pods.iter().flatten().filter(|pod| pod.phase != Phase::Pending).count();
        self.nodes.is_none_or(|nodes| placed < nodes)
    }

    /// Returns the member whose new pod would get the right to start the cluster, and the position from which.
    pub fn may_start_first(&self, settings: &Settings) -> Option<(usize, u64)> {
        let (member, _) = self.granted?;
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let right = engine::grant::recovery_started_by(cluster, &format!("{STATEFUL_SET}-{member}"), &view)?;
        Some((member, right.position.seqno))
    }

    /// Returns the states after a guard with an earlier view gives its first member the right, or grants what it verified then.
    pub fn seen_late(&self, first: Option<(usize, u64)>, verified: &[(usize, u64)]) -> Vec<Self> {
        let made = first.filter(|it| self.pods[it.0].is_none()).map(|(member, at)| {
            let mut late = self.clone();
            late.pods[member] = Some(Pod { right: Some(at), ..self.new_pod(member) });
            late
        });
        // The current grant is on the object itself, so a late view does not hide it.
        let asked = verified.iter().filter(|it| self.granted.is_none_or(|granted| granted.0 == it.0));
        made.into_iter().chain(asked.map(|it| Self { granted: Some(*it), ..self.clone() })).collect()
    }

    /// Returns the state after the first member's pod is created while no guard runs, so that it does not get the right.
    pub fn unguarded(&self, settings: &Settings) -> Option<Self> {
        let (member, _) = self.may_start_first(settings).filter(|it| self.pods[it.0].is_none())?;
        let mut after = self.clone();
        // Without the guard no node is reserved for it either.
        let phase = if self.has_a_node() { Phase::Starts } else { Phase::Pending };
        after.pods[member] = Some(Pod { phase, finds: self.serves(), ..NEW });
        Some(after)
    }

    /// Returns the state after all members that served together when they crashed are there again: they continue by themselves,
    /// from the newest data among them.
    pub fn forms(&self) -> Option<Self> {
        if self.serves() {
            return None;
        }
        let of = |view: u8| (0..3).filter(move |it| view & (1 << it) != 0);
        let whole = |view: &u8| {
            *view != 0
                && of(*view).all(|it| self.phase(it) == Some(Phase::Reported) && self.views[it] == *view)
        };
        let view = self.views.into_iter().find(whole)?;
        let newest = of(view).map(|it| self.data[it]).max()?;
        let mut after = self.clone();
        for it in of(view) {
            (after.data[it], after.views[it]) = (newest, 0);
            let pod = after.pods[it].as_mut()?;
            (pod.phase, pod.right) = (Phase::Serves, None);
        }
        Some(after.changes_view())
    }

    /// Counts a change of the members as a transaction, as Galera does: a member that continues without another has newer data.
    fn changes_view(mut self) -> Self {
        for it in 0..3 {
            self.data[it] += u64::from(self.phase(it).is_some_and(Phase::serves));
        }
        self
    }

    /// Returns the same state with the smallest numbers in the same order, so that equivalent states are equal.
    pub fn normal(mut self) -> Self {
        let pods = self.pods.iter().flatten();
        let read =
            pods.clone().filter_map(|pod| pod.read?.reported()).chain(pods.filter_map(|pod| pod.right));
        let numbers: BTreeSet<u64> =
            read.chain(self.data).chain(self.granted.map(|granted| granted.1)).collect();
        let normal = |number: u64| u64::try_from(numbers.range(..number).count()).unwrap() + 1;
        self.data = self.data.map(normal);
        self.granted = self.granted.map(|(member, at)| (member, normal(at)));
        for pod in self.pods.iter_mut().flatten() {
            pod.right = pod.right.map(normal);
            pod.read =
                pod.read.map(|read| read.reported().map_or(Reader::Runs, |at| Reader::Reported(normal(at))));
        }
        self
    }

    /// Returns a bit mask of the members that serve now.
    fn view(&self) -> u8 {
        (0..3).filter(|it| self.phase(*it).is_some_and(Phase::serves)).fold(0, |view, it| view | 1 << it)
    }

    /// Returns the states that follow by themselves; an error describes what must never happen.
    pub fn next_states(&self) -> Result<Vec<Self>, String> {
        let mut all: Vec<_> = self.forms().into_iter().collect();
        // A pod that waits for a node takes the one that another has left.
        let takes =
            |it: &usize| self.nodes.is_some() && self.has_a_node() && self.phase(*it) == Some(Phase::Pending);
        all.extend((0..3).filter(takes).map(|it| self.placed(it)));
        for it in 0..3 {
            let mut after = self.clone();
            match &self.pods[it] {
                None => {
                    // It is this member's turn in the StatefulSet.
                    if (0..it).all(|lower| self.phase(lower) == Some(Phase::Serves)) {
                        after.pods[it] = Some(self.new_pod(it));
                        all.push(after);
                    }
                    continue;
                }
                Some(pod) => {
                    let becomes = after.pods[it].as_mut().unwrap();
                    match pod.phase {
                        Phase::Starts => match pod.right.filter(|_| !pod.started) {
                            Some(right) if right != self.data[it] => becomes.phase = Phase::Refused,
                            Some(_) => {
                                if self.serves() {
                                    return Err(format!(
                                        "member {it} starts a cluster beside one that serves: {self:?}"
                                    ));
                                }
                                if self.data.iter().any(|other| *other > self.data[it]) {
                                    return Err(format!(
                                        "member {it} starts the cluster, and others have newer data: {self:?}"
                                    ));
                                }
                                (becomes.started, becomes.phase) = (true, Phase::Serves);
                                after.views[it] = 0;
                                after = after.changes_view();
                            }
                            None => becomes.phase = Phase::Reported,
                        },
                        Phase::Reported if pod.finds && self.serves() => {
                            becomes.phase = Phase::Serves;
                            let newest = (0..3)
                                .filter(|other| self.phase(*other).is_some_and(Phase::serves))
                                .map(|other| self.data[other])
                                .max();
                            (after.data[it], after.views[it]) = (newest.unwrap(), 0);
                            after = after.changes_view();
                        }
                        Phase::Donor => becomes.phase = Phase::Serves,
                        Phase::BackOff => becomes.phase = Phase::Starts,
                        Phase::Deleted => after.pods[it] = None,
                        Phase::Pending if pod.read == Some(Reader::Runs) => {
                            becomes.read = Some(Reader::Reported(self.data[it]));
                        }
                        Phase::Reported | Phase::Refused | Phase::Serves | Phase::Pending => continue,
                    }
                }
            }
            all.push(after);
        }
        Ok(all)
    }

    /// Returns the states after a fault, a write of a client or an action of another user.
    pub fn faults(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let ready = (0..3).any(|it| self.phase(it) == Some(Phase::Serves));
        if ready {
            // A client writes.
            let mut after = self.clone();
            for it in 0..3 {
                after.data[it] += u64::from(self.phase(it).is_some_and(Phase::serves));
            }
            all.push(after);
        }
        for it in 0..3 {
            let Some(pod) = &self.pods[it] else { continue };
            if pod.phase == Phase::Serves {
                let mut donor = self.clone();
                let pod = donor.pods[it].as_mut().unwrap();
                // It has reported its cluster, and the guard has recorded that in its annotation.
                (pod.phase, pod.right) = (Phase::Donor, None);
                all.push(donor);
            }
            if pod.phase.serves() {
                let mut crashed = self.clone();
                let pod = crashed.pods[it].as_mut().unwrap();
                (pod.phase, pod.finds) = (Phase::Starts, false);
                crashed.views[it] = self.view();
                let crashed = crashed.changes_view();
                let mut in_back_off = crashed.clone();
                in_back_off.pods[it].as_mut().unwrap().phase = Phase::BackOff;
                all.extend([crashed, in_back_off]);
            }
            // One pod that no node accepts is enough.
            let held = || (0..3).any(|other| self.phase(other) == Some(Phase::Pending));
            if pod.phase == Phase::Starts && self.nodes.is_none() && !held() {
                let mut held = self.clone();
                held.pods[it].as_mut().unwrap().phase = Phase::Pending;
                all.push(held);
            }
            if pod.phase == Phase::Pending && self.nodes.is_none() {
                all.push(self.placed(it));
            }
            if !matches!(pod.phase, Phase::Deleted) {
                let mut deleted = self.clone();
                deleted.pods[it].as_mut().unwrap().phase = Phase::Deleted;
                if pod.phase.serves() {
                    deleted.views[it] = 0;
                    deleted = deleted.changes_view();
                }
                all.push(deleted);
            }
        }
        if self.granted.is_some() {
            all.push(Self { granted: None, kept: false, ..self.clone() });
        }
        all
    }

    /// Returns the state after the pod got a node. Its reader may still exist, but the view ignores what that has reported.
    pub fn placed(&self, it: usize) -> Self {
        let mut after = self.clone();
        let pod = after.pods[it].as_mut().unwrap();
        (pod.phase, pod.finds) = (Phase::Starts, self.serves());
        after
    }
}
