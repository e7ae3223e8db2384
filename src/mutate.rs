//! What the guard changes in an object on its way in.
//!
//! Owns: which change belongs to which review, and the patch that makes it. Must not know: HTTP, clients. This is,
//! with `inject.rs`, the place that edits raw JSON: a typed object would drop every field newer than our types. Data:
//! the object as it came, and the decision about it; out comes the difference between before and after.

use serde_json::{Value, json};

use crate::{edit, inject};
use crate::object::{Kind, Object};
use crate::review::{Operation, Review};
use crate::rules;
use crate::verdict::Decision;
use crate::marks;
use crate::view::{View, is_cluster};

/// The patch for an object, and what to tell the person about it. `None`: it stays as it is.
pub fn amend(review: &Review, object: &str, decision: &mut Decision, view: &View<'_>) -> Option<json_patch::Patch> {
    let change: fn(&Review, &mut Value, &mut Decision, &View<'_>) = match (review.kind, review.operation, &*review.subresource) {
        (Kind::Pod, Operation::Create, "") => inject_pod,
        (Kind::Deployment, Operation::Create | Operation::Update, "") => hold_at_zero,
        (Kind::StatefulSet, Operation::Create | Operation::Update, "") => keep_data_mark,
        _ => return None,
    };
    // The leader's own write makes the mark "present"; it is not undone.
    if view.settings.is_own(&review.user) {
        return None;
    }
    let before: Value = serde_json::from_str(object).ok()?;
    let mut after = before.clone();
    change(review, &mut after, decision, view);
    let patch = json_patch::diff(&before, &after);
    (!patch.is_empty()).then_some(patch)
}

fn inject_pod(review: &Review, pod: &mut Value, decision: &mut Decision, view: &View<'_>) {
    let Some(Object::Pod(read)) = &review.new else { return };
    decision.remarks.extend(inject::into_pod(pod, read, &review.namespace, view));
}

/// G04: a bootstrap Deployment that is applied again is kept at 0 replicas instead of being refused, every time, so
/// that whoever applies it can go on doing so.
fn hold_at_zero(_: &Review, deployment: &mut Value, decision: &mut Decision, _: &View<'_>) {
    if rules::held_at_zero(decision) {
        edit::set(deployment, &["spec", "replicas"], json!(0));
    }
}

/// A new cluster without claims from before starts its life with the mark "none"; the leader makes it "present".
/// Whoever replaces the StatefulSet without the mark does not lose it.
fn keep_data_mark(review: &Review, stateful_set: &mut Value, _: &mut Decision, view: &View<'_>) {
    let Some(Object::StatefulSet(new)) = &review.new else { return };
    if !is_cluster(new, &view.settings.adoption) {
        return;
    }
    let mark = match &review.old {
        Some(old) => old.meta().mark(marks::DATA).map(str::to_owned),
        None => view.claims_of(&review.namespace, new).is_empty().then(|| "none".to_owned()),
    };
    if let Some(mark) = mark {
        edit::annotate(stateful_set, marks::DATA, &mark);
    }
}
