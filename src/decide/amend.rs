//! What the guard changes in an object on its way in.
//!
//! Owns: which change belongs to which review, and the patch that makes it. Must not know: HTTP, clients. This is,
//! with `amend/inject.rs`, the place that edits raw JSON: a typed object would drop every field newer than our types. Data:
//! the object as it came, and the decision about it; out comes the difference between before and after. Whether there
//! is anything to change is decided on what was read already, so that most objects are never read a second time.

mod edit;
pub mod inject;

use serde_json::{Value, json};

use crate::object::{Object, Pod};
use crate::packs::Pack;
use crate::review::{Operation, Review};
use crate::rules::{self, Correction};
use crate::verdict::{Decision, Finding};
use crate::view::View;

/// What to change.
enum Change<'a> {
    /// Give a member or bootstrap node what it needs.
    Inject(&'a Pod),
    /// A StatefulSet or Deployment.
    Workload {
        /// G04: a bootstrap Deployment that is applied again is kept at 0 replicas instead of being refused, every time,
        /// so that whoever applies it can go on doing so.
        at_zero: bool,
        /// The guard's marks that are not what they should be.
        marks: Vec<Correction>,
    },
    /// What packs say that is changed.
    OfPacks(Vec<(&'static Pack, Finding)>),
}

/// The patch for an object, and what to tell the person about it. `None`: it stays as it is.
pub fn amend(
    review: &Review,
    object: &str,
    decision: &mut Decision,
    view: &View<'_>,
) -> Option<json_patch::Patch> {
    let change = change(review, decision, view)?;
    let before: Value = serde_json::from_str(object).ok()?;
    let mut after = before.clone();
    match change {
        Change::Inject(pod) => {
            decision.remarks.extend(inject::into_pod(&mut after, pod, &review.namespace, view));
        }
        Change::OfPacks(changes) => {
            for (pack, finding) in &changes {
                (pack.amend)(&mut after, finding);
            }
        }
        Change::Workload { at_zero, marks } => {
            if at_zero {
                edit::set(&mut after, &["spec", "replicas"], json!(0));
            }
            for Correction { in_template, key, wanted, .. } in &marks {
                let path: &[&str] = if *in_template { &["spec", "template"] } else { &[] };
                edit::correct(&mut after, path, key, wanted.as_deref());
            }
        }
    }
    let patch = json_patch::diff(&before, &after);
    (!patch.is_empty()).then_some(patch)
}

/// What there is to change, if anything. The guard's own writes are final: the leader's "present" is not undone.
fn change<'a>(review: &'a Review, decision: &Decision, view: &View<'_>) -> Option<Change<'a>> {
    let written = matches!(review.operation, Operation::Create | Operation::Update);
    if !written || !review.subresource.is_empty() || view.settings.is_own(&review.user) {
        return None;
    }
    let of_pack = |pack: &'static Pack| pack.changes(decision).map(move |it| (pack, it.clone()));
    let changes: Vec<_> = view.settings.packs().flat_map(of_pack).collect();
    if !changes.is_empty() {
        return Some(Change::OfPacks(changes));
    }
    match review.new.as_ref()? {
        Object::Pod(pod) if review.operation == Operation::Create => Some(Change::Inject(pod)),
        Object::StatefulSet(_) | Object::Deployment(_) => {
            let (at_zero, marks) =
                (rules::held_at_zero(decision).is_some(), rules::corrections(review, view));
            (at_zero || !marks.is_empty()).then_some(Change::Workload { at_zero, marks })
        }
        _ => None,
    }
}
