//! The correct values of the guard's annotations on a StatefulSet or Deployment, and on its pod template.
//!
//! Owns: [`corrections`], with which `amend` changes the object and G18 warns. Must not know: messages, JSON.

use std::collections::BTreeSet;

use super::super::recovery;
use facts::marks::{self, PREFIX};
use facts::review::{Change, Operation, Origin, Review};
use facts::view::{Freshness, View, is_cluster};
use objects::{Kind, Labels, Workload};

/// An annotation that differs from its correct value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The annotation is in the pod template, not on the object.
    pub in_template: bool,
    pub key: String,
    /// The correct value; `None`: the annotation must not exist.
    pub wanted: Option<String>,
    /// The request wrote another value, instead of leaving the annotation out.
    pub written: bool,
}

/// Returns what to correct in a StatefulSet or Deployment of Galera. Annotations that the guard wrote on the object keep their
/// values. In a template the guard never writes annotations; but one that was there before stays, because removing it would
/// restart the members.
pub fn corrections(review: &Review, view: &View<'_>) -> Vec<Correction> {
    let Change { old, new: Some(new) } = review.change::<Workload>() else { return Vec::new() };
    // Before an object is adopted its marks are not protected, so the guard does not trust them afterwards.
    let galeras = |it: &&Workload| view.adoption().adopts(it.spec.template.as_ref());
    // A StatefulSet that is deleted has lost its marks.
    let old = old.filter(galeras).filter(|_| review.is_there());
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
        // Only this mark follows from an annotation that people write, and is removed together with it.
        let wanted = if *key == recovery {
            granted.as_ref()
        } else {
            was.get(key).or_else(|| first.as_ref().filter(|_| *key == data))
        };
        let in_manifest = review.origin == Origin::Check && is.contains_key(key);
        (is.get(key) != wanted || in_manifest).then(|| Correction {
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

/// Returns the first data mark of a StatefulSet. A new cluster without existing claims begins with "none", and the leader sets it
/// to "present". A "none" that was saved with a manifest does not count if claims have a volume, or are still to be bound
/// again.
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
    // A late view may not show the claims yet; without a mark, a claim that has a volume counts as data.
    (claims.is_empty() && view.freshness == Freshness::Current).then(|| "none".to_owned())
}
