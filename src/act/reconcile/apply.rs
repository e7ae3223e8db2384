//! Carrying out one step of the plan as calls to the API server.
//!
//! Must not know: why a step is planned. Every write names its object by uid and is harmless if it was already done, because a
//! leader may stop between any two writes.

use std::fmt::Debug;

use facts::marks::{self, PREFIX};
use facts::view::Id;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use leader::plan::{Announcement, LeaderStep, Mark, PendingDeletion};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{StepContext, StepResult, configure, finish, identity};
use crate::act::api::{self, Exactly, Fault};
use crate::act::events;
use crate::act::guard::FIELD_MANAGER;
use crate::act::watch::resource;

/// Carries out one step.
pub(super) async fn step(context: &StepContext, step: &LeaderStep) -> kube::Result<StepResult> {
    let client = &context.client;
    match step {
        LeaderStep::Mark(it) => mark(client, it).await?,
        LeaderStep::UpdateOptionFile { pod, uid, text } => {
            annotate_pod(client, pod, uid, marks::MY_CNF, text).await?;
        }
        LeaderStep::RecordIdentity { id, uid } => return identity::record_identity(context, id, uid).await,
        LeaderStep::AnnotateIdentity { pod, uid, value } => {
            annotate_pod(client, pod, uid, marks::IDENTITY, value).await?;
        }
        LeaderStep::Configure(it) => return configure::configure(context, step, it).await,
        LeaderStep::Evict { id, pod, uid, .. } => return configure::evict(context, id, pod, uid).await,
        LeaderStep::MarkForRemoval(it) => set_removing(client, it, Some(&it.owner)).await?,
        LeaderStep::Delete(it) => delete(client, it).await?,
        LeaderStep::CorrectRecord { events, mark: corrected } => {
            for event in events {
                announce(client, event).await?;
            }
            if corrected.bootstrap.is_some() {
                mark(client, corrected).await?;
            } else {
                remove_bootstrap_mark(client, corrected).await?;
            }
        }
        LeaderStep::Finish(it) => return finish::finish(context, step, it).await,
        LeaderStep::Announce(event) => announce(client, event).await?,
    }
    Ok(StepResult::Done)
}

/// Applies these marks to the StatefulSet. They belong to the guard alone, so the apply takes ownership by force; both are
/// sent, because a server-side apply removes the guard's fields that it leaves out.
pub(super) async fn mark(client: &Client, it: &Mark) -> kube::Result<()> {
    let Mark { id, uid, version, bootstrap } = it;
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

/// Removes the bootstrap mark by name: an apply that leaves it out would keep an annotation of another field manager.
async fn remove_bootstrap_mark(client: &Client, it: &Mark) -> kube::Result<()> {
    let api = Api::<StatefulSet>::namespaced(client.clone(), &it.id.namespace);
    annotate(&api, &it.id.name, &it.uid, &it.version, marks::BOOTSTRAP, None).await
}

/// Sets one annotation of exactly this object, or removes it if `value` is `None`. An empty version means any version.
pub(super) async fn annotate<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    version: &str,
    mark: &str,
    value: Option<&str>,
) -> kube::Result<()> {
    let annotations = json!({ format!("{PREFIX}{mark}"): value });
    api::annotate(api, Exactly { name, uid, version }, FIELD_MANAGER, &annotations).await.map(drop)
}

/// Sets one annotation of this pod. The kubelet shows it inside the pod within about a minute.
pub(super) async fn annotate_pod(
    client: &Client,
    pod: &Id,
    uid: &str,
    mark: &str,
    value: &str,
) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    annotate(&api, &pod.name, uid, "", mark, Some(value)).await
}

/// Sets the mark for removal, or removes it from an object that stays (`None`).
pub(super) async fn set_removing(
    client: &Client,
    it: &PendingDeletion,
    value: Option<&str>,
) -> kube::Result<()> {
    annotate(&api_of(client, it), &it.target.name, &it.target.uid, &it.version, marks::REMOVING, value).await
}

/// Returns the API for objects of the target's kind in its namespace.
fn api_of(client: &Client, it: &PendingDeletion) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &it.id.namespace, &resource(it.target.kind))
}

/// Deletes exactly this object, in the version that was judged: one that was changed or applied again meanwhile is judged
/// again. Deletion is in the background, because the guard watches the pods of a Deployment to see when they are gone.
pub(super) async fn delete(client: &Client, it: &PendingDeletion) -> kube::Result<()> {
    let target = &it.target;
    let this = Exactly { name: &target.name, uid: &target.uid, version: &it.version };
    api::delete(&api_of(client, it), this).await
}

/// Creates an Event whose name is derived from its text, so that the next leader does not create it again.
pub(super) async fn announce(client: &Client, event: &Announcement) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &event.id.namespace);
    match api.create(&PostParams::default(), &events::announcement(event, Timestamp::now())).await {
        Err(error) if Fault::of(&error) == Fault::Conflict => Ok(()),
        result => result.map(drop),
    }
}
