//! The steps of a recovery, with the rights of the person who runs the command.
//!
//! Must not know: which step comes next, and what is printed about it. Each step writes only to the objects that were looked at.

use std::collections::BTreeSet;

use anyhow::Context as _;
use facts::marks::recovery::Recovery;
use facts::marks::{PREFIX, RECOVER, RECOVERY};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use leader::recovery::{self, RecoveryStep};
use serde_json::{Value, json};

use crate::act::api::{self, Exactly};
use crate::command::guided::MANAGER;
use crate::command::look::ObservedCluster;

/// The time for which a recovery request lets a member start first; the transfers that follow need no permission.
const REQUEST_LIFETIME: SignedDuration = SignedDuration::from_mins(30);
/// The time for which the override lets a member be restarted to report where its data ends.
const OVERRIDE_DURATION: SignedDuration = SignedDuration::from_mins(5);

/// Does this step.
pub(super) async fn act(seen: &ObservedCluster, step: &RecoveryStep) -> anyhow::Result<()> {
    match step {
        RecoveryStep::Scale { to } => seen.scale(*to).await,
        RecoveryStep::Create { ordinal, .. } => create_member(seen, *ordinal).await,
        RecoveryStep::Read { member, .. } => create_reader(seen, member).await,
        RecoveryStep::StopReading { reader, uid, .. } => delete(seen, reader, uid).await,
        RecoveryStep::Restart { member, uid, .. } => restart(seen, member, uid).await,
        RecoveryStep::Ask { member, at, node, loss } => {
            let (member, position, node, loss) = (member.clone(), at.clone(), node.clone(), loss.clone());
            let asked = Recovery { member, position, node, until: seen.time_after(REQUEST_LIFETIME)?, loss };
            request_recovery(seen, &asked.to_string()).await
        }
        RecoveryStep::TakeBack(_) => withdraw_request(seen).await,
        RecoveryStep::Finish { .. } => {
            // The request is removed last: until then a recovery is under way, and a later run continues it.
            let recorded = seen.cluster()?.claims.iter().filter(|claim| claim.stopped.is_some());
            seen.record(&recorded.map(|claim| claim.name.clone()).collect::<Vec<_>>(), None).await?;
            withdraw_request(seen).await
        }
        RecoveryStep::Serves
        | RecoveryStep::Wait(_)
        | RecoveryStep::Refuse { .. }
        | RecoveryStep::Cannot(_)
        | RecoveryStep::ByHand(_) => Ok(()),
    }
}

/// Sets the recovery request. If the guard did not confirm it, withdraws it, and restores an earlier one that was granted.
async fn request_recovery(seen: &ObservedCluster, asked: &str) -> anyhow::Result<()> {
    let set = seen.annotate(json!({ format!("{PREFIX}{RECOVER}"): asked })).await?;
    let granted = set.annotations().get(&format!("{PREFIX}{RECOVERY}")).cloned();
    if granted.as_deref() != Some(asked) {
        let back = json!({ format!("{PREFIX}{RECOVER}"): granted });
        let done =
            seen.annotate_version(set.metadata.resource_version.as_deref().unwrap_or_default(), back).await;
        done.context("withdrawing the recovery request, which the guard did not confirm")?;
        anyhow::bail!(
            "the guard did not confirm the recovery request, and no member starts the cluster without that: no guard answers, or it only warns \
             (gatera.dev/mode of the namespace, or the mode of G20) and has not yet seen what members reported; `gatera doctor` shows which"
        );
    }
    Ok(())
}

/// Removes the recovery request, and the guard's mark with it.
pub(super) async fn withdraw_request(seen: &ObservedCluster) -> anyhow::Result<()> {
    let nothing = json!({ format!("{PREFIX}{RECOVER}"): null, format!("{PREFIX}{RECOVERY}"): null });
    seen.annotate(nothing).await.map(drop)
}

/// Returns an API for untyped objects: the types of this program would lose fields that are newer than the program.
fn untyped<K: Resource<DynamicType = ()>>(seen: &ObservedCluster) -> Api<DynamicObject> {
    Api::namespaced_with(seen.client.clone(), &seen.id.namespace, &ApiResource::erase::<K>(&()))
}

/// Creates the member's pod, as its StatefulSet would.
async fn create_member(seen: &ObservedCluster, ordinal: i64) -> anyhow::Result<()> {
    let mut set = serde_json::to_value(untyped::<StatefulSet>(seen).get(&seen.id.name).await?)?;
    if let Some(older) = seen.cluster()?.workload.older_revision_for(ordinal) {
        let kept = seen.api::<ControllerRevision>().get(older).await;
        let data = kept.context("reading the earlier template of its StatefulSet")?.data;
        let data = serde_json::to_value(data)?;
        set =
            recovery::at_revision(set, older, &data).with_context(|| format!("{older} holds no template"))?;
    }
    let pod = recovery::member_pod(&set, ordinal).context("it is not a StatefulSet")?;
    // Without the step script the server would start without comparing its data. A dry run shows whether the guard adds it.
    let dry = PostParams { dry_run: true, ..post_params() };
    if let Some(made) = create_pod(seen, &pod, &dry).await? {
        anyhow::ensure!(
            recovery::starts_by_the_step(&serde_json::to_value(made)?),
            "not created: the pod would start without gatera's step script, because the guard does not run or does not inject in this namespace; `gatera doctor` shows which"
        );
    }
    create_pod(seen, &pod, &post_params()).await.map(drop)
}

/// Creates the pod that reads a member's data. If the member's image cannot be pulled, the pod runs the image of the other
/// members, provided that all of them run the same one.
async fn create_reader(seen: &ObservedCluster, member: &str) -> anyhow::Result<()> {
    let (cluster, pods) = (seen.cluster()?, seen.api::<Pod>());
    let server = cluster.server().context("its template has no server")?.1.name.clone();
    let own = serde_json::to_value(untyped::<Pod>(seen).get(member).await?)?;
    let mut images = BTreeSet::new();
    if cluster.member(member).and_then(|it| it.pod.as_deref()).is_some_and(|pod| pod.lacks_an_image) {
        for other in cluster.members.iter().filter(|it| it.pod.as_deref().is_some_and(|pod| pod.has_run)) {
            let containers =
                pods.get(&other.name).await?.spec.map(|spec| spec.containers).unwrap_or_default();
            images.extend(containers.into_iter().find(|it| it.name == server).and_then(|it| it.image));
        }
    }
    let image = images.first().filter(|_| images.len() == 1).map(String::as_str);
    create_pod(seen, &recovery::reader_pod(&own, &server, image)?, &post_params()).await.map(drop)
}

/// Deletes the reader pods, which are useless after this run, except those with the uids in `spared`, which may belong to another
/// run.
pub(super) async fn delete_readers(seen: &ObservedCluster, spared: &[String]) -> anyhow::Result<()> {
    for reader in seen.cluster()?.readers.iter().filter(|it| !spared.contains(&it.uid)) {
        delete(seen, &reader.name, &reader.uid).await?;
    }
    Ok(())
}

fn post_params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// Creates a pod. Returns `None` if a pod with this name exists already.
async fn create_pod(
    seen: &ObservedCluster,
    pod: &Value,
    params: &PostParams,
) -> anyhow::Result<Option<DynamicObject>> {
    let pod: DynamicObject = serde_json::from_value(pod.clone())?;
    match untyped::<Pod>(seen).create(params, &pod).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(None),
        result => result.map(Some).map_err(anyhow::Error::from),
    }
}

/// Deletes exactly the pod that was looked at, so that it restarts. Before a recovery is requested, the guard rightly protects a
/// running server, so an override on the pod states the person's decision; it disappears with the pod.
async fn restart(seen: &ObservedCluster, member: &str, uid: &str) -> anyhow::Result<()> {
    let pods = seen.api::<Pod>();
    if seen.cluster()?.recovery().is_none() {
        let annotation =
            seen.override_annotation("G02", OVERRIDE_DURATION, "gatera recover asks it where its data ends")?;
        api::annotate(&pods, Exactly { name: member, uid, version: "" }, MANAGER, &annotation).await?;
    }
    delete(seen, member, uid).await
}

async fn delete(seen: &ObservedCluster, pod: &str, uid: &str) -> anyhow::Result<()> {
    Ok(api::delete_unless_changed(&seen.api::<Pod>(), Exactly { name: pod, uid, version: "" }).await?)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::http::{Request, Response};
    use facts::settings::Settings;
    use facts::view::{Freshness, Id, World};
    use kube::Client;
    use kube::client::Body;
    use objects::{Kind, Object};
    use tower::service_fn;

    use super::*;
    use crate::command::site::Clock;

    /// The log of requests: method, path with query, body.
    type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// Returns a look at a cluster, and the log of requests to its API server, which holds this StatefulSet and answers every
    /// other request with `made`.
    fn seen(set: &Value, made: &Value, pods: &[Value]) -> (ObservedCluster, Asked) {
        let asked = Asked::default();
        let (log, held, made) = (Arc::clone(&asked), set.clone(), made.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (log, set, made) = (Arc::clone(&log), held.clone(), made.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let is_set = parts.uri.path().contains("/statefulsets/");
                let body = serde_json::from_slice(&body).unwrap_or_default();
                log.lock().unwrap().push((parts.method.to_string(), parts.uri.to_string(), body));
                let answer = if is_set { set } else { made };
                let code = answer["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap());
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        let settings = Settings::default();
        let mut facts = crate::rulebook().facts(&settings.adoption);
        facts.put(Object::read(Kind::StatefulSet, &set.to_string()).unwrap());
        for pod in pods {
            facts.put(Object::read(Kind::Pod, &pod.to_string()).unwrap());
        }
        let world = World::build(facts, Freshness::Current);
        let (client, clock, id) = (Client::new(service, "db"), Clock::of_this_machine(), Id::new("db", "g"));
        (ObservedCluster { client, clock, settings, world, id }, asked)
    }

    fn set() -> Value {
        let labels = json!({ "gatera.dev/cluster": "g" });
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "g", "namespace": "db", "uid": "u-1", "labels": labels },
            "spec": {
                "replicas": 3, "serviceName": "g-hs", "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "unknown": 1 }], "unknown": { "a": [true] } },
                },
            },
        })
    }

    #[tokio::test]
    async fn a_pod_keeps_unknown_fields_and_is_created_only_with_the_start_step() {
        let mut made = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "g-1", "namespace": "db" },
            "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "command": ["docker-entrypoint.sh"] }] },
        });
        let posts = |asked: &Asked| {
            let asked = asked.lock().unwrap();
            asked
                .iter()
                .filter(|it| it.0 == "POST")
                .map(|it| (it.1.contains("dryRun=All"), it.2.clone()))
                .collect::<Vec<_>>()
        };
        let step = RecoveryStep::Create { member: "g-1".to_owned(), ordinal: 1, why: String::new() };
        let (unguarded, asked) = seen(&set(), &made, &[]);
        let refused = act(&unguarded, &step).await.unwrap_err().to_string();
        assert!(
            refused.contains("not created: the pod would start without gatera's step script"),
            "{refused}"
        );
        assert!(matches!(posts(&asked)[..], [(true, _)]), "{:?}", posts(&asked));

        made["spec"]["containers"][0]["command"] =
            json!(["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"]);
        made["metadata"]["labels"] = json!({ "gatera.dev/cluster": "g" });
        let (guarded, asked) = seen(&set(), &made, &[]);
        act(&guarded, &step).await.unwrap();
        let posts = posts(&asked);
        assert!(matches!(posts[..], [(true, _), (false, _)]), "{posts:?}");
        for (_, pod) in posts {
            assert_eq!(pod["spec"]["unknown"], json!({ "a": [true] }), "{pod}");
            assert_eq!(pod["spec"]["containers"][0]["unknown"], 1, "{pod}");
        }
    }

    #[tokio::test]
    async fn an_existing_pod_is_accepted_and_a_conflict_of_a_quota_is_not() {
        for (reason, is_there) in [("AlreadyExists", true), ("Conflict", false)] {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": reason });
            let (seen, _) = seen(&set(), &status, &[]);
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "g-1" } });
            assert_eq!(create_pod(&seen, &pod, &post_params()).await.is_ok(), is_there, "{reason}");
        }
    }

    #[tokio::test]
    async fn reader_pods_are_deleted_by_uid() {
        let reader = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "g-2-reader", "namespace": "db", "uid": "r-2", "labels": { "gatera.dev/reads": "g-2" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "g-2", "uid": "p-2" }],
            },
            "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "command": ["sh", "-c", "x", "start-member.sh", "mariadbd"] }] },
        });
        let mut set = set();
        set["metadata"]["annotations"] = json!({ "gatera.dev/recover": "g-1" });
        let (of_another_run, asked) = seen(&set, &reader, std::slice::from_ref(&reader));
        delete_readers(&of_another_run, &["r-2".to_owned()]).await.unwrap();
        assert!(asked.lock().unwrap().is_empty());
        // An abort withdraws the request first.
        let (aborted, asked) = seen(&set, &reader, std::slice::from_ref(&reader));
        super::super::abort(&aborted).await.unwrap();
        let methods: Vec<_> = asked.lock().unwrap().iter().map(|it| it.0.clone()).collect();
        assert_eq!(methods, ["PATCH", "DELETE"]);

        let (seen, asked) = seen(&set, &reader, std::slice::from_ref(&reader));
        delete_readers(&seen, &[]).await.unwrap();
        let asked = asked.lock().unwrap();
        let [(method, uri, body)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((&**method, &body["preconditions"]["uid"]), ("DELETE", &json!("r-2")));
        assert!(uri.starts_with("/api/v1/namespaces/db/pods/g-2-reader"), "{uri}");
    }
}
