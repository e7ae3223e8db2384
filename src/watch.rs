//! The watches: what the API server tells, turned into a World.
//!
//! Owns: which objects are listed and watched, and which World is shown. `watch/keeper.rs` keeps the facts. Must not know: rules, requests.
//! Data: watch events -> objects (read by the same reader as reviews) -> Facts -> World::build -> one atomic swap.
//! The guard is ready when every list is complete; a watch that fails makes the view stale until it has listed again.

mod contents;
mod keeper;
mod once;
mod sent;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::galera::adopt::Adoption;
use crate::guard::Guard;
use crate::object::{Kind, Object, Unreadable};
use crate::telemetry::chain;
use crate::view::{Freshness, Id, World};

pub use once::{Error, Listed, once};

use keeper::{Keeper, Source};
use sent::Sent;

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
    /// The content of a ConfigMap was told, unless it is gone meanwhile.
    Fetched,
    Gone(Id),
    Listed,
    Unreadable(Id, Unreadable),
    Failing,
}

/// Keeps the world until the process ends. `changed` counts the worlds. When another adoption is wanted, the watches it
/// needs are started beside those that run, and take over when they know everything.
pub async fn keep(
    client: Client,
    guard: Arc<Guard>,
    changed: watch::Sender<u64>,
    mut adoption: watch::Receiver<Adoption>,
) {
    let start = |adoption| Watches::start(&client, &guard, adoption);
    let mut current = start(adoption.borrow_and_update().clone());
    let mut next: Option<Watches> = None;
    loop {
        let world = tokio::select! {
            Some(world) = current.worlds.recv() => world,
            Some((watches, world)) = first_world(&mut next) => {
                guard.settings.rcu(|settings| settings.with_adoption(watches.adoption.clone()));
                current = watches;
                world
            }
            Ok(()) = adoption.changed() => {
                let wanted = adoption.borrow_and_update().clone();
                next = (wanted != current.adoption).then(|| start(wanted));
                guard.ready.adopting.store(next.is_some(), Ordering::Relaxed);
                continue;
            }
            else => return,
        };
        guard.ready.adopting.store(next.is_some(), Ordering::Relaxed);
        guard.metrics.view_current.set(i64::from(world.freshness == Freshness::Current));
        guard.metrics.holds(world.sizes());
        guard.world.store(Arc::new(world));
        changed.send_modify(|count| *count += 1);
    }
}

/// Waits until these watches know everything, and takes them out.
async fn first_world(next: &mut Option<Watches>) -> Option<(Watches, World)> {
    let world = next.as_mut()?.worlds.recv().await?;
    Some((next.take()?, world))
}

/// The watches of one adoption. They end with this value.
struct Watches {
    adoption: Adoption,
    worlds: mpsc::Receiver<World>,
    _tasks: JoinSet<()>,
}

impl Watches {
    fn start(client: &Client, guard: &Arc<Guard>, adoption: Adoption) -> Self {
        let mut tasks = JoinSet::new();
        let (show, worlds) = mpsc::channel(1);
        let (keeper, told) = begin(client, &adoption, &mut tasks);
        let guard = Arc::clone(guard);
        tasks.spawn(async move { keeper.run(told, &guard, &show).await });
        Self { adoption, worlds, _tasks: tasks }
    }
}

/// Starts every list and watch.
fn begin(
    client: &Client,
    adoption: &Adoption,
    tasks: &mut JoinSet<()>,
) -> (Keeper, mpsc::Receiver<(usize, Told)>) {
    let (tell, told) = mpsc::channel(1024);
    let mut sources = Vec::new();
    for (kind, group, plural, narrowed) in WATCHED {
        let selectors = if *narrowed {
            adoption.selectors().iter().map(|it| Some(it.to_string())).collect()
        } else {
            vec![None]
        };
        for selector in selectors {
            let resource = resource(*kind, group, plural);
            let api: Api<Sent> = Api::all_with(client.clone(), &resource);
            tasks.spawn(follow(api, selector, sources.len(), tell.clone(), |sent| read(*kind, &sent)));
            sources.push(Source::new(*kind));
        }
    }
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
    tasks.spawn(follow(maps, None, sources.len(), tell.clone(), |map| {
        Told::Version(id(map.meta()), map.resource_version().unwrap_or_default())
    }));
    sources.push(Source::new(Kind::ConfigMap));
    let (want, wanted) = mpsc::unbounded_channel();
    tasks.spawn(contents::fetch(client.clone(), wanted, tell, sources.len() - 1));
    (Keeper::new(sources, want, adoption.clone()), told)
}

fn resource(kind: Kind, group: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        api_version: if group.is_empty() { "v1".into() } else { format!("{group}/v1") },
        kind: kind.name().into(),
        plural: plural.into(),
    }
}

/// An object of a watch, for the facts.
fn read(kind: Kind, sent: &Sent) -> Told {
    match Object::read(kind, sent.text()) {
        Ok(object) => Told::Put(Box::new(object)),
        Err(problem) => unreadable(id(sent.meta()), problem),
    }
}

fn unreadable(id: Id, problem: Unreadable) -> Told {
    warn!(object = %id, %problem, "the view cannot hold this object");
    Told::Unreadable(id, problem)
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
