//! The changes that a set of manifests would make in a live cluster: each object as an update of the current one, or as
//! a creation.
//!
//! The world is the cluster's. ConfigMaps, Services and all other objects except workloads are in their new state, so
//! that objects that are applied together are judged together; workloads and their members are in their current state.
//! Each object is judged as a request of its own, as the API server will send it. Must not know: how the cluster is
//! read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::CheckFindingKind;
use super::change::mode;
use super::item::ManifestItem;
use super::session::CheckSession;
use crate::manifest::Place;
use crate::stored::{self, applied, last_applied};
use facts::mode::Mode;
use facts::review::{Operation, Origin, Review};
use facts::revision;
use facts::view::{Facts, Id, View, World};
use objects::{Kind, Object, Workload};

/// The current state of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// The view that a guard would have of it.
    pub world: &'a World,
    /// The objects of the manifests, and the ConfigMaps that they read. Those that do not exist are left out.
    pub objects: &'a BTreeMap<(Kind, Id), LiveObject>,
    /// Kinds that rules depend on and that the person running the command may not list.
    pub unseen: &'a [&'static str],
}

/// An object that was looked up.
#[derive(Clone, Debug)]
pub enum LiveObject {
    /// The object exists.
    Exists(Value),
    /// It is unknown whether it exists, for this reason.
    Unknown(String),
}

/// Returns the ConfigMaps that this workload would read.
pub(super) fn reads(item: &ManifestItem) -> Vec<(Kind, Id)> {
    let Some(it) = item.object().and_then(Object::get::<Workload>) else { return Vec::new() };
    let names = revision::reaching(&it.spec.template.spec).into_keys();
    names.map(|name| (Kind::ConfigMap, Id::new(&item.id.namespace, &name))).collect()
}

/// Judges the changes.
pub(super) fn judge(session: &mut CheckSession<'_>, items: &[ManifestItem], live: Live<'_>) {
    let effects: Vec<_> = items.iter().map(|item| LiveEffect::of(item, live)).collect();
    let facts = facts_after(items, &effects, live);
    let world = World::build(facts.clone(), live.world.freshness);
    let created: BTreeSet<_> =
        items.iter().filter(|it| it.kind() == Kind::Namespace).map(|it| &*it.id.name).collect();
    for (item, effect) in items.iter().zip(effects) {
        let ns = &*item.id.namespace;
        if !item.stands_alone() && !live.world.facts().has_namespace(ns) && !created.contains(ns) {
            let message = format!("there is no namespace {ns}, and none of these manifests creates it");
            session.note_not_judged(item, CheckFindingKind::Unread(message));
            continue;
        }
        let (now, settings) = (session.options.now, session.options.settings);
        match effect {
            LiveEffect::Unchanged => session.add_outcome(item, None, true),
            LiveEffect::Unknown(why) => {
                let subject = item.named().subject;
                let message = format!("the change of {subject} was not judged: {why}");
                session.note_not_judged(item, CheckFindingKind::Unjudged(message));
            }
            LiveEffect::Created => {
                let review = Review { origin: Origin::Live, ..item.created() };
                let view = View::new(&world, now, settings);
                session.judge(item, None, &review, &view, note_about_unknowns(item, live, None));
            }
            LiveEffect::Changed(change) => {
                // The object itself is in its current state while it is judged.
                let mut facts = facts.clone();
                if let Some(old) = &change.review.old {
                    facts.put(old.clone());
                }
                let world = world.after(&mut facts);
                let view = View::new(&world, now, settings);
                session.judge(
                    item,
                    None,
                    &change.review,
                    &view,
                    note_about_unknowns(item, live, Some(&change)),
                );
            }
        }
    }
}

/// Returns the facts with the new state of all objects except workloads. A namespace has the stricter of its two modes,
/// because the other objects may be applied before or after it.
fn facts_after(items: &[ManifestItem], effects: &[LiveEffect], live: Live<'_>) -> Facts {
    let mut facts = live.world.facts().clone();
    for found in live.objects.iter().filter(|((kind, _), _)| *kind == Kind::ConfigMap) {
        if let (_, LiveObject::Exists(json)) = found
            && let Ok(object) = Object::read(Kind::ConfigMap, &json.to_string())
        {
            facts.put(object);
        }
    }
    for (item, effect) in items.iter().zip(effects) {
        let strict = |it: &Option<Object>| it.as_ref().and_then(mode).unwrap_or(Mode::Enforce);
        let new = match (item.kind(), effect) {
            (Kind::StatefulSet | Kind::Deployment | Kind::Pod, _) => None,
            (Kind::Namespace, LiveEffect::Changed(it)) if strict(&it.review.new) < strict(&it.review.old) => {
                None
            }
            (_, LiveEffect::Changed(it)) => it.review.new.clone(),
            (_, LiveEffect::Created) => item.object().cloned(),
            _ => None,
        };
        if let Some(new) = new {
            facts.put(new);
        }
    }
    facts
}

/// Returns a note about what is not known here, or a warning about a namespace that gets a milder mode.
fn note_about_unknowns(
    item: &ManifestItem,
    live: Live<'_>,
    change: Option<&LiveUpdate>,
) -> Option<(Place, CheckFindingKind)> {
    if item.kind() == Kind::StatefulSet && !live.unseen.is_empty() {
        let unseen = live.unseen.join(" and ");
        let message = format!("{unseen} could not be listed, so what depends on them was not judged");
        return Some((item.document.start(), CheckFindingKind::Unjudged(message)));
    }
    let LiveUpdate { review, lacks_last_applied } = change?;
    if item.kind() == Kind::Namespace {
        return super::change::milder_mode_warning(review.old.as_ref(), review.new.as_ref(), item);
    }
    lacks_last_applied.then(|| {
        let message = format!(
            "{} was not created by kubectl apply, so fields that its manifest no longer has are assumed to stay; server-side apply or a Helm upgrade may remove them",
            item.named().subject
        );
        (item.document.start(), CheckFindingKind::Unjudged(message))
    })
}

/// The effect of the manifests on one object.
enum LiveEffect {
    Unchanged,
    Unknown(String),
    Created,
    Changed(Box<LiveUpdate>),
}

/// The update of an object that exists.
struct LiveUpdate {
    review: Review,
    /// Whether its last applied manifest is not known.
    lacks_last_applied: bool,
}

impl LiveEffect {
    fn of(item: &ManifestItem, live: Live<'_>) -> Self {
        let found = item.key().and_then(|(kind, id)| live.objects.get(&(kind, id.clone())));
        let before = match found {
            None => return Self::Created,
            Some(LiveObject::Unknown(why)) => return Self::Unknown(why.clone()),
            Some(LiveObject::Exists(before)) => before,
        };
        let after = applied(before, &item.json());
        if after == *before {
            return Self::Unchanged;
        }
        let [old, new] = [before.clone(), after].map(|json| stored::read(item.kind(), json));
        let unreadable = new.as_ref().err().or(old.as_ref().err()).cloned();
        let (old, new) = (old.ok(), new.ok());
        let review = Review {
            origin: Origin::Live,
            operation: Operation::Update,
            old,
            new,
            unreadable,
            ..item.created()
        };
        Self::Changed(Box::new(LiveUpdate { review, lacks_last_applied: last_applied(before).is_none() }))
    }
}
