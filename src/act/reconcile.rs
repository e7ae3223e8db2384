//! The leader's loop: plans from the current view, and carries out the steps that are due.
//!
//! Must not know: why a step is right (`plan.rs` does). In steady state the plan is empty and no API call is made.
//! `reconcile/apply.rs` carries out one step, and `reconcile/finish.rs` the last one of a clean-up. `reconcile/audit.rs`
//! changes nothing, and `reconcile/policy_reports.rs` writes its findings as Reports for web pages.

mod apply;
pub mod audit;
mod configure;
mod finish;
mod identity;
mod policy_reports;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use facts::view::View;
use kube::Client;
use leader::plan::{self, Announcement, IncrementalPlanner, LeaderStep, PlannedStep, StepScheduler};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::act::api::{Fault, outcome_in_words};
use crate::act::guard::Guard;
use crate::act::lease::Leading;
use crate::act::telemetry::{chain, repeated};

/// The pause after a pass, as a multiple of the time that planning took: planning takes at most a fifth of the time. A pass that
/// leaves steps over or destroys something is followed by the next one without a pause.
const PAUSE_FACTOR: u32 = 4;
/// The time after planning from which no further step of the plan begins. The remaining steps are planned again, because others
/// may be more urgent by then.
const MAX_PASS: Duration = Duration::from_secs(2);

/// Carries out the plan while this replica leads, each time the world has `changed` or a step may have become due.
pub async fn run(client: Client, guard: Arc<Guard>, mut leading: Leading, mut changed: watch::Receiver<u64>) {
    let (mut scheduler, mut planner, began) =
        (StepScheduler::default(), IncrementalPlanner::default(), Instant::now());
    let context = StepContext { client, guard, leading: leading.clone() };
    loop {
        if !leading.holds() {
            // Another leader may change the world now, so steps that were planned from an older world are dropped.
            planner = IncrementalPlanner::default();
        }
        if !leading.until_leading().await {
            return;
        }
        changed.mark_unchanged();
        let planning_began = Instant::now();
        let steps = context.with_view(|view| planner.next(view, began.elapsed()));
        let planning_ended = Instant::now();
        let pause = (planning_ended - planning_began) * PAUSE_FACTOR;
        // Clusters whose next steps must be planned again, because a step that destroys changes their world.
        let mut changed_by_us = BTreeSet::new();
        let mut any_left = false;
        for step in scheduler.due(&steps, began.elapsed()) {
            any_left = planning_ended.elapsed() > MAX_PASS;
            if any_left {
                break;
            }
            if changed_by_us.contains(&step.id) {
                continue;
            }
            if step.destroys() {
                changed_by_us.insert(step.id.clone());
            }
            if context.may(step) {
                carry_out(&context, &mut scheduler, step, began).await;
            }
        }
        if any_left || !changed_by_us.is_empty() {
            // A plan that keeps changing must not starve other tasks.
            tokio::task::yield_now().await;
            continue;
        }
        // During a burst of watch events a new world arrives every millisecond; without a pause each would be planned.
        tokio::time::sleep(pause).await;
        let next_due = tokio::time::sleep(scheduler.time_until_due(&steps, began.elapsed()));
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = next_due => {}
        }
    }
}

async fn carry_out(context: &StepContext, scheduler: &mut StepScheduler, step: &PlannedStep, began: Instant) {
    let Some(time) = context.leading.time_for_a_step() else { return };
    let outcome = timeout(time, apply::step(context, step)).await;
    match &outcome {
        Ok(Err(error)) if is_conflict(error) => scheduler.record_conflict(step, began.elapsed()),
        // An Event that could not be written stays due.
        Ok(Err(_)) | Err(_) if matches!(step.step, LeaderStep::Announce(_)) => {
            scheduler.record_failure(step, began.elapsed());
        }
        _ => scheduler.record_done(step, began.elapsed()),
    }
    log_outcome(step, &outcome);
    if let Ok(Ok(StepResult::Refused(event))) = outcome
        && scheduler.is_news(step, &event.note)
        && let Some(time) = context.leading.time_for_a_step()
    {
        let request = apply::announce(&context.client, step, &event);
        let Err(error) = outcome_in_words(time, NO_ANSWER, request).await else {
            return scheduler.record_published(step, event.note);
        };
        if let Some(times) = repeated::times("Event about a step", &error) {
            warn!(step = %step.step, object = step.object(), error, times, "the Event about a refused step could not be written");
        }
    }
}

const NO_ANSWER: &str = "the API server did not answer before the leader's Lease could expire";

/// Logs the outcome of a step, as sentences instead of debug structures.
fn log_outcome(planned: &PlannedStep, outcome: &StepOutcome) {
    let (step, object) = (&planned.step, planned.object());
    match outcome {
        Ok(Ok(StepResult::Done)) => info!(%step, object, "a step is done"),
        Ok(Ok(StepResult::Postponed(why))) => info!(%step, object, why, "a step is postponed"),
        Ok(Ok(StepResult::Refused(event))) => info!(%step, object, why = event.note, "a step was refused"),
        // An object often changes meanwhile, for example a StatefulSet when its last member becomes Ready.
        Ok(Err(error)) if is_conflict(error) => {
            info!(%step, object, "the step is planned again: its object has changed");
        }
        Ok(Err(error)) => warn!(%step, object, error = chain(error), "a step failed"),
        Err(_) => {
            warn!(%step, object, error = NO_ANSWER, "a step failed");
        }
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    Fault::of(error) == Fault::Conflict
}

/// The outcome of a step; `Elapsed`: the API server did not answer in time.
type StepOutcome = Result<Result<StepResult, kube::Error>, Elapsed>;

/// The result of a step that did not fail.
enum StepResult {
    /// The step is done.
    Done,
    /// The step is postponed, for this reason: the cluster has changed, or something else must happen first.
    Postponed(String),
    /// The step was refused, and this Event should report it.
    Refused(Announcement),
}

/// The client, the guard and the leadership, which every step needs.
struct StepContext {
    client: Client,
    guard: Arc<Guard>,
    leading: Leading,
}

impl StepContext {
    /// Returns whether the step may begin: this replica leads, and if the step destroys something, it still follows from the
    /// current world. This is checked again before every single call that deletes.
    fn may(&self, step: &PlannedStep) -> bool {
        self.leading.holds() && (!step.destroys() || self.with_view(|view| plan::still_due(step, view)))
    }

    /// Calls `read` with a view of the current world.
    fn with_view<T>(&self, read: impl FnOnce(&View<'_>) -> T) -> T {
        let guard = &self.guard;
        let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
        let (reservations, freshness) = (guard.reservations.current(), guard.freshness(&world));
        read(&View {
            reservations: &reservations,
            freshness,
            ..View::new(&world, (guard.clock)(), &settings)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Mutex, PoisonError};

    use facts::view::Id;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_is_a_sentence_with_fields() {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let pod = Id::new("db", "galera-1");
        let (id, uid) = (Id::new("db", "galera"), "u".to_owned());
        let step = LeaderStep::UpdateOptionFile { pod, uid: uid.clone(), text: "[mysqld]".to_owned() };
        let step = PlannedStep { id, uid, step };
        tracing::subscriber::with_default(lines.finish(), || {
            log_outcome(&step, &Ok(Ok(StepResult::Postponed("another one starts".to_owned()))));
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let mut line: Value = serde_json::from_str(&text).unwrap();
        line.as_object_mut().unwrap().remove("timestamp");
        let expected = json!({
            "level": "INFO",
            "message": "a step is postponed",
            "step": "give the member the current addresses of its peers",
            "object": "Pod db/galera-1",
            "why": "another one starts",
            "target": "gatera::act::reconcile",
        });
        assert_eq!(line, expected);
    }
}
