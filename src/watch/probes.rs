//! What probes said when they failed: kubelets make Events of it, which last an hour.
//!
//! Listed when somebody needs it, not watched: API servers keep no cache of Events, and in a large cluster most of them are
//! of this kind. Who may write such Events is for a policy of the chart to say (`policy-events.yaml`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use super::{PAGE, Told};
use crate::guard::Guard;
use crate::telemetry::chain;
use crate::view::{Cluster, Id};

/// Members that are not Ready are listened to this often.
const EVERY: Duration = Duration::from_secs(10);

/// One of them.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whose.
    pub pod: Id,
    /// The pod's uid.
    pub uid: String,
    /// When it last said so, by the kubelet's clock.
    pub at: Timestamp,
    /// What the probe printed, and the kubelet's own words before it.
    pub message: String,
}

/// All that are remembered, oldest first.
pub async fn outcomes(client: &Client, namespace: Option<&str>) -> kube::Result<Vec<Outcome>> {
    let api: Api<Event> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params = ListParams::default().fields("reason=Unhealthy,involvedObject.kind=Pod").limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items.into_iter().map(|event| {
            let about = event.involved_object;
            let pod = Id::new(&about.namespace.unwrap_or_default(), &about.name.unwrap_or_default());
            let (uid, message) = (about.uid.unwrap_or_default(), event.message.unwrap_or_default());
            let at = event.last_timestamp.map(|at| at.0).unwrap_or_default();
            Outcome { pod, uid, at, message }
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    found.sort_by_key(|outcome| outcome.at);
    Ok(found)
}

/// Listens to the members that are not Ready, as long as there are any, and hands on what they told.
pub(super) async fn hear(client: Client, guard: Arc<Guard>, tell: mpsc::Sender<(usize, Told)>) {
    let waits = |cluster: &&Cluster| cluster.pods().any(|pod| pod.running && !pod.ready && !pod.going);
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let world = guard.world.load_full();
        let namespaces: BTreeSet<_> = world.clusters().filter(waits).map(|it| &it.id.namespace).collect();
        for namespace in namespaces {
            match timeout(EVERY, outcomes(&client, Some(namespace))).await {
                // No source of the keeper's: it tells of no object.
                Ok(Ok(found)) => {
                    if tell.send((0, Told::Said(found))).await.is_err() {
                        return;
                    }
                }
                Ok(Err(error)) => warn!(namespace, error = chain(&error), "listing what members told"),
                Err(_) => warn!(namespace, error = "no answer", "listing what members told"),
            }
        }
    }
}
