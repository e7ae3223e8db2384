//! What the guard changes in an object on its way in.
//!
//! Owns: which change belongs to which review, and the patch that makes it. Must not know: HTTP, clients. This is,
//! with `inject.rs`, the place that edits raw JSON: a typed object would drop every field newer than our types. Data:
//! the object as it came, and the decision about it; out comes the difference between before and after. Whether there
//! is anything to change is decided on what was read already, so that most objects are never read a second time.

use serde_json::{Value, json};

use crate::marks;
use crate::object::{Object, Pod, Workload};
use crate::review::{Operation, Review};
use crate::rules;
use crate::verdict::Decision;
use crate::view::{View, is_cluster};
use crate::{edit, inject};

/// One thing to change.
enum Change<'a> {
    /// Give a member or bootstrap node what it needs.
    Inject(&'a Pod),
    /// G04: a bootstrap Deployment that is applied again is kept at 0 replicas instead of being refused, every time, so
    /// that whoever applies it can go on doing so.
    HoldAtZero,
    /// Write the guard's marks.
    Mark(Vec<(&'static str, String)>),
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
        Change::HoldAtZero => edit::set(&mut after, &["spec", "replicas"], json!(0)),
        Change::Mark(marks) => {
            for (name, value) in &marks {
                edit::annotate(&mut after, name, value);
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
    match review.new.as_ref()? {
        Object::Pod(pod) if review.operation == Operation::Create => Some(Change::Inject(pod)),
        Object::Deployment(_) => rules::held_at_zero(decision).then_some(Change::HoldAtZero),
        Object::StatefulSet(new) => {
            let bootstrap = review.old.as_ref().and_then(|old| old.meta().mark(marks::BOOTSTRAP));
            let wanted = data_mark(review, new, view).map(|mark| (marks::DATA, mark)).into_iter();
            let wanted = wanted.chain(bootstrap.map(|mark| (marks::BOOTSTRAP, mark.to_owned())));
            let marks: Vec<_> =
                wanted.filter(|(name, value)| new.metadata.mark(name) != Some(&**value)).collect();
            (!marks.is_empty()).then_some(Change::Mark(marks))
        }
        _ => None,
    }
}

/// The mark that a StatefulSet should carry. A new cluster without claims from before starts its life with "none"; the
/// leader makes it "present". Whoever replaces the StatefulSet without the mark does not lose it, and a "none" that was
/// saved with a manifest is not believed over claims that have a volume.
fn data_mark(review: &Review, new: &Workload, view: &View<'_>) -> Option<String> {
    if !is_cluster(new, &view.settings.adoption) {
        return None;
    }
    if let Some(before) = review.old.as_ref().and_then(|old| old.meta().mark(marks::DATA)) {
        return Some(before.to_owned());
    }
    let claims = view.claims_of(&review.namespace, new);
    let written = new.metadata.mark(marks::DATA).is_some();
    if claims.iter().any(|claim| claim.bound) {
        return written.then(|| "present".to_owned());
    }
    (claims.is_empty() && review.old.is_none()).then(|| "none".to_owned())
}
