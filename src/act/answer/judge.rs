//! The decision about a request: the rules judge it from the view, and the removal of a member is reserved.
//!
//! Must not know: HTTP. Only the removal of a member has to wait: it is reserved at the API server before it is allowed, and
//! judged again if there are other reservations by then.

use engine::rules;
use engine::verdict::Decision;
use facts::review::Review;
use facts::view::{Reservations, View};

use crate::act::guard::Guard;
use crate::act::reserve::Reserving;

/// Returns the decision, and the reservations on which it is based.
pub(super) async fn judge(guard: &Guard, review: &Review, known: View<'_>) -> (Decision, Reservations) {
    let reservations = guard.reservations.current();
    let view = View { reservations: &reservations, ..known };
    let mut decision = crate::rulebook().evaluate(review, &view);
    let Some(member_removal) = rules::member_removal(review, &view).filter(|_| decision.allowed()) else {
        return (decision, reservations);
    };
    let decision_with =
        |reservations: &Reservations| crate::rulebook().evaluate(review, &View { reservations, ..known });
    // With the same reservations, the decision is the same.
    let still_allowed = |now: &Reservations| *now == reservations || decision_with(now).allowed();
    match guard.reservations.reserve(&member_removal, still_allowed).await {
        Reserving::Reserved => {}
        // Judged with these reservations, not with later ones: nothing was reserved for this request, so the decision must not
        // become "allowed".
        Reserving::Lost(reservations) => return (decision_with(&reservations), reservations),
        Reserving::Unknown(problem) => {
            rules::refuse_unreserved(&member_removal, &problem, review, &view, &mut decision);
        }
    }
    (decision, reservations)
}
