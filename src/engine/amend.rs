//! What the guard changes in an object on its way in.
//!
//! Owns: which change belongs to which review, and the patch that makes it. Must not know: HTTP, clients. This is,
//! with `inject.rs`, the place that edits raw JSON: a typed object would drop every field newer than our types. Data:
//! the object as it came, and the decision about it; out comes the difference between before and after. Whether there
//! is anything to change is decided on what was read already, so that most objects are never read a second time.

use serde_json::Value;

use crate::inject::{self, edit};
use crate::rules::{self, Correction};
use crate::verdict::{Decision, Edit, Verdict};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::{Object, Pod};

/// What to change.
enum Change<'a> {
    /// Give a member or bootstrap node what it needs.
    Inject(&'a Pod),
    /// Make the edits of the findings, and set the guard's marks as they should be.
    Correct { edits: Vec<Edit>, marks: Vec<Correction> },
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
        Change::Correct { edits, marks } => {
            for Edit { path, value } in edits {
                edit::set(&mut after, &path.iter().map(String::as_str).collect::<Vec<_>>(), value);
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
    let new = review.new.as_ref()?;
    if let Object::Pod(pod) = new {
        return (review.operation == Operation::Create).then_some(Change::Inject(pod));
    }
    let amended = decision.judged.iter().filter(|it| it.softened.is_none()).map(|it| &it.finding);
    let amended = amended.filter(|it| it.verdict == Verdict::Amend);
    let edits: Vec<_> = amended.flat_map(|it| it.edits.clone()).collect();
    let marks = rules::corrections(review, view);
    (!edits.is_empty() || !marks.is_empty()).then_some(Change::Correct { edits, marks })
}
