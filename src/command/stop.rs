//! `gatera stop`: stops a cluster in order, the highest ordinal first, with the rights of the person who runs the command.
//!
//! Owns: what follows from a look, and reading where a member's data ended when it left. `leader::stop` chooses each step.

use std::io::Write;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use facts::galera::start_report::{self, Position};
use facts::marks::stopped::StopRecord;
use facts::marks::{OVERRIDE, PREFIX};
use futures_util::{Stream, TryStreamExt as _};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{WatchEvent, WatchParams};
use leader::stop::{self, StopStep};
use objects::visible;
use report::stop as report;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::Exit;
use super::guided::{AfterLook, ClusterArgs, GuidedRun};
use super::look::ObservedCluster;
use super::site::is_away;
use crate::act::api::Fault;
use crate::act::connect;

/// How long the override lasts that lets the last member stop.
const OVERRIDE_DURATION: SignedDuration = SignedDuration::from_mins(2);

/// The number of tries, a second apart, within which a replica of the guard has seen a change.
const GUARD_TRIES: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// The seconds for which a pod is watched before the cluster is looked at again.
const WATCH_SECONDS: u32 = 60;

/// Stops the cluster.
pub async fn run(args: &ClusterArgs, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (mut fewest, mut replaced) = (i64::MAX, None);
    let mut guided = GuidedRun::begin(args, out).await?;
    let after_look = async |guided: &mut GuidedRun<'_>, seen: &ObservedCluster| {
        let (cluster, view) = (seen.cluster()?, seen.view());
        let step = stop::next(cluster, &view);
        match &step {
            StopStep::Stopped => {
                restore_override(seen, replaced.as_deref()).await?;
                return Ok(AfterLook::End(Exit::Clean, report::stopped(cluster)));
            }
            _ if cluster.workload.replicas() > fewest => {
                let text = report::raised_meanwhile(cluster, fewest) + "\n";
                return Ok(AfterLook::End(Exit::Refused, text));
            }
            StopStep::Cannot(why) => {
                let text = format!("{} cannot be stopped: {}\n", seen.id, visible(why));
                return Ok(AfterLook::End(Exit::Refused, text));
            }
            _ if !guided.agreed => return Ok(AfterLook::Confirm(report::proposal(cluster, &view))),
            _ => {}
        }
        guided.set_state(format!("{:?}", step.without_texts()));
        if let Some(end) = guided.step(report::step_text(&step))? {
            return Ok(end);
        }
        match (act(seen, &step, &mut replaced).await, &step) {
            (Ok(()), StopStep::Leave { to, .. }) => fewest = *to,
            (Ok(()), _) => {}
            (Err(problem), _) => guided.problem(&problem)?,
        }
        Ok(AfterLook::Pause)
    };
    guided.drive(after_look).await
}

async fn act(seen: &ObservedCluster, step: &StopStep, replaced: &mut Option<String>) -> anyhow::Result<()> {
    match step {
        StopStep::Record { claims } => record_on_claims(seen, claims, None).await,
        StopStep::Leave { member, claims, to } => {
            // The member's last message is seen only by a watch that is open before the member ends.
            let Some(last) = LeavingPod::of(seen, member).await? else { return Ok(()) };
            leave(seen, *to, replaced).await?;
            record_end(seen, claims, last).await
        }
        StopStep::Follow { member, claims, .. } => match LeavingPod::of(seen, member).await? {
            Some(last) => record_end(seen, claims, last).await,
            None => Ok(()),
        },
        StopStep::Stopped | StopStep::Wait(_) | StopStep::Cannot(_) => Ok(()),
    }
}

/// Waits for the end of a member's pod, and records where its data ended. If that is unknown, records nothing.
async fn record_end(seen: &ObservedCluster, claims: &[String], last: LeavingPod) -> anyhow::Result<()> {
    match last.end().await {
        Some(position) => record_on_claims(seen, claims, Some(position)).await,
        None => Ok(()),
    }
}

/// Scales the cluster so that a member leaves. The guard rightly protects the last member, so for that moment an override on the
/// StatefulSet states the person's decision. The earlier override is put back afterwards; `replaced` keeps it until that is done.
/// An override that was written since the look is not overwritten.
async fn leave(seen: &ObservedCluster, to: i64, replaced: &mut Option<String>) -> anyhow::Result<()> {
    if to > 0 {
        return seen.scale(to).await;
    }
    let meta = &seen.cluster()?.workload.metadata;
    if let Some(text) = meta.mark(OVERRIDE).filter(|text| !stop::is_own_override(text)) {
        *replaced = Some(text.to_owned());
    }
    seen.annotate_version(
        &meta.resource_version,
        seen.override_annotation("G01", OVERRIDE_DURATION, stop::OVERRIDE_REASON)?,
    )
    .await?;
    let mut done = seen.scale(to).await;
    // The replica of the guard that is asked may not have seen the override yet.
    for _ in 0..GUARD_TRIES {
        if done.is_ok() {
            break;
        }
        sleep(SECOND).await;
        done = seen.scale(to).await;
    }
    put_back(seen, replaced.as_deref()).await?;
    *replaced = None;
    done
}

/// If a run that was killed or failed left this command's own override behind, puts the earlier one in its place, or removes it.
async fn restore_override(seen: &ObservedCluster, replaced: Option<&str>) -> anyhow::Result<()> {
    if seen.cluster()?.workload.metadata.mark(OVERRIDE).is_some_and(stop::is_own_override) {
        put_back(seen, replaced).await?;
    }
    Ok(())
}

/// Puts the earlier override in the place of this command's own. Any other override stays.
async fn put_back(seen: &ObservedCluster, before: Option<&str>) -> anyhow::Result<()> {
    for _ in 0..GUARD_TRIES {
        match try_to_put_back(seen, before).await {
            // The StatefulSet controller writes to the object while the last member leaves.
            Err(problem) if is_away(&problem) || is_conflict(&problem) => sleep(SECOND).await,
            // The guard refuses an invalid override, even one that was there before.
            Err(problem) if before.is_some() => {
                try_to_put_back(seen, None).await?;
                return Err(problem.context("putting back the earlier override"));
            }
            result => return result,
        }
    }
    try_to_put_back(seen, before).await
}

async fn try_to_put_back(seen: &ObservedCluster, before: Option<&str>) -> anyhow::Result<()> {
    let key = format!("{PREFIX}{OVERRIDE}");
    let set = seen.api::<StatefulSet>().get_metadata(&seen.id.name).await?;
    if !set.annotations().get(&key).is_some_and(|text| stop::is_own_override(text)) {
        return Ok(());
    }
    let version = set.metadata.resource_version.as_deref().unwrap_or_default();
    seen.annotate_version(version, json!({ key: before })).await.map(drop)
}

fn is_conflict(problem: &anyhow::Error) -> bool {
    problem.downcast_ref().is_some_and(|error| Fault::of(error) == Fault::Conflict)
}

async fn record_on_claims(
    seen: &ObservedCluster,
    claims: &[String],
    position: Option<Position>,
) -> anyhow::Result<()> {
    let cluster = seen.cluster()?;
    let of = cluster.workload.replicas().max(cluster.stopped_members().unwrap_or_default());
    let by = connect::user(&seen.client).await.unwrap_or_default();
    let record = StopRecord { position, of, since: seen.time_after(SignedDuration::ZERO)?, by };
    seen.record(claims, Some(&record.to_string())).await
}

/// A pod that is watched until it is gone, or for [`WATCH_SECONDS`].
struct LeavingPod {
    uid: Option<String>,
    events: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>>>>,
}

impl LeavingPod {
    /// Begins to watch a pod; `None`: there is no such pod.
    async fn of(seen: &ObservedCluster, member: &str) -> anyhow::Result<Option<Self>> {
        let Some(pod) = seen.api::<Pod>().get_opt(member).await? else { return Ok(None) };
        let only = WatchParams::default().fields(&format!("metadata.name={member}")).timeout(WATCH_SECONDS);
        let from = pod.metadata.resource_version.unwrap_or_default();
        let events = seen.api::<Pod>().watch(&only, &from).await.context("watching its pod")?;
        Ok(Some(Self { uid: pod.metadata.uid, events: Box::pin(events) }))
    }

    /// Returns the position at which the member's data ended, if the pod reported it. A pod that needs longer to stop is watched
    /// again after the next look.
    async fn end(mut self) -> Option<Position> {
        let mut end = None;
        let listen = async {
            while let Ok(Some(event)) = self.events.try_next().await {
                let (pod, gone) = match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                    WatchEvent::Deleted(pod) => (pod, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                };
                if pod.metadata.uid != self.uid {
                    break;
                }
                end = last_position(&pod).or(end.take());
                if gone {
                    break;
                }
            }
        };
        // The time limit is for a connection that was lost without an error.
        let _ = timeout(Duration::from_secs(u64::from(WATCH_SECONDS) + 5), listen).await;
        end
    }
}

fn last_position(pod: &Pod) -> Option<Position> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    statuses.iter().find_map(|it| {
        start_report::stop_position(it.state.as_ref()?.terminated.as_ref()?.message.as_deref()?)
    })
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
    use serde_json::Value;
    use tower::service_fn;

    use super::*;
    use crate::command::site::Clock;

    const THEIRS: &str = "G07 until=2026-01-01T10:00:00Z reason=moving house";

    fn set(mark: &Value) -> Value {
        let labels = json!({ "gatera.dev/cluster": "g" });
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "g", "namespace": "db", "uid": "u-1", "labels": labels, "annotations": { "gatera.dev/override": mark } },
            "spec": {
                "replicas": 1, "serviceName": "g-hs", "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11" }] } },
            },
        })
    }

    /// Makes the last member leave, from a StatefulSet with this override. If the API server is not `well`, it rejects every
    /// write of the override annotation, except that of the command's own override.
    async fn leaves(
        mark: &Arc<Mutex<Value>>,
        well: bool,
        replaced: &mut Option<String>,
    ) -> anyhow::Result<()> {
        let held = Arc::clone(mark);
        let service = service_fn(move |request: Request<Body>| {
            let held = Arc::clone(&held);
            async move {
                let (parts, body) = request.into_parts();
                let body: Value =
                    serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
                let written = body.pointer("/metadata/annotations/gatera.dev~1override");
                let (code, answer) = match written {
                    Some(text) if !well && text.as_str().is_none_or(|it| !stop::is_own_override(it)) => {
                        (500, json!({ "kind": "Status", "code": 500 }))
                    }
                    _ if parts.uri.path().ends_with("/scale") => {
                        (200, json!({ "metadata": { "name": "g" }, "spec": { "replicas": 1 } }))
                    }
                    _ => {
                        let mut held = held.lock().unwrap();
                        *held = written.unwrap_or(&held).clone();
                        (200, set(&held))
                    }
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        let settings = Settings::default();
        let mut facts = crate::rulebook().facts(&settings.adoption);
        let text = set(&mark.lock().unwrap()).to_string();
        facts.put(Object::read(Kind::StatefulSet, &text).unwrap());
        let world = World::build(facts, Freshness::Current);
        let (client, clock, id) = (Client::new(service, "db"), Clock::of_this_machine(), Id::new("db", "g"));
        leave(&ObservedCluster { client, clock, settings, world, id }, 0, replaced).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_override_is_put_back_even_if_that_fails_at_first() {
        let (mark, mut replaced) = (Arc::new(Mutex::new(json!(THEIRS))), None);
        leaves(&mark, false, &mut replaced).await.unwrap_err();
        assert!(mark.lock().unwrap().as_str().is_some_and(stop::is_own_override));
        leaves(&mark, true, &mut replaced).await.unwrap();
        assert_eq!(*mark.lock().unwrap(), THEIRS);
    }

    #[test]
    fn a_step_whose_text_changes_is_the_same_step() {
        let wait = |why: &str| StopStep::Wait(why.to_owned()).without_texts();
        assert_eq!(wait("galera-1 is joining for 5 s"), wait("galera-1 is joining for 7 s"));
        let follow = |member: &str, kept: &str| {
            StopStep::Follow { member: member.to_owned(), claims: vec![], kept: Some(kept.to_owned()) }
                .without_texts()
        };
        assert_eq!(follow("g-1", "a"), follow("g-1", "b"));
        assert_ne!(follow("g-1", "a"), follow("g-0", "a"));
    }
}
