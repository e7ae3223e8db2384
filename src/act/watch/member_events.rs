//! Events about members, which the API server keeps for an hour: the output of failed probes (from kubelets), and the
//! reasons why a member could not be created (from the StatefulSet controller).
//!
//! They are listed when they are needed, not watched: API servers keep no cache of Events, and in a large cluster most
//! Events are of these kinds. A policy of the chart (`policy-events.yaml`) restricts which users may write Events of probes;
//! the reason why a pod was not created is only repeated, and decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use facts::view::{Cluster, Id, View};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Client, Resource as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use super::Message;
use super::pages::ListPages;
use crate::act::api::outcome_in_words;
use crate::act::guard::Guard;
use crate::act::telemetry::repeated;

/// The interval at which the Events of a member that is not Ready are listed at first: a recovery waits for its reports.
const LIST_INTERVAL: Duration = Duration::from_secs(10);
/// The number of listings at that interval, after which the interval grows.
const LISTINGS_BEFORE_BACK_OFF: u32 = 4;
/// The longest interval between two listings for the same member.
const MAX_INTERVAL: Duration = Duration::from_secs(120);
/// The delay before the reason for a missing pod is listed: a pod is also missing for a moment whenever it restarts.
const MISSING_POD_DELAY: Duration = Duration::from_secs(30);
/// The maximum number of Events of one object that are read.
const MAX_EVENTS: usize = 1000;
/// The maximum length of a message that is kept, in bytes: no probe of the guard prints more.
const MAX_MESSAGE_BYTES: usize = 2048;

/// What an Event about a member reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Failed probes of a pod.
    Probes,
    /// Failed attempts to create a pod of a StatefulSet.
    Creation,
}

impl Topic {
    fn fields(self) -> &'static str {
        match self {
            Self::Probes => "reason=Unhealthy,involvedObject.kind=Pod",
            Self::Creation => "reason=FailedCreate,involvedObject.kind=StatefulSet",
        }
    }
}

/// One Event about a member.
#[derive(Clone, Debug)]
pub struct MemberEvent {
    /// The object of the Event: a pod, or a StatefulSet whose pods cannot be created.
    pub about: Id,
    /// The uid of that object.
    pub uid: String,
    /// When it was last reported, by the clock of the reporter (for a probe, the kubelet).
    pub at: Timestamp,
    /// The reporter's message; for a probe, the kubelet's own text and then the output of the probe.
    pub message: String,
}

/// Returns the Events of this topic that the API server still has, oldest first. The number of Events about one object (`uid`) is
/// limited, because users who may write Events must not be able to fill the guard's memory. Without a uid, as commands call this,
/// there is no limit.
pub async fn events(
    client: &Client,
    topic: Topic,
    namespace: Option<&str>,
    uid: Option<&str>,
) -> kube::Result<Vec<MemberEvent>> {
    let uid_selector = uid.map(|uid| format!(",involvedObject.uid={uid}")).unwrap_or_default();
    let max_events = if uid.is_some() { MAX_EVENTS } else { usize::MAX };
    let params = ListParams::default().fields(&format!("{}{uid_selector}", topic.fields()));
    let mut pages = ListPages::of(client, Event::url_path(&(), namespace), params);
    let (mut found, mut seen) = (Vec::new(), 0);
    while let Some(object) = pages.next().await?.filter(|_| seen < max_events) {
        seen += 1;
        found.extend(event(serde_json::from_str(&object.text).map_err(kube::Error::SerdeError)?));
    }
    found.sort_by_key(|event| event.at);
    Ok(found)
}

fn event(event: Event) -> Option<MemberEvent> {
    let about = event.involved_object;
    let id = Id::new(&about.namespace.unwrap_or_default(), &about.name.unwrap_or_default());
    let (uid, message) = (about.uid?, event.message.filter(|text| text.len() <= MAX_MESSAGE_BYTES)?);
    let at = event.last_timestamp.map(|at| at.0).unwrap_or_default();
    Some(MemberEvent { about: id, uid, at, message })
}

/// Lists the Events of members that are not Ready or are missing, while there are any, and sends them to the keeper.
pub(super) async fn follow(client: Client, guard: Arc<Guard>, sender: mpsc::Sender<(usize, Message)>) {
    let mut ticker = interval(LIST_INTERVAL);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pauses: HashMap<WatchedRun, ListingPause> = HashMap::new();
    loop {
        ticker.tick().await;
        let waiting = watched_runs(&guard);
        pauses.retain(|run, _| waiting.contains(run));
        for run in waiting {
            let first = if run.topic == Topic::Creation { MISSING_POD_DELAY } else { Duration::ZERO };
            let pause_of_run = pauses.entry(run.clone()).or_insert_with(|| ListingPause {
                until: Instant::now() + first,
                pause: LIST_INTERVAL,
                listings: 0,
            });
            if Instant::now() < pause_of_run.until {
                continue;
            }
            pause_of_run.until = Instant::now() + pause_of_run.pause;
            pause_of_run.listings += 1;
            if pause_of_run.listings > LISTINGS_BEFORE_BACK_OFF {
                pause_of_run.pause = (pause_of_run.pause * 3 / 2).min(MAX_INTERVAL);
            }
            let namespace = &run.namespace;
            let listing = events(&client, run.topic, Some(namespace), Some(&run.uid));
            let late = format!("no answer about the Events of namespace {namespace}");
            match outcome_in_words(LIST_INTERVAL, &late, listing).await {
                // Index 0 has no meaning here: these Events belong to no source of the keeper.
                Ok(events) => {
                    if sender.send((0, Message::MemberEvents(run.topic, events))).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if let Some(times) = repeated::times("Events of members", &error) {
                        warn!(namespace, error, times, "the Events of members could not be listed");
                    }
                }
            }
        }
    }
}

/// One run of a server: its pod's uid, and when its container started; or a StatefulSet that lacks a pod.
#[derive(Clone, PartialEq, Eq, Hash)]
struct WatchedRun {
    namespace: String,
    uid: String,
    since: Option<Timestamp>,
    topic: Topic,
}

/// When the Events of one run are listed next. The pause grows until the member is Ready.
struct ListingPause {
    until: Instant,
    pause: Duration,
    listings: u32,
}

/// Returns the members whose server runs and is not Ready, and the StatefulSets that lack a member.
fn watched_runs(guard: &Guard) -> Vec<WatchedRun> {
    let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
    let view = View::new(&world, (guard.clock)(), &settings);
    let of = |cluster: &Cluster| {
        let run = |uid: &String, since, topic| WatchedRun {
            namespace: cluster.id.namespace.clone(),
            uid: uid.clone(),
            since,
            topic,
        };
        let not_ready = cluster.pods().filter(|pod| pod.running && !pod.ready && !pod.terminating);
        // Before the cluster has data, a missing member does not matter here.
        let missing =
            !cluster.orphaned && cluster.has_data() && cluster.members.iter().any(|it| it.pod.is_none());
        let creation = missing.then(|| run(&cluster.workload.metadata.uid, None, Topic::Creation));
        not_ready
            .map(|pod| run(&pod.uid, pod.running_since, Topic::Probes))
            .chain(creation)
            .collect::<Vec<_>>()
    };
    world.clusters().filter(|it| !view.is_mode_off(&it.id.namespace)).flat_map(of).collect()
}
