//! G10: objects that a cluster uses exist and are complete.
//!
//! Refuses to delete a ConfigMap, Secret, Service or ServiceAccount that a cluster with data uses, or to give it an owner
//! (`metadata.ownerReferences`) with which it would be deleted; and refuses a ConfigMap without a key that its members mount.
//!
//! # Why
//!
//! Running members do not notice at first. The next one that restarts does not start without its ConfigMap or Secret, is
//! not even created without its ServiceAccount, and cannot be found by the others without the governing Service. A script
//! whose key is missing becomes an empty folder, and the hook that should run it fails silently.
//!
//! Kubernetes deletes an object with owners when the last of them is deleted, and at once if none ever existed. No webhook
//! sees the garbage collector's decision, so the owner is judged when it is written. The cluster's StatefulSet and KUDO's
//! Instance may own what the cluster uses. So may any owner that a service account adds, because operators own what they
//! create, unless it is known that this owner does not exist.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete service galera-hs
//! [G10] Service db/galera-hs: the members of galera find each other by it (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Change it in place (`kubectl apply`, `kubectl edit`); to rename it, create the new one, change the StatefulSet, wait
//! until all members have restarted, then delete the old one. Leave `metadata.ownerReferences` out of manifests that were
//! exported from elsewhere. Files belong under `data:` of a ConfigMap. To remove a
//! whole cluster, put the override of G03 on its StatefulSet: it covers everything the cluster uses.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G10 until=2026-12-01T10:00:00Z reason=…"`; the
//! override of G03 on the cluster's StatefulSet covers it too.

use std::collections::BTreeSet;

use super::owners;
use crate::rule::{All, Finding, Findings, OfTemplates, One, Review, Rule, Verb, View, WRITTEN};
use facts::marks;
use facts::view::{Cluster, State, is_cluster};
use facts::way_out::{CommandLine, edit, run, say};
use objects::{ConfigMap, Kind, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G10",
    name: "references",
    judges: &[
        (Kind::ConfigMap, WRITTEN, All(config_map)),
        (Kind::Secret, WRITTEN, One(owned)),
        (Kind::Service, WRITTEN, One(owned)),
        (Kind::ServiceAccount, WRITTEN, One(owned)),
        (Kind::StatefulSet, WRITTEN, OfTemplates(missing_keys)),
        (Kind::ConfigMap, &[Verb::Delete], One(deleted)),
        (Kind::Secret, &[Verb::Delete], One(deleted)),
        (Kind::Service, &[Verb::Delete], One(deleted)),
        (Kind::ServiceAccount, &[Verb::Delete], One(deleted)),
    ],
    depends_on_state: true,
    source: include_str!("references.rs"),
};

fn config_map(review: &Review, view: &View<'_>) -> Findings {
    owned(review, view).into_iter().chain(without_needed_keys(review, view)).collect()
}

/// Returns a finding if the object would be deleted with a new owner.
fn owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    let added = owners::added(review, view)?;
    Some(added.finding(&deleted(review, view)?, review, view))
}

fn deleted(review: &Review, view: &View<'_>) -> Option<Finding> {
    // The members of a stopped cluster read nothing, and applying the cluster again restores these objects, except its passwords.
    let stopped = |cluster: &&Cluster| view.state(cluster) == State::Stopped;
    let (stopped, dependents): (Vec<_>, Vec<_>) =
        view.clusters_concerned(review).into_iter().filter(|cluster| cluster.has_data()).partition(stopped);
    if let (Some(cluster), [], Kind::Secret) = (stopped.first(), &dependents[..], review.kind) {
        let says = format!("{} is stopped, and its data needs the passwords in this Secret", cluster.id.name);
        let why = "the passwords in a new Secret differ from those in the data on the claims";
        let instead = "keep it, or a copy of it, until the cluster is started again";
        return Some(RULE.warn("", says, why, instead));
    }
    let cluster = *dependents.first()?;
    let Cluster { id, workload, .. } = cluster;
    let names = dependents.iter().map(|cluster| &*cluster.id.name).collect::<Vec<_>>().join(" and ");
    let (says, instead, why) = match review.kind {
        Kind::Service if workload.spec.service_name == review.name => (
            format!("the members of {names} find each other by it"),
            say("keep it").then(edit(
                run(CommandLine::new(format!("kubectl -n {} edit service {}", id.namespace, review.name)))
                    .say(" changes it in place"),
                "change it in place",
            )),
            "a member finds the others by names below this Service: one that restarts without it cannot join",
        ),
        Kind::Service if !view.is_last_client_service(cluster, &review.name) => return None,
        Kind::Service => (
            format!("it is the last Service that leads clients to {}", id.name),
            "create the Service that replaces it first".into(),
            "the members keep running, but no client can reach them",
        ),
        Kind::ServiceAccount => (
            format!("the members of {names} run with it"),
            "first name another one in the StatefulSet, and wait until all members have restarted".into(),
            "running members do not notice, but the next pod is not created",
        ),
        Kind::Secret if !cluster.reads_secret(&review.name) => (
            format!("nodes pull the images of {names} with it"),
            REFER_TO_ANOTHER.into(),
            "running members do not notice, but on a node without the image the next one does not start",
        ),
        Kind::ConfigMap if review.old.as_ref().is_some_and(|it| it.meta().mark(marks::KEEPS).is_some()) => (
            format!("it is gatera's snapshot of the configuration with which members of {names} start"),
            "keep it: gatera deletes it when no member starts with it any more".into(),
            WHY_NOT_NOTICED,
        ),
        Kind::ConfigMap | Kind::Secret => (
            format!("the members of {names} read it when they start"),
            REFER_TO_ANOTHER.into(),
            WHY_NOT_NOTICED,
        ),
        _ => return None,
    };
    let says = format!("{says} ({})", view.count(cluster));
    let instead = instead.or("to remove the whole cluster: ").page("G03");
    Some(RULE.deny("", says, why, instead))
}

const REFER_TO_ANOTHER: &str = "change it in place, or first refer to another one in the StatefulSet, and wait until all members have restarted";
const WHY_NOT_NOTICED: &str = "running members do not notice, but the next one that restarts does not start";

/// Returns findings about a ConfigMap without a key that its readers mount.
fn without_needed_keys(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = review.change::<ConfigMap>().new else { return Findings::new() };
    let name = &review.name;
    let mut missing: BTreeSet<_> = view
        .readers_of(&review.namespace, name)
        .flat_map(|cluster| cluster.workload.spec.template.spec.uses_of_config_map(name).needed)
        .filter(|key| !new.has(key))
        .collect();
    // A known mistake of the seed documents: the script is not under `data`, which is empty. It is judged before a cluster reads
    // the ConfigMap.
    let is_galeras = || name.contains("galera") || view.is_galeras(&review.namespace, new);
    if missing.is_empty() && name.ends_with("-node-scripts") && new.is_empty() && is_galeras() {
        missing.insert(SCRIPT);
    }
    let found = missing.into_iter().map(|key| {
        RULE.deny(
            format!("data[{key}]"),
            format!("it has no data[{key}], which members mount"),
            WHY_EMPTY_FOLDER,
            format!("put the file under data: {{{key}: …}}"),
        )
    });
    found.collect()
}

const SCRIPT: &str = "wait-for-sync.sh";
const WHY_EMPTY_FOLDER: &str =
    "a missing file becomes an empty folder, and the hook that should run it fails silently";

/// Returns findings about a template that mounts keys that its known ConfigMaps do not have.
fn missing_keys(review: &Review, view: &View<'_>) -> Findings {
    let new = review.change::<Workload>().new.filter(|it| is_cluster(it, view.adoption()));
    let Some(new) = new else { return Findings::new() };
    let spec = &new.spec.template.spec;
    let names: BTreeSet<_> = spec.config_maps().collect();
    let found = names.into_iter().flat_map(|name| {
        let map = view.config_map(&review.namespace, name);
        let needed = spec.uses_of_config_map(name).needed;
        let missing = needed.into_iter().filter(move |key| map.is_some_and(|map| !map.has(key)));
        missing.map(move |key| {
            RULE.deny(
                format!("spec.template.spec.volumes: {name}[{key}]"),
                format!("it mounts {key} of ConfigMap {name}, which has no such key"),
                WHY_EMPTY_FOLDER,
                format!("put the file under data: {{{key}: …}} of ConfigMap {name} first"),
            )
        })
    });
    found.collect()
}
