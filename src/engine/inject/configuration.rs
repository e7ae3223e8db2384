//! Which revision of its ConfigMaps a member starts with: its volumes point at the copies that keep it, so that a later
//! change reaches it in its turn and not at whatever restart comes first.
//!
//! Owns: what becomes of the volumes. Must not know: whose turn it is (`view/configuration.rs`), when a copy is made. A pod
//! whose copies are not all there reads the ConfigMaps themselves, as if the guard had not been there.

use serde_json::{Value, json};

use super::InjectTarget;
use super::edit;
use crate::snapshot::{Snapshot, snapshot};
use facts::marks;
use facts::revision::{self, Digest, Revision};
use objects::{Container, Pod};

/// The revision that this pod is to start with, if there is one and the copies are to be used.
fn read(patient: &InjectTarget<'_>, server: &Container) -> Option<Revision> {
    let InjectTarget { read, cluster, member, view, namespace, .. } = patient;
    let looks_only = view.only_looks(namespace).is_some();
    let cluster = cluster.filter(|_| *member && !looks_only)?;
    let revision = view.revision_for(cluster, read)?;
    let sources = revision::sources(&read.spec, server);
    // Asked a second time, its volumes point at the copies already.
    let is_read = |source: &str, digest: &Digest| {
        sources.contains_key(source) || sources.contains_key(&digest.copy_name(source))
    };
    Some(revision.only(is_read)).filter(|it| !it.is_empty())
}

/// Has the volumes of the server point at the copies, and says so on the pod.
pub(super) fn add(
    pod: &mut Value,
    patient: &InjectTarget<'_>,
    server: &Container,
    remarks: &mut Vec<String>,
) {
    let Some(read) = read(patient, server) else { return };
    let Some((missing, _)) = read.iter().find(|(source, digest)| !is_there(patient, source, digest)) else {
        point_at_copies(pod, &read, server);
        edit::annotate(pod, marks::REVISION, &read.to_string());
        return;
    };
    remarks.push(format!(
        "there is no copy of what this pod should read of ConfigMap {missing}, so it reads what stands there whenever it starts"
    ));
}

fn is_there(patient: &InjectTarget<'_>, source: &str, digest: &Digest) -> bool {
    let made = || patient.view.made.contains(&digest.copy_name(source));
    patient.view.copy_of(patient.namespace, source, digest).is_some() || made()
}

/// The copies that this pod needs, and that are to be made for it.
pub(super) fn wanted(patient: &InjectTarget<'_>, server: &Container) -> Vec<Value> {
    let (Some(revision), Some(cluster)) = (read(patient, server), patient.cluster) else { return Vec::new() };
    let copy = |(source, digest)| match snapshot(cluster, patient.view, source, digest) {
        Snapshot::Make(copy) => Some(copy),
        Snapshot::There | Snapshot::Lost => None,
    };
    revision.iter().filter_map(copy).collect()
}

fn point_at_copies(pod: &mut Value, revision: &Revision, server: &Container) {
    let mounted = |volume: &Value| server.volume_mounts.iter().any(|mount| volume["name"] == *mount.name);
    let volumes = pod["spec"]["volumes"].as_array_mut().into_iter().flatten();
    for volume in volumes.filter(|volume| mounted(volume)) {
        rename(volume.get_mut("configMap"), revision);
        let sources = volume.get_mut("projected").and_then(|it| it.get_mut("sources"));
        for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
            rename(source.get_mut("configMap"), revision);
        }
    }
}

fn rename(source: Option<&mut Value>, revision: &Revision) {
    let Some(name) = source.and_then(|source| source.get_mut("name")) else { return };
    let copy = name.as_str().and_then(|name| Some(revision.get(name)?.copy_name(name)));
    if let Some(copy) = copy {
        *name = json!(copy);
    }
}

/// The server of this pod reads the copies of this revision.
pub(super) fn reads_copies(pod: &Pod, server: &Container, mark: &str) -> bool {
    let read = revision::sources(&pod.spec, server);
    Revision::read(mark).is_some_and(|it| it.copies().all(|copy| read.contains_key(&copy)))
}
