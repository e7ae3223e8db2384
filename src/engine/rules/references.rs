//! G10: what a cluster uses stays, and is whole.
//!
//! Refuses to delete a ConfigMap, Secret, Service or ServiceAccount that a cluster with data uses, to give it an owner
//! (`metadata.ownerReferences`) with which it would be deleted, and a ConfigMap without a key that its members mount.
//!
//! # Why
//!
//! Members that run do not notice at first. The next one that restarts does not start without its ConfigMap or Secret, is
//! not even created without its ServiceAccount, or cannot be found by the others without the governing Service. A script that is missing under its key becomes an empty
//! folder, and the hook that should run it fails silently.
//!
//! What has owners goes when the last of them is gone, and at once where none ever was. The garbage collector asks nobody, so
//! the owner is judged when it is written. The cluster's StatefulSet and KUDO's Instance may own what the cluster uses;
//! so may whatever a service account adds, because operators own what they make, unless it is known that there is no such
//! owner.
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
//! whole cluster, release it with the override of G03 on its StatefulSet: that covers everything it uses.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G10 until=2026-12-01T10:00:00Z reason=…"`; the
//! override of G03 on the cluster's StatefulSet releases it too.

use super::owners;
use crate::rule::{Rule, Verb, WRITTEN};
use crate::verdict::{Finding, Findings, Verdict};
use facts::marks;
use facts::review::{Operation, Review};
use facts::view::{Cluster, State, View, is_cluster};
use objects::{ConfigMap, Kind, Object, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G10",
    name: "references",
    touches: &[
        (Kind::ConfigMap, &[Verb::Create, Verb::Update, Verb::Delete]),
        (Kind::Secret, &[Verb::Create, Verb::Update, Verb::Delete]),
        (Kind::Service, &[Verb::Create, Verb::Update, Verb::Delete]),
        (Kind::ServiceAccount, &[Verb::Create, Verb::Update, Verb::Delete]),
        (Kind::StatefulSet, WRITTEN),
    ],
    depends_on_state: true,
    source: include_str!("references.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    match &review.new {
        None if review.operation == Operation::Delete => deleted(review, view).into_iter().collect(),
        Some(Object::StatefulSet(new)) if is_cluster(new, view.adoption()) => missing_keys(new, review, view),
        Some(Object::StatefulSet(_)) | None => Findings::new(),
        Some(new) => {
            let mut found: Findings = owned(review, view).into_iter().collect();
            if let Object::ConfigMap(new) = new {
                found.extend(incomplete(new, review, view));
            }
            found
        }
    }
}

/// It would be deleted with an owner.
fn owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    let added = owners::added(review, view)?;
    Some(added.finding(&deleted(review, view)?, review, view))
}

fn deleted(review: &Review, view: &View<'_>) -> Option<Finding> {
    // Of a cluster that is stopped nobody reads anything, and whoever applies it again brings this with it; but not its passwords.
    let stopped = |cluster: &&Cluster| view.state(cluster) == State::Stopped;
    let (stopped, users): (Vec<_>, Vec<_>) =
        view.concerned(review).into_iter().filter(|cluster| cluster.has_data()).partition(stopped);
    if let (Some(cluster), [], Kind::Secret) = (stopped.first(), &users[..], review.kind) {
        let says =
            format!("{} is stopped, and its data opens with the passwords in it alone", cluster.id.name);
        let why = "a new Secret has other passwords than the data on the claims";
        let instead = "keep it, or a copy of it, until the cluster is started again".to_owned();
        return Some(Finding { verdict: Verdict::Warn, ..finding(String::new(), says, why, instead) });
    }
    let cluster = *users.first()?;
    let Cluster { id, workload, .. } = cluster;
    let whose = users.iter().map(|cluster| &*cluster.id.name).collect::<Vec<_>>().join(" and ");
    let (says, instead, why) = match review.kind {
        Kind::Service if workload.spec.service_name == review.name => (
            format!("the members of {whose} find each other by it"),
            format!("keep it; kubectl -n {} edit service {} changes it in place", id.namespace, review.name),
            "a member finds the others by names below this Service: one that restarts without it does not come back",
        ),
        Kind::Service if !view.is_last_way_in(cluster, &review.name) => return None,
        Kind::Service => (
            format!("it is the last Service that leads clients to {}", id.name),
            "create the Service that replaces it first".to_owned(),
            "the members go on, and nobody can reach them",
        ),
        Kind::ServiceAccount => (
            format!("the members of {whose} run as it"),
            "let the StatefulSet name another one first and wait until all members have restarted".to_owned(),
            "members that run do not notice; the next one that is gone is not created again",
        ),
        Kind::Secret if !cluster.reads_secret(&review.name) => (
            format!("the images of {whose} are pulled with it"),
            "change it in place, or let the StatefulSet refer to another one first and wait until all members have restarted"
                .to_owned(),
            "members that run do not notice; on a node that does not hold the image the next one does not start",
        ),
        Kind::ConfigMap if review.old.as_ref().is_some_and(|it| it.meta().mark(marks::KEEPS).is_some()) => (
            format!("it is gatera's copy of what the members of {whose} start with"),
            "leave it: gatera deletes it when no member starts with it any more".to_owned(),
            "members that run do not notice; the next one that restarts does not come back",
        ),
        Kind::ConfigMap | Kind::Secret => (
            format!("the members of {whose} read it when they start"),
            "change it in place, or let the StatefulSet refer to another one first and wait until all members have restarted"
                .to_owned(),
            "members that run do not notice; the next one that restarts does not come back",
        ),
        _ => return None,
    };
    let says = format!("{says} ({})", view.count(cluster));
    let instead = format!("{instead}; to remove the whole cluster: gatera explain G03");
    Some(finding(String::new(), says, why, instead))
}

/// A ConfigMap without what its readers mount from it.
fn incomplete(new: &ConfigMap, review: &Review, view: &View<'_>) -> Findings {
    let name = &review.name;
    let mut missing: Vec<_> = view
        .readers_of(&review.namespace, name)
        .flat_map(|cluster| cluster.workload.spec.template.spec.uses_of_config_map(name).needed)
        .filter(|key| !new.has(key))
        .collect();
    // The seed documents' own mistake, before anybody reads it: the script stands beside data, and nothing is in that.
    let is_ours = || name.contains("galera") || view.is_galeras(&review.namespace, new);
    if missing.is_empty() && name.ends_with("-node-scripts") && new.is_empty() && is_ours() {
        missing.push(SCRIPT);
    }
    missing.sort_unstable();
    missing.dedup();
    let found = missing.into_iter().map(|key| {
        finding(
            format!("data[{key}]"),
            format!("it has no data[{key}], which members mount"),
            FOLDER,
            format!("put the text under data: {{{key}: …}}"),
        )
    });
    found.collect()
}

const SCRIPT: &str = "wait-for-sync.sh";
const FOLDER: &str =
    "a file that is not there becomes an empty folder, and the hook that should run it fails silently";

/// A template that mounts what its `ConfigMaps` do not have, as far as they are known.
fn missing_keys(new: &Workload, review: &Review, view: &View<'_>) -> Findings {
    let spec = &new.spec.template.spec;
    let mut names: Vec<_> = spec.config_maps().collect();
    names.sort_unstable();
    names.dedup();
    let found = names.into_iter().flat_map(|name| {
        let map = view.config_map(&review.namespace, name);
        let needed = spec.uses_of_config_map(name).needed;
        let missing = needed.into_iter().filter(move |key| map.is_some_and(|map| !map.has(key)));
        missing.map(move |key| {
            finding(
                format!("spec.template.spec.volumes: {name}[{key}]"),
                format!("it mounts {key} of ConfigMap {name}, which has no such key"),
                FOLDER,
                format!("put the text under data: {{{key}: …}} of ConfigMap {name} first"),
            )
        })
    });
    found.collect()
}

fn finding(field: String, says: String, why: &str, instead: String) -> Finding {
    RULE.finding(Verdict::Deny, field, says, why, instead)
}
