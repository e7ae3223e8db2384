//! The keeper of the facts: hears every watch, forgets what is gone, and builds a World when something changed.
//!
//! Must not know: clients, and where a World goes.

use std::collections::HashSet;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use decide::galera::adopt::Adoption;
use decide::object::Kind;
use decide::view::{Facts, Freshness, Id, World};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::Message;
use super::contents::Contents;
use super::member_events::{MemberEvent, Topic};
use crate::act::guard::Guard;

/// Under a storm of events a World is drawn this often, no more,
const AT_MOST_EVERY: Duration = Duration::from_millis(1);
/// and drawing never takes more than a fifth of the time.
const REST: u32 = 4;

/// One list and watch, and what it holds.
pub(super) struct Source {
    kind: Kind,
    listed: bool,
    /// What this source told us about; another source may know the same object by another selector.
    holds: HashSet<Id>,
    /// While a list runs: what was held before and has not come again.
    before: HashSet<Id>,
}

impl Source {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, listed: false, holds: HashSet::new(), before: HashSet::new() }
    }
}

/// The one owner of the facts.
pub(super) struct Keeper {
    sources: Vec<Source>,
    facts: Facts,
    /// The last that was drawn from them.
    world: World,
    contents: Contents,
    /// Asks for the content of a ConfigMap.
    want: mpsc::UnboundedSender<Id>,
    /// Everything was there once.
    loaded: bool,
}

impl Keeper {
    /// Knows nothing yet.
    pub(super) fn new(sources: Vec<Source>, want: mpsc::UnboundedSender<Id>, adoption: &Adoption) -> Self {
        let (facts, contents) = (Facts::of(adoption), Contents::default());
        let world = World::empty(adoption, Freshness::Current);
        Self { sources, facts, world, contents, want, loaded: false }
    }

    /// How many contents of ConfigMaps are awaited.
    pub(super) fn pending(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.contents.pending)
    }

    /// Hears what the watches tell and shows every World that follows from it.
    pub(super) async fn run(
        mut self,
        mut told: mpsc::Receiver<(usize, Message)>,
        guard: &Guard,
        show: &mpsc::Sender<World>,
    ) {
        let mut batch = Vec::new();
        while told.recv_many(&mut batch, 4096).await > 0 {
            let mut news = false;
            for (source, told) in batch.drain(..) {
                if matches!(told, Message::Unreadable(..)) {
                    guard.metrics.unreadable.inc();
                }
                news |= self.hear(source, told);
            }
            // Before the first lists are complete nobody may ask, so nothing is drawn.
            if news && self.knows_everything() {
                let begun = Instant::now();
                let (before, mut facts) = (self.world.clone(), take(&mut self.facts));
                // The first one is made of everything, and this thread also answers requests.
                let drawn = spawn_blocking(move || (before.after(&mut facts), facts)).await;
                let Ok((world, facts)) = drawn else { return };
                (self.world, self.facts) = (world.clone(), facts);
                let cost = begun.elapsed();
                if show.send(world).await.is_err() {
                    return;
                }
                // What comes meanwhile waits in the channel and costs one World together.
                sleep(AT_MOST_EVERY.max(cost * REST)).await;
            }
        }
    }

    /// To what one pod said. Only its last words may be news.
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

    /// False: it was known.
    fn hear(&mut self, index: usize, told: Message) -> bool {
        let source = &mut self.sources[index];
        match told {
            Message::Begun => source.before = take(&mut source.holds),
            Message::Put(object) => {
                let (id, kind) = (Id::of(object.meta()), source.kind);
                source.before.remove(&id);
                source.holds.insert(id.clone());
                self.facts.unreadable.remove(&(kind, id.clone()));
                self.facts.put(*object);
                let reads: Vec<_> = self.facts.config_maps_of(kind, &id).collect();
                for read in &reads {
                    self.want(read);
                }
            }
            Message::Version(id, version) => {
                source.before.remove(&id);
                source.holds.insert(id.clone());
                self.contents.saw(id.clone(), version);
                if self.facts.reads(&id) {
                    self.want(&id);
                }
            }
            Message::Fetched => drop(self.contents.pending.fetch_sub(1, Ordering::Relaxed)),
            Message::Gone(id) => {
                source.holds.remove(&id);
                self.forget(index, &id);
            }
            Message::Serves(serves) => {
                let kind = source.kind;
                let before = self.facts.kept.served().contains(&kind);
                self.facts.kept.serves(kind, serves);
                return before != serves;
            }
            Message::Heard(is_so) => {
                // What cannot be listed keeps nobody else waiting.
                source.listed |= !is_so;
                let kind = source.kind;
                let news = self.facts.kept.unheard().contains(&kind) == is_so;
                self.facts.kept.hears(kind, is_so);
                return news;
            }
            Message::Listed => {
                source.listed = true;
                self.facts.kept.hears(source.kind, true);
                for id in take(&mut source.before) {
                    self.forget(index, &id);
                }
            }
            Message::Said(Topic::Probes, events) => return self.listen(&events),
            Message::Said(Topic::Creation, events) => {
                let Some(last) = events.into_iter().last() else { return false };
                return self.facts.not_created(last.about, &last.uid, last.at, &last.message);
            }
            Message::Unreadable(id, problem) => {
                source.before.remove(&id);
                source.holds.insert(id.clone());
                self.facts.cannot_read(source.kind, id, problem);
            }
        }
        true
    }

    /// Somebody reads this ConfigMap: asks for its text, if that is not known.
    fn want(&mut self, id: &Id) {
        if self.contents.lacks(id) {
            // The fetcher ends with the process.
            let _ = self.want.send(id.clone());
        }
    }

    /// Gone for this source; gone altogether unless another selector still has it.
    fn forget(&mut self, index: usize, id: &Id) {
        let kind = self.sources[index].kind;
        if !self.sources.iter().any(|source| source.kind == kind && source.holds.contains(id)) {
            self.facts.remove(kind, id);
            if kind == Kind::ConfigMap {
                self.contents.gone(id);
            }
        }
    }

    /// Every list was complete once. How old that is by now the watches say.
    fn knows_everything(&mut self) -> bool {
        self.loaded |= self.sources.iter().all(|source| source.listed)
            && self.contents.pending.load(Ordering::Relaxed) == 0;
        self.loaded
    }
}

#[cfg(test)]
mod tests {
    use decide::object::Object;
    use decide::revision::Revision;

    use super::*;

    fn keeper(kinds: &[Kind]) -> Keeper {
        let (want, _) = mpsc::unbounded_channel();
        let sources = kinds.iter().map(|kind| Source::new(*kind)).collect();
        Keeper::new(sources, want, &Adoption::default())
    }

    fn pod(name: &str) -> Message {
        let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"gatera.dev/cluster":"a"}}}}}}"#);
        Message::Put(Box::new(Object::read(Kind::Pod, &json).unwrap()))
    }

    #[test]
    fn nothing_is_said_before_every_list_is_complete() {
        let mut keeper = keeper(&[Kind::Pod, Kind::Node]);
        keeper.hear(0, Message::Listed);
        assert!(!keeper.knows_everything());
        keeper.hear(1, Message::Listed);
        assert!(keeper.knows_everything());
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut keeper = keeper(&[Kind::Pod]);
        for told in
            [Message::Begun, pod("a"), pod("b"), Message::Listed, Message::Begun, pod("b"), Message::Listed]
        {
            keeper.hear(0, told);
        }
        assert_eq!(keeper.facts.pods().map(|pod| &*pod.name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_cannot_be_read_is_remembered_until_it_can_or_is_gone() {
        let mut keeper = keeper(&[Kind::Pod]);
        let odd = || {
            let problem = Object::read(Kind::Pod, r#"{"spec":{"containers":1}}"#).unwrap_err();
            Message::Unreadable(Id::new("", "a"), problem)
        };
        for told in [Message::Begun, pod("a"), odd(), Message::Listed, Message::Begun, odd(), Message::Listed]
        {
            keeper.hear(0, told);
        }
        assert_eq!(
            (keeper.facts.unreadable.len(), keeper.facts.pods().count()),
            (1, 1),
            "the last that was read stays"
        );
        keeper.hear(0, pod("a"));
        assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 1));
        keeper.hear(0, odd());
        keeper.hear(0, Message::Gone(Id::new("", "a")));
        assert_eq!((keeper.facts.unreadable.len(), keeper.facts.pods().count()), (0, 0));
    }

    /// Who reads, and what exists, in any order; and every version once.
    #[test]
    fn a_config_map_is_asked_for_as_soon_as_somebody_reads_it() {
        let (want, mut wanted) = mpsc::unbounded_channel();
        let sources = [Kind::StatefulSet, Kind::Pod, Kind::ConfigMap].map(Source::new).into();
        let mut keeper = Keeper::new(sources, want, &Adoption::default());
        let version = |name: &str, version: &str| Message::Version(Id::new("db", name), version.to_owned());
        let put = |kind, json: String| Message::Put(Box::new(Object::read(kind, &json).unwrap()));
        let set = |reads: &str, note: &str| {
            let volumes = format!(r#"[{{"name":"conf","configMap":{{"name":"{reads}"}}}}]"#);
            let template = format!(
                r#"{{"metadata":{{"labels":{{"gatera.dev/cluster":"a"}}}},"spec":{{"volumes":{volumes}}}}}"#
            );
            let marks = format!(r#"{{"gatera.dev/rollout":"{note}"}}"#);
            let meta = format!(r#"{{"name":"a","namespace":"db","annotations":{marks}}}"#);
            put(Kind::StatefulSet, format!(r#"{{"metadata":{meta},"spec":{{"template":{template}}}}}"#))
        };
        let (one, two) = ("a".repeat(32), "b".repeat(32));
        let keeps = format!("keep conf={one} instead of conf={two}");
        let copies: Vec<_> = Revision::read(&format!("conf={one}")).unwrap().copies().collect();
        let revision = format!(r#"{{"gatera.dev/revision":"other={one}"}}"#);
        let labels = r#"{"gatera.dev/cluster":"a"}"#;
        let pod = format!(
            r#"{{"metadata":{{"name":"a-0","namespace":"db","labels":{labels},"annotations":{revision}}}}}"#
        );
        let given = Revision::read(&format!("other={one}")).unwrap().copies().next().unwrap();
        let mut asked = |keeper: &mut Keeper, source, told| {
            keeper.hear(source, told);
            std::iter::from_fn(|| wanted.try_recv().ok()).map(|id| id.name).collect::<Vec<_>>()
        };
        assert_eq!(asked(&mut keeper, 2, version("conf", "1")), [""; 0], "nobody reads it");
        assert_eq!(asked(&mut keeper, 0, set("conf", "")), ["conf"], "its reader comes later");
        assert_eq!(asked(&mut keeper, 0, set("conf", "")), [""; 0], "it is known");
        assert_eq!(asked(&mut keeper, 2, version("conf", "2")), ["conf"], "it changed");
        assert_eq!(asked(&mut keeper, 2, version("late", "1")), [""; 0]);
        assert_eq!(asked(&mut keeper, 0, set("late", "")), ["late"], "another one is read");
        assert_eq!(asked(&mut keeper, 2, version("conf", "3")), [""; 0], "nobody reads this one any more");
        assert_eq!(asked(&mut keeper, 2, Message::Gone(Id::new("db", "late"))), [""; 0]);
        assert_eq!(asked(&mut keeper, 2, version("late", "1")), ["late"], "it was made again");
        assert_eq!(asked(&mut keeper, 2, version(&copies[0], "1")), [""; 0]);
        assert_eq!(asked(&mut keeper, 0, set("late", &keeps)), [&*copies[0]], "a person asks for a copy");
        assert_eq!(asked(&mut keeper, 1, put(Kind::Pod, pod)), [""; 0]);
        assert_eq!(asked(&mut keeper, 2, version(&given, "1")), [&*given], "a pod was given this copy");
    }

    #[test]
    fn only_the_last_words_of_a_pod_are_news() {
        let mut keeper = keeper(&[Kind::Pod]);
        let json = r#"{"metadata":{"name":"a","uid":"1","labels":{"gatera.dev/cluster":"a"}},
            "spec":{"containers":[{"name":"mariadb","image":"mariadb:10.11"}]},
            "status":{"containerStatuses":[{"name":"mariadb","started":true,"state":{"running":{"startedAt":"2026-12-01T09:00:00Z"}}}]}}"#;
        assert!(keeper.hear(0, Message::Put(Box::new(Object::read(Kind::Pod, json).unwrap()))));
        let said = |states: &[&str]| {
            let event = |state: &&str| MemberEvent {
                about: Id::new("", "a"),
                uid: "1".to_owned(),
                at: "2026-12-01T09:30:00Z".parse().unwrap(),
                message: format!("Readiness probe failed: the server is {state}\n"),
            };
            Message::Said(Topic::Probes, states.iter().map(event).collect())
        };
        assert!(keeper.hear(0, said(&["JOINING", "CONNECTED"])));
        assert!(
            !keeper.hear(0, said(&["JOINING", "CONNECTED"])),
            "it goes back and forth, and ends where it was"
        );
        assert!(keeper.hear(0, said(&["JOINING", "CONNECTED", "DISCONNECTED"])));
        assert!(!keeper.hear(0, Message::Said(Topic::Probes, Vec::new())));
    }

    #[test]
    fn what_two_selectors_know_is_gone_when_both_say_so() {
        let mut keeper = keeper(&[Kind::Pod, Kind::Pod]);
        keeper.hear(0, pod("a"));
        keeper.hear(1, pod("a"));
        keeper.hear(0, Message::Gone(Id::new("", "a")));
        assert_eq!(keeper.facts.pods().count(), 1);
        keeper.hear(1, Message::Gone(Id::new("", "a")));
        assert_eq!(keeper.facts.pods().count(), 0);
    }
}
