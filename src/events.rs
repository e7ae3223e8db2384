//! Events: what everybody should see in `kubectl describe` and `kubectl get events`, not only the person who asked.
//!
//! Owns: the way from a decision, or from what an audit found, to an Event. Must not know: rules. Requests hand over and go on; a queue that is full
//! drops the newest, because a guard that waits for its own Events would be an outage.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::ObjectMeta;
use kube::runtime::events::{self as recorder, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tracing::warn;

use crate::audit::{Audited, News};
use crate::object::{Fingerprint, Kind};
use crate::plan::Told;
use crate::report;
use crate::review::{Operation, Origin, Review};
use crate::telemetry::chain;
use crate::verdict::{Decision, Effect, Finding, Softened};

/// So many may wait.
const QUEUE: usize = 256;
/// The API server takes notes of 1024 bytes.
const LONGEST: usize = 1000;
/// As whom.
const REPORTER: &str = "gatera";

/// What is to be told.
#[derive(Debug)]
pub struct Notice {
    regarding: ObjectReference,
    /// Names the rule: Events of one reason on one object are folded into a series.
    reason: String,
    action: &'static str,
    note: String,
}

/// What of a decision is told to everybody: overrides that were used, and deletions that were refused (Helm shows little
/// of a refusal, and whoever deletes is often a program). The validating call is the last of a request, so this is told
/// once.
pub fn notices(review: &Review, decision: &Decision) -> Vec<Notice> {
    if review.dry_run || review.origin != Origin::Validating {
        return Vec::new();
    }
    let deletion = review.operation == Operation::Delete;
    // A namespace that goes takes no new Event; what has no namespace is told in `default`.
    let goes = deletion && review.kind == Kind::Namespace && decision.allowed();
    let told = decision.judged.iter().filter_map(|judged| {
        let Finding { rule, says, instead, .. } = &judged.finding;
        let (reason, note) = match &judged.softened {
            Some(Softened::ByOverride(release)) if decision.allowed() => (
                format!("OverrideUsed{rule}"),
                format!("{rule} was allowed to {}: {says} (reason: {})", review.user, release.reason),
            ),
            None if deletion && judged.effect == Effect::Refused => {
                (format!("Refused{rule}"), format!("{} may not delete this: {says}; {instead}", review.user))
            }
            _ => return None,
        };
        Some(Notice { regarding: changed(review, goes), reason, action: "Admit", note })
    });
    told.collect()
}

/// What the audit found new on an object.
pub fn found(news: &News<'_>) -> Notice {
    let Audited { kind, id, uid, .. } = news.object;
    let uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
    Notice {
        regarding: regarding(*kind, &id.namespace, &id.name, uid),
        reason: format!("Audit{}", news.rule),
        action: "Audit",
        note: report::audit::note(news),
    }
}

/// Webhook configurations are gone. They have no namespace, so the guard's Lease is what it is told of: that is where
/// `kubectl get events` in the guard's namespace shows it. One reason would fold the end of the second one into the first.
pub fn configurations_deleted(namespace: &str, kinds: &[&str], note: String) -> Notice {
    let reason = match kinds {
        [kind] => format!("{kind}Deleted"),
        _ => "NothingIsGuarded".to_owned(),
    };
    let regarding = ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some("gatera".to_owned()),
        ..ObjectReference::default()
    };
    Notice { regarding, reason, action: "Register", note }
}

/// What the controller tells, under a name that follows from what it says; a removal happens once.
pub fn once(told: &Told, now: Timestamp) -> Event {
    let Told { id, uid, reason, note } = told;
    let name = format!("{}.{}.{:016x}", id.name, uid, Fingerprint::of(&format!("{reason} {note}")).number());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(id.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".into()),
        event_time: Some(MicroTime(now)),
        note: Some(note.chars().take(LONGEST).collect()),
        reason: Some((*reason).into()),
        regarding: Some(regarding(Kind::StatefulSet, &id.namespace, &id.name, Some(uid.clone()))),
        reporting_controller: Some(REPORTER.into()),
        reporting_instance: Some(REPORTER.into()),
        type_: Some("Normal".into()),
        ..Event::default()
    }
}

fn changed(review: &Review, goes: bool) -> ObjectReference {
    // A Scale has a uid of its own kind: that of its parent.
    let uid = review.objects().map(|object| object.meta().uid.clone()).find(|uid| !uid.is_empty());
    let namespace = if goes { "" } else { &*review.namespace };
    regarding(review.kind, namespace, &review.name, uid)
}

fn regarding(kind: Kind, namespace: &str, name: &str, uid: Option<String>) -> ObjectReference {
    let api_version = match kind.group() {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    };
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.name().to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: Some(name.to_owned()),
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
    let recorder = Recorder::new(client, Reporter { controller: REPORTER.into(), instance: Some(identity) });
    while let Some(Notice { regarding, reason, action, note }) = notices.recv().await {
        let event = recorder::Event {
            type_: EventType::Warning,
            reason,
            note: Some(note.chars().take(LONGEST).collect()),
            action: action.into(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &regarding).await {
            warn!(error = chain(&error), "writing an Event");
        }
    }
}
