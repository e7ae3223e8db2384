//! Amendments: what the guard changes in an object before it is stored.
//!
//! Owns: the change for each request, and the patch that makes it. Must not know: HTTP, clients. Only this file and
//! `inject.rs` edit raw JSON, because a typed object would drop every field that is newer than our types. The input is
//! the original object and the decision about it, and the output is the difference. Whether there is anything to change
//! is decided on the typed object, so that most objects are not parsed a second time.

use serde_json::Value;

use crate::inject::{self, edit};
use crate::rules::{self, Correction};
use crate::verdict::{Decision, Edit, Judged, Verdict};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::Pod;

/// Returns the patch for an object; `None`: the object stays as it is. The guard's own writes are not corrected, so the
/// marks that the leader sets stay.
pub fn amend(
    review: &Review,
    object: &str,
    decision: &Decision,
    view: &View<'_>,
) -> Option<json_patch::Patch> {
    let written = matches!(review.operation, Operation::Create | Operation::Update);
    if !written || !review.subresource.is_empty() || view.settings.is_own(&review.user) {
        return None;
    }
    let pod = review.change::<Pod>().new.filter(|_| review.operation == Operation::Create);
    let amends = |it: &&Judged| it.finding.verdict == Verdict::Amend && it.softened.is_none();
    let edits: Vec<_> = decision.judged.iter().filter(amends).flat_map(|it| &it.finding.edits).collect();
    let corrections = rules::corrections(review, view);
    if pod.is_none() && edits.is_empty() && corrections.is_empty() {
        return None;
    }
    let before: Value = serde_json::from_str(object).ok()?;
    let mut after = before.clone();
    if let Some(pod) = pod {
        inject::into_pod(&mut after, pod, &review.namespace, view);
    }
    for Edit { path, value } in edits {
        edit::set(&mut after, &path.split('/').collect::<Vec<_>>(), value.clone());
    }
    for Correction { in_template, key, wanted, .. } in &corrections {
        let path: &[&str] = if *in_template { &["spec", "template"] } else { &[] };
        edit::set_or_remove_annotation(&mut after, path, key, wanted.as_deref());
    }
    let patch = json_patch::diff(&before, &after);
    (!patch.is_empty()).then_some(patch)
}
