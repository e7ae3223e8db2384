//! The leader's loop: look at the world, do what the plan says.
//!
//! Must not know: why a step is right (`plan.rs` does). In steady state the plan is empty and nothing is called.
//! `reconcile/apply.rs` does one step, `reconcile/finish.rs` the last one of a clean-up; `reconcile/audit.rs` only looks.

mod apply;
pub mod audit;
mod finish;
mod identity;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::guard::Guard;
use crate::lease::Leading;
use crate::plan::{self, Step};
use crate::telemetry::chain;
use crate::view::View;

/// A step that failed, or that the world does not show, is tried again after this. What lasts shorter is not worth an
/// Event.
const AGAIN: Duration = Duration::from_secs(10);
/// Somebody who tells nothing is asked less and less often.
const MOST_PATIENT: Duration = Duration::from_secs(600);

/// Works while `leading`, whenever the world has `changed`.
pub async fn run(client: Client, guard: Arc<Guard>, mut leading: Leading, mut changed: watch::Receiver<u64>) {
    let mut desk = Desk::default();
    let means = Means { client, guard, leading: leading.clone() };
    loop {
        if !leading.elected().await {
            return;
        }
        changed.mark_unchanged();
        let steps = means.look(plan::next);
        let mut anew = false;
        for step in desk.due(&steps) {
            // What follows is planned anew: the world is not the same after a step that destroys.
            anew = step.destroys();
            if !means.may(step) {
                break;
            }
            one(&means, &mut desk, step).await;
            if anew {
                break;
            }
        }
        if anew {
            // A plan that changes all the time must not take all the time.
            tokio::task::yield_now().await;
            continue;
        }
        let again = async {
            if steps.is_empty() { std::future::pending().await } else { tokio::time::sleep(AGAIN).await }
        };
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

async fn one(means: &Means, desk: &mut Desk, step: &Step) {
    let Some(time) = means.leading.time_for_a_step() else { return };
    let outcome = timeout(time, apply::step(means, step)).await;
    // What could not be told is still to be told.
    if matches!(outcome, Ok(Ok(_))) || !matches!(step, Step::Tell(_)) {
        desk.did(step);
    }
    match outcome {
        Ok(Ok(Done::Yes)) => info!(?step, "step"),
        Ok(Ok(Done::NotNow(why))) => info!(?step, why, "step, not now"),
        // It was changed meanwhile, as a StatefulSet is when its last member becomes Ready: planned anew.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => info!(?step, "step, not on this version"),
        Ok(Err(error)) => warn!(?step, error = chain(&error), "step"),
        Err(_) => warn!(?step, error = "no answer", "step"),
    }
}

/// What came of a step.
enum Done {
    /// It is done.
    Yes,
    /// The world has changed, or something else goes first.
    NotNow(String),
}

/// What a step is done with.
struct Means {
    client: Client,
    guard: Arc<Guard>,
    leading: Leading,
}

impl Means {
    /// No step begins without the lease (and none outlasts it), and none that destroys unless it follows from the world as it is now. Asked again
    /// before every single call that deletes.
    fn may(&self, step: &Step) -> bool {
        self.leading.holds() && (!step.destroys() || self.look(plan::next).contains(step))
    }

    /// Looks at the world as it is now.
    fn look<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let guard = &self.guard;
        let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
        let (released, freshness) = (guard.book.released(), guard.freshness(&world));
        look(&View { released: &released, freshness, ..View::new(&world, (guard.clock)(), &settings) })
    }
}

/// What was done and is not yet seen in the world: it must not be done again at every event in between.
#[derive(Default)]
struct Desk {
    done: HashMap<Step, Instant>,
    /// How long somebody who did not tell is not asked again.
    asked: HashMap<Step, Duration>,
    /// Since when something waits to be told.
    waits: HashMap<Step, Instant>,
}

impl Desk {
    /// What is to be done now.
    fn due<'s>(&mut self, steps: &'s [Step]) -> Vec<&'s Step> {
        let tells = |step: &Step| matches!(step, Step::Tell(_));
        // What was told is not told again while it lasts.
        self.asked.retain(|step, _| steps.contains(step));
        let pause = |step: &Step| self.asked.get(step).copied().unwrap_or(AGAIN);
        self.done.retain(|step, at| steps.contains(step) && (tells(step) || at.elapsed() < pause(step)));
        self.waits.retain(|step, _| steps.contains(step));
        for step in steps.iter().filter(|step| tells(step)) {
            self.waits.entry(step.clone()).or_insert_with(Instant::now);
        }
        let lasts = |step: &Step| self.waits.get(step).is_none_or(|since| since.elapsed() >= AGAIN);
        steps.iter().filter(|step| !self.done.contains_key(step) && lasts(step)).collect()
    }

    fn did(&mut self, step: &Step) {
        if matches!(step, Step::Ask { .. }) {
            let pause = self.asked.entry(step.clone()).or_insert(AGAIN / 2);
            *pause = (*pause * 2).min(MOST_PATIENT);
        }
        self.done.insert(step.clone(), Instant::now());
    }
}
