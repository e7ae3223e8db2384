//! From a review to the decision that is answered: judged by what is known, and reserved if a member goes.
//!
//! Must not know: HTTP. On the usual path nothing is awaited. What takes a member away is reserved at the API server before
//! "allowed" is said, and judged again if another replica was faster.

use engine::rules;
use engine::verdict::Decision;
use facts::review::Review;
use facts::settings::Settings;
use facts::view::{Freshness, Reservations, View, World};
use jiff::Timestamp;
use objects::ConfigMap;

use crate::act::guard::Guard;
use crate::act::reserve::Reserving;

/// What is the same for all that is asked in this request.
pub(super) struct RequestContext<'a> {
    pub(super) world: &'a World,
    pub(super) now: Timestamp,
    pub(super) settings: &'a Settings,
    pub(super) freshness: Freshness,
    /// `None`: there was no turn for it.
    pub(super) fetched: Option<Vec<ConfigMap>>,
}

impl RequestContext<'_> {
    pub(super) fn after<'b>(&'b self, reservations: &'b Reservations) -> View<'b> {
        let Self { world, now, settings, freshness, ref fetched } = *self;
        let (busy, fetched) = (fetched.is_none(), fetched.as_deref().unwrap_or_default());
        View { freshness, reservations, fetched, busy, ..View::new(world, now, settings) }
    }
}

/// The decision, and the reservations that it was taken by.
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
    match guard.reservations.reserve(&member_removal, |reservations| again(reservations).allowed()).await {
        Reserving::Reserved => {}
        // By the same reservations, not by those of a moment later: it was not reserved, so it must not turn into allowed.
        Reserving::Lost(reservations) => return (again(&reservations), reservations),
        Reserving::Unknown(problem) => {
            rules::refuse_unreserved(&member_removal, &problem, review, &view, &mut decision);
        }
    }
    (decision, reservations)
}
