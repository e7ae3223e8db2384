//! When a planned step is carried out: a step that was done rests for a while, because its result may not be visible in the
//! world yet, and some steps must be due for a while before they are carried out.
//!
//! Must not know: what a step does, or a clock; the caller counts the time. A new leader starts with nothing
//! remembered.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{LeaderStep, PlannedStep};

/// The pause before a step that failed, or whose result the world does not show, is repeated.
const REPEAT_PAUSE: Duration = Duration::from_secs(10);
/// The longest wait while nothing is planned: a step may become due without any change, for example when a reservation
/// expires.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// The pause after a conflict: the watch shows another client's change within this time.
const CONFLICT_PAUSE: Duration = Duration::from_millis(200);
/// The limit of the interval at which the reports of members are read, which grows while they report nothing.
const MAX_ASK_PAUSE: Duration = Duration::from_secs(600);

/// What the leader remembers about the planned steps from one pass to the next.
#[derive(Default)]
pub struct StepScheduler {
    /// The steps that rest, each until this time; `None`: as long as the step is planned.
    resting_until: HashMap<PlannedStep, Option<Duration>>,
    /// The pause before the reports of a cluster are read again, which grows while its members report nothing.
    ask_pauses: HashMap<PlannedStep, Duration>,
    /// Since when each step with a patience has been planned without a break.
    due_since: HashMap<PlannedStep, Duration>,
    /// The last refusal of each step whose Event was written.
    refused: HashMap<PlannedStep, String>,
}

impl StepScheduler {
    /// Returns the steps to do now.
    pub fn due<'s>(&mut self, steps: &'s [PlannedStep], now: Duration) -> Vec<&'s PlannedStep> {
        let planned: HashSet<&PlannedStep> = steps.iter().collect();
        self.ask_pauses.retain(|step, _| planned.contains(step));
        self.resting_until
            .retain(|step, until| planned.contains(step) && until.is_none_or(|until| now < until));
        self.due_since.retain(|step, _| planned.contains(step));
        self.refused.retain(|step, _| planned.contains(step));
        for step in steps.iter().filter(|step| !step.patience().is_zero()) {
            self.due_since.entry(step.clone()).or_insert(now);
        }
        let has_been_due =
            |step: &PlannedStep| self.due_since.get(step).is_none_or(|since| now >= *since + step.patience());
        steps.iter().filter(|step| !self.resting_until.contains_key(step) && has_been_due(step)).collect()
    }

    /// Returns how long until another step may be due.
    pub fn time_until_due(&self, steps: &[PlannedStep], now: Duration) -> Duration {
        if steps.is_empty() {
            return MAX_IDLE;
        }
        let due = self.due_since.iter().filter(|(step, _)| !self.resting_until.contains_key(*step));
        let due = due.map(|(step, since)| *since + step.patience());
        let next = due.chain(self.resting_until.values().flatten().copied()).min();
        next.map_or(REPEAT_PAUSE, |next| next.saturating_sub(now).min(REPEAT_PAUSE))
    }

    /// Notes that a step was done or tried, so that it is not repeated at once.
    pub fn record_done(&mut self, step: &PlannedStep, now: Duration) {
        let pause = match step.step {
            // An Event is not repeated while its cause lasts.
            LeaderStep::Announce(_) => None,
            LeaderStep::RecordIdentity => {
                let pause = self.ask_pauses.entry(step.clone()).or_insert(REPEAT_PAUSE / 2);
                *pause = (*pause * 2).min(MAX_ASK_PAUSE);
                Some(*pause)
            }
            _ => Some(REPEAT_PAUSE),
        };
        self.resting_until.insert(step.clone(), pause.map(|pause| now + pause));
    }

    /// Returns whether a refusal has another reason than the last one whose Event was written.
    pub fn is_news(&self, step: &PlannedStep, why: &str) -> bool {
        self.refused.get(step).is_none_or(|before| before != why)
    }

    /// Notes that the Event about a refusal was written.
    pub fn record_published(&mut self, step: &PlannedStep, why: String) {
        self.refused.insert(step.clone(), why);
    }

    /// Notes that an Event could not be written, so the step stays due.
    pub fn record_failure(&mut self, step: &PlannedStep, now: Duration) {
        self.resting_until.insert(step.clone(), Some(now + REPEAT_PAUSE));
    }

    /// Notes that the object changed meanwhile, for example a StatefulSet when its last member becomes Ready.
    pub fn record_conflict(&mut self, step: &PlannedStep, now: Duration) {
        self.resting_until.insert(step.clone(), Some(now + CONFLICT_PAUSE));
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

    fn planned(step: LeaderStep) -> PlannedStep {
        PlannedStep { id: Id::new("db", "galera"), uid: "u".to_owned(), step }
    }

    fn announce(note: &str) -> PlannedStep {
        planned(LeaderStep::Announce(Announcement { reason: "R", note: note.to_owned() }))
    }

    fn ask() -> PlannedStep {
        planned(LeaderStep::RecordIdentity)
    }

    #[test]
    fn a_step_with_patience_is_due_when_it_was_planned_for_long_enough_without_a_break() {
        let (mut scheduler, steps) = (StepScheduler::default(), [announce("a")]);
        assert!(scheduler.due(&steps, at(0)).is_empty());
        assert_eq!(scheduler.time_until_due(&steps, at(0)), at(10));
        assert!(scheduler.due(&steps, at(9)).is_empty());
        assert_eq!(scheduler.time_until_due(&steps, at(9)), at(1));
        scheduler.due(&[], at(9));
        assert_eq!(scheduler.time_until_due(&[], at(9)), MAX_IDLE, "time alone may change what is due");
        assert!(scheduler.due(&steps, at(10)).is_empty(), "the time begins again");
        assert_eq!(scheduler.due(&steps, at(20)), [&steps[0]]);
        scheduler.record_done(&steps[0], at(20));
        assert!(scheduler.due(&steps, at(1_020)).is_empty(), "an Event is written once");
    }

    #[test]
    fn a_step_that_was_done_rests_and_one_with_a_conflict_is_tried_soon() {
        let (mut scheduler, steps) = (StepScheduler::default(), [ask()]);
        for (now, pause) in [(0, 10), (10, 20), (30, 40)] {
            assert_eq!(scheduler.due(&steps, at(now)), [&steps[0]]);
            scheduler.record_done(&steps[0], at(now));
            assert!(scheduler.due(&steps, at(now + pause - 1)).is_empty());
        }
        assert!(
            scheduler.is_news(&steps[0], "a") && scheduler.is_news(&steps[0], "a"),
            "until its Event is written"
        );
        scheduler.record_published(&steps[0], "a".to_owned());
        assert!(!scheduler.is_news(&steps[0], "a") && scheduler.is_news(&steps[0], "b"));
        assert_eq!(scheduler.due(&steps, at(70)), [&steps[0]]);
        scheduler.record_failure(&steps[0], at(70));
        assert!(
            scheduler.due(&steps, at(79)).is_empty()
                && scheduler.time_until_due(&steps, at(70)) == REPEAT_PAUSE
        );
        scheduler.record_conflict(&steps[0], at(70));
        assert!(
            scheduler.due(&steps, at(70)).is_empty()
                && scheduler.time_until_due(&steps, at(70)) == CONFLICT_PAUSE
        );
        assert_eq!(scheduler.due(&steps, at(70) + CONFLICT_PAUSE), [&steps[0]]);
    }
}
