//! What a set of manifests would change in a cluster that lives: each object as an update of what is there, or as a creation.
//!
//! The world is the cluster's. ConfigMaps, Services and whatever else is no workload are in it as they will be, so that what is
//! applied together is judged together; workloads and their members are as they are. Must not know: how it is asked.

use std::collections::BTreeMap;

use serde_json::Value;

use super::applied::applied;
use super::desk::Desk;
use super::item::Item;
use crate::object::{Kind, Object};
use crate::review::{Operation, Review};
use crate::view::{Id, View, World};

/// A cluster as it is.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// What the guard would know of it.
    pub world: &'a World,
    /// The objects of the manifests that are there.
    pub objects: &'a BTreeMap<(Kind, Id), Value>,
}

/// Judges what would change.
pub(super) fn judge(desk: &mut Desk<'_>, items: &[Item], live: Live<'_>) {
    let becomes: Vec<_> = items.iter().map(|item| Becomes::of(item, live)).collect();
    let mut facts = live.world.facts().clone();
    for (item, becomes) in items.iter().zip(&becomes) {
        let workload =
            matches!(item.kind(), Kind::StatefulSet | Kind::Deployment | Kind::Pod | Kind::Namespace);
        if let (false, Becomes::Created(Some(object)) | Becomes::Changed { new: Some(object), .. }) =
            (workload, becomes)
        {
            facts.put((**object).clone());
        }
    }
    let together = World::build(facts.clone(), live.world.freshness);
    for (item, becomes) in items.iter().zip(becomes) {
        match becomes {
            Becomes::Unchanged => desk.note(item, None, true),
            Becomes::Created(_) => {
                let view = View::new(&together, desk.question.now, desk.question.settings);
                desk.judge(item, &item.created(), &view, None);
            }
            Becomes::Changed { review, old, .. } => {
                // While it is judged it is as it is.
                let mut facts = facts.clone();
                if let Some(old) = old {
                    facts.put(*old);
                }
                let world = together.after(&mut facts);
                desk.judge(
                    item,
                    &review,
                    &View::new(&world, desk.question.now, desk.question.settings),
                    None,
                );
            }
        }
    }
}

/// What becomes of an object of the manifests.
enum Becomes {
    Unchanged,
    Created(Option<Box<Object>>),
    Changed { review: Box<Review>, old: Option<Box<Object>>, new: Option<Box<Object>> },
}

impl Becomes {
    fn of(item: &Item, live: Live<'_>) -> Self {
        let found = item.key().and_then(|(kind, id)| live.objects.get(&(kind, id.clone())));
        let Some(before) = found else { return Self::Created(item.object().cloned().map(Box::new)) };
        let after = applied(before, &item.json());
        if after == *before {
            return Self::Unchanged;
        }
        let read = |json: &Value| Object::read(item.kind(), &json.to_string());
        let (old, new) = (read(before), read(&after));
        let (old, unreadable) = (old.ok(), new.as_ref().err().cloned());
        let new = new.ok();
        let review = Review {
            operation: Operation::Update,
            old: old.clone(),
            new: new.clone(),
            unreadable,
            ..item.created()
        };
        Self::Changed { review: Box::new(review), old: old.map(Box::new), new: new.map(Box::new) }
    }
}
