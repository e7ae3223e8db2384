//! Contents of ConfigMaps: only of those that a cluster or a bootstrap node reads.
//!
//! All ConfigMaps are watched by their metadata alone, which is little; the text of one is fetched when a workload of
//! ours refers to it and its version changed. In steady state nothing is fetched.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use decide::view::Id;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tracing::warn;

use super::{Message, unreadable};
use crate::act::config_maps;
use crate::act::telemetry::chain;

/// So many are fetched at once when the guard starts.
pub(super) const AT_ONCE: usize = 16;
/// A fetch that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Which versions exist, and which of them was asked for.
#[derive(Debug, Default)]
pub(super) struct Contents {
    exist: HashMap<Id, String>,
    asked: HashMap<Id, String>,
    /// Asked for and not arrived.
    pub(super) pending: Arc<AtomicUsize>,
}

impl Contents {
    /// The metadata watch saw this version.
    pub(super) fn saw(&mut self, id: Id, version: String) {
        self.exist.insert(id, version);
    }

    /// The metadata watch saw it go.
    pub(super) fn gone(&mut self, id: &Id) {
        self.exist.remove(id);
        self.asked.remove(id);
    }

    /// Somebody reads it: true if it exists in a version that was not asked for, which now counts as asked for.
    pub(super) fn lacks(&mut self, id: &Id) -> bool {
        let Some(version) = self.exist.get(id).filter(|version| self.asked.get(id) != Some(*version)) else {
            return false;
        };
        self.asked.insert(id.clone(), version.clone());
        self.pending.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// A ConfigMap that was fetched, for the facts.
pub(super) fn open(id: &Id, map: &ConfigMap) -> Message {
    match config_maps::read(map) {
        Ok(map) => Message::Put(Box::new(map)),
        Err(problem) => unreadable(id.clone(), problem),
    }
}

/// Fetches whatever it is asked for, until nobody can ask any more.
pub(super) async fn fetch(
    client: Client,
    wanted: mpsc::UnboundedReceiver<Id>,
    tell: mpsc::Sender<(usize, Message)>,
    source: usize,
) {
    let wanted = stream::unfold(wanted, async |mut wanted| Some((wanted.recv().await?, wanted)));
    wanted
        .for_each_concurrent(AT_ONCE, |id| {
            let (client, tell) = (client.clone(), tell.clone());
            async move {
                let found = one(&client, &id).await;
                for told in found.into_iter().chain([Message::Fetched]) {
                    // Nobody listens any more: the process ends.
                    let _ = tell.send((source, told)).await;
                }
            }
        })
        .await;
}

/// One ConfigMap; `None` if it is gone meanwhile, which the watch also tells.
async fn one(client: &Client, id: &Id) -> Option<Message> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &id.namespace);
    loop {
        match api.get_opt(&id.name).await {
            Ok(found) => return Some(open(id, &found?)),
            Err(error) => warn!(%id, error = chain(&error), "fetching a ConfigMap"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
