//! The two routers: admission (behind TLS) and operations (probes and metrics, on a port of their own).
//!
//! Owns: HTTP. Must not know: sockets, TLS, watches. Data: body -> review -> decision (`judge.rs`) -> AdmissionReview. A request
//! that is judged is answered with an AdmissionReview. One that is not judged (malformed, too large, too slow, without a required
//! client certificate, or while the guard is busy or not ready) gets 400, 403, 408, 413 or 503, and a message.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::amend::amend;
use engine::inject;
use engine::verdict::{Decision, Downgrade, Judged};
use engine::webhooks::Endpoint;
use facts::review::{self, Origin};
use facts::view::{Freshness, View, World};
use tracing::info;

use crate::act::events;
use crate::act::guard::Guard;

use super::accept::ClientProof;
use super::body::{Intake, Refusal};
use super::judge::judge;

/// The answer to a client that was asked for a certificate and presented none.
const NO_CLIENT_CERTIFICATE: &str = "gatera answers API servers only (--client-ca): no client certificate was presented; \
    configure the API server to present one to this webhook, in its AdmissionConfiguration";

/// The answer to a request whose Content-Type is not JSON.
const NOT_JSON: Refusal = (StatusCode::BAD_REQUEST, "malformed", "the Content-Type must be application/json");
/// The answer while the maximum number of requests is being answered.
const TOO_MANY_REQUESTS: Refusal =
    (StatusCode::SERVICE_UNAVAILABLE, "busy", "gatera is busy: too many requests at once");
/// The answer before the first lists are complete. It is an error, so that the entry's failurePolicy decides: requests about
/// other objects pass, those about Galera clusters are refused until the guard is ready.
const NOT_READY: Refusal = (
    StatusCode::SERVICE_UNAVAILABLE,
    "not_ready",
    "gatera is not ready: it is still listing the objects of the cluster",
);

/// The maximum length of an answer in bytes: several times the longest patch of a member, and several times the longest report
/// about a real request. A forged request may cause more: a hundred findings that repeat names of maximum length.
pub(super) const MAX_ANSWER_BYTES: usize = 128 * 1024;
/// The maximum length of a text in the log in characters, because a forged request may contain longer ones.
const MAX_LOGGED_CHARS: usize = 1024;
/// The maximum number of findings of one request that are logged, the worst ones first.
const MAX_LOG_LINES: usize = 20;

/// Returns the router for `/validate` and `/mutate`.
pub fn admission(guard: Arc<Guard>) -> Router {
    let state = AdmissionState { guard, intake: Arc::default() };
    Router::new()
        .route(Endpoint::Validate.path(), post(|state, request| admit(Endpoint::Validate, state, request)))
        .route(Endpoint::Mutate.path(), post(|state, request| admit(Endpoint::Mutate, state, request)))
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

/// The state that admission requests share.
#[derive(Clone)]
struct AdmissionState {
    guard: Arc<Guard>,
    intake: Arc<Intake>,
}

async fn admit(
    endpoint: Endpoint,
    State(AdmissionState { guard, intake }): State<AdmissionState>,
    request: Request,
) -> Response {
    let proof = request.extensions().get().copied().unwrap_or(ClientProof::NotRequested);
    if proof == ClientProof::Missing {
        return refused(&guard, endpoint, (StatusCode::FORBIDDEN, "unproven", NO_CLIENT_CERTIFICATE));
    }
    let is_json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
    let body = match intake.read(request.into_body()).await {
        Ok(body) if is_json => body,
        Ok(_) => return refused(&guard, endpoint, NOT_JSON),
        Err(refusal) => return refused(&guard, endpoint, refusal),
    };
    // A request takes its permit only now, so that a body that arrives slowly does not occupy a permit.
    let Some(_permit) = guard.request_permit() else {
        return refused(&guard, endpoint, TOO_MANY_REQUESTS);
    };
    answer(&guard, endpoint, proof, &body.bytes).await
}

fn refused(guard: &Guard, endpoint: Endpoint, (status, label, message): Refusal) -> Response {
    guard.metrics.count_unanswered(endpoint.path(), label);
    (status, message).into_response()
}

/// Answers one request. It waits only if a member is removed, if a pod is created before the view contains its StatefulSet or
/// ConfigMaps, if a snapshot has to be created, or if a template names a ConfigMap whose content is not known.
async fn answer(guard: &Guard, endpoint: Endpoint, proof: ClientProof, body: &[u8]) -> Response {
    let started = (guard.clock)();
    let origin = if endpoint == Endpoint::Mutate { Origin::Mutating } else { Origin::Validating };
    let incoming = match review::read(body, origin, crate::rulebook().kinds()) {
        Ok(incoming) => incoming,
        Err(problem) => {
            guard.metrics.count_unanswered(endpoint.path(), "malformed");
            return (StatusCode::BAD_REQUEST, problem.to_string()).into_response();
        }
    };
    let settings = guard.settings.load();
    let is_ahead =
        |world: &World| inject::is_ahead_of_view(&incoming.review, &View::new(world, started, &settings));
    let world = guard.world_when(|world| !is_ahead(world)).await;
    let freshness = guard.freshness(&world);
    if freshness == Freshness::Loading {
        return refused(guard, endpoint, NOT_READY);
    }
    let review = &incoming.review;
    let view = View { freshness, ..View::new(&world, started, &settings) };
    let unread = view.unread_config_maps(review);
    let fetched = guard.config_maps.read(&review.namespace, unread).await;
    let view = View { busy: fetched.is_none(), fetched: fetched.as_deref().unwrap_or_default(), ..view };
    let (decision, reservations) = judge(guard, review, view).await;
    let view = View { reservations: &reservations, ..view };
    let wanted = if endpoint == Endpoint::Mutate && decision.allowed() && !review.dry_run {
        inject::missing_snapshots(review, &view)
    } else {
        Vec::new()
    };
    let made = guard.config_maps.make_snapshots(&review.namespace, wanted).await;
    let view = View { new_snapshots: &made, ..view };
    let patch = match (endpoint, &incoming.object) {
        (Endpoint::Mutate, Some(object)) if decision.allowed() => amend(review, object, &decision, &view),
        _ => None,
    };
    let seconds = (guard.clock)().duration_since(started).as_secs_f64();
    guard.metrics.count_answered(endpoint.path(), &decision, seconds, review.dry_run);
    let proven = proof == ClientProof::Proven;
    log_findings(review, &decision, proven);
    for notice in events::notices(review, &decision, &view, proven) {
        guard.publish_request(notice);
    }
    let answer =
        report::admission(&incoming.uid, review, &decision, &view.seen(), patch.as_ref(), &settings.pages);
    match answer.text() {
        Ok(text) if text.len() <= MAX_ANSWER_BYTES => {
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        // A refusal, not an error: after an error, an entry with failurePolicy Ignore lets the request pass.
        _ => Json(report::unanswerable(&incoming.uid)).into_response(),
    }
}

/// Logs the findings of a refused request, and the findings that a mode or an override made milder; for a dry run, nothing. Other
/// findings are only counted in the metrics: a problem that existed before is reported once by the audit, not at every change.
/// The user is the one that the request names, and is genuine only if `proven`: then the request comes from an API server.
fn log_findings(review: &review::Review, decision: &Decision, proven: bool) {
    let was_downgraded =
        |judged: &Judged| matches!(judged.softened, Some(Downgrade::ByMode(_) | Downgrade::ByOverride(_)));
    let is_logged = |judged: &&Judged| !review.dry_run && (was_downgraded(judged) || !decision.allowed());
    for judged in decision.judged.iter().filter(is_logged).take(MAX_LOG_LINES) {
        let softened = judged.softened.as_ref().map(report::downgrade_reason).unwrap_or_default();
        let (subject, user) = (truncated(&review.subject()), truncated(&review.user));
        let (softened, says) = (truncated(&softened), truncated(&judged.finding.says));
        info!(
            rule = judged.finding.rule,
            effect = judged.effect.name(),
            softened,
            subject,
            user,
            proven,
            says,
            "a rule objects to a request"
        );
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(MAX_LOGGED_CHARS).collect()
}

/// Returns the router for `/livez`, `/readyz` and `/metrics`.
pub fn operations(guard: Arc<Guard>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(guard)
}

async fn readyz(State(guard): State<Arc<Guard>>) -> Response {
    let report = guard.readiness_report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, report.text).into_response()
}

async fn metrics(State(guard): State<Arc<Guard>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let (content_type, text) =
        if accepted.contains("text/plain") && !accepted.contains("application/openmetrics-text") {
            ("text/plain; version=0.0.4; charset=utf-8", guard.metrics.classic_text())
        } else {
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", guard.metrics.text())
        };
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
