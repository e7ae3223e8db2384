//! Whose word counts for the guard's annotations of a StatefulSet or Deployment, and of its pod template.
//!
//! Owns: [`corrections`], by which `amend` changes the object and G18 tells who wrote it. Must not know: words, JSON.

use std::collections::BTreeSet;

use super::super::recovery;
use facts::marks::{self, PREFIX};
use facts::review::{Operation, Origin, Review};
use facts::view::{Freshness, View, is_cluster};
use objects::{Kind, Labels, Object, Workload};

/// One annotation that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// It stands in the pod template, not on the object.
    pub in_template: bool,
    /// The annotation.
    pub key: String,
    /// What it should be; `None`: it should not be there.
    pub wanted: Option<String>,
    /// Somebody wrote another; it was not merely left out.
    pub written: bool,
}

/// What to correct in a StatefulSet or Deployment of Galera's that somebody writes. What the guard wrote on the object
/// stays as it was, whoever replaces it. In a template nothing is ever the guard's; but what was there before the guard
/// stays until somebody takes it off, because taking it out would restart the members.
pub fn corrections(review: &Review, view: &View<'_>) -> Vec<Correction> {
    let Some(new) = workload(review.new.as_ref()) else { return Vec::new() };
    // Marks of a stranger were never looked after, so they are not the guard's when it becomes Galera's.
    let galeras = |it: &&Workload| view.adoption().adopts(it.spec.template.as_ref());
    // Marks went with the StatefulSet that is gone.
    let old = workload(review.old.as_ref()).filter(galeras).filter(|_| review.is_there());
    if old.is_none() && !galeras(&new) {
        return Vec::new();
    }
    let data = format!("{PREFIX}{}", marks::DATA);
    let first = first_data(review, new, view);
    let recovery = format!("{PREFIX}{}", marks::RECOVERY);
    let granted = recovery::granted(review, view);
    let none = Labels::default();
    let (is, was) = (&new.metadata.marks, old.map_or(&none, |old| &old.metadata.marks));
    let there = is.keys().chain(was.keys()).filter(|key| marks::is_guards(key));
    let more = [first.is_some().then_some(&data), granted.is_some().then_some(&recovery)];
    let keys: BTreeSet<_> = there.chain(more.into_iter().flatten()).collect();
    let on_object = keys.into_iter().filter_map(|key| {
        // Of all marks this one alone follows from what a person writes, and goes with it.
        let wanted = if *key == recovery {
            granted.as_ref()
        } else {
            was.get(key).or_else(|| first.as_ref().filter(|_| *key == data))
        };
        let told_anyway = review.origin == Origin::Check && is.contains_key(key);
        (is.get(key) != wanted || told_anyway).then(|| Correction {
            in_template: false,
            key: key.clone(),
            wanted: wanted.cloned(),
            written: is.contains_key(key),
        })
    });
    let was = old.map_or(&none, |old| &old.spec.template.metadata.marks);
    let foreign = new.spec.template.metadata.marks.iter();
    let in_template = foreign.filter(|(key, value)| marks::is_guards(key) && was.get(key) != Some(value));
    let taken_out = in_template.map(|(key, _)| Correction {
        in_template: true,
        key: key.clone(),
        wanted: None,
        written: true,
    });
    on_object.chain(taken_out).collect()
}

fn workload(object: Option<&Object>) -> Option<&Workload> {
    match object? {
        Object::StatefulSet(it) | Object::Deployment(it) => Some(it),
        _ => None,
    }
}

/// The data mark that a StatefulSet begins with. A new cluster without claims from before starts its life with "none";
/// the leader makes it "present". A "none" that was saved with a manifest is not believed over claims that have a
/// volume, nor over claims that are yet to get theirs back.
fn first_data(review: &Review, new: &Workload, view: &View<'_>) -> Option<String> {
    let created = review.operation == Operation::Create || review.takes_over;
    let begins = created && review.kind == Kind::StatefulSet;
    if !begins || view.left_alone(&review.namespace) || !is_cluster(new, view.adoption()) {
        return None;
    }
    let claims = view.claims_of(&review.namespace, new);
    if claims.iter().any(|claim| claim.bound) {
        return new.metadata.mark(marks::DATA).map(|_| "present".to_owned());
    }
    // An old view may not show its claims yet; without a mark a claim that has a volume counts as data.
    (claims.is_empty() && view.freshness == Freshness::Current).then(|| "none".to_owned())
}
