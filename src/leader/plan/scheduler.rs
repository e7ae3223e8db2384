//! When a planned step is done: a step that was done and is not yet visible in the world rests, and some steps must be
//! due for a while.
//!
//! Must not know: what a step does, or a clock; the caller counts the time. A new leader starts with nothing
//! remembered.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::LeaderStep;

/// The pause before a step is repeated that failed, or whose result the world does not show.
const REPEAT_PAUSE: Duration = Duration::from_secs(10);
/// The longest wait while nothing is planned: a step may become due without any change, as when a reservation expires.
const IDLE: Duration = Duration::from_secs(30);
/// The pause after a conflict: the watch shows another client's change within this time.
const SOON: Duration = Duration::from_millis(200);
/// The limit of the interval at which the reports of members are read, which grows while they report nothing.
const MOST_PATIENT: Duration = Duration::from_secs(600);

/// What the leader remembers of the planned steps between two looks.
#[derive(Default)]
pub struct StepScheduler {
    /// The steps that rest, each until this time; `None`: as long as it is planned.
    rests: HashMap<LeaderStep, Option<Duration>>,
    /// How long the reports of a cluster are not read again, because its members reported nothing.
    asked: HashMap<LeaderStep, Duration>,
    /// Since when each step that must be due for a while is planned.
    waits: HashMap<LeaderStep, Duration>,
    /// The last refusal of each step whose Event was written.
    refused: HashMap<LeaderStep, String>,
}

impl StepScheduler {
    /// Returns the steps to do now.
    pub fn due<'s>(&mut self, steps: &'s [LeaderStep], now: Duration) -> Vec<&'s LeaderStep> {
        let planned: HashSet<&LeaderStep> = steps.iter().collect();
        self.asked.retain(|step, _| planned.contains(step));
        self.rests.retain(|step, until| planned.contains(step) && until.is_none_or(|until| now < until));
        self.waits.retain(|step, _| planned.contains(step));
        self.refused.retain(|step, _| planned.contains(step));
        for step in steps.iter().filter(|step| !step.patience().is_zero()) {
            self.waits.entry(step.clone()).or_insert(now);
        }
        let lasts =
            |step: &LeaderStep| self.waits.get(step).is_none_or(|since| now >= *since + step.patience());
        steps.iter().filter(|step| !self.rests.contains_key(step) && lasts(step)).collect()
    }

    /// Returns how long until another step may be due.
    pub fn again(&self, steps: &[LeaderStep], now: Duration) -> Duration {
        if steps.is_empty() {
            return IDLE;
        }
        let due = self.waits.iter().filter(|(step, _)| !self.rests.contains_key(*step));
        let due = due.map(|(step, since)| *since + step.patience());
        let next = due.chain(self.rests.values().flatten().copied()).min();
        next.map_or(REPEAT_PAUSE, |next| next.saturating_sub(now).min(REPEAT_PAUSE))
    }

    /// Notes that a step was done or tried, so that it is not repeated at once.
    pub fn did(&mut self, step: &LeaderStep, now: Duration) {
        let pause = match step {
            // An Event is not repeated while its cause lasts.
            LeaderStep::Announce(_) => None,
            LeaderStep::Ask { .. } => {
                let pause = self.asked.entry(step.clone()).or_insert(REPEAT_PAUSE / 2);
                *pause = (*pause * 2).min(MOST_PATIENT);
                Some(*pause)
            }
            _ => Some(REPEAT_PAUSE),
        };
        self.rests.insert(step.clone(), pause.map(|pause| now + pause));
    }

    /// Returns whether a refusal has another reason than the last one whose Event was written.
    pub fn is_news(&self, step: &LeaderStep, why: &str) -> bool {
        self.refused.get(step).is_none_or(|before| before != why)
    }

    /// Notes that the Event about a refusal was written.
    pub fn published(&mut self, step: &LeaderStep, why: String) {
        self.refused.insert(step.clone(), why);
    }

    /// Notes that an Event could not be written, so the step stays due.
    pub fn failed(&mut self, step: &LeaderStep, now: Duration) {
        self.rests.insert(step.clone(), Some(now + REPEAT_PAUSE));
    }

    /// Notes that the object changed meanwhile, as a StatefulSet does when its last member becomes Ready.
    pub fn missed(&mut self, step: &LeaderStep, now: Duration) {
        self.rests.insert(step.clone(), Some(now + SOON));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Announcement;
    use facts::view::Id;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn announce(note: &str) -> LeaderStep {
        let id = Id::new("db", "galera");
        LeaderStep::Announce(Announcement { id, uid: "u".to_owned(), reason: "R", note: note.to_owned() })
    }

    fn ask() -> LeaderStep {
        LeaderStep::Ask { id: Id::new("db", "galera"), uid: "u".to_owned() }
    }

    #[test]
    fn what_needs_patience_is_due_when_it_was_planned_for_long_enough_without_a_break() {
        let (mut pace, steps) = (StepScheduler::default(), [announce("a")]);
        assert!(pace.due(&steps, at(0)).is_empty());
        assert_eq!(pace.again(&steps, at(0)), at(10));
        assert!(pace.due(&steps, at(9)).is_empty());
        assert_eq!(pace.again(&steps, at(9)), at(1));
        pace.due(&[], at(9));
        assert_eq!(pace.again(&[], at(9)), IDLE, "time alone may change what is due");
        assert!(pace.due(&steps, at(10)).is_empty(), "it begins anew");
        assert_eq!(pace.due(&steps, at(20)), [&steps[0]]);
        pace.did(&steps[0], at(20));
        assert!(pace.due(&steps, at(1_020)).is_empty(), "what was announced is announced");
    }

    #[test]
    fn what_was_done_rests_and_what_missed_is_tried_soon() {
        let (mut pace, steps) = (StepScheduler::default(), [ask()]);
        for (now, pause) in [(0, 10), (10, 20), (30, 40)] {
            assert_eq!(pace.due(&steps, at(now)), [&steps[0]]);
            pace.did(&steps[0], at(now));
            assert!(pace.due(&steps, at(now + pause - 1)).is_empty());
        }
        assert!(pace.is_news(&steps[0], "a") && pace.is_news(&steps[0], "a"), "until its Event is written");
        pace.published(&steps[0], "a".to_owned());
        assert!(!pace.is_news(&steps[0], "a") && pace.is_news(&steps[0], "b"));
        assert_eq!(pace.due(&steps, at(70)), [&steps[0]]);
        pace.failed(&steps[0], at(70));
        assert!(pace.due(&steps, at(79)).is_empty() && pace.again(&steps, at(70)) == REPEAT_PAUSE);
        pace.missed(&steps[0], at(70));
        assert!(pace.due(&steps, at(70)).is_empty() && pace.again(&steps, at(70)) == SOON);
        assert_eq!(pace.due(&steps, at(70) + SOON), [&steps[0]]);
    }
}
