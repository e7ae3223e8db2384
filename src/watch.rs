//! The watches: what the API server tells, turned into a World.
//!
//! Owns: which objects are listed and watched, and the one task that keeps the facts. Must not know: rules, requests.
//! Data: watch events -> objects (read by the same reader as reviews) -> Facts -> World::build -> one atomic swap.
//! The guard is ready when every list is complete; a watch that fails makes the view stale until it has listed again.

mod contents;
mod sent;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::galera::adopt::Adoption;
use crate::guard::Guard;
use crate::object::{Kind, Object};
use crate::telemetry::chain;
use crate::view::{Facts, Freshness, Id, World};

use contents::Contents;
use sent::Sent;

/// Under a storm of events a World is built this often, no more,
const AT_MOST_EVERY: Duration = Duration::from_millis(20);
/// and building never takes more than a fifth of the time.
const REST: u32 = 4;
/// After a failure the watch is begun again, a little later each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is watched: group, version, plural, and whether the adoption's labels narrow it. StatefulSets and Deployments
/// are often labelled on their templates only, claims, Services and budgets incompletely or not at all, so those are
/// listed whole and trimmed here.
const WATCHED: &[(Kind, &str, &str, bool)] = &[
    (Kind::StatefulSet, "apps", "statefulsets", false),
    (Kind::Deployment, "apps", "deployments", false),
    (Kind::Pod, "", "pods", true),
    (Kind::Claim, "", "persistentvolumeclaims", false),
    (Kind::Service, "", "services", false),
    (Kind::Budget, "policy", "poddisruptionbudgets", false),
    (Kind::Node, "", "nodes", false),
    (Kind::Namespace, "", "namespaces", false),
];
// ConfigMaps are watched too, by their metadata: see contents.rs.

/// What a watch tells the keeper.
enum Told {
    Begun,
    Put(Box<Object>),
    /// A ConfigMap exists in this version.
    Version(Id, String),
    /// The content of a ConfigMap, unless it is gone meanwhile.
    Fetched(Box<Option<Object>>),
    Gone(Id),
    Listed,
    Unreadable,
    Failing,
}

/// Starts every watch and keeps the world until the process ends. `changed` counts the worlds.
pub async fn keep(client: Client, guard: Arc<Guard>, changed: watch::Sender<u64>) {
    let adoption = guard.settings.adoption.clone();
    let (tell, told) = mpsc::channel(1024);
    let mut sources = Vec::new();
    for (kind, group, plural, narrowed) in WATCHED {
        let selectors = if *narrowed {
            adoption.selectors().iter().map(|it| Some(it.to_string())).collect()
        } else {
            vec![None]
        };
        for selector in selectors {
            let resource = ApiResource {
                group: (*group).into(),
                version: "v1".into(),
                api_version: if group.is_empty() { "v1".into() } else { format!("{group}/v1") },
                kind: kind.name().into(),
                plural: (*plural).into(),
            };
            let api: Api<Sent> = Api::all_with(client.clone(), &resource);
            tokio::spawn(follow(api, selector, sources.len(), tell.clone(), |sent| read(*kind, &sent)));
            sources.push(Source::new(*kind));
        }
    }
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
    tokio::spawn(follow(maps, None, sources.len(), tell.clone(), |map| {
        Told::Version(id(map.meta()), map.resource_version().unwrap_or_default())
    }));
    sources.push(Source::new(Kind::ConfigMap));
    let (want, wanted) = mpsc::unbounded_channel();
    tokio::spawn(contents::fetch(client, wanted, tell, sources.len() - 1));
    let keeper = Keeper {
        sources,
        facts: Facts::default(),
        contents: Contents::default(),
        want,
        adoption,
        loaded: false,
    };
    keeper.run(told, &guard, &changed).await;
}

/// An object of a watch, for the facts.
fn read(kind: Kind, sent: &Sent) -> Told {
    match Object::read(kind, sent.text()) {
        Ok(object) => Told::Put(Box::new(object)),
        Err(problem) => {
            warn!(object = %id(sent.meta()), %problem, "the view cannot hold this object");
            Told::Unreadable
        }
    }
}

fn id(meta: &ObjectMeta) -> Id {
    Id::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// One list and watch, begun again whenever it fails.
async fn follow<K>(
    api: Api<K>,
    selector: Option<String>,
    source: usize,
    tell: mpsc::Sender<(usize, Told)>,
    put: impl Fn(K) -> Told,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let config = Config { label_selector: selector.clone(), ..Config::default() };
        let mut events = std::pin::pin!(watcher(api.clone(), config));
        while let Some(event) = events.next().await {
            let (told, failed) = match event {
                Ok(Event::Init) => (Told::Begun, false),
                Ok(Event::InitApply(object) | Event::Apply(object)) => (put(object), false),
                Ok(Event::Delete(object)) => (Told::Gone(id(object.meta())), false),
                Ok(Event::InitDone) => {
                    pause = FIRST_PAUSE;
                    (Told::Listed, false)
                }
                Err(error) => {
                    warn!(source, error = chain(&error), "watch");
                    (Told::Failing, true)
                }
            };
            if tell.send((source, told)).await.is_err() {
                return;
            }
            if failed {
                break;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Source {
    kind: Kind,
    listed: bool,
    failing_since: Option<Timestamp>,
    /// What this source told us about; another source may know the same object by another selector.
    holds: HashSet<Id>,
    /// While a list runs: what was held before and has not come again.
    before: HashSet<Id>,
}

impl Source {
    fn new(kind: Kind) -> Self {
        Self { kind, listed: false, failing_since: None, holds: HashSet::new(), before: HashSet::new() }
    }
}

struct Keeper {
    sources: Vec<Source>,
    facts: Facts,
    contents: Contents,
    /// Asks for the content of a ConfigMap.
    want: mpsc::UnboundedSender<Id>,
    adoption: Adoption,
    /// Everything was there once.
    loaded: bool,
}

impl Keeper {
    /// The one owner of the facts.
    async fn run(
        mut self,
        mut told: mpsc::Receiver<(usize, Told)>,
        guard: &Guard,
        changed: &watch::Sender<u64>,
    ) {
        let mut batch = Vec::new();
        while told.recv_many(&mut batch, 4096).await > 0 {
            for (source, told) in batch.drain(..) {
                if matches!(told, Told::Unreadable) {
                    guard.metrics.unreadable.inc();
                }
                self.hear(source, told);
            }
            for id in self.contents.missing(&self.facts) {
                // The fetcher ends with the process.
                let _ = self.want.send(id);
            }
            let freshness = self.freshness();
            // Before the first lists are complete nobody may ask, so nothing is built.
            if freshness != Freshness::Loading {
                let begun = Instant::now();
                let world = World::build(self.facts.clone(), &self.adoption, freshness);
                guard.metrics.view_current.set(i64::from(freshness == Freshness::Current));
                guard.metrics.holds(world.sizes());
                guard.world.store(Arc::new(world));
                changed.send_modify(|count| *count += 1);
                // What comes meanwhile waits in the channel and costs one World together.
                sleep(AT_MOST_EVERY.max(begun.elapsed() * REST)).await;
            }
        }
    }

    fn hear(&mut self, index: usize, told: Told) {
        let source = &mut self.sources[index];
        match told {
            Told::Begun => source.before = std::mem::take(&mut source.holds),
            Told::Put(object) => {
                let id = Id::of(object.meta());
                source.before.remove(&id);
                source.holds.insert(id);
                self.facts.put(*object, &self.adoption);
            }
            Told::Version(id, version) => {
                source.before.remove(&id);
                source.holds.insert(id.clone());
                self.contents.saw(id, version);
            }
            Told::Fetched(found) => {
                self.contents.pending = self.contents.pending.saturating_sub(1);
                if let Some(map) = *found {
                    self.facts.put(map, &self.adoption);
                }
            }
            Told::Gone(id) => {
                source.holds.remove(&id);
                self.forget(index, &id);
            }
            Told::Listed => {
                source.listed = true;
                source.failing_since = None;
                for id in std::mem::take(&mut source.before) {
                    self.forget(index, &id);
                }
            }
            Told::Failing => source.failing_since = source.failing_since.or_else(|| Some(Timestamp::now())),
            Told::Unreadable => {}
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

    fn freshness(&mut self) -> Freshness {
        self.loaded |= self.sources.iter().all(|source| source.listed) && self.contents.pending == 0;
        if !self.loaded {
            return Freshness::Loading;
        }
        self.sources
            .iter()
            .filter_map(|source| source.failing_since)
            .min()
            .map_or(Freshness::Current, Freshness::Stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(kinds: &[Kind]) -> Keeper {
        let (want, _) = mpsc::unbounded_channel();
        let sources = kinds.iter().map(|kind| Source::new(*kind)).collect();
        let adoption = Adoption::default();
        Keeper {
            sources,
            facts: Facts::default(),
            contents: Contents::default(),
            want,
            adoption,
            loaded: false,
        }
    }

    fn pod(name: &str) -> Told {
        let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"gatera.dev/cluster":"a"}}}}}}"#);
        Told::Put(Box::new(Object::read(Kind::Pod, &json).unwrap()))
    }

    #[test]
    fn nothing_is_said_before_every_list_is_complete() {
        let mut keeper = keeper(&[Kind::Pod, Kind::Node]);
        keeper.hear(0, Told::Listed);
        assert_eq!(keeper.freshness(), Freshness::Loading);
        keeper.hear(1, Told::Listed);
        assert_eq!(keeper.freshness(), Freshness::Current);
    }

    #[test]
    fn a_watch_that_fails_makes_the_view_stale_until_it_has_listed_again() {
        let mut keeper = keeper(&[Kind::Pod]);
        keeper.hear(0, Told::Listed);
        keeper.hear(0, Told::Failing);
        assert!(matches!(keeper.freshness(), Freshness::Stale(_)));
        keeper.hear(0, Told::Begun);
        assert!(matches!(keeper.freshness(), Freshness::Stale(_)), "a list that has begun is no list");
        keeper.hear(0, Told::Listed);
        assert_eq!(keeper.freshness(), Freshness::Current);
    }

    #[test]
    fn what_a_new_list_does_not_name_is_gone() {
        let mut keeper = keeper(&[Kind::Pod]);
        for told in [Told::Begun, pod("a"), pod("b"), Told::Listed, Told::Begun, pod("b"), Told::Listed] {
            keeper.hear(0, told);
        }
        assert_eq!(keeper.facts.pods.keys().map(|id| &*id.name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_two_selectors_know_is_gone_when_both_say_so() {
        let mut keeper = keeper(&[Kind::Pod, Kind::Pod]);
        keeper.hear(0, pod("a"));
        keeper.hear(1, pod("a"));
        keeper.hear(0, Told::Gone(Id::new("", "a")));
        assert_eq!(keeper.facts.pods.len(), 1);
        keeper.hear(1, Told::Gone(Id::new("", "a")));
        assert_eq!(keeper.facts.pods.len(), 0);
    }
}
