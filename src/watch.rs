//! The watches: what the API server tells, turned into a World.
//!
//! Owns: which objects are listed and watched, and the one task that keeps the facts. Must not know: rules, requests.
//! Data: watch events -> objects (read by the same reader as reviews) -> Facts -> World::build -> one atomic swap.
//! The guard is ready when every list is complete; a watch that fails makes the view stale until it has listed again.

mod sent;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::galera::adopt::Adoption;
use crate::object::{Kind, Object};
use crate::serve::Guard;
use crate::telemetry::chain;
use crate::view::{Facts, Freshness, Id, World};

use sent::Sent;

/// Under a storm of events a World is built this often, no more.
const AT_MOST_EVERY: Duration = Duration::from_millis(20);
/// After a failure the watch is begun again, a little later each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is watched: group, version, plural, and whether the adoption's labels narrow it. StatefulSets and Deployments
/// are often labelled on their templates only, claims not at all, so those are listed whole and trimmed here.
const WATCHED: &[(Kind, &str, &str, bool)] = &[
    (Kind::StatefulSet, "apps", "statefulsets", false),
    (Kind::Deployment, "apps", "deployments", false),
    (Kind::Pod, "", "pods", true),
    (Kind::Claim, "", "persistentvolumeclaims", false),
    (Kind::Service, "", "services", true),
    (Kind::Budget, "policy", "poddisruptionbudgets", true),
    (Kind::Node, "", "nodes", false),
    (Kind::Namespace, "", "namespaces", false),
];

/// What a watch tells the keeper.
enum Told {
    Begun,
    Put(Box<Object>),
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
            let api = Api::all_with(client.clone(), &resource);
            tokio::spawn(follow(*kind, api, selector, sources.len(), tell.clone()));
            sources.push(Source {
                kind: *kind,
                listed: false,
                failing_since: None,
                holds: HashSet::new(),
                before: HashSet::new(),
            });
        }
    }
    drop(tell);
    Keeper { sources, facts: Facts::default(), adoption }.run(told, &guard, &changed).await;
}

/// One list and watch, begun again whenever it fails.
async fn follow(
    kind: Kind,
    api: Api<Sent>,
    selector: Option<String>,
    source: usize,
    tell: mpsc::Sender<(usize, Told)>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let config = Config { label_selector: selector.clone(), ..Config::default() };
        let mut events = std::pin::pin!(watcher(api.clone(), config));
        while let Some(event) = events.next().await {
            let told = match event {
                Ok(Event::Init) => Told::Begun,
                Ok(Event::InitApply(sent) | Event::Apply(sent)) => match Object::read(kind, sent.text()) {
                    Ok(object) => Told::Put(Box::new(object)),
                    Err(problem) => {
                        warn!(object = %sent.id(), %problem, "the view cannot hold this object");
                        Told::Unreadable
                    }
                },
                Ok(Event::Delete(sent)) => Told::Gone(sent.id()),
                Ok(Event::InitDone) => {
                    pause = FIRST_PAUSE;
                    Told::Listed
                }
                Err(error) => {
                    warn!(kind = kind.name(), error = chain(&error), "watch");
                    if tell.send((source, Told::Failing)).await.is_err() {
                        return;
                    }
                    break;
                }
            };
            if tell.send((source, told)).await.is_err() {
                return;
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

struct Keeper {
    sources: Vec<Source>,
    facts: Facts,
    adoption: Adoption,
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
            let freshness = self.freshness();
            // Before the first lists are complete nobody may ask, so nothing is built.
            if freshness != Freshness::Loading || guard.world.load().freshness != Freshness::Loading {
                let world = World::build(self.facts.clone(), &self.adoption, freshness);
                guard.metrics.view_current.set(i64::from(freshness == Freshness::Current));
                guard.metrics.holds(world.sizes());
                guard.world.store(Arc::new(world));
                changed.send_modify(|count| *count += 1);
                sleep_until(Instant::now() + AT_MOST_EVERY).await;
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
        }
    }

    fn freshness(&self) -> Freshness {
        if !self.sources.iter().all(|source| source.listed) {
            return Freshness::Loading;
        }
        self.sources
            .iter()
            .filter_map(|source| source.failing_since)
            .min()
            .map_or(Freshness::Current, Freshness::Stale)
    }
}
