//! Events: what all users should see in `kubectl describe` and `kubectl get events`, not only the caller of a request.
//!
//! Owns: making Events, and the task that writes them. Must not know: how a rule decides. Requests queue their Events and
//! continue; a full queue drops the newest, because a guard that waited for its own Events would cause an outage.
//!
//! Any client that reaches the port may forge a request. So an Event about a request is about an object in the view whose uid the
//! request gives, or else about the StatefulSet of the cluster that the object belongs to; at most a few are written per object
//! and minute, and they name a user only if the API server has authenticated itself.

use std::collections::HashMap;

use engine::exceptions;
use engine::rules::{self, RecoveryChange};
use engine::verdict::{Decision, Downgrade, Effect, Finding};
use facts::marks::overrides::Override;
use facts::marks::recovery::Recovery;
use facts::review::{Operation, Origin, Review};
use facts::view::{Id, View};
use inspect::audit::{Audited, NewFindings};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use leader::plan::rollout::STOPPED;
use leader::plan::{Announcement, NO_LONGER_GUARDED, PlannedStep};
use objects::visible;
use objects::{Fingerprint, Kind, Object};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::warn;

use crate::act::telemetry::{chain, repeated};

/// The number of Events that may wait to be written.
const QUEUE_LENGTH: usize = 256;
/// The maximum length of a note in bytes. The API server accepts 1024.
const MAX_NOTE_BYTES: usize = 1000;
/// The component that Events name as their reporter.
const REPORTER: &str = "gatera";

/// An Event to publish.
#[derive(Debug)]
pub struct Notice {
    regarding: ObjectReference,
    /// Names the rule, if there is one. Events with the same object, reason and action are counted, not repeated.
    reason: String,
    action: String,
    note: String,
}

/// Returns the Events of a decision: overrides that were used, deletions that were refused (Helm shows little of a refusal, and
/// the caller is often a program), and changes of a recovery. They are made in the validating call, which is the last one of a
/// request, so that each is published once. Only the Event about a bootstrap Deployment that is kept at 0 replicas is made in the
/// mutating call, because the validating call finds nothing. `proven`: the request comes from an API server, so its user is
/// genuine.
pub fn notices(review: &Review, decision: &Decision, view: &View<'_>, proven: bool) -> Vec<Notice> {
    if review.origin == Origin::Mutating && !review.dry_run {
        return kept_at_zero(review, decision, view).into_iter().collect();
    }
    let recovery = rules::recovery_change(review, view).filter(|_| decision.allowed());
    let is_silent = decision.judged.is_empty() && recovery.is_none();
    if review.dry_run || review.origin != Origin::Validating || is_silent {
        return Vec::new();
    }
    let deletion = review.operation == Operation::Delete;
    // A namespace that is being deleted accepts no new Event; an Event about an object without a namespace goes to `default`.
    let namespace_is_deleted = deletion && review.kind == Kind::Namespace && decision.allowed();
    let Some(about) = about(review, view, namespace_is_deleted) else { return Vec::new() };
    let user = proven.then_some(&*review.user);
    let (kind, name) = (review.kind.name(), &review.name);
    let names_object = about.kind.as_deref() == Some(kind) && about.name.as_ref() == Some(name);
    let this = if names_object { "this".to_owned() } else { format!("{kind} {name}") };
    let findings = decision.judged.iter().filter_map(|judged| {
        let Finding { rule, says, instead, .. } = &judged.finding;
        let (reason, note) = match &judged.softened {
            Some(Downgrade::ByOverride(exception)) if decision.allowed() => {
                let was = user.map_or("overridden".to_owned(), |user| format!("allowed to {user}"));
                let of = if names_object { String::new() } else { format!(" for {this}") };
                (
                    format!("OverrideUsed{rule}"),
                    format!("{rule} was {was}{of}: {says} (reason: {})", exception.reason),
                )
            }
            None if deletion && judged.effect == Effect::Refused => {
                let may = user.map_or(format!("{this} may not be deleted"), |user| {
                    format!("{user} may not delete {this}")
                });
                (format!("Refused{rule}"), format!("{may}: {says}; {instead}"))
            }
            _ => return None,
        };
        Some(Notice { regarding: about.clone(), reason, action: "Admit".to_owned(), note })
    });
    let recovery = recovery.map(|change| {
        let (reason, note) = recovery_reason_and_note(&change, user);
        // Events with the same reason and action are merged and keep the first text, so each grant has its own action.
        let action = format!("Recover{:016x}", Fingerprint::of(&note).number());
        Notice { regarding: about.clone(), reason: reason.to_owned(), action, note }
    });
    findings.chain(recovery).collect()
}

/// Returns the Event about a bootstrap Deployment kept at 0 replicas. The answer contains a warning, too, but many clients hide
/// warnings.
fn kept_at_zero(review: &Review, decision: &Decision, view: &View<'_>) -> Option<Notice> {
    // The request may be forged, so its name must not carry any other text into the Event.
    let is_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let counts = decision.allowed() && review.name.bytes().all(is_name);
    let Some(Object::Deployment(new)) = review.new.as_ref().filter(|_| counts) else { return None };
    let Finding { says, instead, .. } = rules::held_at_zero(decision)?;
    let cluster = view.cluster_of(&review.namespace, &new.spec.template.metadata.labels)?;
    let (Id { namespace, name }, uid) = (&cluster.id, cluster.workload.metadata.uid.clone());
    Some(Notice {
        regarding: regarding(Kind::StatefulSet, namespace, name, Some(uid)),
        reason: "BootstrapKeptAtZero".to_owned(),
        action: "Admit".to_owned(),
        note: visible(&format!("Deployment {} is {says}; {instead}", review.name)),
    })
}

/// Returns the reason and the text of an Event about a recovery: which member, from which position, and by which user.
fn recovery_reason_and_note(change: &RecoveryChange, user: Option<&str>) -> (&'static str, String) {
    let by = user.map(|user| format!(", by {user}")).unwrap_or_default();
    match change {
        RecoveryChange::Granted(Recovery { member, position, until, loss, .. }) => {
            let lost = loss.as_ref().map(|loss| format!("; accepted as lost: {loss}")).unwrap_or_default();
            let note =
                format!("{member} may start the cluster again from {position}, until {until}{by}{lost}");
            ("RecoveryGranted", visible(&note))
        }
        RecoveryChange::Done(Recovery { member, position, .. }) => {
            (RECOVERY_OVER, format!("the recovery is done: {member} started the cluster from {position}{by}"))
        }
        RecoveryChange::TakenBack(Recovery { member, .. }) => {
            (RECOVERY_OVER, format!("before {member} was Ready, the recovery request was withdrawn{by}"))
        }
    }
}

/// The reason of the Event about a recovery that is over, which is not a warning.
const RECOVERY_OVER: &str = "RecoveryOver";
/// The reason of the Event about a break-glass that has ended, which is not a warning.
const BREAK_GLASS_ENDED: &str = "GlassMended";

/// Returns the object that an Event about a request names, if it has the uid that the request gives. Any other uid is forged, or
/// of an object that the view does not contain yet. For an object whose name is not in the view (a Secret, a new object), the
/// Event names the cluster that the object belongs to.
fn about(review: &Review, view: &View<'_>, namespace_is_deleted: bool) -> Option<ObjectReference> {
    let Review { kind, namespace, name, .. } = review;
    let Some(uid) = view.world.facts().uid(*kind, &Id::new(namespace, name)) else {
        let [cluster] = view.clusters_concerned(review)[..] else { return None };
        let uid = cluster.workload.metadata.uid.clone();
        return Some(regarding(Kind::StatefulSet, &cluster.id.namespace, &cluster.id.name, Some(uid)));
    };
    let request_uid = review.objects().map(|object| &*object.meta().uid).find(|uid| !uid.is_empty());
    // An Eviction has no uid; its only Event is about an override, which is an annotation of an object that the view contains.
    let is_genuine = request_uid == Some(uid) || request_uid.is_none() && review.subresource == "eviction";
    let namespace = if namespace_is_deleted { "" } else { namespace };
    is_genuine.then(|| regarding(*kind, namespace, name, Some(uid.to_owned())))
}

/// The maximum number of Events per minute about requests for one object: enough for every override, because these are few.
const EVENTS_PER_MINUTE: u32 = 6;
/// The number of objects that are remembered before those of earlier minutes are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// The number of Events in the current minute, by the uid of their object.
#[derive(Debug, Default)]
pub struct EventLimiter(HashMap<String, (Timestamp, u32)>);

impl EventLimiter {
    /// Counts this Event, and returns whether it may be published.
    pub fn admits(&mut self, notice: &Notice, now: Timestamp) -> bool {
        let minute = SignedDuration::from_mins(1);
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, (since, _)| now.duration_since(*since) < minute);
        }
        let (since, count) =
            self.0.entry(notice.regarding.uid.clone().unwrap_or_default()).or_insert((now, 0));
        if now.duration_since(*since) >= minute || *since > now {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= EVENTS_PER_MINUTE
    }
}

/// Returns the Event about a new finding of the audit.
pub fn audit_finding(news: &NewFindings<'_>) -> Notice {
    let Audited { kind, id, uid, .. } = news.object;
    let uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
    Notice {
        regarding: regarding(*kind, &id.namespace, &id.name, uid),
        reason: format!("Audit{}", news.rule),
        action: "Audit".to_owned(),
        note: report::audit::event_note(news),
    }
}

/// Returns the Event about webhook configurations that were deleted. They have no namespace, so the Event is about the guard's
/// Lease: `kubectl get events` in the guard's namespace shows it. With one reason for all, the deletion of the second
/// configuration would be merged into the Event about the first.
pub fn configurations_deleted(namespace: &str, kinds: &[&str], note: String) -> Notice {
    let reason = match kinds {
        [kind] => format!("{kind}Deleted"),
        _ => "NothingIsGuarded".to_owned(),
    };
    Notice { regarding: lease_reference(namespace), reason, action: "Register".to_owned(), note }
}

/// Returns the Event about another writer that undoes the guard's registration.
pub fn entries_contested(namespace: &str, note: String) -> Notice {
    let reason = "WebhookEntriesContested".to_owned();
    Notice { regarding: lease_reference(namespace), reason, action: "Register".to_owned(), note }
}

fn lease_reference(namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some("gatera".to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns the Event about a break-glass that suspends refusals in this namespace.
pub fn break_glass_began(namespace: &str, break_glass: &Override) -> Notice {
    let notice = exceptions::break_glass_notice(namespace, break_glass);
    let end = exceptions::end_break_glass_command(namespace);
    let note = format!("{notice} (to end it: {end}): {}", break_glass.reason);
    // Events with the same reason and action are merged and keep the first text, so each break-glass has its own action.
    let action = format!("Open{:016x}", Fingerprint::of(&note).number());
    Notice {
        regarding: namespace_reference(namespace),
        reason: "GlassBroken".to_owned(),
        action,
        note: visible(&note),
    }
}

/// Returns the Event about a break-glass that has ended. If its annotation is still there, the annotation has no effect.
pub fn break_glass_ended(namespace: &str) -> Notice {
    let note = format!(
        "break-glass has ended: rules and modes apply to this namespace again; to remove an annotation that is still there: {}",
        exceptions::end_break_glass_command(namespace)
    );
    let regarding = namespace_reference(namespace);
    Notice { regarding, reason: BREAK_GLASS_ENDED.to_owned(), action: "Close".to_owned(), note }
}

fn namespace_reference(name: &str) -> ObjectReference {
    regarding(Kind::Namespace, name, name, None)
}

/// Returns the note, cut to [`MAX_NOTE_BYTES`].
fn truncated(note: &str) -> String {
    let end = (0..=note.len().min(MAX_NOTE_BYTES)).rev().find(|at| note.is_char_boundary(*at));
    note[..end.unwrap_or_default()].to_owned()
}

/// Returns the Event for an announcement of this step of the leader. Its name is derived from its text, so that the next leader
/// does not create it again.
pub fn announcement(planned: &PlannedStep, announcement: &Announcement, now: Timestamp) -> Event {
    let (PlannedStep { id, uid, .. }, Announcement { reason, note }) = (planned, announcement);
    let name = format!("{}.{}.{:016x}", id.name, uid, Fingerprint::of(&format!("{reason} {note}")).number());
    let regarding = regarding(Kind::StatefulSet, &id.namespace, &id.name, Some(uid.clone()));
    let (reason, action, note) = ((*reason).to_owned(), "Reconcile".to_owned(), note.clone());
    let is_warning = [STOPPED, NO_LONGER_GUARDED].contains(&&*reason);
    event(Notice { regarding, reason, action, note }, is_warning, name, REPORTER, now)
}

/// Returns an Event of the older API group, because only in that group do API servers accept the timestamps by which
/// `kubectl get events --sort-by=.lastTimestamp` sorts.
fn event(notice: Notice, is_warning: bool, name: String, instance: &str, now: Timestamp) -> Event {
    let Notice { regarding, reason, action, note } = notice;
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace_of(&regarding).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: regarding,
        reason: Some(reason),
        action: Some(action),
        message: Some(truncated(&note)),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        count: Some(1),
        event_time: Some(MicroTime(now)),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        reporting_component: Some(REPORTER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// Returns the namespace of Events about this object.
fn namespace_of(regarding: &ObjectReference) -> &str {
    regarding.namespace.as_deref().unwrap_or("default")
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

/// Creates the queue of the task that writes Events.
pub fn channel() -> (mpsc::Sender<Notice>, mpsc::Receiver<Notice>) {
    mpsc::channel(QUEUE_LENGTH)
}

/// Writes the queued Events until the process ends.
pub async fn publish(client: Client, identity: String, mut notices: mpsc::Receiver<Notice>) {
    let mut written = WrittenEvents::new();
    while let Some(notice) = notices.recv().await {
        let now = Timestamp::now();
        written.retain(|_, (.., last)| now.duration_since(*last) < MERGE_PERIOD);
        if let Err(error) = write(&client, &identity, notice, &mut written, now).await {
            let error = chain(&error);
            if let Some(times) = repeated::times("Event", &error) {
                warn!(error, times, "an Event could not be written");
            }
        }
    }
}

/// The time within which an Event that repeats is only counted.
const MERGE_PERIOD: SignedDuration = SignedDuration::from_mins(6);

/// The Events that were written, by object, reason and action: the name of each, its count, and the time when it last occurred.
type WrittenEvents = HashMap<String, (String, i32, Timestamp)>;

/// Writes an Event, or counts it if it repeats. If its count cannot be written, its next occurrence is written as a new Event.
async fn write(
    client: &Client,
    identity: &str,
    notice: Notice,
    written: &mut WrittenEvents,
    now: Timestamp,
) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace_of(&notice.regarding));
    let key = format!("{:?}", (&notice.regarding, &notice.reason, &notice.action));
    let (name, count) = match written.remove(&key) {
        Some((name, count, _)) => {
            let counted = json!({ "count": count + 1, "lastTimestamp": Time(now) });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(counted)).await?;
            (name, count + 1)
        }
        None => {
            let about = notice.regarding.name.as_deref().unwrap_or(REPORTER);
            let name = format!("{about}.{:x}", now.as_nanosecond());
            let is_warning = ![RECOVERY_OVER, BREAK_GLASS_ENDED].contains(&&*notice.reason);
            let event = event(notice, is_warning, name.clone(), identity, now);
            api.create(&PostParams::default(), &event).await?;
            (name, 1)
        }
    };
    written.insert(key, (name, count, now));
    Ok(())
}

#[cfg(test)]
mod tests;
