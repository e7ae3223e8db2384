//! A search through the possible courses of a recovery, in the world of `model.rs`. The command may be killed, too, but it
//! remembers nothing, so that is not an event. A member may start the cluster only if it lacks nothing that another has, and if
//! none serves; and from every state the command alone leads back to a serving cluster.

use std::collections::{BTreeMap, VecDeque};

use facts::marks::recovery::Recovery;
use facts::settings::Settings;
use facts::view::View;
use jiff::{SignedDuration, Timestamp};
use leader::recovery::{self, RecoveryStep, Want};

use super::model::{Does, FRESH, Pod, Reader, State};
use crate::scene::{self, NAMESPACE, STATEFUL_SET};

impl State {
    /// Returns the state after the command's next step; `None` if nothing is left to do.
    fn commanded(&self, settings: &Settings, want: &Want, patient: bool) -> Result<Option<Self>, String> {
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let ordinal = |name: &str| name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
        let mut after = self.clone();
        // A donor is not Ready for a moment only, and members that form the cluster by themselves do so at once, so the command
        // sees no long standstill.
        let moves = self.forms().is_some() || self.pods.iter().flatten().any(|pod| pod.does == Does::Gives);
        let still = if moves { 0 } else { 30 + 300 * i64::from(patient) };
        match recovery::next(cluster, &view, want, SignedDuration::from_secs(still)) {
            RecoveryStep::Serves
                if self.pods.iter().all(|pod| pod.as_ref().is_some_and(|pod| pod.does == Does::Serves)) =>
            {
                return Ok(None);
            }
            RecoveryStep::Finish { without } => {
                let held = |name: &String| self.does(ordinal(name)) == Some(Does::Held);
                assert!(without.iter().all(held), "{self:?}");
                (after.granted, after.kept) = (None, false);
                for pod in after.pods.iter_mut().flatten() {
                    pod.read = None;
                }
                return Ok((after != *self).then_some(after));
            }
            RecoveryStep::Serves | RecoveryStep::Wait(_) => {}
            RecoveryStep::Scale { .. } => panic!("nobody changes its replicas: {self:?}"),
            RecoveryStep::Create { ordinal, .. } => {
                let ordinal = usize::try_from(ordinal).unwrap();
                after.pods[ordinal].get_or_insert_with(|| self.fresh(ordinal));
            }
            RecoveryStep::Read { member, .. } => {
                after.pods[ordinal(&member)].as_mut().unwrap().read = Some(Reader::Runs);
            }
            RecoveryStep::StopReading { member, .. } => {
                let pod = after.pods[ordinal(&member)].as_mut().unwrap();
                assert!(pod.does != Does::Held || self.serves(), "it is still needed: {self:?}");
                pod.read = None;
            }
            RecoveryStep::Restart { member, .. } => {
                if let Some(pod) = &mut after.pods[ordinal(&member)] {
                    assert!(!pod.does.serves(), "{member} serves, and is made anew: {self:?}");
                    pod.does = Does::Leaves;
                }
            }
            RecoveryStep::Ask { member, at, node, loss } => {
                assert_eq!(loss, None, "{self:?}");
                let until: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
                let kept = node.is_some();
                let asked = Recovery { member: member.clone(), position: at.clone(), node, until, loss };
                if let Some(why) = engine::grant::verify(&asked, cluster, &view) {
                    return Err(format!("the guard does not believe what the command sees: {why}"));
                }
                (after.granted, after.kept) = (Some((ordinal(&member), at.seqno)), kept);
            }
            RecoveryStep::TakeBack(_) => (after.granted, after.kept) = (None, false),
            step @ (RecoveryStep::Refuse { .. } | RecoveryStep::Cannot(_) | RecoveryStep::ByHand(_)) => {
                return Err(format!("{step:?}"));
            }
        }
        Ok(Some(after))
    }

    /// Checks that the command alone leads back when nothing bad happens any more. A pod that fits on no node gets one only when,
    /// as the command says, nothing else is left to do.
    fn led_back(mut self, settings: &Settings) -> Result<(), String> {
        let from = self.clone();
        let mut patient = false;
        for _ in 0..80 {
            if let Some(after) = self.proceeds()?.into_iter().next() {
                self = after.least();
                patient = false;
                continue;
            }
            let held = (0..3).find(|it| self.does(*it) == Some(Does::Held));
            let commanded = self.commanded(settings, &Want::default(), patient);
            // As many members serve as there are nodes, and nothing is left to do.
            let serving = self.pods.iter().flatten().filter(|pod| pod.does == Does::Serves).count();
            let all = self.nodes == Some(serving);
            if all && commanded.as_ref().is_ok_and(|after| after.as_ref().is_none_or(|after| *after == self))
            {
                return Ok(());
            }
            self = match (commanded, held) {
                (Ok(None), None) => return Ok(()),
                (Err(problem), None) => return Err(problem),
                (Ok(None) | Err(_), Some(it)) if self.nodes.is_none() => self.let_go(it),
                (Ok(None), Some(_)) => {
                    return Err(format!("it ends, and too few serve: {self:?}, from {from:?}"));
                }
                (Err(problem), Some(_)) => return Err(format!("{problem}: {self:?}, from {from:?}")),
                (Ok(Some(after)), held) if after == self => match held {
                    _ if !patient => {
                        patient = true;
                        continue;
                    }
                    Some(it) if self.serves() && self.nodes.is_none() => self.let_go(it),
                    _ => return Err(format!("nothing moves any more: {self:?}, from {from:?}")),
                },
                (Ok(Some(after)), _) => after,
            };
            patient = false;
        }
        Err(format!("no end: {self:?}, from {from:?}"))
    }
}

#[test]
fn whatever_happens_on_the_way_nothing_is_lost_and_there_is_a_way_on() {
    let deepest = std::env::var("GATERA_RECOVER_DEPTH").map_or(4, |text| text.parse().expect("a number"));
    let settings = Settings::default();
    let pod = |does| Some(Pod { does, ..FRESH });
    let begins = [
        State {
            pods: [pod(Does::Reported), None, None],
            data: [1, 3, 2],
            views: [0; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        State {
            pods: [pod(Does::Reported), pod(Does::Reported), pod(Does::Reported)],
            data: [1, 2, 2],
            views: [0; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        // All members crashed at once; in the next state, one after the other.
        State {
            pods: [pod(Does::Reported), pod(Does::Starts), None],
            data: [2, 1, 2],
            views: [7; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        State {
            pods: [pod(Does::Reported), pod(Does::Reported), pod(Does::Rests)],
            data: [1, 2, 3],
            views: [7, 6, 4],
            granted: None,
            nodes: None,
            kept: false,
        },
        // The first member serves, and another one has joined it.
        State {
            pods: [
                Some(Pod { right: Some(3), led: true, does: Does::Serves, ..FRESH }),
                Some(Pod { does: Does::Serves, finds: true, ..FRESH }),
                pod(Does::Reported),
            ],
            data: [3, 3, 1],
            views: [0; 3],
            granted: Some((0, 3)),
            nodes: None,
            kept: false,
        },
        // One node of three is lost, and members must not share one; the pod of the lost node waits for another.
        State {
            pods: [pod(Does::Reported), pod(Does::Reported), pod(Does::Held)],
            data: [2, 1, 2],
            views: [7; 3],
            granted: None,
            nodes: Some(2),
            kept: false,
        },
    ];
    let mut queue: VecDeque<_> = begins.into_iter().map(|state| (state, 0)).collect();
    // The smallest number of events after which each state was seen.
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
        let pods = (0..3).flat_map(|it| [format!("pod-{it}"), format!("reader-of-{STATEFUL_SET}-{it}")]);
        let again = Want { before: pods.collect(), ..Want::default() };
        let commanded = named
            .chain([Want::default(), again])
            .filter_map(|want| state.commanded(&settings, &want, false).ok().flatten());
        let commanded: Vec<_> = commanded.collect();
        let asked: Vec<_> =
            commanded.iter().filter_map(|it| it.granted).filter(|it| Some(*it) != state.granted).collect();
        next.extend(commanded);
        next.extend(state.suffers());
        next.extend(state.unseen(&settings));
        if depth + 2 <= deepest {
            let leads = state.leads(&settings);
            let late = next.iter().flat_map(|after| after.seen_late(leads, &asked));
            queue.extend(late.map(|state| (state.least(), depth + 2)));
        }
        queue.extend(next.into_iter().map(|state| (state.least(), depth + 1)));
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 500, "{} states", seen.len());
}
