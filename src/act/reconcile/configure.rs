//! Carries out a step of a rollout: makes the snapshots that are needed and writes the Events and the record, or evicts a
//! member.
//!
//! Must not know: when a step is due (`plan/rollout.rs` does). An eviction is requested like that of any user: the guard itself
//! judges it, and reserves the removal for all replicas.

use engine::snapshot::{Snapshot, snapshot};
use facts::marks::{self, PREFIX};
use facts::view::{Id, RolloutRecord};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use leader::plan::rollout::{self, Configure};
use leader::plan::{Announcement, PlannedStep};
use objects::Kind;
use serde_json::{Value, json};

use super::apply::{annotate, announce};
use super::{StepContext, StepResult};
use crate::act::api::{self, Exactly, Fault};
use crate::act::config_maps::make_snapshot;
use crate::act::telemetry::chain;

/// The number of unused snapshots that are kept; older ones are deleted.
const UNUSED_SNAPSHOTS_KEPT: usize = 5;

/// Makes the missing ones of the snapshots that the record names, then writes the Events and the record.
pub(super) async fn configure(
    context: &StepContext,
    planned: &PlannedStep,
    it: &Configure,
) -> kube::Result<StepResult> {
    let (client, PlannedStep { id, uid, .. }, ns) = (&context.client, planned, &planned.id.namespace);
    let next = it.record.next.iter().map(|next| &next.revision);
    for revision in next.chain([&it.record.good]) {
        for (source, digest) in revision.iter() {
            let found = context.with_view(|view| {
                let cluster = view.cluster(ns, &id.name)?;
                Some(snapshot(cluster, view, source, digest))
            });
            match found {
                Some(Snapshot::ToCreate(value)) => {
                    if let Some(refused) =
                        refused(make_snapshot(client, ns, value).await, ns, &digest.snapshot_name(source))?
                    {
                        return Ok(refused);
                    }
                }
                Some(Snapshot::Lost) if *revision != it.record.good => {
                    return Ok(StepResult::Postponed(format!("ConfigMap {source} has changed")));
                }
                _ => {}
            }
        }
    }
    if !context.may(planned) {
        return Ok(StepResult::Postponed("the cluster has changed since this step was planned".to_owned()));
    }
    for event in &it.events {
        announce(client, planned, event).await?;
    }
    let known = context.with_view(|view| {
        let cluster = view.cluster(ns, &id.name)?;
        Some((cluster.workload.metadata.resource_version.clone(), cluster.rollout.is_some()))
    });
    let ((version, has_record), text) = (known.unwrap_or_default(), it.record.text());
    annotate(client, Kind::StatefulSet, id, uid, &version, marks::CONFIGURATION, Some(&text)).await?;
    // Before the first record there were no snapshots, and listing those of one cluster is expensive: the API server looks at
    // all ConfigMaps of the namespace.
    if has_record && it.record.next.is_none() {
        delete_unused_snapshots(context, id, &it.record).await?;
    }
    Ok(StepResult::Done)
}

/// Returns the refusal of the step, with its Event, if a snapshot was refused: no member restarts without a snapshot.
fn refused(made: kube::Result<()>, namespace: &str, name: &str) -> kube::Result<Option<StepResult>> {
    let why = match made {
        Ok(()) => return Ok(None),
        Err(error) => match Fault::of(&error) {
            Fault::Conflict => format!(
                "ConfigMap {name} exists, but it is not the snapshot that gatera would write; delete it: kubectl -n {namespace} delete configmap {name}"
            ),
            Fault::Forbidden => format!("ConfigMap {name} cannot be created: {}", first_line(&error)),
            _ => return Err(error),
        },
    };
    let note = format!("members keep the configuration that they have: {why}");
    Ok(Some(StepResult::Refused(Announcement { reason: rollout::WAITS, note })))
}

fn first_line(error: &kube::Error) -> String {
    chain(error).lines().next().unwrap_or_default().to_owned()
}

/// Deletes the snapshots that neither the record nor a pod names, except for the newest [`UNUSED_SNAPSHOTS_KEPT`].
async fn delete_unused_snapshots(context: &StepContext, id: &Id, record: &RolloutRecord) -> kube::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &id.namespace);
    let of_cluster = ListParams::default().labels(&format!("{PREFIX}{}={}", marks::KEEPS, id.name));
    let mut all: Vec<_> = api.list_metadata(&of_cluster).await?.items;
    let used = context.with_view(|view| {
        let cluster = view.cluster(&id.namespace, &id.name);
        let run = cluster.iter().flat_map(|it| it.pods()).filter_map(|pod| pod.revision.as_ref());
        run.chain(record.revisions()).flat_map(|it| it.snapshots().collect::<Vec<_>>()).collect::<Vec<_>>()
    });
    all.retain(|map| !used.contains(&map.name_any()));
    all.sort_by_key(|map| std::cmp::Reverse(map.creation_timestamp()));
    for map in all.iter().skip(UNUSED_SNAPSHOTS_KEPT) {
        api::delete_unless_changed(&api, Exactly::of(&map.metadata)).await?;
    }
    Ok(())
}

/// Evicts a member's pod. A PodDisruptionBudget, or the guard itself, may refuse that.
pub(super) async fn evict(context: &StepContext, id: &Id, pod: &str, uid: &str) -> kube::Result<StepResult> {
    let client = &context.client;
    let api: Api<Pod> = Api::namespaced(client.clone(), &id.namespace);
    // kube serializes the options of an eviction under a name that API servers do not read.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod, "namespace": id.namespace },
        "deleteOptions": { "preconditions": { "uid": uid } },
    });
    match api.create_subresource::<Value, Value>("eviction", pod, &PostParams::default(), &eviction).await {
        Err(error) if matches!(Fault::of(&error), Fault::Forbidden | Fault::TooMany) => {
            let note = format!("the restart of {pod} is refused for now: {}", first_line(&error));
            Ok(StepResult::Refused(Announcement { reason: rollout::WAITS, note }))
        }
        Err(error) if Fault::of(&error).is_overtaken() => Ok(StepResult::Postponed(chain(&error))),
        result => result.map(|_| StepResult::Done),
    }
}
