//! What the leader remembers between two looks: what was done and is not yet seen in the world, and since when something is
//! due that has to be due for a while.
//!
//! Must not know: what a step does. All of it is forgotten with the leader: whoever leads next waits anew.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::Step;

/// A step that failed, or that the world does not show, is tried again after this.
const AGAIN: Duration = Duration::from_secs(10);
/// The watch shows somebody else's change within this.
const SOON: Duration = Duration::from_millis(200);
/// Somebody who tells nothing is asked less and less often.
const MOST_PATIENT: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Desk {
    /// Until when each is not done again; `None`: as long as it is planned.
    rests: HashMap<Step, Option<Instant>>,
    /// How long somebody who did not tell is not asked again.
    asked: HashMap<Step, Duration>,
    /// Since when each that needs patience is planned.
    waits: HashMap<Step, Instant>,
    /// What somebody had against it.
    refused: HashMap<Step, String>,
}

impl Desk {
    /// What is to be done now.
    pub(super) fn due<'s>(&mut self, steps: &'s [Step]) -> Vec<&'s Step> {
        let now = Instant::now();
        self.asked.retain(|step, _| steps.contains(step));
        self.rests.retain(|step, until| steps.contains(step) && until.is_none_or(|until| now < until));
        self.waits.retain(|step, _| steps.contains(step));
        self.refused.retain(|step, _| steps.contains(step));
        for step in steps.iter().filter(|step| !step.patience().is_zero()) {
            self.waits.entry(step.clone()).or_insert(now);
        }
        let lasts = |step: &Step| self.waits.get(step).is_none_or(|since| now >= *since + step.patience());
        steps.iter().filter(|step| !self.rests.contains_key(step) && lasts(step)).collect()
    }

    /// How long until something may be due that is not now.
    pub(super) fn again(&self) -> Duration {
        let due = self.waits.iter().filter(|(step, _)| !self.rests.contains_key(*step));
        let due = due.map(|(step, since)| *since + step.patience());
        let next = due.chain(self.rests.values().flatten().copied()).min();
        next.map_or(AGAIN, |next| next.saturating_duration_since(Instant::now()).min(AGAIN))
    }

    /// It was done, or failed.
    pub(super) fn did(&mut self, step: &Step) {
        let pause = match step {
            // What was told is not told again while it lasts.
            Step::Tell(_) => None,
            Step::Ask { .. } => {
                let pause = self.asked.entry(step.clone()).or_insert(AGAIN / 2);
                *pause = (*pause * 2).min(MOST_PATIENT);
                Some(*pause)
            }
            _ => Some(AGAIN),
        };
        self.rests.insert(step.clone(), pause.map(|pause| Instant::now() + pause));
    }

    /// It was refused, and not for the same reason as before.
    pub(super) fn is_news(&mut self, step: &Step, why: &str) -> bool {
        self.refused.insert(step.clone(), why.to_owned()).is_none_or(|before| before != why)
    }

    /// Its object was changed meanwhile, as a StatefulSet is when its last member becomes Ready.
    pub(super) fn missed(&mut self, step: &Step) {
        self.rests.insert(step.clone(), Some(Instant::now() + SOON));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Told;
    use crate::view::Id;
    use tokio::time::advance;

    fn tell(note: &str) -> Step {
        let id = Id::new("db", "galera");
        Step::Tell(Told { id, uid: "u".to_owned(), reason: "R", note: note.to_owned() })
    }

    fn ask() -> Step {
        Step::Ask { id: Id::new("db", "galera"), uid: "u".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_needs_patience_is_due_when_it_was_planned_for_long_enough_without_a_break() {
        let (mut desk, steps) = (Desk::default(), [tell("a")]);
        assert!(desk.due(&steps).is_empty());
        assert_eq!(desk.again(), Duration::from_secs(10));
        advance(Duration::from_secs(9)).await;
        assert!(desk.due(&steps).is_empty());
        assert_eq!(desk.again(), Duration::from_secs(1));
        desk.due(&[]);
        advance(Duration::from_secs(1)).await;
        assert!(desk.due(&steps).is_empty(), "it begins anew");
        advance(Duration::from_secs(10)).await;
        assert_eq!(desk.due(&steps), [&steps[0]]);
        desk.did(&steps[0]);
        advance(Duration::from_secs(1_000)).await;
        assert!(desk.due(&steps).is_empty(), "what was told is told");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_done_rests_and_what_missed_is_tried_soon() {
        let (mut desk, steps) = (Desk::default(), [ask()]);
        for pause in [10, 20, 40] {
            assert_eq!(desk.due(&steps), [&steps[0]]);
            desk.did(&steps[0]);
            advance(Duration::from_secs(pause - 1)).await;
            assert!(desk.due(&steps).is_empty());
            advance(Duration::from_secs(1)).await;
        }
        assert!(
            desk.is_news(&steps[0], "a") && !desk.is_news(&steps[0], "a") && desk.is_news(&steps[0], "b")
        );
        desk.missed(&steps[0]);
        assert!(desk.due(&steps).is_empty() && desk.again() == SOON);
        advance(SOON).await;
        assert_eq!(desk.due(&steps), [&steps[0]]);
    }
}
