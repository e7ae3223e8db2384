//! The keeper of the facts: applies the messages of every watch, drops objects that are gone, and builds a World when
//! something has changed.
//!
//! Must not know: clients, and where a World goes.

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use facts::view::{Facts, Freshness, Id, World};
use objects::{Kind, Object};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::contents::{ContentTracker, Fetched, LATE};
use super::member_events::{MemberEvent, Topic};
use super::{CHECK_INTERVAL, MAX_QUEUED, Message};
use crate::act::guard::Guard;

/// The shortest pause between two Worlds while many events arrive.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The pause after a World, as a multiple of the time that building it took: building takes at most a fifth of the time.
const PAUSE_FACTOR: u32 = 4;
/// The interval at which kinds with objects that did not fit are listed again if they may fit now.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// One list and watch, and the objects that it holds.
pub(super) struct WatchSource {
    kind: Kind,
    listed: bool,
    /// The objects of this source. Another source may have the same object by another selector.
    objects: HashMap<Id, HeldObject>,
    /// Whether this source is to be listed again.
    pub(super) relist: Arc<AtomicBool>,
}

/// An object of one source.
struct HeldObject {
    /// The version of the object, if that is a number.
    version: Option<u64>,
    /// Whether the last list, or the watch that followed it, has named the object.
    named: bool,
}

impl WatchSource {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, listed: false, objects: HashMap::new(), relist: Arc::default() }
    }

    /// Records that the object exists in this version. Returns the version, if it is a number.
    fn record(&mut self, id: &Id, version: &str) -> Option<u64> {
        let version = version.parse().ok();
        self.objects.insert(id.clone(), HeldObject { version, named: true });
        version
    }
}

/// The only owner of the facts.
pub(super) struct Keeper {
    sources: Vec<WatchSource>,
    facts: Facts,
    /// The last World that was built from the facts.
    world: World,
    contents: ContentTracker,
    /// Sends requests for the content of a ConfigMap.
    text_requests: mpsc::UnboundedSender<Id>,
    /// When every list was complete for the first time.
    all_listed: Option<Instant>,
    /// Whether every text that was awaited at that time has arrived or is late.
    all_loaded: bool,
    /// When the kinds with objects that did not fit, but may fit now, were last looked up.
    last_relist_check: Instant,
}

impl Keeper {
    /// Creates a keeper that starts with these facts.
    pub(super) fn new(
        sources: Vec<WatchSource>,
        text_requests: mpsc::UnboundedSender<Id>,
        facts: Facts,
    ) -> Self {
        let (world, contents) =
            (World::empty(facts.adoption(), Freshness::Current), ContentTracker::within(facts.memory()));
        Self {
            sources,
            facts,
            world,
            contents,
            text_requests,
            all_listed: None,
            all_loaded: false,
            last_relist_check: Instant::now(),
        }
    }

    /// Applies the messages of the watches, and sends every World that results.
    pub(super) async fn run(
        mut self,
        mut messages: mpsc::Receiver<(usize, Message)>,
        guard: &Guard,
        worlds: &mpsc::Sender<World>,
    ) {
        let mut batch = Vec::new();
        // The timeout is needed because texts also become late while no message arrives.
        while !matches!(timeout(CHECK_INTERVAL, messages.recv_many(&mut batch, MAX_QUEUED)).await, Ok(0)) {
            let mut changed = false;
            for (source, message) in batch.drain(..) {
                if matches!(message, Message::Unreadable(..) | Message::Fetched(_, Fetched::Unreadable(_))) {
                    guard.metrics.unreadable.inc();
                }
                changed |= self.apply(source, message);
            }
            changed |= self.apply_time();
            // Until its first lists are complete, no request is answered from these facts, so no World is built.
            if changed && self.knows_everything() {
                let begun = Instant::now();
                let (before, mut facts) = (self.world.clone(), take(&mut self.facts));
                // The first World is built from all facts, which takes a while, and this thread also answers requests.
                let built = spawn_blocking(move || (before.after(&mut facts), facts)).await;
                let Ok((world, facts)) = built else { return };
                (self.world, self.facts) = (world.clone(), facts);
                let cost = begun.elapsed();
                if worlds.send(world).await.is_err() {
                    return;
                }
                // Messages that arrive meanwhile wait in the channel and together cost one World.
                sleep(MIN_PAUSE.max(cost * PAUSE_FACTOR)).await;
            }
        }
    }

    /// Applies changes that the passing of time brings, such as late texts. Returns false if the facts did not change.
    fn apply_time(&mut self) -> bool {
        let known = &self.facts.unreadable;
        let is_new = |id: &&Id| known.get(&(Kind::ConfigMap, (*id).clone())) != Some(&LATE);
        let late: Vec<_> = self.contents.late().filter(is_new).cloned().collect();
        for id in &late {
            self.facts.cannot_read(Kind::ConfigMap, id.clone(), LATE);
        }
        if self.last_relist_check.elapsed() >= RELIST_INTERVAL {
            self.last_relist_check = Instant::now();
            let kinds = self.facts.kinds_that_may_fit();
            for source in self.sources.iter().filter(|source| kinds.contains(&source.kind)) {
                source.relist.store(true, Ordering::Relaxed);
            }
        }
        self.request_texts();
        !late.is_empty()
    }

    /// Applies the probe Events of one pod. Returns whether the facts hold other reports of the pod than before.
    fn apply_probes(&mut self, events: &[MemberEvent]) -> bool {
        let Some(first) = events.first() else { return false };
        let pod = |facts: &Facts| facts.pod(&first.about).cloned();
        let before = pod(&self.facts);
        for event in events {
            self.facts.add_report(&event.about, &event.uid, event.at, &event.message);
        }
        let after = pod(&self.facts);
        before.as_ref().map(|pod| pod.reports()) != after.as_ref().map(|pod| pod.reports())
    }

    /// Applies one message. Returns whether the facts may have changed.
    fn apply(&mut self, index: usize, message: Message) -> bool {
        let source = &mut self.sources[index];
        match message {
            // An object that an earlier, failed list named is gone if this list does not name it.
            Message::ListBegun => {
                source.objects.values_mut().for_each(|held| held.named = false);
                return false;
            }
            Message::Put(object) => {
                let (id, kind) = (Id::of(object.meta()), source.kind);
                let version = source.record(&id, &object.meta().resource_version);
                if !self.is_newest(index, &id, version) {
                    return false;
                }
                self.facts.unreadable.remove(&(kind, id.clone()));
                self.change_and_request_texts(kind, &id, |facts| _ = facts.put(*object));
            }
            Message::Version(id, version) => {
                source.record(&id, &version);
                self.contents.set_version(id.clone(), version);
                self.want_text(&id);
                self.request_texts();
                return self.facts.reads(&id);
            }
            Message::Fetched(id, answer) => self.apply_fetch(&id, answer),
            Message::Gone(id) => {
                source.objects.remove(&id);
                self.forget(index, &id);
            }
            Message::Serves(is_served) => return self.facts.kept.set_served(source.kind, is_served),
            Message::Reachable(is_reachable) => {
                // A kind that cannot be listed does not keep the others waiting.
                source.listed |= !is_reachable;
                return self.facts.kept.set_listed(source.kind, is_reachable);
            }
            Message::Listed => {
                source.listed = true;
                self.facts.kept.set_listed(source.kind, true);
                let gone: Vec<_> =
                    source.objects.extract_if(|_, held| !held.named).map(|(id, _)| id).collect();
                for id in gone {
                    self.forget(index, &id);
                }
            }
            Message::MemberEvents(Topic::Probes, events) => return self.apply_probes(&events),
            Message::MemberEvents(Topic::Creation, events) => {
                let Some(last) = events.into_iter().last() else { return false };
                return self.facts.not_created(last.about, &last.uid, last.at, &last.message);
            }
            Message::Unreadable(id, problem) => {
                source.record(&id, "");
                self.facts.cannot_read(source.kind, id, problem);
            }
        }
        self.request_texts();
        true
    }

    /// Returns whether no source of this kind has reported a newer version. Where versions are not numbers, the last message
    /// counts.
    fn is_newest(&self, index: usize, id: &Id, version: Option<u64>) -> bool {
        let kind = self.sources[index].kind;
        let of_kind = self.sources.iter().filter(|source| source.kind == kind);
        let mut versions = of_kind.filter_map(|source| source.objects.get(id)?.version);
        !versions.any(|held| version.is_some_and(|version| version < held))
    }

    /// Changes an object, then requests the ConfigMaps that it reads now, and forgets those that no object reads any more.
    fn change_and_request_texts(&mut self, kind: Kind, id: &Id, change: impl FnOnce(&mut Facts)) {
        let before: Vec<_> = self.facts.config_maps_of(kind, id).collect();
        change(&mut self.facts);
        let after: Vec<_> = self.facts.config_maps_of(kind, id).collect();
        for config_map in before.iter().chain(&after) {
            self.want_text(config_map);
        }
    }

    /// Requests the text of this ConfigMap if an object reads it and it is not known; forgets it if no object reads it.
    fn want_text(&mut self, id: &Id) {
        if self.facts.reads(id) {
            let awaited = self.contents.want(id);
            self.facts.set_awaited(id, awaited == Ok(true));
            if let Err(problem) = awaited
                && self.facts.unreadable.get(&(Kind::ConfigMap, id.clone())) != Some(&problem)
            {
                self.facts.cannot_read(Kind::ConfigMap, id.clone(), problem);
            }
        } else {
            self.forget_text(id);
        }
    }

    /// Requests as many texts as may be under way, and among them one that was beyond a limit and fits now. The result of `send`
    /// is ignored because the fetcher ends only together with this keeper.
    fn request_texts(&mut self) {
        if let Some(next) = self.contents.next_that_fits() {
            self.want_text(&next);
        }
        while let Some(id) = self.contents.next_fetch() {
            let _ = self.text_requests.send(id);
        }
    }

    /// Stores the text from a fetch, if the answer may be used and there is room for it.
    fn apply_fetch(&mut self, id: &Id, answer: Fetched) {
        if self.contents.end_fetch(id, &answer) {
            let problem = match answer {
                Fetched::Text(mut map) => match self.contents.take(&mut map) {
                    Ok(()) => {
                        self.facts.unreadable.remove(&(Kind::ConfigMap, id.clone()));
                        self.facts.put(Object::ConfigMap(*map));
                        None
                    }
                    Err(problem) => Some(problem),
                },
                Fetched::Unreadable(problem) => Some(problem),
                Fetched::NotThere | Fetched::Failed => None,
            };
            if let Some(problem) = problem {
                self.facts.cannot_read(Kind::ConfigMap, id.clone(), problem);
            }
        }
        self.want_text(id);
    }

    fn forget_text(&mut self, id: &Id) {
        if self.contents.forget(id) {
            self.facts.set_awaited(id, false);
            self.facts.remove(Kind::ConfigMap, id);
        }
    }

    /// Removes an object that this source no longer has from the facts, unless another source of its kind still has it.
    fn forget(&mut self, index: usize, id: &Id) {
        let kind = self.sources[index].kind;
        if self.sources.iter().any(|source| source.kind == kind && source.objects.contains_key(id)) {
            return;
        }
        if kind == Kind::ConfigMap {
            self.contents.set_gone(id);
            self.forget_text(id);
        } else {
            self.change_and_request_texts(kind, id, |facts| facts.remove(kind, id));
        }
    }

    /// Returns whether every list has been complete once, and every text that was awaited then has arrived or is late.
    fn knows_everything(&mut self) -> bool {
        if self.all_listed.is_none() && self.sources.iter().all(|source| source.listed) {
            self.all_listed = Some(Instant::now());
        }
        self.all_loaded |= self
            .all_listed
            .is_some_and(|listed| self.contents.awaited_since().is_none_or(|since| since > listed));
        self.all_loaded
    }
}
