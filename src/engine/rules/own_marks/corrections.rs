//! The correct values of the guard's annotations on a StatefulSet or Deployment, and on its pod template.
//!
//! Owns: [`corrections`], which `amend` applies to the object and about which G18 warns. Must not know: messages, JSON.

use std::collections::BTreeSet;

use super::super::recovery;
use facts::marks::{self, PREFIX};
use facts::review::{Change, Operation, Origin, Review};
use facts::view::{Freshness, View, is_cluster};
use objects::{Kind, Labels, Workload};

/// An annotation that differs from its correct value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Whether the annotation is in the pod template, not on the object.
    pub in_template: bool,
    pub key: String,
    /// The correct value; `None`: the annotation must not exist.
    pub wanted: Option<String>,
    /// Whether the request wrote another value, instead of leaving the annotation out.
    pub written: bool,
}

/// Returns the corrections for a StatefulSet or Deployment of Galera. Annotations that the guard wrote on the object keep their
/// values. The guard never writes annotations in a template, but one that was there before stays, because its removal would
/// restart the members.
pub fn corrections(review: &Review, view: &View<'_>) -> Vec<Correction> {
    let Change { old, new: Some(new) } = review.change::<Workload>() else { return Vec::new() };
    // The marks of an object are not protected before it is adopted, so the guard does not trust them afterwards.
    let is_adopted = |it: &&Workload| view.adoption().adopts(&it.spec.template.metadata.labels);
    // If the request takes over running members, their StatefulSet was deleted, and its marks with it.
    let old = old.filter(is_adopted).filter(|_| review.exists());
    if old.is_none() && !is_adopted(&new) {
        return Vec::new();
    }
    let data_key = format!("{PREFIX}{}", marks::DATA);
    let first_data = first_data(review, new, view);
    let recovery_key = format!("{PREFIX}{}", marks::RECOVERY);
    let granted = recovery::granted(review, view);
    let none = Labels::default();
    let (is, was) = (&new.metadata.marks, old.map_or(&none, |old| &old.metadata.marks));
    let present = is.keys().chain(was.keys()).filter(|key| marks::is_guards(key));
    let due = [first_data.is_some().then_some(&data_key), granted.is_some().then_some(&recovery_key)];
    let keys: BTreeSet<_> = present.chain(due.into_iter().flatten()).collect();
    let on_object = keys.into_iter().filter_map(|key| {
        // Only this mark follows from an annotation that people write, and is removed together with it.
        let wanted = if *key == recovery_key {
            granted.as_ref()
        } else {
            was.get(key).or_else(|| first_data.as_ref().filter(|_| *key == data_key))
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
    let in_template = new.spec.template.metadata.marks.iter();
    let foreign = in_template.filter(|(key, value)| marks::is_guards(key) && was.get(key) != Some(value));
    let removals = foreign.map(|(key, _)| Correction {
        in_template: true,
        key: key.clone(),
        wanted: None,
        written: true,
    });
    on_object.chain(removals).collect()
}

/// Returns the first data mark of a StatefulSet. A new cluster without existing claims begins with "none", and the leader sets it
/// to "present". A mark that was saved with a manifest becomes "present" if a claim has a volume, and is removed if the claims
/// are not bound yet.
fn first_data(review: &Review, new: &Workload, view: &View<'_>) -> Option<String> {
    let created = review.operation == Operation::Create || review.takes_over;
    let begins = created && review.kind == Kind::StatefulSet;
    if !begins || view.is_mode_off(&review.namespace) || !is_cluster(new, view.adoption()) {
        return None;
    }
    let claims = view.claims_of(&review.namespace, new);
    if claims.iter().any(|claim| claim.bound) {
        return new.metadata.mark(marks::DATA).map(|_| "present".to_owned());
    }
    // A view that is not current may not show the claims; without a mark, a claim that has a volume counts as data.
    (claims.is_empty() && view.freshness == Freshness::Current).then(|| "none".to_owned())
}
