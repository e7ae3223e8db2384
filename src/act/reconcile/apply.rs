//! Carries out one step of the plan by calls to the API server.
//!
//! Must not know: why a step is planned. Every write names its object by uid and is harmless if it was already done, because a
//! leader may stop between any two writes.

use facts::marks::{self, PREFIX};
use facts::view::Id;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use leader::plan::{Announcement, LeaderStep, Mark, PendingDeletion, PlannedStep};
use objects::Kind;
use serde_json::json;

use super::{StepContext, StepResult, configure, finish, identity};
use crate::act::api::{self, Exactly, Fault};
use crate::act::events;
use crate::act::guard::FIELD_MANAGER;
use crate::act::watch::resource;

/// Carries out one step.
pub(super) async fn step(context: &StepContext, planned: &PlannedStep) -> kube::Result<StepResult> {
    let (client, PlannedStep { id, uid: owner, step }) = (&context.client, planned);
    match step {
        LeaderStep::Mark(it) => mark(client, planned, it).await?,
        LeaderStep::UpdateOptionFile { pod, uid, text } => {
            annotate(client, Kind::Pod, pod, uid, "", marks::MY_CNF, Some(text)).await?;
        }
        LeaderStep::RecordIdentity => return identity::record_identity(context, planned).await,
        LeaderStep::AnnotateIdentity { pod, uid, value } => {
            annotate(client, Kind::Pod, pod, uid, "", marks::IDENTITY, Some(value)).await?;
        }
        LeaderStep::Configure(it) => return configure::configure(context, planned, it).await,
        LeaderStep::Evict { pod, uid, .. } => return configure::evict(context, id, pod, uid).await,
        LeaderStep::MarkForRemoval(PendingDeletion { target, version }) => {
            let id = Id::new(&id.namespace, &target.name);
            annotate(client, target.kind, &id, &target.uid, version, marks::REMOVING, Some(owner)).await?;
        }
        LeaderStep::Delete(it) => delete(client, &id.namespace, it).await?,
        LeaderStep::CorrectRecord { events, mark: corrected } => {
            for event in events {
                announce(client, planned, event).await?;
            }
            if corrected.bootstrap.is_some() {
                mark(client, planned, corrected).await?;
            } else {
                // An apply without the annotation would not remove one that another field manager has set.
                let version = &corrected.version;
                annotate(client, Kind::StatefulSet, id, owner, version, marks::BOOTSTRAP, None).await?;
            }
        }
        LeaderStep::Finish(it) => return finish::finish(context, planned, it).await,
        LeaderStep::Announce(event) => announce(client, planned, event).await?,
    }
    Ok(StepResult::Done)
}

/// Applies these marks to the StatefulSet. They belong to the guard alone, so the apply takes ownership by force. All marks
/// that are known are sent, because a server-side apply removes the guard's fields that it leaves out.
pub(super) async fn mark(client: &Client, planned: &PlannedStep, it: &Mark) -> kube::Result<()> {
    let (PlannedStep { id, uid, .. }, Mark { version, bootstrap }) = (planned, it);
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), &id.namespace);
    let mut mark = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": id.name, "uid": uid, "annotations": { format!("{PREFIX}{}", marks::DATA): "present" } },
    });
    if let Some(bootstrap) = bootstrap {
        mark["metadata"]["annotations"][format!("{PREFIX}{}", marks::BOOTSTRAP)] = json!(bootstrap);
    }
    if !version.is_empty() {
        mark["metadata"]["resourceVersion"] = json!(version);
    }
    api.patch(&id.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&mark)).await.map(drop)
}

/// Sets one annotation of exactly this object, or removes it if `value` is `None`. An empty version means any version. The
/// kubelet shows an annotation of a pod inside the pod within about a minute.
pub(super) async fn annotate(
    client: &Client,
    kind: Kind,
    id: &Id,
    uid: &str,
    version: &str,
    mark: &str,
    value: Option<&str>,
) -> kube::Result<()> {
    let it = Exactly { name: &id.name, uid, version };
    let annotations = json!({ format!("{PREFIX}{mark}"): value });
    api::annotate(&api_of(client, kind, &id.namespace), it, FIELD_MANAGER, &annotations).await.map(drop)
}

fn api_of(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(kind))
}

/// Deletes exactly this object, in the version that was judged: an object that has changed since, or was applied again, is judged
/// again. Kubernetes deletes its dependents in the background: the guard itself watches when the pods of a Deployment are gone.
pub(super) async fn delete(client: &Client, namespace: &str, it: &PendingDeletion) -> kube::Result<()> {
    let target = &it.target;
    let this = Exactly { name: &target.name, uid: &target.uid, version: &it.version };
    api::delete(&api_of(client, target.kind, namespace), this).await
}

/// Creates an Event whose name is derived from its text, so that the next leader does not create it again.
pub(super) async fn announce(
    client: &Client,
    planned: &PlannedStep,
    event: &Announcement,
) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &planned.id.namespace);
    match api.create(&PostParams::default(), &events::announcement(planned, event, Timestamp::now())).await {
        Err(error) if Fault::of(&error) == Fault::Conflict => Ok(()),
        result => result.map(drop),
    }
}
