//! A property test of the keeper behind an unreliable link: lists that come in pages, fail midway and begin again, versions that
//! have expired, events, broken watches, and fetches that are answered late, in another order, or never. Meanwhile the objects at
//! the API server change.
//!
//! Once the link is quiet, the view equals the truth. Until then, a view is called current only if what it shows of each object
//! was true within the allowed age of a current view. The text of a ConfigMap may be twice that old, counted from when its
//! version and its readers became known, and a text that does not come is reported as missing. The test assumes of `follow.rs`
//! that a watch is only called current when it has missed nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tokio::time::advance;

use super::*;
use crate::act::guard::WatchFreshness;

/// The watches: a kind, and the bit of an object's shape that the selector looks for; 0 selects all.
const SOURCES: [(Kind, u8); 4] =
    [(Kind::StatefulSet, 0), (Kind::Pod, 1), (Kind::Pod, 2), (Kind::ConfigMap, 0)];
const OBJECTS: [(Kind, &str); 5] = [
    (Kind::StatefulSet, "a"),
    (Kind::Pod, "p"),
    (Kind::Pod, "q"),
    (Kind::ConfigMap, "x"),
    (Kind::ConfigMap, "y"),
];
/// The greatest age of a current view.
const MAX_CURRENT_AGE: Duration = Duration::from_millis(15_010);

/// The existing objects, each with its version and shape. The shape is a set of bits: the ConfigMaps that a StatefulSet reads,
/// or the labels that a pod has.
type Truth = BTreeMap<(Kind, &'static str), (u64, u8)>;

#[derive(Clone, Debug)]
enum LinkEvent {
    /// Writes an object in this shape, or deletes it.
    Write(Index, Option<u8>),
    /// Lets this many seconds pass.
    Pass(u64),
    /// Continues every list, lets every watch send all its events, and lets some seconds pass.
    Round,
    /// Begins a list, continues it by one object, or lets a watch send all its events.
    Proceed(Index),
    /// Lets a watch send one event and break.
    SendOne(Index),
    /// Lets a list fail, or a watch break.
    Fail(Index),
    /// Lets the version expire that a watch has reached.
    Expire(Index),
    /// Lets the API server answer a fetch; the answer is on its way.
    Answer(Index),
    /// Delivers the answer.
    Deliver(Index),
    /// Loses the answer.
    Lose(Index),
}

fn events() -> impl Strategy<Value = Vec<LinkEvent>> {
    let index = any::<Index>;
    let event = prop_oneof![
        4 => (index(), prop::option::weighted(0.7, 0..4_u8)).prop_map(|(at, shape)| LinkEvent::Write(at, shape)),
        2 => (1..9_u64).prop_map(LinkEvent::Pass),
        3 => Just(LinkEvent::Round),
        8 => index().prop_map(LinkEvent::Proceed),
        1 => index().prop_map(LinkEvent::SendOne),
        1 => index().prop_map(LinkEvent::Fail),
        1 => index().prop_map(LinkEvent::Expire),
        3 => index().prop_map(LinkEvent::Answer),
        3 => index().prop_map(LinkEvent::Deliver),
        1 => index().prop_map(LinkEvent::Lose),
    ];
    prop::collection::vec(event, 1..60)
}

/// The state of a watch.
enum WatchState {
    /// It lists next.
    Unlisted,
    /// It lists the objects as they were at a moment in the history; some of them have been received.
    Lists { requested_at: Instant, truth: usize, received: usize },
    /// It has sent every event up to that moment.
    Watches(usize),
}

struct KeeperModel {
    keeper: Keeper,
    freshness: WatchFreshness,
    requested_texts: mpsc::UnboundedReceiver<Id>,
    /// All states that ever existed, each with its beginning.
    history: Vec<(Instant, Truth)>,
    watches: [WatchState; 4],
    fetches: Vec<(Id, Option<Fetched>)>,
    /// The time at which the keeper last received anything about ConfigMaps or their readers.
    news: Instant,
}

fn id(name: &str) -> Id {
    Id::new("db", name)
}

fn matches((kind, bit): (Kind, u8), of: Kind, shape: u8) -> bool {
    kind == of && (bit == 0 || shape & bit != 0)
}

fn object(kind: Kind, name: &str, (version, shape): (u64, u8)) -> Object {
    let if_set = |bit: u8, text: &'static str| (shape & bit != 0).then_some(text);
    let meta = format!(r#""name":"{name}","namespace":"db","uid":"{version}","resourceVersion":"{version}""#);
    let rest = match kind {
        Kind::Pod => {
            let labels = [if_set(1, r#""gatera.dev/cluster":"a""#), if_set(2, r#""gatera.dev/reads":"a-0""#)];
            let labels: Vec<_> = labels.into_iter().flatten().collect();
            return read(kind, &format!(r#"{{"metadata":{{{meta},"labels":{{{}}}}}}}"#, labels.join(",")));
        }
        Kind::StatefulSet => {
            let maps = [if_set(1, "x"), if_set(2, "y")].into_iter().flatten();
            let volumes = maps.map(|map| format!(r#"{{"name":"{map}","configMap":{{"name":"{map}"}}}}"#));
            let volumes = volumes.collect::<Vec<_>>().join(",");
            let labels = r#""metadata":{"labels":{"gatera.dev/cluster":"a"}}"#;
            format!(r#","spec":{{"template":{{{labels},"spec":{{"volumes":[{volumes}]}}}}}}"#)
        }
        _ => String::new(),
    };
    read(kind, &format!(r#"{{"metadata":{{{meta}}}{rest}}}"#))
}

fn read(kind: Kind, json: &str) -> Object {
    Object::read(kind, json).unwrap()
}

/// Returns the version of an object that the view should show, if any.
fn shown(truth: &Truth, (kind, name): (Kind, &'static str)) -> Option<u64> {
    let (version, shape) = *truth.get(&(kind, name))?;
    let bit = if name == "x" { 1 } else { 2 };
    let is_read = || truth.get(&(Kind::StatefulSet, "a")).is_some_and(|(_, reads)| reads & bit != 0);
    match kind {
        Kind::Pod => (shape != 0).then_some(version),
        Kind::ConfigMap => is_read().then_some(version),
        _ => Some(version),
    }
}

impl KeeperModel {
    fn new() -> Self {
        let (text_requests, requested_texts) = mpsc::unbounded_channel();
        let sources = SOURCES.iter().map(|(kind, _)| WatchSource::new(*kind)).collect();
        let keeper = Keeper::new(sources, text_requests, Facts::default());
        let history = vec![(Instant::now(), Truth::new())];
        let watches = [const { WatchState::Unlisted }; 4];
        Self {
            keeper,
            freshness: WatchFreshness::new([true; SOURCES.len()]),
            requested_texts,
            history,
            watches,
            fetches: Vec::new(),
            news: Instant::now(),
        }
    }

    fn apply(&mut self, source: usize, message: Message) {
        let about_texts = !matches!(SOURCES[source].0, Kind::Pod);
        if about_texts
            && matches!(message, Message::Put(_) | Message::Version(..) | Message::Gone(_) | Message::Listed)
        {
            self.news = Instant::now();
        }
        self.keeper.apply(source, message);
        self.fetches.extend(std::iter::from_fn(|| self.requested_texts.try_recv().ok()).map(|id| (id, None)));
    }

    fn write(&mut self, key: (Kind, &'static str), shape: Option<u8>) {
        let mut truth = self.history.last().unwrap().1.clone();
        let version = u64::try_from(self.history.len()).unwrap();
        match shape {
            Some(shape) => drop(truth.insert(key, (version, shape))),
            None => drop(truth.remove(&key)),
        }
        self.history.push((Instant::now(), truth));
    }

    fn put(&mut self, source: usize, kind: Kind, name: &str, state: (u64, u8)) {
        let message = match kind {
            Kind::ConfigMap => Message::Version(id(name), state.0.to_string()),
            _ => Message::Put(Box::new(object(kind, name, state))),
        };
        self.apply(source, message);
    }

    /// Sends the events between two moments that match the selector; returns whether there were any.
    fn send(&mut self, source: usize, moment: usize) -> bool {
        let selected = |truth: &Truth, key: &(Kind, &'static str)| {
            truth.get(key).copied().filter(|(_, shape)| matches(SOURCES[source], key.0, *shape))
        };
        let mut any = false;
        for key in OBJECTS {
            let [old, new] = [moment - 1, moment].map(|at| selected(&self.history[at].1, &key));
            match (old, new) {
                (_, Some(new)) if Some(new) != old => self.put(source, key.0, key.1, new),
                (Some(_), None) => self.apply(source, Message::Gone(id(key.1))),
                _ => continue,
            }
            any = true;
        }
        any
    }

    fn proceed(&mut self, source: usize) {
        match self.watches[source] {
            WatchState::Unlisted => {
                self.apply(source, Message::ListBegun);
                let (requested_at, truth) = (Instant::now(), self.history.len() - 1);
                self.watches[source] = WatchState::Lists { requested_at, truth, received: 0 };
            }
            WatchState::Lists { requested_at, truth, received } => {
                let all = self.history[truth].1.clone();
                let mut all = all.into_iter().filter(|((kind, _), it)| matches(SOURCES[source], *kind, it.1));
                if let Some(((kind, name), state)) = all.nth(received) {
                    self.put(source, kind, name, state);
                    self.watches[source] = WatchState::Lists { requested_at, truth, received: received + 1 };
                } else {
                    self.apply(source, Message::Listed);
                    self.freshness.record_at(source, requested_at);
                    self.watches[source] = WatchState::Watches(truth);
                }
            }
            WatchState::Watches(reached) => {
                for moment in reached + 1..self.history.len() {
                    self.send(source, moment);
                }
                self.freshness.record_now(source);
                self.watches[source] = WatchState::Watches(self.history.len() - 1);
            }
        }
    }

    fn send_one(&mut self, source: usize) {
        let WatchState::Watches(reached) = self.watches[source] else { return };
        let next = (reached + 1..self.history.len()).find(|moment| self.send(source, *moment));
        self.watches[source] = WatchState::Watches(next.unwrap_or(reached));
    }

    fn answer(&mut self, at: usize) {
        let Some((id, answer)) = self.fetches.get_mut(at) else { return };
        let truth = &self.history.last().unwrap().1;
        let current = truth.iter().find(|((kind, name), _)| *kind == Kind::ConfigMap && *name == id.name);
        answer.get_or_insert_with(|| match current {
            Some(((kind, name), state)) => match object(*kind, name, *state) {
                Object::ConfigMap(map) => Fetched::Text(Box::new(map)),
                _ => Fetched::NotThere,
            },
            None => Fetched::NotThere,
        });
    }

    fn deliver(&mut self, at: usize, is_lost: bool) {
        if self.fetches.get(at).is_some_and(|(_, answer)| is_lost || answer.is_some()) {
            let (id, answer) = self.fetches.remove(at);
            let answer = answer.filter(|_| !is_lost).unwrap_or(Fetched::Failed);
            self.apply(3, Message::Fetched(id, answer));
        }
    }

    async fn act(&mut self, event: LinkEvent) {
        let fetch = |at: Index, all: &[_]| if all.is_empty() { 0 } else { at.index(all.len()) };
        match event {
            LinkEvent::Write(at, shape) => self.write(*at.get(&OBJECTS), shape),
            LinkEvent::Pass(seconds) => advance(Duration::from_secs(seconds)).await,
            LinkEvent::Round => {
                (0..SOURCES.len()).for_each(|source| self.proceed(source));
                advance(Duration::from_secs(7)).await;
            }
            LinkEvent::Proceed(at) => self.proceed(at.index(4)),
            LinkEvent::SendOne(at) => self.send_one(at.index(4)),
            LinkEvent::Fail(at) => {
                let watch = &mut self.watches[at.index(4)];
                if matches!(watch, WatchState::Lists { .. }) {
                    *watch = WatchState::Unlisted;
                }
            }
            LinkEvent::Expire(at) => self.watches[at.index(4)] = WatchState::Unlisted,
            LinkEvent::Answer(at) => self.answer(fetch(at, &self.fetches)),
            LinkEvent::Deliver(at) => self.deliver(fetch(at, &self.fetches), false),
            LinkEvent::Lose(at) => self.deliver(fetch(at, &self.fetches), true),
        }
        // The keeper does this at least once a second.
        self.keeper.apply_time();
    }

    /// Returns the version of an object that the view shows.
    fn seen(&self, (kind, name): (Kind, &str)) -> Option<u64> {
        self.keeper.facts.uid(kind, &id(name)).map(|uid| uid.parse().unwrap())
    }

    /// Checks that everything in a view that is called current was true a moment ago.
    fn check(&mut self) {
        if !self.keeper.knows_everything() || self.freshness.freshness() != Freshness::Current {
            return;
        }
        for key in OBJECTS {
            let window = if key.0 == Kind::ConfigMap { MAX_CURRENT_AGE * 2 } else { MAX_CURRENT_AGE };
            let ends = self.history.iter().skip(1).map(|(moment, _)| Some(*moment)).chain([None]);
            let is_recent = |end: Option<Instant>| end.is_none_or(|end| end.elapsed() <= window);
            let recent = self.history.iter().zip(ends).filter(|(_, end)| is_recent(*end));
            let recent: Vec<_> = recent.map(|((_, truth), _)| truth).collect();
            let seen = self.seen(key);
            let was_true = match (key.0, seen) {
                // A pod that moves from one selector to the other may be missing, although each watch is right.
                (Kind::Pod, None) => [1, 2].iter().all(|bit| {
                    recent.iter().any(|truth| truth.get(&key).is_none_or(|(_, shape)| shape & bit == 0))
                }),
                // The text may be newer than the knowledge about its readers.
                (Kind::ConfigMap, Some(_)) => {
                    recent.iter().any(|truth| truth.get(&key).map(|(version, _)| *version) == seen)
                }
                _ => recent.iter().any(|truth| shown(truth, key) == seen),
            };
            let is_late = self.keeper.facts.unreadable.get(&(key.0, id(key.1))) == Some(&LATE);
            // News that comes late causes a late fetch, whose allowed time begins then.
            let was_true = was_true
                || seen.is_none() && is_late
                || key.0 == Kind::ConfigMap && self.news.elapsed() <= MAX_CURRENT_AGE;
            assert!(was_true, "{key:?} is called current: {seen:?}");
        }
    }

    /// Delivers everything that is still to come, without a change or a failure, and checks that the view equals the truth.
    fn settle(&mut self) {
        for source in 0..SOURCES.len() {
            self.proceed(source);
            while !matches!(self.watches[source], WatchState::Watches(_)) {
                self.proceed(source);
            }
            self.proceed(source);
        }
        for _ in 0..20 {
            self.answer(0);
            self.deliver(0, false);
        }
        let truth = &self.history.last().unwrap().1;
        for key in OBJECTS {
            assert_eq!(self.seen(key), shown(truth, key), "{key:?} at the end");
        }
        assert!(
            self.fetches.is_empty() && self.keeper.contents.awaited_since().is_none(),
            "nothing is awaited"
        );
        assert!(self.keeper.facts.unreadable.is_empty(), "and nothing is missing");
        assert!(self.keeper.knows_everything());
    }
}

#[test]
fn the_view_becomes_the_truth_and_is_not_called_current_before() {
    let cases = std::env::var("GATERA_WATCH_CASES").map_or(1000, |text| text.parse().expect("a number"));
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    proptest!(config, |(events in events())| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut model = KeeperModel::new();
            for event in events {
                model.act(event).await;
                model.check();
            }
            model.settle();
        });
    });
}

/// One watch reports a state late; another watch, whose list begins again, knew that the state was over.
#[tokio::test(start_paused = true)]
async fn a_past_state_does_not_come_back_while_a_list_begins_again() {
    let mut model = KeeperModel::new();
    let (pod, [late, early]) = (OBJECTS[1], [1, 2]);
    (0..SOURCES.len()).for_each(|source| (0..3).for_each(|_| model.proceed(source)));
    for shape in [2, 3, 2] {
        model.write(pod, Some(shape));
        model.proceed(early);
    }
    advance(Duration::from_secs(10)).await;
    model.proceed(early);
    model.watches[early] = WatchState::Unlisted;
    model.proceed(early);
    for seconds in [0, 8] {
        advance(Duration::from_secs(seconds)).await;
        for source in [0, late, 3] {
            model.proceed(source);
        }
        model.check();
        assert_eq!(model.seen(pod), Some(3));
    }
}
