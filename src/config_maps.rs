//! ConfigMaps at the API server, named one by one: a look at those that nobody read until now ([`ConfigMaps::look`]), and
//! copies of what members read ([`make`]), which the leader makes for a rollout, and whoever is asked about the first pod that
//! starts with some content.
//!
//! Must not know: what a copy looks like (`plan/rollout/copy.rs`), or who needs one. Its name is its content, so making one
//! twice is harmless; something else of that name is not a copy.

use std::time::Duration;

use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::timeout;
use tracing::warn;

use crate::marks::{self, PREFIX};
use crate::object::{self, Kind, Object, Unreadable};
use crate::telemetry::chain;

/// A pod waits for it, and API servers wait two seconds for some answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many ConfigMaps are read for one request.
const MOST: usize = 16;

/// Where they are asked for while a request waits; `None`: nowhere.
#[derive(Clone, Default)]
pub struct ConfigMaps(Option<Client>);

impl std::fmt::Debug for ConfigMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "ConfigMaps" } else { "no ConfigMaps" })
    }
}

impl ConfigMaps {
    /// There.
    pub fn at(client: Client) -> Self {
        Self(Some(client))
    }

    /// These, as far as they are there and are told in time. A template that names more than a few is not looked after: what is
    /// not known is not judged.
    pub async fn look(&self, namespace: &str, names: Vec<String>) -> Vec<object::ConfigMap> {
        let Some(client) = self.0.as_ref().filter(|_| !names.is_empty()) else { return Vec::new() };
        let api: &Api<ConfigMap> = &Api::namespaced(client.clone(), namespace);
        let one = async |name: String| api.get_opt(&name).await;
        let all = try_join_all(names.into_iter().take(MOST).map(one));
        let found = in_time(namespace, "reading what a template is to read", all).await;
        let read = |map| match read(&map) {
            Ok(Object::ConfigMap(map)) => Some(map),
            _ => None,
        };
        found.into_iter().flatten().filter_map(read).collect()
    }

    /// Makes these copies, and says which of them are there now. A pod does not wait for long: without its copy it reads the
    /// ConfigMap itself.
    pub async fn copy(&self, namespace: &str, wanted: Vec<Value>) -> Vec<String> {
        let Some(client) = self.0.as_ref().filter(|_| !wanted.is_empty()) else { return Vec::new() };
        let all = async {
            let mut made = Vec::new();
            for copy in wanted {
                let name = copy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                make(client, namespace, copy).await?;
                made.push(name);
            }
            Ok(made)
        };
        in_time(namespace, "making a copy of a ConfigMap", all).await
    }
}

/// What came of it; nothing, if it failed or a request cannot wait for it any longer.
async fn in_time<T>(namespace: &str, what: &str, all: impl Future<Output = kube::Result<Vec<T>>>) -> Vec<T> {
    let problem = match timeout(PATIENCE, all).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => chain(&error),
        Err(_) => "no answer".to_owned(),
    };
    warn!(namespace, error = problem, "{what}");
    Vec::new()
}

/// As the guard knows it.
pub fn read(map: &ConfigMap) -> Result<Object, Unreadable> {
    // A typed object of the API has only keys that are text.
    Object::read(Kind::ConfigMap, &serde_json::to_string(map).unwrap_or_default())
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
