//! From a review to the decision: judged by what is known, and reserved if a member is removed.
//!
//! Must not know: HTTP. Usually nothing is awaited. The removal of a member is reserved at the API server before it is allowed,
//! and judged again if another replica was faster.

use engine::rules;
use engine::verdict::Decision;
use facts::review::Review;
use facts::settings::Settings;
use facts::view::{Freshness, Reservations, View, World};
use jiff::Timestamp;
use objects::ConfigMap;

use crate::act::guard::Guard;
use crate::act::reserve::Reserving;

/// What all judgements of one request have in common.
pub(super) struct RequestContext<'a> {
    pub(super) world: &'a World,
    pub(super) now: Timestamp,
    pub(super) settings: &'a Settings,
    pub(super) freshness: Freshness,
    /// The ConfigMaps that were read for this request; `None` if too many requests were reading at the time.
    pub(super) fetched: Option<Vec<ConfigMap>>,
}

impl RequestContext<'_> {
    pub(super) fn after<'b>(&'b self, reservations: &'b Reservations) -> View<'b> {
        let Self { world, now, settings, freshness, ref fetched } = *self;
        let (busy, fetched) = (fetched.is_none(), fetched.as_deref().unwrap_or_default());
        View { freshness, reservations, fetched, busy, ..View::new(world, now, settings) }
    }
}

/// Returns the decision, and the reservations on which it is based.
pub(super) async fn judge(
    guard: &Guard,
    review: &Review,
    known: &RequestContext<'_>,
) -> (Decision, Reservations) {
    let reservations = guard.reservations.current();
    let view = known.after(&reservations);
    let mut decision = crate::rulebook().evaluate(review, &view);
    let Some(member_removal) = rules::member_removal(review, &view).filter(|_| decision.allowed()) else {
        return (decision, reservations);
    };
    let again = |reservations: &Reservations| crate::rulebook().evaluate(review, &known.after(reservations));
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
