//! The revision of its ConfigMaps that a member starts with: its volumes refer to snapshots, so that a member gets a later
//! change in its turn of the rollout, and not at the next restart.
//!
//! Owns: the changes of the volumes. Must not know: whose turn it is (`view/configuration.rs`), when a snapshot is created. A pod
//! without all of its snapshots reads the ConfigMaps themselves, as without the guard.

use serde_json::{Value, json};

use super::{InjectTarget, edit};
use crate::snapshot::{Snapshot, snapshot};
use facts::marks;
use facts::revision::{self, Digest, Revision};
use objects::{Container, Pod};

/// Returns the revision that this pod starts with, as far as its volumes use it; `None`: it reads the ConfigMaps themselves.
fn revision_at_start(target: &InjectTarget<'_>) -> Option<Revision> {
    let InjectTarget { typed, server, cluster, member, view, namespace, .. } = target;
    let is_read_only = view.read_only_mode(namespace).is_some();
    let cluster = cluster.filter(|_| *member && !is_read_only && !target.is_driven())?;
    let revision = view.revision_for(cluster, typed)?;
    let sources = revision::sources(&typed.spec, server);
    // After a second injection the volumes already refer to the snapshots.
    let reads = |source: &str, digest: &Digest| {
        sources.contains_key(source) || sources.contains_key(&digest.snapshot_name(source))
    };
    Some(revision.only(reads)).filter(|it| !it.is_empty())
}

/// Changes the volumes of the server to the snapshots, and marks the pod.
pub(super) fn add(pod: &mut Value, target: &InjectTarget<'_>) {
    let all_exist = |it: &Revision| it.iter().all(|(source, digest)| snapshot_exists(target, source, digest));
    if let Some(revision) = revision_at_start(target).filter(all_exist) {
        point_at_snapshots(pod, &revision, target.server);
        edit::annotate(pod, marks::REVISION, &revision.to_string());
    }
}

fn snapshot_exists(target: &InjectTarget<'_>, source: &str, digest: &Digest) -> bool {
    let created = || target.view.new_snapshots.contains(&digest.snapshot_name(source));
    target.view.snapshot_of(target.namespace, source, digest).is_some() || created()
}

/// Returns the snapshots that this pod needs and that have to be created.
pub(super) fn missing_snapshots(target: &InjectTarget<'_>) -> Vec<Value> {
    let (Some(revision), Some(cluster)) = (revision_at_start(target), target.cluster) else {
        return Vec::new();
    };
    let missing = |(source, digest)| match snapshot(cluster, target.view, source, digest) {
        Snapshot::ToCreate(manifest) => Some(manifest),
        Snapshot::Exists | Snapshot::Lost => None,
    };
    revision.iter().filter_map(missing).collect()
}

fn point_at_snapshots(pod: &mut Value, revision: &Revision, server: &Container) {
    let mounted = |volume: &Value| server.volume_mounts.iter().any(|mount| volume["name"] == *mount.name);
    let volumes = pod["spec"]["volumes"].as_array_mut().into_iter().flatten();
    for volume in volumes.filter(|volume| mounted(volume)) {
        point_at_snapshot(volume.get_mut("configMap"), revision);
        let sources = volume.get_mut("projected").and_then(|it| it.get_mut("sources"));
        for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
            point_at_snapshot(source.get_mut("configMap"), revision);
        }
    }
}

fn point_at_snapshot(source: Option<&mut Value>, revision: &Revision) {
    let Some(name) = source.and_then(|source| source.get_mut("name")) else { return };
    let snapshot = name.as_str().and_then(|name| Some(revision.get(name)?.snapshot_name(name)));
    if let Some(snapshot) = snapshot {
        *name = json!(snapshot);
    }
}

/// Returns whether the server of this pod reads the snapshots of this revision.
pub(super) fn reads_snapshots(pod: &Pod, server: &Container, mark: &str) -> bool {
    let sources = revision::sources(&pod.spec, server);
    Revision::read(mark).is_some_and(|it| it.snapshots().all(|snapshot| sources.contains_key(&snapshot)))
}
