//! The watches: what the API server sends, turned into a World.
//!
//! Owns: which objects are listed and watched, and which World is shown. `watch/keeper.rs` keeps the facts. Must not know: rules, requests.
//! Data: watch events -> objects (read by the same reader as reviews) -> Facts -> World::after the last -> one atomic swap.
//! The guard is ready when every list is complete. Each watch says when it was heard last (`watch/follow.rs`); the view is
//! as old as the most silent of them. Nothing waits for the kinds of packs: an operator that is gone may leave a definition behind
//! whose objects no API server can list.

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

use facts::galera::adopt::{Adoption, READER};
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

pub use once::{Error, Listed, once, served};

use follow::Follower;
use keeper::{Keeper, Source};
use sent::RawObject;

/// So many messages of watches wait for the keeper. Each may hold an object of some hundred kilobytes.
const MESSAGES: usize = 64;
/// How often it is checked whether the view has become old.
const LOOK: Duration = Duration::from_secs(1);

/// What is watched besides the kinds of packs, and whether the adoption's labels narrow it. StatefulSets and Deployments
/// are often labelled on their templates only, claims, Services and budgets incompletely or not at all, so those are
/// listed whole and trimmed here.
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
/// Every kind that is listed whole, those of packs included.
fn kinds() -> impl Iterator<Item = Kind> {
    WATCHED.iter().map(|(kind, _)| *kind).chain(crate::rulebook().kinds().watched())
}

/// The same of what this API server serves.
pub async fn kinds_there(client: &Client) -> impl Iterator<Item = Kind> {
    let served = served(client).await;
    kinds().filter(move |kind| !matches!(kind, Kind::Custom(_)) || served.contains(kind))
}

// ConfigMaps are watched too, by their metadata: see contents.rs.

/// A message of a watch to the keeper.
enum Message {
    Begun,
    Put(Box<Object>),
    /// A ConfigMap exists in this version.
    Version(Id, String),
    /// What came of a fetch of a ConfigMap.
    Fetched(Id, contents::Fetched),
    Gone(Id),
    Listed,
    /// The API server offers this kind of a pack, or does not.
    Serves(bool),
    /// What there is of this kind of a pack is known, or cannot be known now.
    Reachable(bool),
    Unreadable(Id, Unreadable),
    /// Events about members that are not Ready, or of a StatefulSet that lacks one.
    MemberEvents(member_events::Topic, Vec<member_events::MemberEvent>),
}

/// Keeps the world until the process ends, or until one of its watches has ended, which none should. `changed` counts the
/// worlds, and whenever the view becomes old or current. When another adoption is wanted, the watches it needs are started
/// beside those that run, and take over when they know everything.
pub async fn keep(
    client: Client,
    guard: Arc<Guard>,
    changed: watch::Sender<u64>,
    mut adoption: watch::Receiver<Adoption>,
) {
    let start = |adoption| Watches::start(&client, &guard, adoption);
    let mut current = start(adoption.borrow_and_update().clone());
    let mut next: Option<Watches> = None;
    let mut look = interval(LOOK);
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
            _ = look.tick() => None,
            _ = current.tasks.join_next() => return,
        };
        let known = world.is_some();
        if let Some(world) = world {
            guard.ready.adopting.store(next.is_some(), Ordering::Relaxed);
            guard.metrics.holds(world.sizes());
            guard.ready.unheard.store(unlisted(&world).map(Arc::new));
            guard.show(world);
        }
        let is_current = guard.freshness(&guard.world.load()) == Freshness::Current;
        if known || is_current != was_current {
            guard.metrics.view_current.set(i64::from(is_current));
            changed.send_modify(|count| *count += 1);
        }
        was_current = is_current;
    }
}

/// Which kinds of packs cannot be listed, and of what there is no room, for `/readyz`.
fn unlisted(world: &World) -> Option<String> {
    let facts = world.facts();
    let names = facts.kept.unheard().iter().map(|kind| format!("{}.{}", kind.plural(), kind.group()));
    let names = names.collect::<Vec<_>>().join(", ");
    let unlisted =
        (!names.is_empty()).then(|| format!("{names} cannot be listed: rules about them answer UNKNOWN"));
    let is_large = |(_, problem): &(&(Kind, Id), &Unreadable)| matches!(problem, Unreadable::TooMuch(_));
    let mut large = facts.unreadable.iter().filter(is_large);
    let first = large.next().map(|((kind, id), problem)| format!("{} {id} {problem}", kind.name()));
    let more = Some(large.count()).filter(|more| *more > 0).map(|more| format!(" (and {more} more)"));
    let words: Vec<_> = unlisted.into_iter().chain(first.map(|it| it + &more.unwrap_or_default())).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Waits until these watches, if there are any, know everything, and takes them out. `None`: one of them has ended.
async fn first_world(next: &mut Option<Watches>) -> Option<(Watches, World)> {
    let Some(watches) = next else { return std::future::pending().await };
    let world = tokio::select! {
        world = watches.worlds.recv() => world?,
        _ = watches.tasks.join_next() => return None,
    };
    Some((next.take()?, world))
}

/// The watches of one adoption. They end with this value.
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
        let (messages, received) = mpsc::channel(MESSAGES);
        let collections: Vec<_> = collections(&adoption).collect();
        let needed = collections.iter().map(|(kind, ..)| !kind.is_optional());
        let freshness = WatchFreshness::of(needed);
        let sources: Vec<_> = collections.iter().map(|(kind, ..)| Source::new(*kind)).collect();
        let maps = sources.len() - 1;
        for (watch, (kind, url, selector)) in collections.into_iter().enumerate() {
            let (client, freshness, messages) = (client.clone(), freshness.clone(), messages.clone());
            let (guard, again) = (Arc::clone(guard), Arc::clone(&sources[watch].again));
            tasks.spawn(
                Follower { client, kind, url, selector, watch, freshness, guard, again, messages }.follow(),
            );
        }
        let (want, wanted) = mpsc::unbounded_channel();
        tasks.spawn(member_events::listen(client.clone(), Arc::clone(guard), messages.clone()));
        tasks.spawn(contents::fetch(client.clone(), wanted, messages, maps));
        let keeper = Keeper::new(sources, want, crate::rulebook().facts(&adoption).within(guard.memory));
        let (show, worlds) = mpsc::channel(1);
        let guard = Arc::clone(guard);
        tasks.spawn(async move { keeper.run(received, &guard, &show).await });
        Self { adoption, worlds, freshness, tasks }
    }
}

/// What is listed and watched: kind, where it is, and which of it.
fn collections(adoption: &Adoption) -> impl Iterator<Item = (Kind, String, Option<String>)> {
    let of_packs = crate::rulebook().kinds().watched().map(|kind| (kind, false));
    let watched = WATCHED.iter().copied().chain(of_packs).flat_map(|(kind, narrowed)| {
        let resource = resource(kind);
        let selectors = if narrowed {
            let adopted = adoption.selectors().iter().map(ToString::to_string);
            adopted.chain([READER.to_owned()]).map(Some).collect()
        } else {
            vec![None]
        };
        selectors.into_iter().map(move |selector| (kind, DynamicObject::url_path(&resource, None), selector))
    });
    // Last, because their contents come beside them.
    watched.chain([(Kind::ConfigMap, ConfigMap::url_path(&(), None), None)])
}

pub(super) fn resource(kind: Kind) -> ApiResource {
    // What is older than autoscaling/v2 says as much of the autoscalers as is kept.
    let version = if kind == Kind::Autoscaler { "v1" } else { kind.version() };
    let kind_of = GroupVersionKind::gvk(kind.group(), version, kind.name());
    ApiResource::from_gvk_with_plural(&kind_of, kind.plural())
}

/// An object of a watch, for the facts.
fn read(kind: Kind, sent: RawObject<'_>) -> Message {
    match view::read(kind, sent.text) {
        Ok(object) => Message::Put(Box::new(object)),
        Err(problem) => unreadable(sent.id, problem),
    }
}

fn unreadable(id: Id, problem: Unreadable) -> Message {
    warn!(object = %id, %problem, "this object cannot be read, so the view does not hold it");
    Message::Unreadable(id, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_what_the_view_lacks_is_named_and_the_others_are_counted() {
        let mut facts = facts::view::Facts::default();
        let words = |facts: &facts::view::Facts| unlisted(&World::build(facts.clone(), Freshness::Current));
        assert_eq!(words(&facts), None);
        for (name, more) in [("a", ""), ("b", " (and 1 more)"), ("c", " (and 2 more)")] {
            facts.cannot_read(Kind::Service, Id::new("db", name), Unreadable::TooMuch("it is large"));
            assert_eq!(words(&facts).unwrap(), format!("Service db/a is not examined: it is large{more}"));
        }
    }
}
