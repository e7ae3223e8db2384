//! One step of the plan, as calls to the API server.
//!
//! Must not know: why. Every write says which object it means by uid, and is harmless when it was done already: a leader
//! may stop between any two of them.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::events;
use crate::guard::FIELD_MANAGER;
use crate::marks::{self, PREFIX};
use crate::object::Kind;
use crate::plan::{Mark, Step, Told};
use crate::view::{Id, Target};

/// Does one step.
pub(super) async fn step(client: &Client, step: &Step) -> kube::Result<()> {
    match step {
        Step::Mark(it) => mark(client, it).await,
        Step::Address { pod, uid, text } => address(client, pod, uid, text).await,
        Step::Delete(namespace, target) => delete(client, namespace, target).await,
        Step::Finish { delete: targets, told, mark: done } => {
            for target in targets {
                delete(client, &told.id.namespace, target).await?;
            }
            tell(client, told).await?;
            mark(client, done).await
        }
        Step::Tell(told) => tell(client, told).await,
    }
}

/// The marks are ours alone, so ownership of them is taken by force; all of them, because what is left out goes.
async fn mark(client: &Client, it: &Mark) -> kube::Result<()> {
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

async fn address(client: &Client, pod: &Id, uid: &str, text: &str) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let annotations = json!({ format!("{PREFIX}{}", marks::MY_CNF): text });
    let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(&pod.name, &params, &Patch::Merge(&patch)).await.map(drop)
}

async fn delete(client: &Client, namespace: &str, target: &Target) -> kube::Result<()> {
    match target.kind {
        Kind::Deployment => delete_one::<Deployment>(client, namespace, target).await,
        Kind::Service => delete_one::<Service>(client, namespace, target).await,
        Kind::ConfigMap => delete_one::<ConfigMap>(client, namespace, target).await,
        _ => Ok(()),
    }
}

/// In the background: that a Deployment's pods are gone is seen by the pods. One that is gone is done, and so is one that
/// somebody applied again: it has another uid and is theirs.
async fn delete_one<K>(client: &Client, namespace: &str, target: &Target) -> kube::Result<()>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let this = Preconditions { uid: Some(target.uid.clone()), ..Preconditions::default() };
    let params = DeleteParams {
        preconditions: Some(this),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match api.delete(&target.name, &params).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result.map(drop),
    }
}

/// An Event whose name follows from what it says: whoever leads next does not say it again.
async fn tell(client: &Client, told: &Told) -> kube::Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), &told.id.namespace);
    match api.create(&PostParams::default(), &events::once(told, Timestamp::now())).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop),
    }
}
