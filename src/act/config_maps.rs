//! Single ConfigMaps at the API server: reads those that no member has read yet ([`ConfigMaps::look`]), and makes copies of
//! those that members read ([`make`]). The leader makes copies for a rollout; any replica makes them when it receives the
//! request for the first pod that starts with some content.
//!
//! Must not know: what a copy looks like (`snapshot.rs`), or what needs one. The name of a copy is derived from its content,
//! so making one twice is harmless; another object of that name is not a copy.

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
use tokio::time::timeout;
use tracing::warn;

use crate::act::api::Fault;
use crate::act::telemetry::{chain, repeated};

/// The longest wait for a read or a copy: a pod waits for it, and API servers wait only two seconds for some answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of ConfigMaps that are read for one request.
const MOST: usize = 16;
/// The number of requests for which ConfigMaps are read at the same time: each ConfigMap may have a megabyte, and any request
/// may name some. Only one request of each namespace waits in the common queue.
const AT_ONCE: usize = 2;

/// The access to ConfigMaps while a request waits; `None` reads and copies nothing.
#[derive(Clone, Default)]
pub struct ConfigMaps(Option<(Client, Arc<ReadSlots>)>);

struct ReadSlots {
    of_all: Semaphore,
    /// The turn of each namespace that has requests.
    of_namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl ReadSlots {
    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut all = self.of_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn at(client: Client) -> Self {
        let turns = ReadSlots { of_all: Semaphore::new(AT_ONCE), of_namespaces: Mutex::default() };
        Self(Some((client, Arc::new(turns))))
    }

    /// Returns those of these ConfigMaps that exist and arrive in time. If a template names many, only the first few are read:
    /// an unknown ConfigMap is not judged. Returns `None` if other requests occupied all places for the whole time.
    pub async fn look(&self, namespace: &str, names: Vec<String>) -> Option<Vec<objects::ConfigMap>> {
        let Some((client, turns)) = self.0.as_ref().filter(|_| !names.is_empty()) else {
            return Some(Vec::new());
        };
        let own = turns.of(namespace);
        let turn = async {
            let _first_of_its_own = own.acquire().await;
            turns.of_all.acquire().await
        };
        let _turn = timeout(PATIENCE, turn).await.ok()?;
        let one = async |name: String| get(client, &Id::new(namespace, &name)).await;
        let all = try_join_all(names.into_iter().take(MOST).map(one));
        let found = in_time(namespace, "the ConfigMaps that a template names could not be read", all).await;
        Some(found.into_iter().flatten().flatten().collect())
    }

    /// Makes these copies, and returns the names of those that exist now. A pod does not wait for long: without its copy it
    /// reads the ConfigMap itself.
    pub async fn copy(&self, namespace: &str, wanted: Vec<Value>) -> Vec<String> {
        let Some((client, _)) = self.0.as_ref().filter(|_| !wanted.is_empty()) else { return Vec::new() };
        let all = async {
            let mut made = Vec::new();
            for copy in wanted {
                let name = copy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                make(client, namespace, copy).await?;
                made.push(name);
            }
            Ok(made)
        };
        in_time(namespace, "a snapshot of a ConfigMap could not be created", all).await
    }
}

/// Returns the outcome, or nothing if it failed or took longer than a request can wait.
async fn in_time<T>(namespace: &str, what: &str, all: impl Future<Output = kube::Result<Vec<T>>>) -> Vec<T> {
    let problem = match timeout(PATIENCE, all).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => chain(&error),
        Err(_) => "no answer".to_owned(),
    };
    if let Some(times) = repeated::times(what, &problem) {
        warn!(namespace, error = problem, times, "{what}");
    }
    Vec::new()
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

/// Makes a copy, unless it exists already. Fails if another object has its name.
pub async fn make(client: &Client, namespace: &str, copy: Value) -> kube::Result<()> {
    let map: ConfigMap = serde_json::from_value(copy).map_err(kube::Error::SerdeError)?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &map).await {
        // A user may have created another object of this name.
        Err(error) if Fault::of(&error) == Fault::Conflict => {
            let there = api.get(&map.name_any()).await?;
            if is_ours(&there, &map) { Ok(()) } else { Err(error) }
        }
        result => result.map(drop),
    }
}

/// Returns whether the existing ConfigMap is this copy: it has the same content, is immutable and not being deleted, and
/// has the mark that only the guard writes.
fn is_ours(there: &ConfigMap, map: &ConfigMap) -> bool {
    let mark = format!("{PREFIX}{}", marks::KEEPS);
    there.immutable == Some(true)
        && (&there.data, &there.binary_data) == (&map.data, &map.binary_data)
        && there.annotations().get(&mark) == map.annotations().get(&mark)
        && there.metadata.deletion_timestamp.is_none()
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
        (ConfigMaps::at(Client::new(service, "default")), asked)
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("map-{number}")).collect()
    }

    #[tokio::test]
    async fn a_template_that_names_hundreds_does_not_ask_hundreds_of_times() {
        let (maps, asked) = server(|_| Duration::ZERO);
        let found = maps.look("db", names(300)).await.unwrap();
        assert_eq!((found.len(), asked.load(Ordering::Relaxed)), (MOST, MOST));
        assert_eq!(&*found[1].metadata.name, "map-1");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_an_api_server_that_does_not_answer() {
        let (maps, asked) = server(|_| Duration::MAX);
        let begun = tokio::time::Instant::now();
        assert_eq!(maps.look("db", names(2)).await, Some(Vec::new()));
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let copy = serde_json::json!({ "metadata": { "name": "a" } });
        assert!(maps.copy("db", vec![copy]).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_two_requests_read_at_once() {
        let (maps, asked) = server(|_| Duration::ZERO);
        let ConfigMaps(Some((_, turns))) = maps.clone() else { unreachable!("there is a client") };
        let turns = turns.of_all.acquire_many(2).await.unwrap();
        assert_eq!(maps.look("db", names(2)).await, None);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        drop(turns);
        assert_eq!(maps.look("db", names(2)).await.map(|found| found.len()), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_does_not_fill_the_line() {
        let (maps, _) =
            server(|path| if path.contains("/mine/") { Duration::from_millis(400) } else { Duration::ZERO });
        let mut mine = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let maps = maps.clone();
            mine.spawn(async move { maps.look("mine", names(2)).await });
        }
        tokio::task::yield_now().await;
        assert_eq!(maps.look("yours", names(2)).await.map(|found| found.len()), Some(2));
        let mine = mine.join_all().await;
        assert_eq!(mine.iter().filter(|found| found.is_some()).count(), 6, "two at a time, for a second");
        maps.look("yours", names(1)).await;
        let ConfigMaps(Some((_, turns))) = &maps else { unreachable!("there is a client") };
        assert_eq!(turns.of_namespaces.lock().unwrap().len(), 1, "those that are over are forgotten");
    }

    #[tokio::test]
    async fn nothing_is_asked_for_nothing() {
        let (maps, asked) = server(|_| Duration::ZERO);
        assert_eq!(maps.look("db", Vec::new()).await, Some(Vec::new()));
        assert!(maps.copy("db", Vec::new()).await.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
