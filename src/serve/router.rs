//! The two routers: admission (behind TLS) and operations (probes and metrics, on a port of their own).
//!
//! Owns: HTTP. Must not know: sockets, TLS, watches. Data: body -> review -> decision (`decide.rs`) -> AdmissionReview. Every body that names a request gets an AdmissionReview for an answer; all others get 400,
//! 413 or 503 with words.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tracing::info;

use crate::guard::Guard;
use crate::review::{self, Origin};
use crate::verdict::{Decision, Judged};
use crate::view::Freshness;
use crate::webhooks::Endpoint;
use crate::{events, mutate, report};

use super::decide::{Known, decide};

/// An update carries the object twice, and the API server takes 3 MiB each.
pub const LARGEST_BODY: usize = 8 * 1024 * 1024;
/// The API server gives up after 2 to 5 seconds; whoever is slower than this to send is nobody we serve.
const SLOWEST_BODY: Duration = Duration::from_secs(10);

/// `/validate` and `/mutate`.
pub fn admission(guard: Arc<Guard>) -> Router {
    Router::new()
        .route(Endpoint::Validate.path(), post(|guard, request| admit(Endpoint::Validate, guard, request)))
        .route(Endpoint::Mutate.path(), post(|guard, request| admit(Endpoint::Mutate, guard, request)))
        .layer(DefaultBodyLimit::disable())
        .with_state(guard)
}

async fn admit(endpoint: Endpoint, State(guard): State<Arc<Guard>>, request: Request) -> Response {
    let Some(_place) = guard.place() else {
        guard.metrics.not_answered(endpoint.path(), "busy");
        return (StatusCode::SERVICE_UNAVAILABLE, "gatera is not ready: too many requests at once")
            .into_response();
    };
    let json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
    match whole(request.into_body()).await {
        Ok(body) if json => answer(&guard, endpoint, &body).await,
        Ok(_) => {
            guard.metrics.not_answered(endpoint.path(), "malformed");
            (StatusCode::BAD_REQUEST, "gatera reads application/json only").into_response()
        }
        Err((status, words)) => {
            guard.metrics.not_answered(endpoint.path(), "malformed");
            (status, words).into_response()
        }
    }
}

/// One request, from body to answer. Nothing is awaited, unless a member goes.
async fn answer(guard: &Guard, endpoint: Endpoint, body: &[u8]) -> Response {
    let started = (guard.clock)();
    let origin = if endpoint == Endpoint::Mutate { Origin::Mutating } else { Origin::Validating };
    let incoming = match review::read(body, origin) {
        Ok(incoming) => incoming,
        Err(problem) => {
            guard.metrics.not_answered(endpoint.path(), "malformed");
            return match report::malformed(&problem) {
                Some(answer) => Json(answer).into_response(),
                None => (StatusCode::BAD_REQUEST, problem.to_string()).into_response(),
            };
        }
    };
    let world = guard.world.load();
    let freshness = guard.freshness(&world);
    if freshness == Freshness::Loading {
        guard.metrics.not_answered(endpoint.path(), "not_ready");
        // Not an answer, so that the entry's failurePolicy speaks: strangers pass, Galera waits.
        return (StatusCode::SERVICE_UNAVAILABLE, "gatera is not ready: the first lists are not complete")
            .into_response();
    }
    let settings = guard.settings.load();
    let review = &incoming.review;
    let known = Known { world: &world, now: started, settings: &settings, freshness };
    let (mut decision, released) = decide(guard, review, &known).await;
    let view = known.after(&released);
    let patch = match (endpoint, incoming.object) {
        (Endpoint::Mutate, Some(object)) if decision.allowed() => {
            mutate::amend(review, object.get(), &mut decision, &view)
        }
        _ => None,
    };
    let seconds = (guard.clock)().duration_since(started).as_secs_f64();
    guard.metrics.answered(endpoint.path(), &decision, seconds);
    tell(review, &decision);
    for notice in events::notices(review, &decision) {
        guard.tell(notice);
    }
    Json(report::admission(&incoming.uid, review, &decision, &view.seen(), patch.as_ref())).into_response()
}

/// Refusals and used overrides are worth a line; everything else is in the metrics.
fn tell(review: &review::Review, decision: &Decision) {
    let loud = |judged: &&Judged| !review.dry_run && (judged.softened.is_some() || !decision.allowed());
    for judged in decision.judged.iter().filter(loud) {
        let softened = judged.softened.as_ref().map(report::because).unwrap_or_default();
        info!(rule = judged.finding.rule, effect = ?judged.effect, softened, subject = review.subject(), user = review.user, says = judged.finding.says, "finding");
    }
}

/// The body, if it is neither too long nor too slow.
async fn whole(body: Body) -> Result<Bytes, (StatusCode, &'static str)> {
    match tokio::time::timeout(SLOWEST_BODY, axum::body::to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_too_long(&error) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "gatera reads 8 MiB at most"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the request body ended too early")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the request body came too slowly")),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    std::error::Error::source(error)
        .is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>)
}

/// `/livez`, `/readyz`, `/metrics`.
pub fn operations(guard: Arc<Guard>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(guard)
}

async fn readyz(State(guard): State<Arc<Guard>>) -> Response {
    let report = guard.ready.report(guard.freshness(&guard.world.load()), (guard.clock)());
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, report.text).into_response()
}

async fn metrics(State(guard): State<Arc<Guard>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], guard.metrics.text()).into_response()
}
