//! The end of a clean-up: objects that no watch shows are looked up, judged, and deleted if they may be.
//!
//! Must not know: what may be deleted (`plan/warrant.rs` does). The object and everything that could read it are looked up
//! right before each deletion; in steady state none of these requests is sent.

use facts::marks;
use facts::view::{Id, RemovalTarget};
use kube::Client;
use kube::api::ListParams;
use leader::plan::{self, Finish, LookedUp, Mark, PendingDeletion, PlannedStep, Warrant};
use objects::{ConfigMapReader, Kind, Meta};

use crate::act::api::Fault;
use crate::act::config_maps;
use crate::act::watch::pages::ListPages;

use super::apply::{annotate, announce, delete, mark};
use super::{StepContext, StepResult};

/// The maximum size of what is kept of the objects of one kind while readers of a ConfigMap are looked for. Several thousand
/// ReplicaSets fit.
const MAX_READER_BYTES: usize = 8 << 20;

/// Deletes the objects that may be deleted, publishes Events about what became of each, and records the end of the clean-up.
pub(super) async fn finish(
    context: &StepContext,
    planned: &PlannedStep,
    it: &Finish,
) -> kube::Result<StepResult> {
    let (client, PlannedStep { id, uid, .. }) = (&context.client, planned);
    let mut left = it.left.clone();
    for target in &it.remaining {
        let found = look_up(client, &id.namespace, target).await?;
        if !context.may(planned) {
            return Ok(StepResult::Postponed(
                "the cluster has changed since this step was planned".to_owned(),
            ));
        }
        let warrant = context.with_view(|view| {
            let cluster = view.cluster(&id.namespace, &id.name)?;
            Some(plan::warrant(cluster, view, it, target, &found))
        });
        match warrant {
            None | Some(Warrant::Gone) => {}
            Some(Warrant::Given(version)) => {
                delete(client, &id.namespace, &PendingDeletion { target: target.clone(), version }).await?;
            }
            Some(Warrant::Waits(what)) => return Ok(StepResult::Postponed(what)),
            Some(Warrant::Stays(why)) => left.push((target.clone(), why)),
        }
        let is_left = left.iter().any(|(it, _)| it == target);
        if let Some(meta) = found.meta(target).filter(|_| is_left) {
            unmark(client, planned, target, meta).await?;
        }
    }
    for (target, _) in &it.left {
        let service =
            context.with_view(|view| Some(view.service(&id.namespace, &target.name)?.metadata.clone()));
        if let Some(meta) = service {
            unmark(client, planned, target, &meta).await?;
        }
    }
    for event in it.events(id, &left) {
        announce(client, planned, &event).await?;
    }
    mark(client, planned, &Mark::of_finished(uid)).await?;
    Ok(StepResult::Done)
}

/// Removes the guard's mark for removal from an object that stays.
async fn unmark(
    client: &Client,
    PlannedStep { id, uid, .. }: &PlannedStep,
    target: &RemovalTarget,
    meta: &Meta,
) -> kube::Result<()> {
    if target.is(target.kind, meta) && plan::is_marked(meta, uid) {
        let (id, version) = (Id::new(&id.namespace, &target.name), &meta.resource_version);
        annotate(client, target.kind, &id, &target.uid, version, marks::REMOVING, None).await?;
    }
    Ok(())
}

/// Looks up a ConfigMap and everything that may read it, or the Deployments of the namespace if the target is a Deployment.
async fn look_up(client: &Client, namespace: &str, target: &RemovalTarget) -> kube::Result<LookedUp> {
    let map = if target.kind == Kind::ConfigMap {
        config_maps::get(client, &Id::new(namespace, &target.name)).await?
    } else {
        None
    };
    let (map, unreadable) = match map.transpose() {
        Ok(map) => (map, None),
        Err(problem) => (None, Some(problem.to_string())),
    };
    let mut all = Vec::new();
    for (kind, api, plural) in ConfigMapReader::KINDS {
        // Of a Deployment only its existence matters, not its readers.
        let is_needed = target.kind == Kind::ConfigMap || target.kind.name() == kind;
        if !is_needed {
            continue;
        }
        match readers(client, namespace, &target.name, (kind, api, plural)).await? {
            Ok(readers) => all.extend(readers),
            Err(why) => return Ok(LookedUp { map, readers: Err(why) }),
        }
    }
    Ok(LookedUp { map, readers: unreadable.map_or(Ok(all), Err) })
}

/// Lists the objects of one kind that read this ConfigMap, or that create objects which may; or returns why they are unknown.
async fn readers(
    client: &Client,
    namespace: &str,
    config_map: &str,
    (kind, api, plural): (&'static str, &str, &str),
) -> kube::Result<Result<Vec<ConfigMapReader>, String>> {
    let url = format!("/{api}/namespaces/{namespace}/{plural}");
    let (mut pages, mut found, mut room) =
        (ListPages::of(client, url, ListParams::default()), Vec::new(), MAX_READER_BYTES);
    loop {
        let object = match pages.next().await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(Ok(found)),
            Err(error) => {
                return match Fault::of(&error) {
                    // An API server that does not serve this kind has no such objects.
                    Fault::NotFound => Ok(Ok(Vec::new())),
                    Fault::Forbidden => Ok(Err(format!("gatera may not list {plural}"))),
                    _ => Err(error),
                };
            }
        };
        let reader = match ConfigMapReader::read(kind, &object.text) {
            Ok(reader) => reader,
            Err(problem) => return Ok(Err(format!("a {kind} {problem}"))),
        };
        // Deployments create ReplicaSets, and those create pods, so both are kept even if they do not read it themselves.
        if reader.reads(config_map) || ["Deployment", "ReplicaSet"].contains(&kind) {
            // The length of this text approximates the memory that the kept part of the object takes; the rest is dropped.
            let Some(left) = room.checked_sub(format!("{reader:?}").len()) else {
                return Ok(Err(format!(
                    "the {plural} of namespace {namespace} exceed the {} MiB that gatera can check",
                    MAX_READER_BYTES >> 20
                )));
            };
            room = left;
            found.push(reader);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// Looks for readers among `count` ReplicaSets. Each has an annotation of `text` bytes, which is not kept, and a label of
    /// `label` bytes, which is kept.
    async fn reader_count(count: usize, text: usize, label: usize) -> Result<usize, String> {
        let (text, label) = ("x".repeat(text), "y".repeat(label));
        let meta = |number| {
            format!(r#"{{"name":"rs-{number}","labels":{{"a":"{label}"}},"annotations":{{"a":"{text}"}}}}"#)
        };
        let items: Vec<_> = (0..count).map(|number| format!(r#"{{"metadata":{}}}"#, meta(number))).collect();
        let list = Arc::new(format!(r#"{{"metadata":{{}},"items":[{}]}}"#, items.join(",")));
        let service = service_fn(move |_: Request<Body>| {
            let list = Arc::clone(&list);
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.as_bytes().to_vec()))) }
        });
        let client = Client::new(service, "default");
        let kind = ("ReplicaSet", "apis/apps/v1", "replicasets");
        readers(&client, "db", "conf", kind).await.unwrap().map(|all| all.len())
    }

    #[tokio::test]
    async fn thousands_of_ordinary_objects_fit_and_as_many_large_ones_do_not() {
        assert_eq!(reader_count(4000, 4000, 60).await, Ok(4000));
        let problem = reader_count(4000, 0, 4000).await.unwrap_err();
        assert_eq!(problem, "the replicasets of namespace db exceed the 8 MiB that gatera can check");
    }
}
