//! Copies of what members read, made at the API server: by the leader for a rollout, and by whoever is asked about a pod
//! that is the first to start with some content. And a look at what nobody read until now ([`Copies::look`]).
//!
//! Must not know: what a copy looks like (`plan/rollout/copy.rs`), or who needs one. Its name is its content, so making one
//! twice is harmless; something else of that name is no copy.

use std::time::Duration;

use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::timeout;
use tracing::warn;

use crate::marks::{self, PREFIX};
use crate::object::{self, Kind, Object};
use crate::telemetry::chain;

/// A pod waits for it, and API servers wait two seconds for some answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many ConfigMaps are read for one request.
const MOST: usize = 16;

/// Where copies are made; `None`: nowhere.
#[derive(Clone, Default)]
pub struct Copies(Option<Client>);

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Copies" } else { "no copies" })
    }
}

impl Copies {
    /// There.
    pub fn at(client: Client) -> Self {
        Self(Some(client))
    }

    /// These ConfigMaps, as far as they are there and are told in time. Whoever comes to read more than a few is not looked
    /// after: what is not known is not judged.
    pub async fn look(&self, namespace: &str, names: Vec<String>) -> Vec<object::ConfigMap> {
        let Some(client) = self.0.as_ref().filter(|_| !names.is_empty()) else { return Vec::new() };
        let api: &Api<ConfigMap> = &Api::namespaced(client.clone(), namespace);
        let one = async |name: String| api.get_opt(&name).await;
        let all = try_join_all(names.into_iter().take(MOST).map(one));
        let found = match timeout(PATIENCE, all).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                warn!(namespace, error = chain(&error), "reading what a template is to read");
                Vec::new()
            }
            Err(_) => {
                warn!(namespace, error = "no answer", "reading what a template is to read");
                Vec::new()
            }
        };
        let read = |map| match Object::read(Kind::ConfigMap, &serde_json::to_string(&map).ok()?) {
            Ok(Object::ConfigMap(map)) => Some(map),
            _ => None,
        };
        found.into_iter().flatten().filter_map(read).collect()
    }

    /// Makes these, and says which of them are there now. A pod does not wait for long: without its copy it reads the
    /// ConfigMap itself.
    pub async fn make(&self, namespace: &str, wanted: Vec<Value>) -> Vec<String> {
        let Some(client) = self.0.as_ref().filter(|_| !wanted.is_empty()) else { return Vec::new() };
        let all = async {
            let mut made = Vec::new();
            for copy in wanted {
                let name = copy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                make(client, namespace, copy).await?;
                made.push(name);
            }
            Ok::<_, kube::Error>(made)
        };
        match timeout(PATIENCE, all).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                warn!(namespace, error = chain(&error), "making a copy of a ConfigMap");
                Vec::new()
            }
            Err(_) => {
                warn!(namespace, error = "no answer", "making a copy of a ConfigMap");
                Vec::new()
            }
        }
    }
}

/// Makes one, unless it is there.
pub async fn make(client: &Client, namespace: &str, copy: Value) -> kube::Result<()> {
    let map: ConfigMap = serde_json::from_value(copy).map_err(kube::Error::SerdeError)?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &map).await {
        // Anybody may have made something of its name.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let there = api.get(&map.name_any()).await?;
            if is_ours(&there, &map) { Ok(()) } else { Err(kube::Error::Api(status)) }
        }
        result => result.map(drop),
    }
}

/// It says the same, nobody can change it, and it bears the mark that only the guard writes.
fn is_ours(there: &ConfigMap, map: &ConfigMap) -> bool {
    let mark = format!("{PREFIX}{}", marks::KEEPS);
    there.immutable == Some(true)
        && (&there.data, &there.binary_data) == (&map.data, &map.binary_data)
        && there.annotations().get(&mark) == map.annotations().get(&mark)
        && there.metadata.deletion_timestamp.is_none()
}
