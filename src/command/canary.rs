//! The canary: one request that a guard must refuse, sent as a dry run, and the answer to it.
//!
//! Owns: that request, and which side answered it: the guard, the API server or another webhook. The request goes the whole way
//! (API server, webhook entries, Service, certificate, rules), so a refusal by the guard shows that all of this works. As a dry
//! run it leaves nothing behind. Must not know: which answer is right; `doctor` and `break-glass` decide that.

use std::time::{Duration, Instant};

use axum::http::header::WARNING;
use engine::rule::Rule;
use facts::galera::adopt::{Adoption, Requirement, TextSelector};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{PostParams, Request};
use kube::client::Body;
use kube::{Client, Resource as _};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::site::Site;
use crate::act::api::refusal;
use crate::act::telemetry::chain;
use crate::rulebook;

/// The name of the canary's StatefulSet; no rule depends on it.
pub const NAME: &str = "gatera-selftest";

/// The pause between two dry runs.
const PAUSE: Duration = Duration::from_millis(500);

/// The answer to the canary. A refusal is shortened to its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryAnswer {
    /// A guard refused it.
    Refused(String),
    /// It was admitted, with these warnings of a guard. If the namespace is open by break-glass, one of them says so.
    Admitted(Vec<String>),
    /// The API server asked a guard, and got no answer.
    Unanswered(String),
    /// The API server or another webhook refused it, with this code.
    Other(u16, String),
    /// The caller has no right to send it, or is not known to the API server.
    NotAllowed(String),
    /// The API server does not answer.
    Away(String),
}

/// Sends the canary, with the rights of the caller.
async fn send(client: &Client, namespace: &str, adoption: &Adoption) -> anyhow::Result<CanaryAnswer> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let request = Request::new(StatefulSet::url_path(&(), Some(namespace)));
    let request = request.create(&params, serde_json::to_vec(&forbidden(adoption)?)?)?;
    let answer = match client.send(request.map(Body::from)).await {
        Ok(answer) => answer,
        Err(error) => return Ok(CanaryAnswer::Away(chain(&error))),
    };
    if answer.status().is_success() {
        let warnings = answer.headers().get_all(WARNING);
        let warnings = warnings.iter().filter_map(|it| guard_warning(str::from_utf8(it.as_bytes()).ok()?));
        return Ok(CanaryAnswer::Admitted(warnings.collect()));
    }
    let code = answer.status().as_u16();
    let body = match answer.into_body().collect_bytes().await {
        Ok(body) => body,
        Err(error) => return Ok(CanaryAnswer::Away(chain(&error))),
    };
    Ok(answer_of_error(&refusal(code, &body)))
}

/// Repeats the canary until the answer is right, the caller turns out to have no right to send it, or the time is over.
pub async fn send_until(
    site: &Site,
    namespace: &str,
    patience: Duration,
    is_right: impl Fn(&CanaryAnswer) -> bool,
) -> anyhow::Result<CanaryAnswer> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = send(&site.client, namespace, &site.settings.adoption).await?;
        if is_right(&answer) || matches!(answer, CanaryAnswer::NotAllowed(_)) || Instant::now() >= deadline {
            return Ok(answer);
        }
        sleep(PAUSE).await;
    }
}

/// Returns which side refused a request, judged by its error. The request need not be the canary.
pub fn answer_of_error(error: &kube::Error) -> CanaryAnswer {
    let kube::Error::Api(status) = error else { return CanaryAnswer::Away(chain(error)) };
    let (code, message) = (status.code, &*status.message);
    let first = |message: &str| message.lines().next().unwrap_or_default().to_owned();
    let is_ours = |(webhook, _): &(&str, &str)| webhook.ends_with(".gatera.dev");
    let denied = message.strip_prefix("admission webhook \"");
    let denied = denied.and_then(|it| it.split_once("\" denied the request: ")).filter(is_ours);
    let called = message.split_once("failed calling webhook \"");
    let called = called.and_then(|(_, it)| it.split_once("\": ")).filter(is_ours);
    match (denied, called) {
        // The guard refuses an eviction with 429, so that `kubectl drain` tries again.
        (Some((_, message)), _)
            if matches!(code, 403 | 429) && rulebook().page_of_message(message).is_some() =>
        {
            CanaryAnswer::Refused(first(message))
        }
        (Some((_, message)), _) | (None, Some((_, message))) => CanaryAnswer::Unanswered(first(message)),
        _ if code == 401 => CanaryAnswer::NotAllowed(first(message)),
        _ if code == 403
            && first(message).contains("is forbidden: User ")
            && !message.starts_with("admission webhook ") =>
        {
            CanaryAnswer::NotAllowed(first(message))
        }
        _ => CanaryAnswer::Other(code, first(message)),
    }
}

/// Returns the guard's text in a warning header (`299 - "[G11] …"`).
fn guard_warning(header: &str) -> Option<String> {
    let message = header.strip_prefix("299 ")?.split_once(" \"")?.1.strip_suffix('"')?;
    let message = message.replace("\\\"", "\"").replace("\\\\", "\\");
    // The guard's warnings begin with a rule, or with the time until which a namespace is open.
    Some(message)
        .filter(|message| rulebook().page_of_message(message).is_some() || message.starts_with("until "))
}

/// Returns the rule with which a message of the guard begins.
pub fn rule_of(message: &str) -> Option<&'static Rule> {
    rulebook().rule(rulebook().page_of_message(message)?.id)
}

/// Returns a StatefulSet that breaks more than one rule, so that a milder mode of one rule does not make it harmless.
fn forbidden(adoption: &Adoption) -> Result<StatefulSet, serde_json::Error> {
    let labels = labels(adoption);
    serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": NAME },
        "spec": {
            "serviceName": NAME,
            "replicas": 3,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [{
                        "name": "mariadb",
                        "image": "mariadb:10.11",
                        "ports": [{ "containerPort": 3306 }, { "containerPort": 4567 }],
                        "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "selftest" }],
                        "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/mysql" }],
                    }],
                    "volumes": [{ "name": "data", "emptyDir": {} }],
                },
            },
        },
    }))
}

/// Returns labels that the first selector adopts.
fn labels(adoption: &Adoption) -> Map<String, Value> {
    let requirements = adoption.selectors().first().map(TextSelector::requirements);
    let label = |Requirement { key, values }: &Requirement| {
        (key.clone(), json!(values.first().map_or(NAME, |value| value)))
    };
    requirements.unwrap_or_default().iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_refused_is_recognized() {
        let ours = "admission webhook \"workloads.gatera.dev\" denied the request: [G11] StatefulSet a/b: c\n  why: d";
        let forbidden = "statefulsets.apps is forbidden: User \"x\" cannot create resource \"statefulsets\"";
        let late = "Internal error occurred: failed calling webhook \"workloads.gatera.dev\": failed to call webhook: Post \"https://gatera.gatera.svc:443/validate\": dial tcp: connection refused";
        let (policy, quota) = (
            "admission webhook \"policy.example\" denied the request: [G11] nonsense",
            "statefulsets.apps \"x\" is forbidden: exceeded quota: one",
        );
        let text = |it: &str| it.to_owned();
        for (code, message, answer) in [
            (403, ours, CanaryAnswer::Refused(text("[G11] StatefulSet a/b: c"))),
            (500, ours, CanaryAnswer::Unanswered(text("[G11] StatefulSet a/b: c"))),
            (403, forbidden, CanaryAnswer::NotAllowed(text(forbidden))),
            (401, "Unauthorized", CanaryAnswer::NotAllowed(text("Unauthorized"))),
            (403, policy, CanaryAnswer::Other(403, text(policy))),
            (403, quota, CanaryAnswer::Other(403, text(quota))),
            (
                500,
                late,
                CanaryAnswer::Unanswered(text(
                    "failed to call webhook: Post \"https://gatera.gatera.svc:443/validate\": dial tcp: connection refused",
                )),
            ),
            (
                403,
                "admission webhook \"workloads.gatera.dev\" denied the request: gatera is not ready: …",
                CanaryAnswer::Unanswered(text("gatera is not ready: …")),
            ),
            (404, "", CanaryAnswer::Other(404, String::new())),
        ] {
            assert_eq!(answer_of_error(&refusal(code, message.as_bytes())), answer, "{message}");
        }
    }

    #[test]
    fn only_warnings_of_a_guard_count() {
        assert_eq!(guard_warning("299 - \"[G11] a \\\"b\\\" …\"").as_deref(), Some("[G11] a \"b\" …"));
        for header in ["299 - \"unknown field\"", "[G11] x", ""] {
            assert_eq!(guard_warning(header), None, "{header}");
        }
        assert_eq!(rule_of("[G07] x").map(|it| it.id), Some("G07"));
        assert!(["[G99] x", "G07", "[G07"].iter().all(|message| rule_of(message).is_none()));
    }

    #[test]
    fn the_labels_are_those_of_the_first_selector() {
        let adoption = Adoption::from_texts(["app in (db, other), team"]).unwrap();
        assert_eq!(json!(labels(&adoption)), json!({ "app": "db", "team": NAME }));
        assert_eq!(json!(labels(&Adoption::default())), json!({ "gatera.dev/cluster": NAME }));
        assert!(forbidden(&adoption).is_ok());
    }
}
