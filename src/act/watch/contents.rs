//! Contents of ConfigMaps: only of those that a cluster or a bootstrap node reads.
//!
//! All ConfigMaps are watched by their metadata alone, which is little; the text of one is fetched when a workload of
//! ours refers to it and its version changed. In steady state nothing is fetched. How much is kept is bounded
//! ([`Room`]), and so is how many are looked at: the people of one namespace can make any number of them. Namespaces take turns,
//! and a text that does not come is missing in its own namespace only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use facts::view::{Id, Room};
use futures_util::{StreamExt as _, stream};
use kube::Client;
use objects::{ConfigMap, Unreadable};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::Message;
use crate::act::config_maps;
use crate::act::telemetry::{chain, repeated};

/// One look asks for so many at once,
pub(super) const AT_ONCE: usize = 16;
/// and the guard, which has little memory: each may be a megabyte and a half.
const MOST_UNDER_WAY: usize = 2;
/// So many of one namespace are looked at.
const MOST: usize = 256;
const BEYOND: Unreadable = Unreadable::TooMuch("256 ConfigMaps of its namespace are looked at already");
/// What does not come within this time is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const LATE: Unreadable = Unreadable::TooMuch("the API server has not sent it within 10 seconds");
/// A fetch that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Which versions exist, and of which the text is known.
#[derive(Debug, Default)]
pub(super) struct Contents {
    exist: HashMap<Id, String>,
    /// The last version that needs no fetch: its text is kept, or found no room, or cannot be read.
    known: HashMap<Id, String>,
    /// Fetches under way, when each began, and what existed then. One for each ConfigMap at most, so no answer overtakes another.
    asked: HashMap<Id, (Instant, Option<String>)>,
    shares: BTreeMap<String, NamespaceQueue>,
    /// The namespace of the last fetch.
    last: String,
    /// Since when it is known that a text is not the one that exists.
    since: HashMap<Id, Instant>,
    room: Room,
    /// When one that found no room was tried again.
    tried: Option<Instant>,
}

/// One namespace.
#[derive(Debug, Default)]
struct NamespaceQueue {
    /// Those whose text is known or wanted,
    looked_at: HashSet<Id>,
    /// and those that are too many.
    beyond: BTreeSet<Id>,
    /// To be fetched, the longest wanted first.
    queue: VecDeque<Id>,
}

/// What came of a fetch.
pub(super) enum Fetched {
    Text(Box<ConfigMap>),
    Unreadable(Unreadable),
    NotThere,
    Failed,
}

impl Contents {
    /// The metadata watch saw this version.
    pub(super) fn saw(&mut self, id: Id, version: String) {
        self.exist.insert(id, version);
    }

    /// The metadata watch saw it go.
    pub(super) fn gone(&mut self, id: &Id) {
        self.exist.remove(id);
    }

    /// Its text is not kept any more, and what is under way comes for nothing. False: nothing was known or awaited of it.
    pub(super) fn forget(&mut self, id: &Id) -> bool {
        self.room.leave(id);
        self.known.remove(id);
        self.since.remove(id);
        let Some(share) = self.shares.get_mut(&id.namespace) else { return false };
        let was = share.looked_at.remove(id) | share.beyond.remove(id);
        share.queue.retain(|other| other != id);
        if share.looked_at.is_empty() && share.beyond.is_empty() {
            self.shares.remove(&id.namespace);
        }
        was
    }

    /// An object reads it: if it exists in a version whose text is not known, that one is wanted. True: it is awaited.
    pub(super) fn want(&mut self, id: &Id) -> Result<bool, Unreadable> {
        let Some(version) = self.exist.get(id).filter(|version| self.known.get(id) != Some(version)) else {
            self.since.remove(id);
            return Ok(false);
        };
        if self.room.try_again(id) {
            self.known.insert(id.clone(), version.clone());
            return Ok(false);
        }
        let share = self.shares.entry(id.namespace.clone()).or_default();
        if share.looked_at.len() >= MOST && !share.looked_at.contains(id) {
            share.beyond.insert(id.clone());
            return Err(BEYOND);
        }
        share.looked_at.insert(id.clone());
        if !self.since.contains_key(id) {
            self.since.insert(id.clone(), Instant::now());
            if !self.asked.contains_key(id) {
                share.queue.push_back(id.clone());
            }
        }
        Ok(true)
    }

    /// What to fetch now, which then counts as under way: the next of the next namespace that has none under way.
    pub(super) fn ask(&mut self) -> Option<Id> {
        while self.asked.len() < MOST_UNDER_WAY {
            let waits = |(namespace, share): &(&String, &NamespaceQueue)| {
                !share.queue.is_empty() && self.asked.keys().all(|id| id.namespace != **namespace)
            };
            let after = self.shares.range::<str, _>((Excluded(&*self.last), Unbounded));
            self.last = after.chain(&self.shares).find(waits)?.0.clone();
            let id = self.shares.get_mut(&self.last)?.queue.pop_front()?;
            if self.since.contains_key(&id) {
                self.asked.insert(id.clone(), (Instant::now(), self.exist.get(&id).cloned()));
                return Some(id);
            }
        }
        None
    }

    /// Behind all others of its namespace.
    fn queue(&mut self, id: &Id) {
        self.shares.entry(id.namespace.clone()).or_default().queue.push_back(id.clone());
    }

    /// An answer came. True: it may be taken. It is no older than what existed when it was asked for, so what was seen since then is
    /// asked for anew, unless this is it.
    pub(super) fn came(&mut self, id: &Id, answer: &Fetched) -> bool {
        let asked = self.asked.remove(id);
        let (Some((begun, then)), Some(now), Some(&since)) = (asked, self.exist.get(id), self.since.get(id))
        else {
            return false;
        };
        let is_that = matches!(answer, Fetched::Text(map) if map.metadata.resource_version == *now);
        if matches!(answer, Fetched::Failed) {
            self.queue(id);
            return false;
        }
        if is_that || then.as_ref() == Some(now) {
            self.known.insert(id.clone(), now.clone());
            self.since.remove(id);
        } else {
            self.since.insert(id.clone(), begun.max(since));
            self.queue(id);
        }
        true
    }

    /// Takes room for this text.
    pub(super) fn take(&mut self, map: &ConfigMap) -> Result<(), Unreadable> {
        self.room.take(map)
    }

    /// One that was not looked at and may be now, as if it had never been fetched: one a second, and only when no other is awaited.
    pub(super) fn that_fits(&mut self) -> Option<Id> {
        if self.tried.is_some_and(|tried| tried.elapsed() < PAUSE) || self.lack().is_some() {
            return None;
        }
        let beyond =
            |share: &NamespaceQueue| share.beyond.first().filter(|_| share.looked_at.len() < MOST).cloned();
        let id = self.room.that_fits().or_else(|| self.shares.values().find_map(beyond))?;
        self.tried = Some(Instant::now());
        self.forget(&id);
        Some(id)
    }

    /// Since when a text is not the one that exists; `None`: all are that can be waited for.
    pub(super) fn lack(&self) -> Option<Instant> {
        self.since.values().filter(|since| since.elapsed() < PATIENCE).min().copied()
    }

    /// Those that have not come in time.
    pub(super) fn late(&self) -> impl Iterator<Item = &Id> {
        self.since.iter().filter(|(_, since)| since.elapsed() >= PATIENCE).map(|(id, _)| id)
    }
}

/// Fetches the ConfigMaps that it is asked for, until the sender is gone.
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
                let answer = one(&client, &id).await;
                // The receiver is gone: the process ends.
                let _ = sender.send((source, Message::Fetched(id, answer))).await;
            }
        })
        .await;
}

/// One ConfigMap. What fails is put behind all others, so that it holds up none of them.
async fn one(client: &Client, id: &Id) -> Fetched {
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
                warn!(object = %id, error, times, "a ConfigMap could not be fetched and is fetched again");
            }
            sleep(PAUSE).await;
            Fetched::Failed
        }
    }
}
