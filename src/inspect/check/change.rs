//! The changes between two sets of manifests: each object as an update, a creation or a deletion.
//!
//! While one object is judged, all others are in their new state, so that changes that belong together are judged
//! together, in any order. Must not know: where either set comes from.

use std::collections::BTreeMap;

use super::CheckFindingKind;
use super::deployed::Deployed;
use super::item::ManifestItem;
use super::session::CheckSession;
use crate::manifest::Place;
use facts::galera::adopt::Adoption;
use facts::mode::Mode;
use facts::review::{Operation, Review};
use facts::view::{Facts, Freshness, Id, MODE_LABEL, View, World};
use objects::{Kind, Object, Secret};

/// Judges what differs from `before`.
pub(super) fn judge(session: &mut CheckSession<'_>, items: &[ManifestItem], before: &[ManifestItem]) {
    let pairs = Pairs::of(session, items, before);
    let mut world = CheckWorld::new(session, items, &pairs);
    world.secrets = [before, items].map(secrets);
    for (item, was) in items.iter().zip(&pairs.earlier) {
        match was {
            Some(was) if was.document.json() == item.document.json() => session.add_outcome(item, None, true),
            Some(was) if item.kind() == Kind::Namespace => {
                // The namespace keeps its old mode for the other objects: none of them is judged more mildly.
                let review =
                    Review { operation: Operation::Update, old: was.object().cloned(), ..item.created() };
                world.judge(
                    session,
                    (item, Some(*was)),
                    &review,
                    milder_mode_warning(was.object(), item.object(), item),
                );
            }
            Some(was) => {
                let (old, created) = (was.object().cloned(), item.created());
                let unknown = old.is_none().then(|| unreadable_before(item));
                let operation = if old.is_some() { Operation::Update } else { Operation::Create };
                let review = Review { operation, old, ..created };
                world.swap(Some(item), Some(was));
                world.judge(session, (item, Some(*was)), &review, unknown);
                world.swap(Some(was), Some(item));
            }
            None => world.judge(
                session,
                (item, None),
                &item.created(),
                milder_mode_warning(None, item.object(), item),
            ),
        }
    }
    for was in &pairs.missing {
        session.note_missing(was);
    }
    for was in &pairs.removed {
        let twin = was.key().and_then(|key| items.iter().find(|it| it.key() == Some(key)));
        let unknown = was.object().is_none().then(|| unreadable_before(was));
        let review = Review {
            operation: Operation::Delete,
            old: was.object().cloned(),
            new: None,
            unreadable: None,
            ..was.created()
        };
        world.swap(twin, Some(was));
        world.judge(session, (*was, None), &review, unknown);
        world.swap(Some(was), twin);
    }
}

fn secrets(items: &[ManifestItem]) -> Vec<Secret> {
    let secret = |item: &ManifestItem| match item.object() {
        Some(Object::Secret(it)) => Some(it.clone()),
        _ => None,
    };
    items.iter().filter_map(secret).collect()
}

fn unreadable_before(item: &ManifestItem) -> (Place, CheckFindingKind) {
    let message =
        format!("the earlier {} cannot be read, so the change was not judged", item.named().subject);
    (item.document.start(), CheckFindingKind::Unjudged(message))
}

/// Returns the mode that a namespace's label sets.
pub(super) fn mode(object: &Object) -> Option<Mode> {
    match object {
        Object::Namespace(it) => it.metadata.labels.get(MODE_LABEL).and_then(|text| Mode::read(text)),
        _ => None,
    }
}

/// Warns about a namespace in which rules refuse less than before.
pub(super) fn milder_mode_warning(
    was: Option<&Object>,
    is: Option<&Object>,
    item: &ManifestItem,
) -> Option<(Place, CheckFindingKind)> {
    let (from, to) = (was.and_then(mode).unwrap_or(Mode::Enforce), is.and_then(mode)?);
    (to < from).then(|| {
        let message = format!(
            "{}: {MODE_LABEL} {} -> {}: rules will refuse less in this namespace; the other changes were judged by the old mode",
            item.named().subject,
            from.name(),
            to.name()
        );
        (item.document.find("metadata.labels"), CheckFindingKind::Remark(message))
    })
}

/// Each new object with its old version.
struct Pairs<'a> {
    /// The old version for each object of the new set.
    earlier: Vec<Option<&'a ManifestItem>>,
    /// The objects that were removed.
    removed: Vec<&'a ManifestItem>,
    /// Objects that are not found again, but may be in a text that could not be read: they count as unchanged.
    missing: Vec<&'a ManifestItem>,
}

impl<'a> Pairs<'a> {
    /// Pairs the objects. Of several with the same name, as in folders for several clusters, those in the same file are
    /// paired first.
    fn of(session: &CheckSession<'_>, items: &[ManifestItem], before: &'a [ManifestItem]) -> Self {
        let mut left: BTreeMap<(Kind, &Id), Vec<&'a ManifestItem>> = BTreeMap::new();
        for was in before {
            if let Some(key) = was.key() {
                left.entry(key).or_default().push(was);
            }
        }
        let file = |item: &ManifestItem| &session.input_of(item).name;
        let mut earlier: Vec<Option<&ManifestItem>> = vec![None; items.len()];
        for same_file in [true, false] {
            for (item, was) in items.iter().zip(&mut earlier).filter(|(_, was)| was.is_none()) {
                let Some(candidates) = item.key().and_then(|key| left.get_mut(&key)) else { continue };
                let found = candidates.iter().position(|it| !same_file || file(it) == file(item));
                *was = found.map(|at| candidates.remove(at));
            }
        }
        let mut unpaired: Vec<_> = left.into_values().flatten().collect();
        unpaired.sort_by_key(|it| (it.source, it.document.start()));
        let gaps = session.gaps();
        let (missing, removed) = unpaired.into_iter().partition(|was| gaps.cover(session.input_of(was)));
        Self { earlier, removed, missing }
    }
}

/// The world in which one object after the other is judged.
struct CheckWorld<'a> {
    facts: Facts,
    world: World,
    adoption: &'a Adoption,
    /// The Secrets of the base, and those of the new manifests.
    secrets: [Vec<Secret>; 2],
}

impl<'a> CheckWorld<'a> {
    /// Builds the new state of all objects except namespaces. New clusters have no members yet.
    fn new(session: &CheckSession<'a>, items: &[ManifestItem], pairs: &Pairs<'_>) -> Self {
        let adoption = &session.options.settings.adoption;
        let mut facts = Facts::of(adoption);
        for (item, was) in items.iter().zip(&pairs.earlier) {
            if item.kind() == Kind::Namespace {
                if let Some(was) = was {
                    was.put_into(&mut facts);
                }
                continue;
            }
            item.put_into(&mut facts);
            if was.is_some() {
                Deployed::of(item, adoption).put_into(&mut facts);
            }
        }
        for was in &pairs.missing {
            was.put_into(&mut facts);
            Deployed::of(was, adoption).put_into(&mut facts);
        }
        // A ConfigMap may only have been renamed: its readers are compared with its earlier content.
        let stays = |it: &&&ManifestItem| matches!(it.kind(), Kind::Namespace | Kind::ConfigMap);
        for was in pairs.removed.iter().filter(stays) {
            was.put_into(&mut facts);
        }
        let world = World::build(facts.clone(), Freshness::Current);
        Self { facts, world, adoption, secrets: Default::default() }
    }

    fn judge(
        &self,
        session: &mut CheckSession<'_>,
        (item, was): (&ManifestItem, Option<&ManifestItem>),
        review: &Review,
        extra_note: Option<(Place, CheckFindingKind)>,
    ) {
        let view = View::new(&self.world, session.options.now, session.options.settings);
        let secrets = self.secrets.each_ref().map(Vec::as_slice);
        let view = View { from_files: true, secrets, ..view };
        session.judge(item, was.map(|it| &it.document), review, &view, extra_note);
    }

    /// Removes one object with its members from the world, and adds another one.
    fn swap(&mut self, out: Option<&ManifestItem>, into: Option<&ManifestItem>) {
        if let Some(item) = out {
            Deployed::of(item, self.adoption).take_out_of(&mut self.facts);
            self.facts.remove(item.kind(), &item.id);
        }
        if let Some(item) = into {
            item.put_into(&mut self.facts);
            Deployed::of(item, self.adoption).put_into(&mut self.facts);
        }
        self.world = self.world.after(&mut self.facts);
    }
}
