//! From a review to the decision: judged by what is known, and reserved if a member is removed.
//!
//! Must not know: HTTP. Usually nothing is awaited. The removal of a member is reserved at the API server before it is allowed,
//! and judged again if another replica was faster.

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
    let again =
        |reservations: &Reservations| crate::rulebook().evaluate(review, &View { reservations, ..known });
    // By the same reservations the decision is the same.
    let still_right = |now: &Reservations| *now == reservations || again(now).allowed();
    match guard.reservations.reserve(&member_removal, still_right).await {
        Reserving::Reserved => {}
        // Judged by these reservations, not by those of a moment later: nothing was reserved, so the decision must not become
        // "allowed".
        Reserving::Lost(reservations) => return (again(&reservations), reservations),
        Reserving::Unknown(problem) => {
            rules::refuse_unreserved(&member_removal, &problem, review, &view, &mut decision);
        }
    }
    (decision, reservations)
}
