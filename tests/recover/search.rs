//! A search through what can happen on the way back: three members, their data, an obedient and a disobedient world. Servers
//! fall, pods are deleted by others, what was asked for is taken back; the command is killed, too, but it remembers nothing, so
//! that is no event. Members behave as the step and Galera do. Nobody may start the cluster who lacks what another one has,
//! nobody beside one that serves; and from wherever the world has led, the command alone leads back.

use std::collections::{BTreeMap, VecDeque};

use decide::config::Settings;
use decide::marks::recovery::Recovery;
use decide::object::Object;
use decide::recovery::{self, Step, Want};
use decide::view::{Facts, Freshness, Id, View, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::ID;
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

/// A member's pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    /// The position from which it may start the cluster.
    right: Option<u64>,
    /// It did.
    led: bool,
    does: Does,
    /// Started after the one that serves: it knows its address.
    finds: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Does {
    Starts,
    Told,
    Refused,
    Serves,
    /// It is not Ready for a moment, because it gives a copy.
    Gives,
    /// It served and fell, and its kubelet lets it rest. Where its data ended before that is still to be heard.
    Rests,
    Leaves,
}

impl Does {
    /// Clients and members find a server there, whether or not it is Ready.
    fn serves(self) -> bool {
        matches!(self, Self::Serves | Self::Gives)
    }
}

/// Everything that matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    pods: [Option<Pod>; 3],
    /// The last transaction on each disk.
    data: [u64; 3],
    /// Who may start first, and where its data ended when that was verified.
    granted: Option<(usize, u64)>,
}

const FRESH: Pod = Pod { right: None, led: false, does: Does::Starts, finds: false };

impl State {
    fn serves(&self) -> bool {
        self.pods.iter().flatten().any(|pod| pod.does.serves())
    }

    fn does(&self, it: usize) -> Option<Does> {
        self.pods[it].as_ref().map(|pod| pod.does)
    }

    /// As API servers show it.
    fn world(&self, settings: &Settings) -> World {
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
            scene.also.push(object);
        }
        let mut facts = Facts::of(&settings.adoption);
        for (kind, object) in scene.objects() {
            facts.put(Object::read(kind, &object.to_string()).unwrap());
        }
        for (ordinal, pod) in self.pods.iter().enumerate() {
            let ends = match pod.as_ref().map(|pod| pod.does) {
                Some(Does::Told) => self.data[ordinal],
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
        Some(format!("{STATEFUL_SET}-{member} at {ID}:{at} until=2026-12-01T10:00:00Z"))
    }

    /// What the command does now; `None`: it has nothing more to do.
    fn commanded(&self, settings: &Settings, want: &Want) -> Result<Option<Self>, String> {
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let ordinal = |name: &str| name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
        let mut after = self.clone();
        // That one is not Ready lasts for a moment only.
        let still = if self.pods.iter().flatten().any(|pod| pod.does == Does::Gives) { 0 } else { 30 };
        match recovery::next(cluster, &view, want, SignedDuration::from_secs(still)) {
            Step::Serves
                if self.pods.iter().all(|pod| pod.as_ref().is_some_and(|pod| pod.does == Does::Serves)) =>
            {
                return Ok(None);
            }
            Step::Finish { without } => {
                assert!(without.is_empty(), "{self:?}");
                after.granted = None;
                return Ok((after != *self).then_some(after));
            }
            Step::Serves | Step::Wait(_) => {}
            Step::Scale { .. } => panic!("nobody changes its replicas: {self:?}"),
            Step::Create { ordinal, .. } => {
                let ordinal = usize::try_from(ordinal).unwrap();
                after.pods[ordinal].get_or_insert_with(|| self.fresh(ordinal));
            }
            Step::Restart { member, .. } => {
                if let Some(pod) = &mut after.pods[ordinal(&member)] {
                    assert!(!pod.does.serves(), "{member} serves, and is made anew: {self:?}");
                    pod.does = Does::Leaves;
                }
            }
            Step::Ask { member, at, loss } => {
                assert_eq!(loss, None, "{self:?}");
                let until: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
                let asked = Recovery { member: member.clone(), position: at.clone(), until, loss };
                if let Some(why) = recovery::verify(&asked, cluster, &view) {
                    return Err(format!("the guard does not believe what the command sees: {why}"));
                }
                after.granted = Some((ordinal(&member), at.seqno));
            }
            Step::TakeBack(_) => after.granted = None,
            step @ (Step::Refuse { .. } | Step::Cannot(_)) => return Err(format!("{step:?}")),
        }
        Ok(Some(after))
    }

    /// A new pod, as the guard prepares it.
    fn fresh(&self, ordinal: usize) -> Pod {
        let right = self.leads(&Settings::default()).filter(|it| it.0 == ordinal);
        Pod { right: right.map(|it| it.1), finds: self.serves(), ..FRESH }
    }

    /// Whose new pod would be given the right to start the cluster, and from where.
    fn leads(&self, settings: &Settings) -> Option<(usize, u64)> {
        let (member, _) = self.granted?;
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let right = recovery::leads(cluster, &format!("{STATEFUL_SET}-{member}"), &view)?;
        Some((member, right.position.seqno))
    }

    /// A guard decides about what is done now by what it saw a moment ago: who would have led then, and who was believed then.
    fn seen_late(&self, led: Option<(usize, u64)>, believed: &[(usize, u64)]) -> Vec<Self> {
        let made = led.filter(|it| self.pods[it.0].is_none()).map(|(member, at)| {
            let mut late = self.clone();
            late.pods[member] = Some(Pod { right: Some(at), finds: self.serves(), ..FRESH });
            late
        });
        // What is granted by now stands on the object itself.
        let asked = believed.iter().filter(|it| self.granted.is_none_or(|granted| granted.0 == it.0));
        made.into_iter().chain(asked.map(|it| Self { granted: Some(*it), ..self.clone() })).collect()
    }

    /// Nobody looks at the pod that is made: the guard is away.
    fn unseen(&self, settings: &Settings) -> Option<Self> {
        let (member, _) = self.leads(settings).filter(|it| self.pods[it.0].is_none())?;
        let mut after = self.clone();
        after.pods[member] = Some(Pod { finds: self.serves(), ..FRESH });
        Some(after)
    }

    /// What happens by itself, sooner or later; an error: what must never happen.
    fn proceeds(&self) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for it in 0..3 {
            let mut after = self.clone();
            match &self.pods[it] {
                None => {
                    // The StatefulSet's turn.
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
                            }
                            None => becomes.does = Does::Told,
                        },
                        Does::Told if pod.finds && self.serves() => {
                            becomes.does = Does::Serves;
                            let newest = (0..3)
                                .filter(|other| self.does(*other).is_some_and(Does::serves))
                                .map(|other| self.data[other])
                                .max();
                            after.data[it] = newest.unwrap();
                        }
                        Does::Gives => becomes.does = Does::Serves,
                        Does::Rests => becomes.does = Does::Starts,
                        Does::Leaves => after.pods[it] = None,
                        Does::Told | Does::Refused | Does::Serves => continue,
                    }
                }
            }
            all.push(after);
        }
        Ok(all)
    }

    /// Bad luck, and others.
    fn suffers(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let ready = (0..3).any(|it| self.does(it) == Some(Does::Serves));
        if ready && self.data.iter().all(|it| *it < 9) {
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
                // It has told which cluster it is in, and knows it.
                (pod.does, pod.right) = (Does::Gives, None);
                all.push(gives);
            }
            if pod.does.serves() {
                let mut falls = self.clone();
                let fell = falls.pods[it].as_mut().unwrap();
                (fell.does, fell.finds) = (Does::Starts, false);
                let mut rests = falls.clone();
                rests.pods[it].as_mut().unwrap().does = Does::Rests;
                all.extend([falls, rests]);
            }
            if !matches!(pod.does, Does::Leaves) {
                let mut deleted = self.clone();
                deleted.pods[it].as_mut().unwrap().does = Does::Leaves;
                all.push(deleted);
            }
        }
        if self.granted.is_some() {
            all.push(Self { granted: None, ..self.clone() });
        }
        all
    }

    /// Nothing bad happens any more: does the command lead back?
    fn led_back(mut self, settings: &Settings) -> Result<(), String> {
        let from = self.clone();
        for _ in 0..80 {
            if let Some(after) = self.proceeds()?.into_iter().next() {
                self = after;
                continue;
            }
            match self.commanded(settings, &Want::default())? {
                None => return Ok(()),
                Some(after) if after == self => {
                    return Err(format!("nothing moves any more: {self:?}, from {from:?}"));
                }
                Some(after) => self = after,
            }
        }
        Err(format!("no end: {self:?}, from {from:?}"))
    }
}

#[test]
fn whatever_happens_on_the_way_nothing_is_lost_and_there_is_a_way_on() {
    // 28,030 states at 11, which takes minutes.
    let deepest = std::env::var("GATERA_RECOVER_DEPTH").map_or(7, |text| text.parse().expect("a number"));
    let settings = Settings::default();
    let pod = |does| Some(Pod { does, ..FRESH });
    let begins = [
        State { pods: [pod(Does::Told), None, None], data: [1, 3, 2], granted: None },
        State { pods: [pod(Does::Told), pod(Does::Told), pod(Does::Told)], data: [1, 2, 2], granted: None },
        // The first one serves, and another one has joined it.
        State {
            pods: [
                Some(Pod { right: Some(3), led: true, does: Does::Serves, finds: false }),
                Some(Pod { does: Does::Serves, finds: true, ..FRESH }),
                pod(Does::Told),
            ],
            data: [3, 3, 1],
            granted: Some((0, 3)),
        },
    ];
    let mut queue: VecDeque<_> = begins.into_iter().map(|state| (state, 0)).collect();
    // The fewest events after which a state was seen.
    let mut seen = BTreeMap::new();
    while let Some((state, depth)) = queue.pop_front() {
        match seen.insert(state.clone(), depth) {
            Some(before) if before <= depth => {
                seen.insert(state, before);
                continue;
            }
            Some(_) => {}
            None => state.clone().led_back(&settings).unwrap_or_else(|problem| panic!("{problem}")),
        }
        if depth == deepest {
            continue;
        }
        let mut next = state.proceeds().unwrap_or_else(|problem| panic!("{problem}"));
        let named = (0..3).map(|it: usize| Want { from: Some(it.to_string()), ..Want::default() });
        let again = Want { before: (0..3).map(|it| format!("pod-{it}")).collect(), ..Want::default() };
        let commanded = named
            .chain([Want::default(), again])
            .filter_map(|want| state.commanded(&settings, &want).ok().flatten());
        let commanded: Vec<_> = commanded.collect();
        let asked: Vec<_> =
            commanded.iter().filter_map(|it| it.granted).filter(|it| Some(*it) != state.granted).collect();
        next.extend(commanded);
        next.extend(state.suffers());
        next.extend(state.unseen(&settings));
        if depth + 2 <= deepest {
            let leads = state.leads(&settings);
            let late = next.iter().flat_map(|after| after.seen_late(leads, &asked));
            queue.extend(late.map(|state| (state, depth + 2)));
        }
        queue.extend(next.into_iter().map(|state| (state, depth + 1)));
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 500, "{} states", seen.len());
}
