//! What changes between two sets of manifests: each object as an update, a creation or a deletion.
//!
//! While one object is judged, all others are as they will be, so that what is changed together is judged together, in whatever
//! order it is applied. Must not know: where either set comes from.

use std::collections::BTreeMap;

use super::Desk;
use super::deployed::Deployed;
use super::item::Item;
use crate::object::Kind;
use crate::review::{Operation, Review};
use crate::view::{Facts, Freshness, Id, View, World};

/// Judges what differs from `before`.
pub(super) fn judge(desk: &mut Desk<'_>, items: &[Item], before: &[Item]) {
    let by_key = |items: &'_ [Item]| -> BTreeMap<_, _> {
        items
            .iter()
            .enumerate()
            .filter_map(|(at, it)| Some((it.key().map(|(kind, id)| (kind, id.clone()))?, at)))
            .collect()
    };
    let (old, new): (BTreeMap<(Kind, Id), usize>, _) = (by_key(before), by_key(items));
    let of_key = |item: &Item| Some(&before[*old.get(&item.key().map(|(kind, id)| (kind, id.clone()))?)?]);
    let gone =
        before.iter().filter(|it| it.key().is_some_and(|(kind, id)| !new.contains_key(&(kind, id.clone()))));

    let mut stage = Stage::new(desk, items, &of_key);
    for item in items {
        match of_key(item) {
            Some(was) if was.document.json() == item.document.json() => desk.note(item, None, true),
            Some(was) => {
                let old = was.object().cloned();
                let created = item.created();
                // What could not be read before is judged as new.
                let operation = if old.is_some() { Operation::Update } else { Operation::Create };
                let review = Review { operation, old, ..created };
                stage.before(was, Some(item));
                stage.judge(desk, item, &review);
                stage.after(was, Some(item));
            }
            None => stage.judge(desk, item, &item.created()),
        }
    }
    for was in gone {
        let Some(object) = was.object() else { continue };
        let review =
            Review { operation: Operation::Delete, old: Some(object.clone()), new: None, ..was.created() };
        stage.before(was, None);
        stage.judge(desk, was, &review);
        stage.after(was, None);
    }
}

/// The world in which one object after the other is judged.
struct Stage<'a> {
    facts: Facts,
    world: World,
    adoption: &'a crate::galera::adopt::Adoption,
}

impl<'a> Stage<'a> {
    /// As all will be. What is new has no members yet.
    fn new<'i>(desk: &Desk<'a>, items: &'i [Item], was: &impl Fn(&Item) -> Option<&'i Item>) -> Self
    where
        'i: 'i,
    {
        let adoption = &desk.question.settings.adoption;
        let mut facts = Facts::of(adoption);
        for item in items {
            item.put_into(&mut facts);
            if let (Some(_), Some(object)) = (was(item), item.object()) {
                Deployed::of(object, &item.id.namespace, adoption).put_into(&mut facts);
            }
        }
        let world = World::build(facts.clone(), Freshness::Current);
        Self { facts, world, adoption }
    }

    fn judge(&self, desk: &mut Desk<'_>, item: &Item, review: &Review) {
        let view = View::new(&self.world, desk.question.now, desk.question.settings);
        desk.judge(item, review, &View { supposed: true, ..view });
    }

    /// This one is as it was.
    fn before(&mut self, was: &Item, is: Option<&Item>) {
        self.swap(is, Some(was));
    }

    /// This one is as it will be.
    fn after(&mut self, was: &Item, is: Option<&Item>) {
        self.swap(Some(was), is);
    }

    fn swap(&mut self, out: Option<&Item>, into: Option<&Item>) {
        let deployed =
            |item: &Item| item.object().map(|it| Deployed::of(it, &item.id.namespace, self.adoption));
        let (leave, come) = (out.and_then(deployed), into.and_then(deployed));
        if let Some(item) = out {
            if let Some(leave) = leave {
                leave.take_out_of(&mut self.facts);
            }
            self.facts.remove(item.kind(), &item.id);
        }
        if let Some(item) = into {
            item.put_into(&mut self.facts);
            if let Some(come) = come {
                come.put_into(&mut self.facts);
            }
        }
        self.world = self.world.after(&mut self.facts);
    }
}
