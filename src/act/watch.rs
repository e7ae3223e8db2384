//! The watches: what the API server sends, turned into a World.
//!
//! Owns: which objects are listed and watched, and which World requests are answered from. `watch/keeper.rs` keeps the facts.
//! Must not know: rules, requests.
//! Data: watch events -> objects (read by the same reader as those in requests) -> Facts -> [`World::after`] -> one atomic swap.
//! The guard is ready when every list is complete. Each watch records when it last proved to be up to date
//! (`watch/follow.rs`); the view is as old as the watch with the oldest proof. Kinds of packs delay nothing: an operator that
//! was removed may leave a definition behind whose objects no API server can list.

mod contents;
mod follow;
mod keeper;
pub mod member_events;
mod once;
pub(crate) mod pages;
mod sent;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use facts::galera::adopt::{Adoption, READER_LABEL};
use facts::view::{self, Freshness, Id, World};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, Resource as _};
use objects::{Kind, Object, Unreadable};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::interval;
use tracing::warn;

use crate::act::guard::{Guard, WatchFreshness};

pub use once::{Error, Listing, once, served};

use follow::Follower;
use keeper::{Keeper, WatchSource};
use sent::RawObject;

/// The number of messages from watches that may wait for the keeper. Each may hold an object of some hundred kilobytes.
const MAX_QUEUED: usize = 64;
/// The interval at which the view is checked for staleness.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The kinds that are watched besides those of packs, and whether the adoption's labels narrow each list. Only Pods reliably have
/// these labels: StatefulSets and Deployments are often labelled only on their templates, and claims, Services and budgets
/// incompletely or not at all. All other kinds are listed without a selector, and the facts leave out workloads that are not
/// adopted. ConfigMaps are watched, too, but only by their metadata (`contents.rs`).
const WATCHED: &[(Kind, bool)] = &[
    (Kind::StatefulSet, false),
    (Kind::Deployment, false),
    (Kind::Pod, true),
    (Kind::Claim, false),
    (Kind::Service, false),
    (Kind::Budget, false),
    (Kind::Autoscaler, false),
    (Kind::Node, false),
    (Kind::Namespace, false),
];

/// Returns every kind whose whole objects are listed, including the kinds of packs.
fn kinds() -> impl Iterator<Item = Kind> {
    WATCHED.iter().map(|(kind, _)| *kind).chain(crate::rulebook().kinds().watched())
}

/// Returns every kind whose whole objects are listed, without the kinds of packs that this API server does not serve.
pub async fn served_kinds(client: &Client) -> impl Iterator<Item = Kind> {
    let served = served(client).await;
    kinds().filter(move |kind| !matches!(kind, Kind::Custom(_)) || served.contains(kind))
}

/// A message from a watch to the keeper.
enum Message {
    /// A list begins again. The objects that it does not name are gone when it is complete.
    ListBegun,
    Put(Box<Object>),
    /// The version in which a ConfigMap exists.
    Version(Id, String),
    /// The outcome of fetching a ConfigMap.
    Fetched(Id, contents::Fetched),
    Gone(Id),
    /// The list is complete.
    Listed,
    /// Whether the API server offers this kind of a pack.
    Serves(bool),
    /// Whether the objects of this kind of a pack can be listed now.
    Reachable(bool),
    Unreadable(Id, Unreadable),
    /// Events about a member that is not Ready, or about a StatefulSet that lacks a pod.
    MemberEvents(member_events::Topic, Vec<member_events::MemberEvent>),
}

/// Keeps the world up to date until the process ends. Returns early if a watch ends, which should not happen. `changed` is
/// incremented with each new world, and whenever the view becomes stale or current. When the adoption changes, the watches
/// that the new one needs are started beside those that run, and replace them when their first lists are complete.
pub async fn keep(
    client: Client,
    guard: Arc<Guard>,
    changed: watch::Sender<u64>,
    mut adoption: watch::Receiver<Adoption>,
) {
    let start = |adoption| Watches::start(&client, &guard, adoption);
    let mut current = start(adoption.borrow_and_update().clone());
    let mut next: Option<Watches> = None;
    let mut staleness_check = interval(CHECK_INTERVAL);
    let mut was_current = false;
    guard.watch_freshness.store(Some(Arc::new(current.freshness.clone())));
    loop {
        let world = tokio::select! {
            Some(world) = current.worlds.recv() => Some(world),
            first = first_world(&mut next) => {
                let Some((watches, world)) = first else { return };
                guard.settings.rcu(|settings| settings.with_adoption(watches.adoption.clone()));
                current = watches;
                guard.watch_freshness.store(Some(Arc::new(current.freshness.clone())));
                Some(world)
            }
            Ok(()) = adoption.changed() => {
                let wanted = adoption.borrow_and_update().clone();
                next = (wanted != current.adoption).then(|| start(wanted));
                guard.ready.adopting.store(next.is_some(), Ordering::Relaxed);
                continue;
            }
            _ = staleness_check.tick() => None,
            _ = current.tasks.join_next() => return,
        };
        let is_new = world.is_some();
        if let Some(world) = world {
            guard.ready.adopting.store(next.is_some(), Ordering::Relaxed);
            guard.metrics.set_view_sizes(world.sizes());
            guard.ready.unlisted.store(unlisted(&world).map(Arc::new));
            guard.replace_world(world);
        }
        let is_current = guard.freshness(&guard.world.load()) == Freshness::Current;
        if is_new || is_current != was_current {
            guard.metrics.view_current.set(i64::from(is_current));
            changed.send_modify(|count| *count += 1);
        }
        was_current = is_current;
    }
}

/// Returns the text for `/readyz` about kinds of packs that cannot be listed, and about objects for which there is no room in
/// memory.
fn unlisted(world: &World) -> Option<String> {
    let facts = world.facts();
    let names = facts.kept.unlisted().iter().map(|kind| format!("{}.{}", kind.plural(), kind.group()));
    let names = names.collect::<Vec<_>>().join(", ");
    let unlisted =
        (!names.is_empty()).then(|| format!("{names} cannot be listed: rules about them answer UNKNOWN"));
    let is_large = |(_, problem): &(&(Kind, Id), &Unreadable)| matches!(problem, Unreadable::NotExamined(_));
    let mut large = facts.unreadable.iter().filter(is_large);
    let first = large.next().map(|((kind, id), problem)| format!("{} {id} {problem}", kind.name()));
    let more = Some(large.count()).filter(|more| *more > 0).map(|more| format!(" (and {more} more)"));
    let missing: Vec<_> =
        unlisted.into_iter().chain(first.map(|first| first + &more.unwrap_or_default())).collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// Waits until the first lists of these watches are complete, and takes the watches out of `next`. Returns `None` if one of
/// them ended; if there are no watches, waits without end.
async fn first_world(next: &mut Option<Watches>) -> Option<(Watches, World)> {
    let Some(watches) = next else { return std::future::pending().await };
    let world = tokio::select! {
        world = watches.worlds.recv() => world?,
        _ = watches.tasks.join_next() => return None,
    };
    Some((next.take()?, world))
}

/// The watches of one adoption. They end when this value is dropped.
struct Watches {
    adoption: Adoption,
    worlds: mpsc::Receiver<World>,
    freshness: WatchFreshness,
    tasks: JoinSet<()>,
}

impl Watches {
    /// Starts every list and watch.
    fn start(client: &Client, guard: &Arc<Guard>, adoption: Adoption) -> Self {
        let mut tasks = JoinSet::new();
        let (messages, received) = mpsc::channel(MAX_QUEUED);
        let collections: Vec<_> = collections(&adoption).collect();
        let needed = collections.iter().map(|(kind, ..)| !kind.is_optional());
        let freshness = WatchFreshness::new(needed);
        let sources: Vec<_> = collections.iter().map(|(kind, ..)| WatchSource::new(*kind)).collect();
        let config_maps = sources.len() - 1;
        for (watch, (kind, url, selector)) in collections.into_iter().enumerate() {
            let (client, freshness, messages) = (client.clone(), freshness.clone(), messages.clone());
            let (guard, relist) = (Arc::clone(guard), Arc::clone(&sources[watch].relist));
            tasks.spawn(
                Follower { client, kind, url, selector, watch, freshness, guard, relist, messages }.follow(),
            );
        }
        let (text_requests, requested_texts) = mpsc::unbounded_channel();
        tasks.spawn(member_events::follow(client.clone(), Arc::clone(guard), messages.clone()));
        tasks.spawn(contents::fetch(client.clone(), requested_texts, messages, config_maps));
        let keeper =
            Keeper::new(sources, text_requests, crate::rulebook().facts(&adoption).with_memory(guard.memory));
        let (built_worlds, worlds) = mpsc::channel(1);
        let guard = Arc::clone(guard);
        tasks.spawn(async move { keeper.run(received, &guard, &built_worlds).await });
        Self { adoption, worlds, freshness, tasks }
    }
}

/// Returns every collection that is listed and watched: its kind, its URL and its label selector.
fn collections(adoption: &Adoption) -> impl Iterator<Item = (Kind, String, Option<String>)> {
    let of_packs = crate::rulebook().kinds().watched().map(|kind| (kind, false));
    let watched = WATCHED.iter().copied().chain(of_packs).flat_map(|(kind, narrowed)| {
        let resource = resource(kind);
        let selectors = if narrowed {
            let adopted = adoption.selectors().iter().map(ToString::to_string);
            adopted.chain([READER_LABEL.to_owned()]).map(Some).collect()
        } else {
            vec![None]
        };
        selectors.into_iter().map(move |selector| (kind, DynamicObject::url_path(&resource, None), selector))
    });
    // ConfigMaps come last: `Watches::start` gives the last index to the task that fetches their contents.
    watched.chain([(Kind::ConfigMap, ConfigMap::url_path(&(), None), None)])
}

pub(super) fn resource(kind: Kind) -> ApiResource {
    // Every API server offers autoscaling/v1, even one without autoscaling/v2, and v1 has all that is kept of an autoscaler.
    let version = if kind == Kind::Autoscaler { "v1" } else { kind.version() };
    let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
    ApiResource::from_gvk_with_plural(&gvk, kind.plural())
}

/// Reads an object that the API server sent, and returns the message about it for the keeper.
fn message_about(kind: Kind, sent: RawObject<'_>) -> Message {
    match view::read(kind, sent.text) {
        Ok(object) => Message::Put(Box::new(object)),
        Err(problem) => unreadable_message(sent.id, problem),
    }
}

fn unreadable_message(id: Id, problem: Unreadable) -> Message {
    warn!(object = %id, %problem, "this object cannot be read, so the view does not hold it");
    Message::Unreadable(id, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_what_the_view_lacks_is_named_and_the_others_are_counted() {
        let mut facts = facts::view::Facts::default();
        let text = |facts: &facts::view::Facts| unlisted(&World::build(facts.clone(), Freshness::Current));
        assert_eq!(text(&facts), None);
        for (name, more) in [("a", ""), ("b", " (and 1 more)"), ("c", " (and 2 more)")] {
            facts.cannot_read(Kind::Service, Id::new("db", name), Unreadable::NotExamined("it is large"));
            assert_eq!(text(&facts).unwrap(), format!("Service db/a is not examined: it is large{more}"));
        }
    }
}
