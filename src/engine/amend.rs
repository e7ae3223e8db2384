//! Amendments: what the guard changes in an object before it is stored.
//!
//! Owns: the change for each request, and the patch that makes it. Must not know: HTTP, clients. Only this file and
//! `inject.rs` edit raw JSON, because a typed object would drop every field that is newer than our types. The input is
//! the original object and the decision about it, and the output is the difference. Whether there is anything to change
//! is decided on the typed object, so that most objects are not parsed a second time.

use serde_json::Value;

use crate::inject::{self, edit};
use crate::rules::{self, Correction};
use crate::verdict::{Decision, Edit, Verdict};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::{Object, Pod};

/// What the patch for an object contains.
enum PatchContent<'a> {
    /// Injects into the pod of a member or bootstrap node.
    Inject(&'a Pod),
    /// Makes the edits of the findings, and corrects the guard's marks.
    Correct { edits: Vec<Edit>, marks: Vec<Correction> },
}

/// Returns the patch for an object; `None`: the object stays as it is.
pub fn amend(
    review: &Review,
    object: &str,
    decision: &Decision,
    view: &View<'_>,
) -> Option<json_patch::Patch> {
    let change = change(review, decision, view)?;
    let before: Value = serde_json::from_str(object).ok()?;
    let mut after = before.clone();
    match change {
        PatchContent::Inject(pod) => inject::into_pod(&mut after, pod, &review.namespace, view),
        PatchContent::Correct { edits, marks } => {
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

/// Returns the change to make, if any. The guard's own writes are not corrected, so the leader's "present" is not undone.
fn change<'a>(review: &'a Review, decision: &Decision, view: &View<'_>) -> Option<PatchContent<'a>> {
    let written = matches!(review.operation, Operation::Create | Operation::Update);
    if !written || !review.subresource.is_empty() || view.settings.is_own(&review.user) {
        return None;
    }
    let new = review.new.as_ref()?;
    if let Object::Pod(pod) = new {
        return (review.operation == Operation::Create).then_some(PatchContent::Inject(pod));
    }
    let amended = decision.judged.iter().filter(|it| it.softened.is_none()).map(|it| &it.finding);
    let amended = amended.filter(|it| it.verdict == Verdict::Amend);
    let edits: Vec<_> = amended.flat_map(|it| it.edits.clone()).collect();
    let marks = rules::corrections(review, view);
    (!edits.is_empty() || !marks.is_empty()).then_some(PatchContent::Correct { edits, marks })
}
