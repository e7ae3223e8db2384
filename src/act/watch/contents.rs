//! Contents of ConfigMaps: only of those that a cluster or a bootstrap node reads.
//!
//! All ConfigMaps are watched by their metadata alone, which is little; the text of one is fetched when a workload of
//! ours refers to it and its version changed. In steady state nothing is fetched. How much is kept is bounded
//! ([`Room`]).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use decide::object::{ConfigMap, Object, Unreadable};
use decide::view::{Id, Room};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1 as api;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{Message, unreadable};
use crate::act::config_maps;
use crate::act::telemetry::chain;

/// One look asks for so many at once,
pub(super) const AT_ONCE: usize = 16;
/// and the guard, which has little memory: each may be a megabyte and a half.
const MOST_UNDER_WAY: usize = 2;
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
    /// To be fetched, the longest wanted first.
    queue: VecDeque<Id>,
    /// Since when it is known that a text is not the one that exists.
    since: HashMap<Id, Instant>,
    room: Room,
}

/// What came of a fetch.
pub(super) enum Answer {
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
        self.known.remove(id).is_some() | self.since.remove(id).is_some()
    }

    /// An object reads it: if it exists in a version whose text is not known, that one is wanted. True: it is awaited.
    pub(super) fn want(&mut self, id: &Id) -> bool {
        if self.exist.get(id).is_none_or(|version| self.known.get(id) == Some(version)) {
            self.since.remove(id);
            return false;
        }
        if !self.since.contains_key(id) {
            self.since.insert(id.clone(), Instant::now());
            if !self.asked.contains_key(id) {
                self.queue.push_back(id.clone());
            }
        }
        true
    }

    /// What to fetch now, which then counts as under way.
    pub(super) fn ask(&mut self) -> Option<Id> {
        while self.asked.len() < MOST_UNDER_WAY {
            let id = self.queue.pop_front()?;
            if self.since.contains_key(&id) && !self.asked.contains_key(&id) {
                self.asked.insert(id.clone(), (Instant::now(), self.exist.get(&id).cloned()));
                return Some(id);
            }
        }
        None
    }

    /// An answer came. True: it may be taken. It is no older than what existed when it was asked for, so what was seen since then is
    /// asked for anew, unless this is it.
    pub(super) fn came(&mut self, id: &Id, answer: &Answer) -> bool {
        let asked = self.asked.remove(id);
        let (Some((begun, then)), Some(now), Some(&since)) = (asked, self.exist.get(id), self.since.get(id))
        else {
            return false;
        };
        let is_that = matches!(answer, Answer::Text(map) if map.metadata.resource_version == *now);
        if matches!(answer, Answer::Failed) {
            self.queue.push_back(id.clone());
            return false;
        }
        if is_that || then.as_ref() == Some(now) {
            self.known.insert(id.clone(), now.clone());
            self.since.remove(id);
        } else {
            self.since.insert(id.clone(), begun.max(since));
            self.queue.push_back(id.clone());
        }
        true
    }

    /// Takes room for this text.
    pub(super) fn take(&mut self, map: &ConfigMap) -> Result<(), Unreadable> {
        self.room.take(map)
    }

    /// One that found no room and would find it now, as if it had never been fetched.
    pub(super) fn that_fits(&mut self) -> Option<Id> {
        let id = self.room.that_fits()?;
        self.forget(&id);
        Some(id)
    }

    /// Since when a text is not the one that exists; `None`: all are.
    pub(super) fn lack(&self) -> Option<Instant> {
        self.since.values().min().copied()
    }
}

/// A ConfigMap that was fetched, for the facts.
pub(super) fn open(id: &Id, map: &api::ConfigMap) -> Message {
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
        .for_each_concurrent(None, |id| {
            let (client, tell) = (client.clone(), tell.clone());
            async move {
                let answer = one(&client, &id).await;
                // Nobody listens any more: the process ends.
                let _ = tell.send((source, Message::Fetched(id, answer))).await;
            }
        })
        .await;
}

/// One ConfigMap. What fails is put behind all others, so that it holds up none of them.
async fn one(client: &Client, id: &Id) -> Answer {
    let api: Api<api::ConfigMap> = Api::namespaced(client.clone(), &id.namespace);
    match api.get_opt(&id.name).await {
        Ok(Some(found)) => match config_maps::read(&found) {
            Ok(Object::ConfigMap(map)) => Answer::Text(Box::new(map)),
            Ok(_) => Answer::NotThere,
            Err(problem) => {
                warn!(object = %id, %problem, "the view cannot hold this object");
                Answer::Unreadable(problem)
            }
        },
        Ok(None) => Answer::NotThere,
        Err(error) => {
            warn!(%id, error = chain(&error), "fetching a ConfigMap");
            sleep(PAUSE).await;
            Answer::Failed
        }
    }
}
