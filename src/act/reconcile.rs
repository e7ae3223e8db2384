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
use leader::plan::{self, Announcement, IncrementalPlanner, LeaderStep, StepScheduler};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::act::api::Fault;
use crate::act::guard::Guard;
use crate::act::lease::Leading;
use crate::act::telemetry::{chain, repeated};

/// The pause after planning, as a multiple of the time that planning took, which is therefore at most a fifth of the whole.
const PAUSE_FACTOR: u32 = 4;
/// The longest time for which the steps of one plan are carried out, however long planning took. What is left is planned again:
/// other steps may be more urgent.
const LONGEST_PASS: Duration = Duration::from_secs(2);

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
        if !leading.elected().await {
            return;
        }
        changed.mark_unchanged();
        let looked = Instant::now();
        let steps = context.look(|view| planner.next(view, began.elapsed()));
        let planning_ended = Instant::now();
        let rest = (planning_ended - looked) * PAUSE_FACTOR;
        // Clusters whose next steps must be planned again, because a step that destroys changes their world.
        let mut changed_by_us = BTreeSet::new();
        let mut more = false;
        for step in scheduler.due(&steps, began.elapsed()) {
            more = planning_ended.elapsed() > LONGEST_PASS;
            if more {
                break;
            }
            let cluster = step.cluster();
            if changed_by_us.contains(&cluster) {
                continue;
            }
            if step.destroys() {
                changed_by_us.insert(cluster);
            }
            if context.may(step) {
                one(&context, &mut scheduler, step, began).await;
            }
        }
        if more || !changed_by_us.is_empty() {
            // A plan that keeps changing must not starve other tasks.
            tokio::task::yield_now().await;
            continue;
        }
        // In a storm of watch events, worlds follow each other within a millisecond.
        tokio::time::sleep(rest).await;
        let again = tokio::time::sleep(scheduler.again(&steps, began.elapsed()));
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

async fn one(context: &StepContext, scheduler: &mut StepScheduler, step: &LeaderStep, began: Instant) {
    let Some(time) = context.leading.time_for_a_step() else { return };
    let outcome = timeout(time, apply::step(context, step)).await;
    match &outcome {
        Ok(Err(error)) if conflict(error) => scheduler.missed(step, began.elapsed()),
        // An Event that could not be written stays due.
        Ok(Err(_)) | Err(_) if matches!(step, LeaderStep::Announce(_)) => {
            scheduler.failed(step, began.elapsed());
        }
        _ => scheduler.did(step, began.elapsed()),
    }
    log(step, &outcome);
    if let Ok(Ok(Done::Refused(event))) = outcome
        && scheduler.is_news(step, &event.note)
        && let Some(time) = context.leading.time_for_a_step()
    {
        let error = match timeout(time, apply::announce(&context.client, &event)).await {
            Ok(Ok(())) => return scheduler.published(step, event.note),
            Ok(Err(error)) => chain(&error),
            Err(_) => NO_ANSWER.to_owned(),
        };
        if let Some(times) = repeated::times("Event about a step", &error) {
            warn!(%step, object = step.object(), error, times, "the Event about a refused step could not be written");
        }
    }
}

const NO_ANSWER: &str = "the API server did not answer before the leader's Lease could expire";

/// Logs the outcome of a step, as sentences instead of debug structures.
fn log(step: &LeaderStep, outcome: &StepOutcome) {
    let object = step.object();
    match outcome {
        Ok(Ok(Done::Yes)) => info!(%step, object, "a step is done"),
        Ok(Ok(Done::NotNow(why))) => info!(%step, object, why, "a step is postponed"),
        Ok(Ok(Done::Refused(event))) => info!(%step, object, why = event.note, "a step was refused"),
        // The object changed meanwhile, as a StatefulSet does when its last member becomes Ready, so the step is planned again.
        Ok(Err(error)) if conflict(error) => {
            info!(%step, object, "the step is planned again: its object has changed");
        }
        Ok(Err(error)) => warn!(%step, object, error = chain(error), "a step failed"),
        Err(_) => {
            warn!(%step, object, error = NO_ANSWER, "a step failed");
        }
    }
}

fn conflict(error: &kube::Error) -> bool {
    Fault::of(error) == Fault::Conflict
}

/// The result of a step; `Elapsed` means that the API server did not answer in time.
type StepOutcome = Result<Result<Done, kube::Error>, Elapsed>;

/// The outcome of a step that did not fail.
enum Done {
    /// The step is done.
    Yes,
    /// The step is postponed, for this reason: the cluster has changed, or something else must happen first.
    NotNow(String),
    /// The step was refused, and this Event should report it.
    Refused(Announcement),
}

/// The client, the guard and the lease, which every step needs.
struct StepContext {
    client: Client,
    guard: Arc<Guard>,
    leading: Leading,
}

impl StepContext {
    /// Returns whether the step may begin: this replica holds the lease, which no step outlasts, and a step that destroys still
    /// follows from the current world. This is checked again before every single call that deletes.
    fn may(&self, step: &LeaderStep) -> bool {
        self.leading.holds() && (!step.destroys() || self.look(|view| plan::still_due(step, view)))
    }

    /// Calls `look` with a view of the current world.
    fn look<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let guard = &self.guard;
        let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
        let (reservations, freshness) = (guard.reservations.current(), guard.freshness(&world));
        look(&View {
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
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_is_a_sentence_with_fields() {
        let page = Page::default();
        let writer = page.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let pod = Id::new("db", "galera-1");
        let step = LeaderStep::Address { pod, uid: "u".to_owned(), text: "[mysqld]".to_owned() };
        tracing::subscriber::with_default(lines.finish(), || {
            log(&step, &Ok(Ok(Done::NotNow("another one starts".to_owned()))));
        });
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let mut line: Value = serde_json::from_str(&text).unwrap();
        line.as_object_mut().unwrap().remove("timestamp");
        let is = json!({
            "level": "INFO",
            "message": "a step is postponed",
            "step": "give the member the current addresses of its peers",
            "object": "Pod db/galera-1",
            "why": "another one starts",
            "target": "gatera::act::reconcile",
        });
        assert_eq!(line, is);
    }
}
