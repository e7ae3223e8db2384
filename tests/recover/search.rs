//! A search through the possible courses of a recovery, in the model of `model.rs`: a member starts the cluster only if it has
//! the newest data and no member serves, and from every state the command alone brings the cluster back. Killing the command is
//! not an event, because the command keeps no state.

use std::collections::{BTreeMap, VecDeque};

use facts::marks::recovery::Recovery;
use facts::settings::Settings;
use facts::view::View;
use jiff::{SignedDuration, Timestamp};
use leader::recovery::{self, RecoveryOptions, RecoveryStep};

use super::model::{NEW, Phase, Pod, Reader, State};
use crate::scene::{self, NAMESPACE, STATEFUL_SET};

impl State {
    /// Returns the state after the command's next step; `None` if nothing is left to do. `patient`: nothing has changed for more
    /// than five minutes.
    fn after_command(
        &self,
        settings: &Settings,
        want: &RecoveryOptions,
        patient: bool,
    ) -> Result<Option<Self>, String> {
        let world = self.world(settings);
        let view = View::new(&world, scene::now(), settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let ordinal = |name: &str| name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
        let mut after = self.clone();
        // A donor is not Ready for a moment only, and members that form the cluster by themselves do so at once, so the command
        // sees no long standstill.
        let moves = self.forms().is_some() || self.pods.iter().flatten().any(|pod| pod.phase == Phase::Donor);
        let still = if moves { 0 } else { 30 + 300 * i64::from(patient) };
        match recovery::next(cluster, &view, want, SignedDuration::from_secs(still)) {
            RecoveryStep::Serves
                if self.pods.iter().all(|pod| pod.as_ref().is_some_and(|pod| pod.phase == Phase::Serves)) =>
            {
                return Ok(None);
            }
            RecoveryStep::Finish { without } => {
                let held = |name: &String| self.phase(ordinal(name)) == Some(Phase::Pending);
                assert!(without.iter().all(held), "finished without {without:?}: {self:?}");
                (after.granted, after.kept) = (None, false);
                for pod in after.pods.iter_mut().flatten() {
                    pod.read = None;
                }
                return Ok((after != *self).then_some(after));
            }
            RecoveryStep::Serves | RecoveryStep::Wait(_) => {}
            RecoveryStep::Scale { .. } => {
                panic!("the command scales, although no event changes the replicas: {self:?}")
            }
            RecoveryStep::Create { ordinal, .. } => {
                let ordinal = usize::try_from(ordinal).unwrap();
                after.pods[ordinal].get_or_insert_with(|| self.new_pod(ordinal));
            }
            RecoveryStep::Read { member, .. } => {
                after.pods[ordinal(&member)].as_mut().unwrap().read = Some(Reader::Runs);
            }
            RecoveryStep::StopReading { member, .. } => {
                let pod = after.pods[ordinal(&member)].as_mut().unwrap();
                assert!(
                    pod.phase != Phase::Pending || self.serves(),
                    "the reader of {member} is deleted, and still needed: {self:?}"
                );
                pod.read = None;
            }
            RecoveryStep::Restart { member, .. } => {
                if let Some(pod) = &mut after.pods[ordinal(&member)] {
                    assert!(!pod.phase.serves(), "{member} serves, and its pod is recreated: {self:?}");
                    pod.phase = Phase::Deleted;
                }
            }
            RecoveryStep::Ask { member, at, node, loss } => {
                assert_eq!(loss, None, "the command asks for a recovery with a loss: {self:?}");
                let until: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
                let kept = node.is_some();
                let asked = Recovery { member: member.clone(), position: at.clone(), node, until, loss };
                if let Some(why) = engine::grant::refusal(&asked, cluster, &view) {
                    return Err(format!("the guard refuses what the command asks for: {why}"));
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

    /// Checks that the command alone brings the cluster back if no further fault happens. A pod that no node accepts gets a node
    /// only when the command has nothing else to do.
    fn recovers(mut self, settings: &Settings) -> Result<(), String> {
        let from = self.clone();
        let mut patient = false;
        for _ in 0..80 {
            if let Some(after) = self.next_states()?.into_iter().next() {
                self = after.normal();
                patient = false;
                continue;
            }
            let held = (0..3).find(|it| self.phase(*it) == Some(Phase::Pending));
            let after_command = self.after_command(settings, &RecoveryOptions::default(), patient);
            // As many members serve as there are nodes, and nothing is left to do.
            let serving = self.pods.iter().flatten().filter(|pod| pod.phase == Phase::Serves).count();
            let every_node_serves = self.nodes == Some(serving);
            if every_node_serves
                && after_command.as_ref().is_ok_and(|after| after.as_ref().is_none_or(|after| *after == self))
            {
                return Ok(());
            }
            self = match (after_command, held) {
                (Ok(None), None) => return Ok(()),
                (Err(problem), None) => return Err(problem),
                (Ok(None) | Err(_), Some(it)) if self.nodes.is_none() => self.placed(it),
                (Ok(None), Some(_)) => {
                    return Err(format!(
                        "the command ends, and too few members serve: {self:?}, from {from:?}"
                    ));
                }
                (Err(problem), Some(_)) => return Err(format!("{problem}: {self:?}, from {from:?}")),
                (Ok(Some(after)), held) if after == self => match held {
                    _ if !patient => {
                        patient = true;
                        continue;
                    }
                    Some(it) if self.serves() && self.nodes.is_none() => self.placed(it),
                    _ => return Err(format!("nothing changes any more: {self:?}, from {from:?}")),
                },
                (Ok(Some(after)), _) => after,
            };
            patient = false;
        }
        Err(format!("the recovery does not end: {self:?}, from {from:?}"))
    }
}

#[test]
fn no_course_of_events_loses_data_or_blocks_the_recovery() {
    let max_depth = std::env::var("GATERA_RECOVER_DEPTH").map_or(4, |text| text.parse().expect("a number"));
    let settings = Settings::default();
    let pod = |phase| Some(Pod { phase, ..NEW });
    let starts = [
        State {
            pods: [pod(Phase::Reported), None, None],
            data: [1, 3, 2],
            views: [0; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        State {
            pods: [pod(Phase::Reported), pod(Phase::Reported), pod(Phase::Reported)],
            data: [1, 2, 2],
            views: [0; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        // All members crashed at once; in the next state, one after the other.
        State {
            pods: [pod(Phase::Reported), pod(Phase::Starts), None],
            data: [2, 1, 2],
            views: [7; 3],
            granted: None,
            nodes: None,
            kept: false,
        },
        State {
            pods: [pod(Phase::Reported), pod(Phase::Reported), pod(Phase::BackOff)],
            data: [1, 2, 3],
            views: [7, 6, 4],
            granted: None,
            nodes: None,
            kept: false,
        },
        // The first member serves, and another one has joined it.
        State {
            pods: [
                Some(Pod { right: Some(3), started: true, phase: Phase::Serves, ..NEW }),
                Some(Pod { phase: Phase::Serves, finds: true, ..NEW }),
                pod(Phase::Reported),
            ],
            data: [3, 3, 1],
            views: [0; 3],
            granted: Some((0, 3)),
            nodes: None,
            kept: false,
        },
        // One node of three is lost, and members must not share one; the pod of the lost node waits for another.
        State {
            pods: [pod(Phase::Reported), pod(Phase::Reported), pod(Phase::Pending)],
            data: [2, 1, 2],
            views: [7; 3],
            granted: None,
            nodes: Some(2),
            kept: false,
        },
    ];
    let mut queue: VecDeque<_> = starts.into_iter().map(|state| (state, 0)).collect();
    // The smallest number of events after which each state was seen.
    let mut seen = BTreeMap::new();
    while let Some((state, depth)) = queue.pop_front() {
        match seen.insert(state.clone(), depth) {
            Some(before) if before <= depth => {
                seen.insert(state, before);
                continue;
            }
            Some(_) => {}
            None => state.clone().recovers(&settings).unwrap_or_else(|problem| panic!("{problem}")),
        }
        if depth == max_depth {
            continue;
        }
        let mut next = state.next_states().unwrap_or_else(|problem| panic!("{problem}"));
        let named = (0..3)
            .map(|it: usize| RecoveryOptions { from: Some(it.to_string()), ..RecoveryOptions::default() });
        let pods = (0..3).flat_map(|it| [format!("pod-{it}"), format!("reader-of-{STATEFUL_SET}-{it}")]);
        let again = RecoveryOptions { before: pods.collect(), ..RecoveryOptions::default() };
        let after_command = named
            .chain([RecoveryOptions::default(), again])
            .filter_map(|want| state.after_command(&settings, &want, false).ok().flatten());
        let after_command: Vec<_> = after_command.collect();
        let asked: Vec<_> = after_command
            .iter()
            .filter_map(|it| it.granted)
            .filter(|it| Some(*it) != state.granted)
            .collect();
        next.extend(after_command);
        next.extend(state.faults());
        next.extend(state.unguarded(&settings));
        if depth + 2 <= max_depth {
            let first = state.may_start_first(&settings);
            let late = next.iter().flat_map(|after| after.seen_late(first, &asked));
            queue.extend(late.map(|state| (state.normal(), depth + 2)));
        }
        queue.extend(next.into_iter().map(|state| (state.normal(), depth + 1)));
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 500, "the search has reached only {} states", seen.len());
}
