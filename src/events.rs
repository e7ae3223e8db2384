//! Events: what everybody should see in `kubectl describe` and `kubectl get events`, not only the person who asked.
//!
//! Owns: the way from a decision to an Event. Must not know: rules. Requests hand over and go on; a queue that is full
//! drops the newest, because a guard that waits for its own Events would be an outage.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tracing::warn;

use crate::review::{Origin, Review};
use crate::telemetry::chain;
use crate::verdict::{Decision, Softened};

/// So many may wait.
const QUEUE: usize = 256;

/// What is to be told.
#[derive(Debug)]
pub struct Notice {
    regarding: ObjectReference,
    rule: &'static str,
    note: String,
}

/// The overrides that a decision used, once per request: the validating call is the last of a request.
pub fn notices(review: &Review, decision: &Decision) -> Vec<Notice> {
    if review.dry_run || review.origin != Origin::Validating || !decision.allowed() {
        return Vec::new();
    }
    let used = decision.judged.iter().filter_map(|judged| match &judged.softened {
        Some(Softened::ByOverride(release)) => Some((&judged.finding, release)),
        _ => None,
    });
    used.map(|(finding, release)| Notice {
        regarding: regarding(review),
        rule: finding.rule,
        note: format!(
            "{} was allowed to {}: {} (reason: {})",
            finding.rule, review.user, finding.says, release.reason
        ),
    })
    .collect()
}

fn regarding(review: &Review) -> ObjectReference {
    let api_version = match review.kind.group() {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    };
    // A Scale has a uid of its own kind: that of its parent.
    let uid = review.objects().map(|object| object.meta().uid.clone()).find(|uid| !uid.is_empty());
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(review.kind.name().to_owned()),
        namespace: Some(review.namespace.clone()),
        name: Some(review.name.clone()),
        uid,
        ..ObjectReference::default()
    }
}

/// Hands over to the one task that writes Events.
pub fn channel() -> (mpsc::Sender<Notice>, mpsc::Receiver<Notice>) {
    mpsc::channel(QUEUE)
}

/// Writes Events until the process ends.
pub async fn publish(client: Client, identity: String, mut notices: mpsc::Receiver<Notice>) {
    let recorder = Recorder::new(client, Reporter { controller: "gatera".into(), instance: Some(identity) });
    while let Some(Notice { regarding, rule, note }) = notices.recv().await {
        // The reason names the rule: Events of one reason on one object are folded into a series.
        let event = Event {
            type_: EventType::Warning,
            reason: format!("OverrideUsed{rule}"),
            note: Some(note.chars().take(1000).collect()),
            action: "Admit".into(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &regarding).await {
            warn!(error = chain(&error), "writing an Event");
        }
    }
}
