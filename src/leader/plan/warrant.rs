//! The permission to delete one object of a bootstrap node, derived from the world and not from a record.
//!
//! Deployments and Services are in the view, so `plan/bootstrap.rs` derives their permission. A ConfigMap is in the
//! view only while a guarded workload reads it, and its other readers never are, so both are looked up right before the
//! decision ([`LookedUp`]).

use super::Finish;
use super::bootstrap::UNMARKED;
use facts::marks;
use facts::view::{Cluster, RemovalTarget, View};
use objects::{ConfigMap, ConfigMapReader, Kind, Meta};

/// The objects that the API server showed right before the decision.
#[derive(Debug)]
pub struct LookedUp {
    /// The ConfigMap with the target's name, if the target is a ConfigMap and exists.
    pub map: Option<ConfigMap>,
    /// Everything that may read it, or why that could not be looked up.
    pub readers: Result<Vec<ConfigMapReader>, String>,
}

impl LookedUp {
    /// Returns the metadata of the target, if it was found.
    pub fn meta(&self, target: &RemovalTarget) -> Option<&Meta> {
        let map = self.map.iter().map(|map| (Kind::ConfigMap, &map.metadata));
        let readers = self.readers.iter().flatten().filter(|it| it.kind == "Deployment");
        let mut all = map.chain(readers.map(|it| (Kind::Deployment, &it.metadata)));
        all.find(|(kind, meta)| target.is(*kind, meta)).map(|(_, meta)| meta)
    }
}

/// The decision about one object of a bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warrant {
    /// The object belongs to the bootstrap node alone and may be deleted in this version.
    Given(String),
    /// The object does not exist any more.
    Gone,
    /// Another object must be deleted first.
    Waits(String),
    /// The object stays, for this reason.
    Stays(String),
}

/// Returns whether this object of a clean-up may be deleted now.
pub fn warrant(
    cluster: &Cluster,
    view: &View<'_>,
    finish: &Finish,
    target: &RemovalTarget,
    found: &LookedUp,
) -> Warrant {
    let readers = match &found.readers {
        Ok(readers) => readers,
        Err(why) => return Warrant::Stays(format!("{why}, so its readers are unknown")),
    };
    match target.kind {
        // The bootstrap node's Deployments are gone by now, so one that still exists stays.
        Kind::Deployment if found.meta(target).is_some() => {
            Warrant::Stays(format!("it is not the bootstrap node of {}", cluster.id.name))
        }
        Kind::ConfigMap => config_map(cluster, view, finish, target, found.map.as_ref(), readers),
        _ => Warrant::Gone,
    }
}

fn config_map(
    cluster: &Cluster,
    view: &View<'_>,
    finish: &Finish,
    target: &RemovalTarget,
    map: Option<&ConfigMap>,
    readers: &[ConfigMapReader],
) -> Warrant {
    // An object of the same name that was applied since is not the one to delete.
    let Some(map) =
        map.filter(|map| target.is(Kind::ConfigMap, &map.metadata) && !map.metadata.is_terminating())
    else {
        return Warrant::Gone;
    };
    if let Some(why) = view.config_map_stays(cluster, map, &[]) {
        return Warrant::Stays(why);
    }
    let reading = || readers.iter().filter(|it| it.reads(&target.name));
    if let Some(ConfigMapReader { kind, metadata, .. }) =
        reading().find(|it| !will_be_deleted(&it.metadata, finish, readers))
    {
        return Warrant::Stays(format!("{kind} {} reads it", metadata.name));
    }
    if let Some(ConfigMapReader { kind, metadata, .. }) = reading().next() {
        return Warrant::Waits(format!("{kind} {} must be deleted first", metadata.name));
    }
    // The mark is written while the Deployment exists and all objects are in the view.
    if !is_marked(&map.metadata, &cluster.workload.metadata.uid) {
        return Warrant::Stays(UNMARKED.to_owned());
    }
    Warrant::Given(map.metadata.resource_version.clone())
}

/// Returns whether the reader will be deleted by Kubernetes, because it belongs to a removed Deployment.
fn will_be_deleted(reader: &Meta, finish: &Finish, all: &[ConfigMapReader]) -> bool {
    let of_deployment = |meta: &Meta| {
        meta.controller().is_some_and(|owner| {
            let exists = || all.iter().any(|it| it.metadata.uid == owner.uid);
            let is_recorded = || finish.remaining.iter().any(|target| target.uid == owner.uid);
            owner.kind == "Deployment" && is_recorded() && !exists()
        })
    };
    let of_replica_set = |owner: &str| {
        all.iter()
            .any(|it| it.kind == "ReplicaSet" && it.metadata.uid == owner && of_deployment(&it.metadata))
    };
    of_deployment(reader)
        || reader.controller().is_some_and(|owner| owner.kind == "ReplicaSet" && of_replica_set(&owner.uid))
}

/// Returns whether the object has the guard's mark for the StatefulSet of this uid.
pub fn is_marked(meta: &Meta, uid: &str) -> bool {
    meta.mark(marks::REMOVING) == Some(uid)
}
