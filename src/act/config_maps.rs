//! Single ConfigMaps at the API server: reads those whose content is not known yet ([`ConfigMaps::read`]), and makes snapshots of
//! those that members read ([`make_snapshot`]). The leader makes snapshots for a rollout; any replica makes one when it receives
//! the request for the first pod that starts with a new content.
//!
//! Must not know: what a snapshot looks like (`snapshot.rs`), or what needs one. The name of a snapshot is derived from its
//! content, so making a snapshot twice is harmless; an object of that name with other content is not a snapshot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use facts::marks::{self, PREFIX};
use facts::view::Id;
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use objects::{self, Kind, Object, Unreadable};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::act::api::{Fault, outcome_in_words};
use crate::act::telemetry::repeated;

/// The deadline for creating snapshots, and the one for a read together with the wait for its slot. A request waits for them, and
/// API servers wait only two seconds for some answers.
const REQUEST_DEADLINE: Duration = Duration::from_secs(1);

/// The maximum number of ConfigMaps that are read for one request.
const MAX_CONFIG_MAPS: usize = 16;
/// The maximum number of requests for which ConfigMaps are read at the same time: each ConfigMap may hold a megabyte, and any
/// request may name several. Only one request of each namespace waits in the common queue.
const MAX_REQUESTS: usize = 2;

/// The access to ConfigMaps while a request waits. With `None`, nothing is read and no snapshots are made.
#[derive(Clone, Default)]
pub struct ConfigMaps(Option<(Client, Arc<ReadSlots>)>);

struct ReadSlots {
    shared: Semaphore,
    /// The slot of each namespace with requests: one request at a time waits in the common queue.
    by_namespace: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl ReadSlots {
    fn of_namespace(&self, namespace: &str) -> Arc<Semaphore> {
        let mut all = self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, it| Arc::strong_count(it) > 1);
        Arc::clone(all.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl std::fmt::Debug for ConfigMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "ConfigMaps" } else { "no ConfigMaps" })
    }
}

impl ConfigMaps {
    /// Creates the access through this client.
    pub fn new(client: Client) -> Self {
        let slots = ReadSlots { shared: Semaphore::new(MAX_REQUESTS), by_namespace: Mutex::default() };
        Self(Some((client, Arc::new(slots))))
    }

    /// Reads the first `MAX_CONFIG_MAPS` of these ConfigMaps, and returns those that exist and are readable; an empty list if a
    /// read fails or takes too long, so that these ConfigMaps are not judged. Returns `None` if other requests occupied all slots
    /// until the deadline.
    pub async fn read(&self, namespace: &str, names: Vec<String>) -> Option<Vec<objects::ConfigMap>> {
        let Some((client, slots)) = self.0.as_ref().filter(|_| !names.is_empty()) else {
            return Some(Vec::new());
        };
        let begun = Instant::now();
        let own = slots.of_namespace(namespace);
        let permits = async {
            let _own_permit = own.acquire().await;
            slots.shared.acquire().await
        };
        let _permit = timeout(REQUEST_DEADLINE, permits).await.ok()?;
        let one = async |name: String| get(client, &Id::new(namespace, &name)).await;
        let all = try_join_all(names.into_iter().take(MAX_CONFIG_MAPS).map(one));
        let left = REQUEST_DEADLINE.saturating_sub(begun.elapsed());
        let message = "the ConfigMaps that a template names could not be read";
        let found = in_time(left, namespace, message, all).await;
        Some(found.into_iter().flatten().flatten().collect())
    }

    /// Creates these snapshots, and returns their names; an empty list if one of them fails or together they take too long. The
    /// pod then starts without snapshots and reads the ConfigMap itself.
    pub async fn make_snapshots(&self, namespace: &str, snapshots: Vec<Value>) -> Vec<String> {
        let Some((client, _)) = self.0.as_ref().filter(|_| !snapshots.is_empty()) else { return Vec::new() };
        let all = async {
            let mut made = Vec::new();
            for snapshot in snapshots {
                let name = snapshot["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                make_snapshot(client, namespace, snapshot).await?;
                made.push(name);
            }
            Ok(made)
        };
        in_time(REQUEST_DEADLINE, namespace, "a snapshot of a ConfigMap could not be created", all).await
    }
}

/// Returns the outcome. If the requests fail or take too long, logs that and returns an empty list.
async fn in_time<T>(
    limit: Duration,
    namespace: &str,
    message: &str,
    all: impl Future<Output = kube::Result<Vec<T>>>,
) -> Vec<T> {
    outcome_in_words(limit, "no answer", all).await.unwrap_or_else(|error| {
        if let Some(times) = repeated::times(message, &error) {
            warn!(namespace, error, times, "{message}");
        }
        Vec::new()
    })
}

/// Returns a ConfigMap as the guard reads it, or why it cannot be read; `None` if it does not exist.
pub async fn get(client: &Client, id: &Id) -> kube::Result<Option<Result<objects::ConfigMap, Unreadable>>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &id.namespace);
    let Some(map) = api.get_opt(&id.name).await? else { return Ok(None) };
    let text = serde_json::to_string(&map).map_err(kube::Error::SerdeError)?;
    Ok(match Object::read(Kind::ConfigMap, &text) {
        Ok(Object::ConfigMap(map)) => Some(Ok(map)),
        Ok(_) => None,
        Err(problem) => Some(Err(problem)),
    })
}

/// Makes a snapshot, unless it exists already. Fails if another object has its name.
pub async fn make_snapshot(client: &Client, namespace: &str, snapshot: Value) -> kube::Result<()> {
    let map: ConfigMap = serde_json::from_value(snapshot).map_err(kube::Error::SerdeError)?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &map).await {
        // A user may have created another object of this name.
        Err(error) if Fault::of(&error) == Fault::Conflict => {
            let existing = api.get(&map.name_any()).await?;
            if is_this_snapshot(&existing, &map) { Ok(()) } else { Err(error) }
        }
        result => result.map(drop),
    }
}

/// Returns whether the existing ConfigMap is this snapshot: it has the same content, is immutable and not being deleted, and
/// has the mark that only the guard writes.
fn is_this_snapshot(existing: &ConfigMap, map: &ConfigMap) -> bool {
    let mark = format!("{PREFIX}{}", marks::KEEPS);
    existing.immutable == Some(true)
        && (&existing.data, &existing.binary_data) == (&map.data, &map.binary_data)
        && existing.annotations().get(&mark) == map.annotations().get(&mark)
        && existing.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// An API server that has every ConfigMap and answers after this pause, and the number of requests that it received.
    fn server(pause: fn(&str) -> Duration) -> (ConfigMaps, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let path = request.uri().path();
            let (name, pause) = (path.rsplit('/').next().unwrap_or_default().to_owned(), pause(path));
            async move {
                tokio::time::sleep(pause).await;
                let map = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"a.cnf":"[mysqld]"}}}}"#);
                Ok::<_, Infallible>(Response::new(Body::from(map.into_bytes())))
            }
        });
        (ConfigMaps::new(Client::new(service, "default")), asked)
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("map-{number}")).collect()
    }

    #[tokio::test]
    async fn a_template_that_names_hundreds_of_config_maps_causes_few_requests() {
        let (maps, asked) = server(|_| Duration::ZERO);
        let found = maps.read("db", names(300)).await.unwrap();
        assert_eq!((found.len(), asked.load(Ordering::Relaxed)), (MAX_CONFIG_MAPS, MAX_CONFIG_MAPS));
        assert_eq!(&*found[1].metadata.name, "map-1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_an_api_server_that_does_not_answer() {
        let (maps, asked) = server(|_| Duration::MAX);
        let begun = Instant::now();
        assert_eq!(maps.read("db", names(2)).await, Some(Vec::new()));
        assert!(
            begun.elapsed() >= REQUEST_DEADLINE && begun.elapsed() < REQUEST_DEADLINE * 2,
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let snapshot = serde_json::json!({ "metadata": { "name": "a" } });
        assert!(maps.make_snapshots("db", vec![snapshot]).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_two_requests_read_at_once() {
        let (maps, asked) = server(|_| Duration::ZERO);
        let ConfigMaps(Some((_, slots))) = maps.clone() else { unreachable!("there is a client") };
        let slots = slots.shared.acquire_many(2).await.unwrap();
        assert_eq!(maps.read("db", names(2)).await, None);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        drop(slots);
        assert_eq!(maps.read("db", names(2)).await.map(|found| found.len()), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_slot_and_the_read_have_one_deadline() {
        let (maps, asked) = server(|_| Duration::MAX);
        let ConfigMaps(Some((_, slots))) = maps.clone() else { unreachable!("there is a client") };
        let others = slots.shared.acquire_many(2).await.unwrap();
        let begun = Instant::now();
        let (found, ()) = tokio::join!(maps.read("db", names(2)), async {
            tokio::time::sleep(REQUEST_DEADLINE * 3 / 4).await;
            drop(others);
        });
        assert_eq!((found, asked.load(Ordering::Relaxed)), (Some(Vec::new()), 2));
        assert!(begun.elapsed() < REQUEST_DEADLINE * 3 / 2, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_does_not_fill_the_queue() {
        let (maps, _) =
            server(|path| if path.contains("/mine/") { Duration::from_millis(400) } else { Duration::ZERO });
        let mut mine = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let maps = maps.clone();
            mine.spawn(async move { maps.read("mine", names(2)).await });
        }
        tokio::task::yield_now().await;
        assert_eq!(maps.read("yours", names(2)).await.map(|found| found.len()), Some(2));
        let mine = mine.join_all().await;
        assert_eq!(
            mine.iter().filter(|found| found.is_some()).count(),
            6,
            "two at a time start within the deadline"
        );
        maps.read("yours", names(1)).await;
        let ConfigMaps(Some((_, slots))) = &maps else { unreachable!("there is a client") };
        assert_eq!(slots.by_namespace.lock().unwrap().len(), 1, "unused slots are removed");
    }

    #[tokio::test]
    async fn without_names_no_request_is_sent() {
        let (maps, asked) = server(|_| Duration::ZERO);
        assert_eq!(maps.read("db", Vec::new()).await, Some(Vec::new()));
        assert!(maps.make_snapshots("db", Vec::new()).await.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
