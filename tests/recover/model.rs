//! Three members and their data, in a world that obeys and one that does not, for `search.rs`: members behave like the step and
//! Galera, servers crash, pods are deleted by others, a pod fits on no node, a granted request is withdrawn.
//!
//! Must not know: what the command does about it.

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
    pub led: bool,
    pub does: Does,
    /// It was started after the member that serves, whose address it therefore knows.
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
pub enum Does {
    Starts,
    Reported,
    Refused,
    Serves,
    /// It is not Ready for a moment, because it is the donor of a joiner.
    Gives,
    /// Its server served and crashed, and its container waits in back-off. The view still holds an earlier end of its data.
    Rests,
    Leaves,
    /// No node accepts the pod, which has never run.
    Held,
}

impl Reader {
    pub fn reported(self) -> Option<u64> {
        if let Self::Reported(seqno) = self { Some(seqno) } else { None }
    }
}

impl Does {
    /// Whether clients and members find a server there, Ready or not.
    pub fn serves(self) -> bool {
        matches!(self, Self::Serves | Self::Gives)
    }
}

/// The state of the world.
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

pub const FRESH: Pod = Pod { right: None, led: false, does: Does::Starts, finds: false, read: None };

impl State {
    pub fn serves(&self) -> bool {
        self.pods.iter().flatten().any(|pod| pod.does.serves())
    }

    pub fn does(&self, it: usize) -> Option<Does> {
        self.pods[it].as_ref().map(|pod| pod.does)
    }

    /// Returns the world as API servers show it.
    pub fn world(&self, settings: &Settings) -> World {
        let mut scene = Scene { members: vec!["absent".to_owned(); 3], ..Scene::default() };
        scene.stateful_set = json!({ "metadata": { "annotations": { "gatera.dev/identity": ID } } });
        if let Some(text) = self.mark() {
            scene.stateful_set["metadata"]["annotations"]["gatera.dev/recover"] = json!(text);
            scene.stateful_set["metadata"]["annotations"]["gatera.dev/recovery"] = json!(text);
        }
        for (ordinal, pod) in self.pods.iter().enumerate() {
            let Some(pod) = pod else { continue };
            let word = if pod.does == Does::Serves { "ready" } else { "starting" };
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
                json!(if pod.does.serves() { "2026-12-01T09:10:00Z" } else { began });
            status["started"] = json!(pod.does.serves());
            status["restartCount"] = json!(u8::from(pod.led && !pod.does.serves()));
            if pod.does == Does::Rests {
                let status = &mut object["status"]["containerStatuses"][0];
                status["restartCount"] = json!(1);
                status["state"] = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
                status["lastState"] = json!({ "terminated": { "exitCode": 137, "startedAt": began, "message": "WSREP: Synchronized" } });
            }
            if pod.does == Does::Leaves {
                object["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:50Z");
            }
            if pod.does == Does::Refused {
                object["status"]["containerStatuses"][0]["state"] =
                    json!({ "waiting": { "reason": "CrashLoopBackOff" } });
                let words = "gatera did not start the server: it was to start the cluster from elsewhere";
                object["status"]["containerStatuses"][0]["lastState"] =
                    json!({ "terminated": { "exitCode": 1, "message": words } });
            }
            object["spec"]["containers"][0]["startupProbe"] =
                json!({ "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } });
            if pod.does == Does::Held {
                object["spec"].as_object_mut().unwrap().remove("nodeName");
                object["status"] = json!({ "phase": "Pending" });
            }
            scene.also.extend(pod.read.map(|read| reader::pod(&object, read.reported())));
            scene.also.push(object);
        }
        let mut facts = scene.facts(settings);
        for (ordinal, pod) in self.pods.iter().enumerate() {
            let ends = match pod.as_ref().map(|pod| pod.does) {
                Some(Does::Reported) => self.data[ordinal],
                Some(Does::Rests) => self.data[ordinal].saturating_sub(1),
                _ => continue,
            };
            let said = format!(
                "Startup probe failed: the server is DISCONNECTED; start of 2026-12-01T09:25:00Z: position {ID}:{ends}, stopped in order, \
                 safe_to_bootstrap 0"
            );
            let id = Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}"));
            facts.hear(&id, &format!("pod-{ordinal}"), "2026-12-01T09:25:00Z".parse().unwrap(), &said);
        }
        World::build(facts, Freshness::Current)
    }

    fn mark(&self) -> Option<String> {
        let (member, at) = self.granted?;
        let on = if self.kept { format!(" on node-{member}") } else { String::new() };
        Some(format!("{STATEFUL_SET}-{member} at {ID}:{at}{on} until=2026-12-01T10:00:00Z"))
    }

    /// Returns a new pod as the guard prepares it and the scheduler places it.
    pub fn fresh(&self, ordinal: usize) -> Pod {
        let right = self.leads(&Settings::default()).filter(|it| it.0 == ordinal);
        let placed = self.has_a_node() || right.is_some() && self.kept && self.goes_back(ordinal);
        let does = if placed { Does::Starts } else { Does::Held };
        Pod { right: right.map(|it| it.1), does, finds: self.serves(), ..FRESH }
    }

    /// Whether the guard names the node for it, even if other pods wait for one.
    fn goes_back(&self, ordinal: usize) -> bool {
        let settings = Settings::default();
        let world = self.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let own = json!({ "metadata": { "name": format!("{STATEFUL_SET}-{ordinal}") } });
        let Ok(Object::Pod(own)) = Object::read(Kind::Pod, &own.to_string()) else { panic!("a pod") };
        engine::grant::place(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), &own, &view).is_some()
    }

    /// Whether a node is free for a member.
    fn has_a_node(&self) -> bool {
        let placed = self.pods.iter().flatten().filter(|pod| pod.does != Does::Held).count();
        self.nodes.is_none_or(|nodes| placed < nodes)
    }

    /// Returns the member whose new pod would get the right to start the cluster, and the position from which.
    pub fn leads(&self, settings: &Settings) -> Option<(usize, u64)> {
        let (member, _) = self.granted?;
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let right = engine::grant::leads(cluster, &format!("{STATEFUL_SET}-{member}"), &view)?;
        Some((member, right.position.seqno))
    }

    /// Returns the states after a guard that decides by an earlier view: by its first member and its verified requests.
    pub fn seen_late(&self, led: Option<(usize, u64)>, believed: &[(usize, u64)]) -> Vec<Self> {
        let made = led.filter(|it| self.pods[it.0].is_none()).map(|(member, at)| {
            let mut late = self.clone();
            late.pods[member] = Some(Pod { right: Some(at), ..self.fresh(member) });
            late
        });
        // The current grant is on the object itself, so a late view does not hide it.
        let asked = believed.iter().filter(|it| self.granted.is_none_or(|granted| granted.0 == it.0));
        made.into_iter().chain(asked.map(|it| Self { granted: Some(*it), ..self.clone() })).collect()
    }

    /// Returns the state after the first member's pod is created while no guard runs, so that it is not prepared.
    pub fn unseen(&self, settings: &Settings) -> Option<Self> {
        let (member, _) = self.leads(settings).filter(|it| self.pods[it.0].is_none())?;
        let mut after = self.clone();
        // Without a guard no node is kept for it either.
        let does = if self.has_a_node() { Does::Starts } else { Does::Held };
        after.pods[member] = Some(Pod { does, finds: self.serves(), ..FRESH });
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
            *view != 0 && of(*view).all(|it| self.does(it) == Some(Does::Reported) && self.views[it] == *view)
        };
        let view = self.views.into_iter().find(whole)?;
        let newest = of(view).map(|it| self.data[it]).max()?;
        let mut after = self.clone();
        for it in of(view) {
            (after.data[it], after.views[it]) = (newest, 0);
            let pod = after.pods[it].as_mut()?;
            (pod.does, pod.right) = (Does::Serves, None);
        }
        Some(after.changes_view())
    }

    /// Counts a change of members as a transaction, as Galera does: a member that goes on without another has more than that one.
    fn changes_view(mut self) -> Self {
        for it in 0..3 {
            self.data[it] += u64::from(self.does(it).is_some_and(Does::serves));
        }
        self
    }

    /// Returns the same state with the smallest numbers in the same order, so that equivalent states are equal.
    pub fn least(mut self) -> Self {
        let pods = self.pods.iter().flatten();
        let read =
            pods.clone().filter_map(|pod| pod.read?.reported()).chain(pods.filter_map(|pod| pod.right));
        let numbers: BTreeSet<u64> =
            read.chain(self.data).chain(self.granted.map(|granted| granted.1)).collect();
        let least = |number: u64| u64::try_from(numbers.range(..number).count()).unwrap() + 1;
        self.data = self.data.map(least);
        self.granted = self.granted.map(|(member, at)| (member, least(at)));
        for pod in self.pods.iter_mut().flatten() {
            pod.right = pod.right.map(least);
            pod.read =
                pod.read.map(|read| read.reported().map_or(Reader::Runs, |at| Reader::Reported(least(at))));
        }
        self
    }

    /// Returns a bit mask of the members that serve now.
    fn view(&self) -> u8 {
        (0..3).filter(|it| self.does(*it).is_some_and(Does::serves)).fold(0, |view, it| view | 1 << it)
    }

    /// Returns the states that follow by themselves, sooner or later; an error describes what must never happen.
    pub fn proceeds(&self) -> Result<Vec<Self>, String> {
        let mut all: Vec<_> = self.forms().into_iter().collect();
        // A pod that waits for a node takes the one that another has left.
        let takes =
            |it: &usize| self.nodes.is_some() && self.has_a_node() && self.does(*it) == Some(Does::Held);
        all.extend((0..3).filter(takes).map(|it| self.let_go(it)));
        for it in 0..3 {
            let mut after = self.clone();
            match &self.pods[it] {
                None => {
                    // It is this member's turn in the StatefulSet.
                    if (0..it).all(|lower| self.does(lower) == Some(Does::Serves)) {
                        after.pods[it] = Some(self.fresh(it));
                        all.push(after);
                    }
                    continue;
                }
                Some(pod) => {
                    let becomes = after.pods[it].as_mut().unwrap();
                    match pod.does {
                        Does::Starts => match pod.right.filter(|_| !pod.led) {
                            Some(right) if right != self.data[it] => becomes.does = Does::Refused,
                            Some(_) => {
                                if self.serves() {
                                    return Err(format!(
                                        "{it} starts a cluster beside one that serves: {self:?}"
                                    ));
                                }
                                if self.data.iter().any(|other| *other > self.data[it]) {
                                    return Err(format!(
                                        "{it} starts the cluster, and others have more: {self:?}"
                                    ));
                                }
                                (becomes.led, becomes.does) = (true, Does::Serves);
                                after.views[it] = 0;
                                after = after.changes_view();
                            }
                            None => becomes.does = Does::Reported,
                        },
                        Does::Reported if pod.finds && self.serves() => {
                            becomes.does = Does::Serves;
                            let newest = (0..3)
                                .filter(|other| self.does(*other).is_some_and(Does::serves))
                                .map(|other| self.data[other])
                                .max();
                            (after.data[it], after.views[it]) = (newest.unwrap(), 0);
                            after = after.changes_view();
                        }
                        Does::Gives => becomes.does = Does::Serves,
                        Does::Rests => becomes.does = Does::Starts,
                        Does::Leaves => after.pods[it] = None,
                        Does::Held if pod.read == Some(Reader::Runs) => {
                            becomes.read = Some(Reader::Reported(self.data[it]));
                        }
                        Does::Reported | Does::Refused | Does::Serves | Does::Held => continue,
                    }
                }
            }
            all.push(after);
        }
        Ok(all)
    }

    /// Returns the states after bad luck or actions of others.
    pub fn suffers(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let ready = (0..3).any(|it| self.does(it) == Some(Does::Serves));
        if ready {
            // A client writes.
            let mut after = self.clone();
            for it in 0..3 {
                after.data[it] += u64::from(self.does(it).is_some_and(Does::serves));
            }
            all.push(after);
        }
        for it in 0..3 {
            let Some(pod) = &self.pods[it] else { continue };
            if pod.does == Does::Serves {
                let mut gives = self.clone();
                let pod = gives.pods[it].as_mut().unwrap();
                // It has reported its cluster, and the guard has recorded that in its annotation.
                (pod.does, pod.right) = (Does::Gives, None);
                all.push(gives);
            }
            if pod.does.serves() {
                let mut falls = self.clone();
                let fell = falls.pods[it].as_mut().unwrap();
                (fell.does, fell.finds) = (Does::Starts, false);
                falls.views[it] = self.view();
                let falls = falls.changes_view();
                let mut rests = falls.clone();
                rests.pods[it].as_mut().unwrap().does = Does::Rests;
                all.extend([falls, rests]);
            }
            // One such pod is enough.
            let held = || (0..3).any(|other| self.does(other) == Some(Does::Held));
            if pod.does == Does::Starts && self.nodes.is_none() && !held() {
                let mut held = self.clone();
                held.pods[it].as_mut().unwrap().does = Does::Held;
                all.push(held);
            }
            if pod.does == Does::Held && self.nodes.is_none() {
                all.push(self.let_go(it));
            }
            if !matches!(pod.does, Does::Leaves) {
                let mut deleted = self.clone();
                deleted.pods[it].as_mut().unwrap().does = Does::Leaves;
                if pod.does.serves() {
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

    /// Gives the pod a node. The view forgets what was read of its data, while the reader still exists.
    pub fn let_go(&self, it: usize) -> Self {
        let mut after = self.clone();
        let pod = after.pods[it].as_mut().unwrap();
        (pod.does, pod.finds) = (Does::Starts, self.serves());
        after
    }
}
