//! The leader's loop: look at the world, do what the plan says.
//!
//! Must not know: why a step is right (`plan.rs` does). In steady state the plan is empty and nothing is called.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::plan::{self, Step};
use crate::serve::{FIELD_MANAGER, Guard};

/// A step that failed is tried again when the world changes, or after this.
const AGAIN: Duration = Duration::from_secs(10);

/// Works while `leading`, whenever the world has `changed`.
pub async fn run(
    client: Client,
    guard: Arc<Guard>,
    mut leading: watch::Receiver<bool>,
    mut changed: watch::Receiver<u64>,
) {
    loop {
        if leading.wait_for(|leading| *leading).await.is_err() {
            return;
        }
        changed.mark_unchanged();
        let steps = plan::next(&guard.world.load());
        let mut failed = false;
        for step in steps {
            if let Err(error) = apply(&client, &step).await {
                warn!(?step, %error, "step");
                failed = true;
            } else {
                info!(?step, "step");
            }
        }
        let again =
            async { if failed { tokio::time::sleep(AGAIN).await } else { std::future::pending().await } };
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
        "metadata": { "name": id.name, "annotations": { "gatera.dev/data": "present" } },
    });
    api.patch(&id.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&mark)).await.map(drop)
}
