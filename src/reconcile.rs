//! The leader's loop: look at the world, do what the plan says.
//!
//! Must not know: why a step is right (`plan.rs` does). In steady state the plan is empty and nothing is called.
//! `reconcile/audit.rs` only looks.

pub mod audit;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::guard::{FIELD_MANAGER, Guard};
use crate::marks;
use crate::plan::{self, Step};
use crate::telemetry::chain;

/// A step that failed, or that the world does not show, is tried again after this.
const AGAIN: Duration = Duration::from_secs(10);

/// Works while `leading`, whenever the world has `changed`.
pub async fn run(
    client: Client,
    guard: Arc<Guard>,
    mut leading: watch::Receiver<bool>,
    mut changed: watch::Receiver<u64>,
) {
    // What was done and is not yet seen in the world: it must not be done again at every event in between.
    let mut done: HashMap<Step, Instant> = HashMap::new();
    loop {
        if leading.wait_for(|leading| *leading).await.is_err() {
            return;
        }
        changed.mark_unchanged();
        let steps = plan::next(&guard.world.load());
        done.retain(|step, at| steps.contains(step) && at.elapsed() < AGAIN);
        for step in &steps {
            if done.contains_key(step) {
                continue;
            }
            match apply(&client, step).await {
                Ok(()) => info!(?step, "step"),
                Err(error) => warn!(?step, error = chain(&error), "step"),
            }
            done.insert(step.clone(), Instant::now());
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

/// The mark is ours alone, so ownership of it is taken by force.
async fn apply(client: &Client, step: &Step) -> kube::Result<()> {
    let Step::MarkData(id) = step;
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), &id.namespace);
    let mark = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": id.name, "annotations": { format!("{}{}", marks::PREFIX, marks::DATA): "present" } },
    });
    api.patch(&id.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&mark)).await.map(drop)
}
