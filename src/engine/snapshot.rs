//! A snapshot: a ConfigMap that keeps one content of another ConfigMap.
//!
//! Owns: its fields. Must not know: clients. A snapshot is immutable, named by its content, and deleted with the StatefulSet
//! whose members read it. Its labels make the API server send requests about it to the guard, in every namespace.

use serde_json::{Map, Value, json};

use facts::galera::adopt::TextSelector;
use facts::marks::{self, PREFIX};
use facts::revision::{self, Digest, Keys, Revision};
use facts::view::{Cluster, View};
use objects::ConfigMap;

/// Whether the snapshot of a content exists.
#[derive(Clone, Debug, PartialEq)]
pub enum Snapshot {
    Exists,
    /// It does not exist yet, and can be created with this manifest.
    ToCreate(Value),
    /// No ConfigMap has that content any more.
    Lost,
}

/// Returns the snapshot of a content of this source, for a cluster.
pub fn snapshot(cluster: &Cluster, view: &View<'_>, source: &str, digest: &Digest) -> Snapshot {
    let ns = &*cluster.id.namespace;
    if view.snapshot_of(ns, source, digest).is_some() {
        return Snapshot::Exists;
    }
    let matches_digest = |live: &Revision| live.get(source).is_some_and(|live| live.is_spelled_like(digest));
    let live = cluster.live.as_ref().is_ok_and(matches_digest);
    match view.config_map(ns, source).filter(|_| live) {
        Some(map) => Snapshot::ToCreate(manifest(cluster, view, map, digest)),
        None => Snapshot::Lost,
    }
}

fn manifest(cluster: &Cluster, view: &View<'_>, map: &ConfigMap, digest: &Digest) -> Value {
    let (source, workload) = (&map.metadata.name, &cluster.workload);
    let keys = cluster.server().map(|(spec, server)| revision::sources(spec, server));
    let keys = keys.and_then(|mut all| all.remove(source)).unwrap_or(Keys::ALL);
    let data: Map<_, _> = map
        .data
        .iter()
        .filter(|(key, _)| keys.contains(key))
        .map(|(key, text)| (key.clone(), json!(text.look())))
        .collect();
    let requirements = view.adoption().selectors().iter().flat_map(TextSelector::requirements);
    let adoption_labels: Vec<_> = requirements.map(|it| &*it.key).collect();
    let mut labels: Map<_, _> = cluster
        .member_labels()
        .iter()
        .filter(|(key, _)| adoption_labels.contains(&&***key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    labels.insert(format!("{PREFIX}{}", marks::KEEPS), json!(cluster.id.name));
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": digest.snapshot_name(source),
            "namespace": cluster.id.namespace,
            "labels": labels,
            "annotations": { format!("{PREFIX}{}", marks::KEEPS): source },
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": cluster.id.name,
                "uid": workload.metadata.uid,
            }],
        },
        "immutable": true,
        "data": data,
    })
}
