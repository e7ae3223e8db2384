//! Exemptions: requests that are not judged because of their user ([`users`], `driver`) or their namespace, because no server
//! reads the object ([`unread`]), because they change nothing that a rule reads, or because the object is being deleted.
//!
//! The rulebook checks [`users`] and [`unread`], which are tables, before it evaluates any rule. `webhooks` turns both tables
//! into conditions, so that these requests succeed while the guard is down.

mod driver;
pub mod unread;
pub mod users;

use facts::review::{self, Change, Operation, Origin, Review};
use facts::view::{NEVER_GUARDED, View};
use objects::{Kind, Workload};

/// Returns whether a request is exempt from all rules: in a namespace that is never guarded or is being deleted, from the guard
/// itself (except evictions), from mariadb-operator (see `driver`), or about an object that is being deleted. The deletion of a
/// terminating pod can still be forced, so its DELETE is judged; a terminating claim holds its data while a pod uses it, so
/// writes to it are judged.
pub fn is_exempt(review: &Review, view: &View<'_>) -> bool {
    let deletes_again = review.operation == Operation::Delete && review.kind != Kind::Pod;
    let written = review.operation == Operation::Update && review.kind != Kind::Claim;
    let is_terminating =
        (written || deletes_again) && review.objects().any(|object| object.meta().is_terminating());
    is_terminating
        || view.settings.is_own(&review.user) && review.subresource != "eviction"
        || NEVER_GUARDED.contains(&&*review.namespace)
        || view.namespace_is_terminating(&review.namespace)
        || driver::is_exempt(review, view)
}

/// Returns whether an update of a workload [changes nothing that a rule reads](review::changes_nothing), so that it cannot make
/// anything worse. The mutating call may still correct what is stored. Of such updates API servers send only those that change a
/// field which the guard does not know (`webhooks/conditions.rs`).
pub fn changes_nothing(review: &Review) -> bool {
    updated(review).is_some_and(|(old, new)| review::changes_nothing(old, new))
}

/// Returns whether an update of a workload changes neither its pods' template nor those of its claims, so that checks of
/// templates ([`Check::OfTemplates`](crate::rule::Check)) are left out.
pub fn keeps_templates(review: &Review) -> bool {
    updated(review).is_some_and(|(old, new)| {
        old.spec.template == new.spec.template
            && old.spec.volume_claim_templates == new.spec.volume_claim_templates
    })
}

/// Returns a workload before and after the update that a validating call is about.
fn updated(review: &Review) -> Option<(&Workload, &Workload)> {
    let Change { old: Some(old), new: Some(new) } = review.change() else { return None };
    let updated = review.operation == Operation::Update
        && review.origin == Origin::Validating
        && review.subresource.is_empty()
        && !review.takes_over;
    updated.then_some((old, new))
}
