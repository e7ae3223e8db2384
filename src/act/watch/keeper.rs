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
use super::{LOOK, MESSAGES, Message};
use crate::act::guard::Guard;

/// The shortest pause between two Worlds, under a storm of events.
const AT_MOST_EVERY: Duration = Duration::from_millis(1);
/// The pause after a World, as a multiple of the time that building it took: building takes at most a fifth of the time.
const REST: u32 = 4;
/// The shortest interval at which kinds with objects that had no room are listed again.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// One list and watch, and the objects that it holds.
pub(super) struct WatchSource {
    kind: Kind,
    listed: bool,
    /// The objects of this source. Another source may have the same object by another selector.
    holds: HashMap<Id, HeldObject>,
    /// Whether this source is to be listed again.
    pub(super) again: Arc<AtomicBool>,
}

/// An object of one source.
struct HeldObject {
    /// Its version, if that is a number.
    version: Option<u64>,
    /// Whether the last list, or the watch after it, has named it.
    named: bool,
}

impl WatchSource {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, listed: false, holds: HashMap::new(), again: Arc::default() }
    }

    /// Records that the object exists in this version. Returns the version, if it is a number.
    fn has(&mut self, id: &Id, version: &str) -> Option<u64> {
        let version = version.parse().ok();
        self.holds.insert(id.clone(), HeldObject { version, named: true });
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
    want: mpsc::UnboundedSender<Id>,
    /// When every list was complete for the first time.
    listed: Option<Instant>,
    /// Whether, after that, every text was known once.
    loaded: bool,
    /// When it was last checked whether objects that had no room have room now.
    looked: Instant,
}

impl Keeper {
    /// Creates a keeper that has only these facts.
    pub(super) fn new(sources: Vec<WatchSource>, want: mpsc::UnboundedSender<Id>, facts: Facts) -> Self {
        let (world, contents) =
            (World::empty(facts.adoption(), Freshness::Current), ContentTracker::within(facts.memory()));
        Self { sources, facts, world, contents, want, listed: None, loaded: false, looked: Instant::now() }
    }

    /// Applies the messages of the watches, and sends every World that results.
    pub(super) async fn run(
        mut self,
        mut messages: mpsc::Receiver<(usize, Message)>,
        guard: &Guard,
        show: &mpsc::Sender<World>,
    ) {
        let mut batch = Vec::new();
        // The timeout is needed because texts also become late while no message arrives.
        while !matches!(timeout(LOOK, messages.recv_many(&mut batch, MESSAGES)).await, Ok(0)) {
            let mut news = false;
            for (source, message) in batch.drain(..) {
                if matches!(message, Message::Unreadable(..) | Message::Fetched(_, Fetched::Unreadable(_))) {
                    guard.metrics.unreadable.inc();
                }
                news |= self.apply(source, message);
            }
            news |= self.look();
            // Before the first lists are complete no request is answered, so no World is built.
            if news && self.knows_everything() {
                let begun = Instant::now();
                let (before, mut facts) = (self.world.clone(), take(&mut self.facts));
                // The first World is built from everything, and this thread also answers requests.
                let drawn = spawn_blocking(move || (before.after(&mut facts), facts)).await;
                let Ok((world, facts)) = drawn else { return };
                (self.world, self.facts) = (world.clone(), facts);
                let cost = begun.elapsed();
                if show.send(world).await.is_err() {
                    return;
                }
                // Messages that arrive meanwhile wait in the channel and together cost one World.
                sleep(AT_MOST_EVERY.max(cost * REST)).await;
            }
        }
    }

    /// Applies changes that come with time alone, such as late texts. Returns false if the facts did not change.
    fn look(&mut self) -> bool {
        let known = &self.facts.unreadable;
        let is_new = |id: &&Id| known.get(&(Kind::ConfigMap, (*id).clone())) != Some(&LATE);
        let late: Vec<_> = self.contents.late().filter(is_new).cloned().collect();
        for id in &late {
            self.facts.cannot_read(Kind::ConfigMap, id.clone(), LATE);
        }
        if self.looked.elapsed() >= RELIST_INTERVAL {
            self.looked = Instant::now();
            let kinds = self.facts.that_may_fit();
            for source in self.sources.iter().filter(|it| kinds.contains(&it.kind)) {
                source.again.store(true, Ordering::Relaxed);
            }
        }
        self.ask();
        !late.is_empty()
    }

    /// Applies the probe Events of one pod. Returns whether its last report is new; those in between do not count.
    fn listen(&mut self, events: &[MemberEvent]) -> bool {
        let Some(first) = events.first() else { return false };
        let known = |facts: &Facts| facts.pod(&first.about).cloned();
        let before = known(&self.facts);
        for it in events {
            self.facts.hear(&it.about, &it.uid, it.at, &it.message);
        }
        let after = known(&self.facts);
        before.as_ref().map(|pod| pod.words()) != after.as_ref().map(|pod| pod.words())
    }

    /// Applies one message. Returns false if it brought nothing new.
    fn apply(&mut self, index: usize, message: Message) -> bool {
        let source = &mut self.sources[index];
        match message {
            // An object that an earlier, failed list named is named by this list, or it is gone.
            Message::Begun => {
                source.holds.values_mut().for_each(|it| it.named = false);
                return false;
            }
            Message::Put(object) => {
                let (id, kind) = (Id::of(object.meta()), source.kind);
                let version = source.has(&id, &object.meta().resource_version);
                if self.is_newest(index, &id, version) {
                    self.facts.unreadable.remove(&(kind, id.clone()));
                    self.change_and_request_texts(kind, &id, |facts| _ = facts.put(*object));
                }
            }
            Message::Version(id, version) => {
                source.has(&id, &version);
                self.contents.saw(id.clone(), version);
                self.want(&id);
                self.ask();
                return self.facts.reads(&id);
            }
            Message::Fetched(id, answer) => self.fetched(&id, answer),
            Message::Gone(id) => {
                source.holds.remove(&id);
                self.forget(index, &id);
            }
            Message::Serves(is_so) => return self.facts.kept.serves(source.kind, is_so),
            Message::Reachable(is_so) => {
                // A kind that cannot be listed does not keep the others waiting.
                source.listed |= !is_so;
                return self.facts.kept.set_listed(source.kind, is_so);
            }
            Message::Listed => {
                source.listed = true;
                self.facts.kept.set_listed(source.kind, true);
                let gone: Vec<_> = source.holds.extract_if(|_, it| !it.named).map(|(id, _)| id).collect();
                for id in gone {
                    self.forget(index, &id);
                }
            }
            Message::MemberEvents(Topic::Probes, events) => return self.listen(&events),
            Message::MemberEvents(Topic::Creation, events) => {
                let Some(last) = events.into_iter().last() else { return false };
                return self.facts.not_created(last.about, &last.uid, last.at, &last.message);
            }
            Message::Unreadable(id, problem) => {
                source.has(&id, "");
                self.facts.cannot_read(source.kind, id, problem);
            }
        }
        self.ask();
        true
    }

    /// Returns whether no source of this kind has reported a newer version. Where versions are not numbers, the last message
    /// counts.
    fn is_newest(&self, index: usize, id: &Id, version: Option<u64>) -> bool {
        let kind = self.sources[index].kind;
        let same = self.sources.iter().filter(|source| source.kind == kind);
        let mut versions = same.filter_map(|source| source.holds.get(id)?.version);
        !versions.any(|other| version.is_some_and(|own| own < other))
    }

    /// Changes an object, then requests the ConfigMaps that it reads now, and forgets those that no object reads any more.
    fn change_and_request_texts(&mut self, kind: Kind, id: &Id, change: impl FnOnce(&mut Facts)) {
        let before: Vec<_> = self.facts.config_maps_of(kind, id).collect();
        change(&mut self.facts);
        let after: Vec<_> = self.facts.config_maps_of(kind, id).collect();
        for it in before.iter().chain(&after) {
            self.want(it);
        }
    }

    /// Requests the text of this ConfigMap if an object reads it and it is not known; forgets it if no object reads it.
    fn want(&mut self, id: &Id) {
        if self.facts.reads(id) {
            let awaited = self.contents.want(id);
            self.facts.awaits(id, awaited == Ok(true));
            if let Err(problem) = awaited
                && self.facts.unreadable.get(&(Kind::ConfigMap, id.clone())) != Some(&problem)
            {
                self.facts.cannot_read(Kind::ConfigMap, id.clone(), problem);
            }
        } else {
            self.forget_text(id);
        }
    }

    /// Requests as many texts as may be under way, after one that was beyond a limit and no longer is. The result of `send` is
    /// ignored because the fetcher ends only with the process.
    fn ask(&mut self) {
        if let Some(next) = self.contents.that_fits() {
            self.want(&next);
        }
        while let Some(id) = self.contents.ask() {
            let _ = self.want.send(id);
        }
    }

    /// Stores the text from a fetch, if the answer may be used and there is room for it.
    fn fetched(&mut self, id: &Id, answer: Fetched) {
        if self.contents.came(id, &answer) {
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
        self.want(id);
    }

    fn forget_text(&mut self, id: &Id) {
        if self.contents.forget(id) {
            self.facts.awaits(id, false);
            self.facts.remove(Kind::ConfigMap, id);
        }
    }

    /// Removes an object that this source no longer has from the facts, unless another source of its kind still has it.
    fn forget(&mut self, index: usize, id: &Id) {
        let kind = self.sources[index].kind;
        if self.sources.iter().any(|source| source.kind == kind && source.holds.contains_key(id)) {
            return;
        }
        if kind == Kind::ConfigMap {
            self.contents.gone(id);
            self.forget_text(id);
        } else {
            self.change_and_request_texts(kind, id, |facts| facts.remove(kind, id));
        }
    }

    /// Returns whether every list was complete once, and after that every text. The watches measure how old this is.
    fn knows_everything(&mut self) -> bool {
        if self.listed.is_none() && self.sources.iter().all(|source| source.listed) {
            self.listed = Some(Instant::now());
        }
        self.loaded |=
            self.listed.is_some_and(|listed| self.contents.lack().is_none_or(|since| since > listed));
        self.loaded
    }
}
