//! The contents of the ConfigMaps that a cluster or a bootstrap node reads.
//!
//! All ConfigMaps are watched by their metadata alone, which is small; the text of one is fetched when a guarded workload
//! refers to it and its version has changed. In steady state nothing is fetched. The size of the texts that are kept is
//! bounded ([`TextRoom`]), and so is the number of ConfigMaps whose text is fetched, because users of one namespace can create
//! any number of them. Namespaces take turns, and a text that does not arrive is missing in its own namespace only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use facts::view::{Id, TextRoom};
use futures_util::{StreamExt as _, stream};
use kube::Client;
use objects::{ConfigMap, Unreadable};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::Message;
use crate::act::config_maps;
use crate::act::telemetry::{chain, repeated};

/// The number of ConfigMaps that a command fetches at the same time (`once.rs`).
pub(super) const CONCURRENT_FETCHES: usize = 16;
/// The memory per fetch that may run at the same time, because a ConfigMap may have 1.5 MB: with 128 MiB, four fetches may.
const MEMORY_PER_FETCH: usize = 32 << 20;
/// The largest number of fetches at the same time, however much memory there is.
const MAX_UNDER_WAY: usize = 32;
/// The memory per ConfigMap of one namespace that may be kept or fetched: with 128 MiB, 256 of each namespace may.
const MEMORY_PER_MAP: usize = 512 << 10;
const TOO_MANY: Unreadable =
    Unreadable::NotExamined("its namespace has more ConfigMaps than can be looked at");
/// The time after which the view no longer waits for a text.
const WAIT_LIMIT: Duration = Duration::from_secs(10);
pub(super) const LATE: Unreadable =
    Unreadable::NotExamined("the API server has not sent it within 10 seconds");
/// The pause before a fetch that failed is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The versions of ConfigMaps that exist, and those whose text is known.
#[derive(Debug)]
pub(super) struct ContentTracker {
    /// The maximum number of ConfigMaps of one namespace whose text is kept or fetched.
    max_per_namespace: usize,
    /// The maximum number of fetches under way; one namespace may have half of them.
    max_under_way: usize,
    /// The version in which each ConfigMap exists.
    existing: HashMap<Id, String>,
    /// The last version that needs no fetch: its text is kept, has no room, or cannot be read.
    known: HashMap<Id, String>,
    /// The fetches under way: when each began, and the version that existed then. Each ConfigMap has at most one, so that
    /// no answer overtakes another.
    under_way: HashMap<Id, (Instant, Option<String>)>,
    namespaces: BTreeMap<String, NamespaceQueue>,
    /// The number of ConfigMaps beyond the limit of their namespace, over all namespaces.
    beyond_count: usize,
    /// The namespace of the last fetch.
    last_namespace: String,
    /// When each text was first found not to be of the version that exists.
    outdated_since: HashMap<Id, Instant>,
    room: TextRoom,
    /// When a ConfigMap beyond a limit was last tried again.
    last_retry: Option<Instant>,
}

/// The ConfigMaps of one namespace.
#[derive(Debug, Default)]
struct NamespaceQueue {
    /// ConfigMaps whose text is known or requested; at most [`ContentTracker::max_per_namespace`].
    looked_at: HashSet<Id>,
    /// ConfigMaps that objects read, but for which that limit leaves no place.
    beyond: BTreeSet<Id>,
    /// ConfigMaps to be fetched, the oldest request first.
    queue: VecDeque<Id>,
}

/// The outcome of a fetch.
pub(super) enum Fetched {
    Text(Box<ConfigMap>),
    Unreadable(Unreadable),
    NotThere,
    Failed,
}

impl ContentTracker {
    /// Creates a tracker for a process with this memory, in bytes.
    pub(super) fn within(memory: usize) -> Self {
        Self {
            max_per_namespace: memory / MEMORY_PER_MAP,
            max_under_way: (memory / MEMORY_PER_FETCH).clamp(2, MAX_UNDER_WAY),
            existing: HashMap::new(),
            known: HashMap::new(),
            under_way: HashMap::new(),
            namespaces: BTreeMap::new(),
            beyond_count: 0,
            last_namespace: String::new(),
            outdated_since: HashMap::new(),
            room: TextRoom::with_memory(memory),
            last_retry: None,
        }
    }

    /// Records a version that the metadata watch reported.
    pub(super) fn set_version(&mut self, id: Id, version: String) {
        self.existing.insert(id, version);
    }

    /// Records that the ConfigMap is gone, according to the metadata watch.
    pub(super) fn set_gone(&mut self, id: &Id) {
        self.existing.remove(id);
    }

    /// Drops the text, and the answer of a fetch that is under way. Returns false if nothing was known or awaited.
    pub(super) fn forget(&mut self, id: &Id) -> bool {
        self.room.remove(id);
        self.known.remove(id);
        self.outdated_since.remove(id);
        let Some(namespace) = self.namespaces.get_mut(&id.namespace) else { return false };
        let was_beyond = namespace.beyond.remove(id);
        self.beyond_count -= usize::from(was_beyond);
        let was_tracked = namespace.looked_at.remove(id) || was_beyond;
        namespace.queue.retain(|queued| queued != id);
        if namespace.looked_at.is_empty() && namespace.beyond.is_empty() {
            self.namespaces.remove(&id.namespace);
        }
        was_tracked
    }

    /// Requests the text of a ConfigMap that an object reads, if the version that exists is not known. Returns whether the text
    /// is awaited, or an error if its namespace has too many ConfigMaps.
    pub(super) fn want(&mut self, id: &Id) -> Result<bool, Unreadable> {
        let Some(version) = self.existing.get(id).filter(|version| self.known.get(id) != Some(version))
        else {
            self.outdated_since.remove(id);
            return Ok(false);
        };
        if self.room.try_again(id) {
            self.known.insert(id.clone(), version.clone());
            return Ok(false);
        }
        let namespace = self.namespaces.entry(id.namespace.clone()).or_default();
        if namespace.looked_at.len() >= self.max_per_namespace && !namespace.looked_at.contains(id) {
            self.beyond_count += usize::from(namespace.beyond.insert(id.clone()));
            return Err(TOO_MANY);
        }
        namespace.looked_at.insert(id.clone());
        if !self.outdated_since.contains_key(id) {
            self.outdated_since.insert(id.clone(), Instant::now());
            if !self.under_way.contains_key(id) {
                namespace.queue.push_back(id.clone());
            }
        }
        Ok(true)
    }

    /// Returns the ConfigMap to fetch now, which then counts as under way: the next one of the next namespace that has fewer
    /// fetches under way than it may have.
    pub(super) fn next_fetch(&mut self) -> Option<Id> {
        // Usually no text is awaited, and there may be thousands of namespaces.
        while self.under_way.len() < self.max_under_way && !self.outdated_since.is_empty() {
            let waits = |(name, namespace): &(&String, &NamespaceQueue)| {
                let under_way = self.under_way.keys().filter(|id| id.namespace == **name);
                !namespace.queue.is_empty() && under_way.count() < self.max_under_way / 2
            };
            let after = self.namespaces.range::<str, _>((Excluded(&*self.last_namespace), Unbounded));
            self.last_namespace = after.chain(&self.namespaces).find(waits)?.0.clone();
            let id = self.namespaces.get_mut(&self.last_namespace)?.queue.pop_front()?;
            if self.outdated_since.contains_key(&id) && !self.under_way.contains_key(&id) {
                self.under_way.insert(id.clone(), (Instant::now(), self.existing.get(&id).cloned()));
                return Some(id);
            }
        }
        None
    }

    /// Queues the ConfigMap behind all others of its namespace.
    fn queue(&mut self, id: &Id) {
        self.namespaces.entry(id.namespace.clone()).or_default().queue.push_back(id.clone());
    }

    /// Ends a fetch with its answer. Returns whether the answer may be used. The answer is not older than the version that
    /// existed when the fetch began. If another version was reported since then, the text is fetched again, unless the answer
    /// has that version.
    pub(super) fn end_fetch(&mut self, id: &Id, answer: &Fetched) -> bool {
        let fetch = self.under_way.remove(id);
        let (Some((begun, version)), Some(current), Some(&since)) =
            (fetch, self.existing.get(id), self.outdated_since.get(id))
        else {
            return false;
        };
        let is_current = matches!(answer, Fetched::Text(map) if map.metadata.resource_version == *current);
        if matches!(answer, Fetched::Failed) {
            self.queue(id);
            return false;
        }
        if is_current || version.as_ref() == Some(current) {
            self.known.insert(id.clone(), current.clone());
            self.outdated_since.remove(id);
        } else {
            self.outdated_since.insert(id.clone(), begun.max(since));
            self.queue(id);
        }
        true
    }

    /// Reserves room for this ConfigMap, and lets it share equal texts of others.
    pub(super) fn take(&mut self, map: &mut ConfigMap) -> Result<(), Unreadable> {
        self.room.take(map)
    }

    /// Returns a ConfigMap that was beyond a limit and fits now, and forgets it as if it had never been fetched. Returns at most
    /// one a second, and none while another text is awaited.
    pub(super) fn next_that_fits(&mut self) -> Option<Id> {
        if self.last_retry.is_some_and(|last| last.elapsed() < RETRY_PAUSE) {
            return None;
        }
        let beyond = |namespace: &NamespaceQueue| {
            namespace.beyond.first().filter(|_| namespace.looked_at.len() < self.max_per_namespace).cloned()
        };
        let of_namespaces =
            || if self.beyond_count == 0 { None } else { self.namespaces.values().find_map(beyond) };
        let id = self.room.next_that_fits().or_else(of_namespaces)?;
        if self.awaited_since().is_some() {
            return None;
        }
        self.last_retry = Some(Instant::now());
        self.forget(&id);
        Some(id)
    }

    /// Returns the earliest time since which an awaited text is not of the version that exists; `None` if no text is awaited.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        self.outdated_since.values().filter(|since| since.elapsed() < WAIT_LIMIT).min().copied()
    }

    /// Returns the ConfigMaps whose text has not arrived in time.
    pub(super) fn late(&self) -> impl Iterator<Item = &Id> {
        self.outdated_since.iter().filter(|(_, since)| since.elapsed() >= WAIT_LIMIT).map(|(id, _)| id)
    }
}

/// Fetches the requested ConfigMaps until the sender of requests is gone.
pub(super) async fn fetch(
    client: Client,
    wanted: mpsc::UnboundedReceiver<Id>,
    sender: mpsc::Sender<(usize, Message)>,
    source: usize,
) {
    let wanted = stream::unfold(wanted, async |mut wanted| Some((wanted.recv().await?, wanted)));
    wanted
        .for_each_concurrent(None, |id| {
            let (client, sender) = (client.clone(), sender.clone());
            async move {
                let answer = fetch_one(&client, &id).await;
                // If the receiver is gone, the keeper has ended and needs no text.
                let _ = sender.send((source, Message::Fetched(id, answer))).await;
            }
        })
        .await;
}

/// Fetches one ConfigMap. After a failure the keeper queues it behind all others, so that it delays none of them.
async fn fetch_one(client: &Client, id: &Id) -> Fetched {
    match config_maps::get(client, id).await {
        Ok(Some(Ok(map))) => Fetched::Text(Box::new(map)),
        Ok(Some(Err(problem))) => {
            warn!(object = %id, %problem, "this object cannot be read, so the view does not hold it");
            Fetched::Unreadable(problem)
        }
        Ok(None) => Fetched::NotThere,
        Err(error) => {
            let error = chain(&error);
            if let Some(times) = repeated::times("ConfigMap", &error) {
                warn!(object = %id, error, times, "a ConfigMap could not be fetched; trying again");
            }
            sleep(RETRY_PAUSE).await;
            Fetched::Failed
        }
    }
}
