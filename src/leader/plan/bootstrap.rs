//! When the bootstrap node is removed, and in which order.
//!
//! The removal is recorded on the StatefulSet; then the node's name is removed from every member's addresses; then
//! everything to be removed is marked; then its Deployment is deleted with its pods; then its Service and ConfigMap;
//! then an Event is written and the end of the removal is recorded. Each step follows from what the API server shows, so
//! a new leader continues where the last one stopped. Record and marks are reminders: people can write them, too, so
//! what to remove is derived again each time, and any other object that the record names is kept, with an Event. A
//! bootstrap pod without a Deployment is left to the person who created it: nothing re-creates it, and the guard has no
//! permission to delete pods.

use super::warrant::is_marked;
use super::{Announcement, Finish, LeaderStep, Mark, NOT_REMOVED, PendingDeletion, not_removed};
use engine::inject;
use facts::view::{Cluster, Id, PodFact, Removal, RemovalTarget, View, transfer};
use objects::{Kind, Meta, Service, Workload};

/// The progress of the removal of a cluster's bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapStage {
    Absent,
    /// The node is not touched, because it was applied again, has no replicas, or is already being deleted.
    LeftAlone(String),
    /// The node stays for now, for this reason.
    Kept(String),
    /// The node is being removed: what is being done, and the next step unless it only waits.
    Going(String, Option<Box<LeaderStep>>),
    Removed,
}

/// Returns the progress of the removal of this cluster's bootstrap node.
pub fn stage<'a>(cluster: &'a Cluster, view: &View<'a>) -> BootstrapStage {
    let Some(removal) = Removal::of(&cluster.workload.metadata) else {
        return before_removal(cluster, view);
    };
    if let Some(why) = super::only_observes(cluster, view).filter(|_| removal != Removal::Done) {
        return BootstrapStage::Kept(why);
    }
    match removal {
        // A removal begins when all members are Ready, and its first mark also records that there is data.
        Removal::InProgress(_) if !cluster.has_data() => remove_record(cluster, "no member ever held data"),
        Removal::InProgress(targets) => removing(cluster, view, &targets),
        Removal::Invalid => remove_record(cluster, "its value is not one that gatera writes"),
        Removal::Done => match view.bootstrap_deployments(cluster).next() {
            None => BootstrapStage::Removed,
            Some(reapplied) => BootstrapStage::LeftAlone(format!(
                "Deployment {} was applied again after it was removed; remove it from what you apply",
                reapplied.metadata.name
            )),
        },
    }
}

/// Removes a record that the guard cannot have written.
fn remove_record(cluster: &Cluster, why: &str) -> BootstrapStage {
    let says = format!("annotation gatera.dev/bootstrap was not written by gatera: {why}");
    let message = format!(
        "{says}; nothing was removed because of it, and gatera deletes the annotation; to see who wrote it: kubectl -n {} get statefulset {} --show-managed-fields --output=yaml",
        cluster.id.namespace, cluster.id.name
    );
    let events = vec![Announcement { reason: NOT_REMOVED, note: message }];
    let mark = Mark::with(cluster, None);
    BootstrapStage::Going(says, Some(Box::new(LeaderStep::CorrectRecord { events, mark })))
}

fn before_removal<'a>(cluster: &'a Cluster, view: &View<'a>) -> BootstrapStage {
    let founders: Vec<_> = view.bootstrap_deployments(cluster).collect();
    let running: Vec<_> = founders.iter().copied().filter(|it| runs(it, cluster)).collect();
    if let Some(why) = left_to_a_person(cluster) {
        return BootstrapStage::Kept(why);
    }
    if running.is_empty() {
        return founders.first().map_or(BootstrapStage::Absent, |founder| {
            BootstrapStage::LeftAlone(format!(
                "Deployment {} has 0 replicas and does no harm; remove it from what you apply",
                founder.metadata.name
            ))
        });
    }
    if let Some(going) = running.iter().find(|it| it.metadata.is_terminating()) {
        return BootstrapStage::LeftAlone(format!(
            "Deployment {} is being deleted, but not by gatera",
            going.metadata.name
        ));
    }
    if let Some(why) = still_needed(cluster, view) {
        return BootstrapStage::Kept(why);
    }
    let removal = Removal::InProgress(view.removal_targets(cluster, &running));
    let mark = Mark::with(cluster, Some(&removal));
    BootstrapStage::Going("all members are Synced".to_owned(), Some(Box::new(LeaderStep::Mark(mark))))
}

fn removing<'a>(cluster: &'a Cluster, view: &View<'a>, recorded: &[RemovalTarget]) -> BootstrapStage {
    if !inject::outdated_addresses(cluster, view).is_empty() {
        return wait("removing its name from the members' addresses".to_owned());
    }
    let founders: Vec<_> = view.bootstrap_deployments(cluster).collect();
    let is_recorded = |it: &Workload| recorded.iter().any(|target| target.is(Kind::Deployment, &it.metadata));
    let deployments: Vec<_> =
        founders.iter().copied().filter(|it| is_recorded(it) || runs(it, cluster)).collect();
    if !deployments.is_empty() {
        return with_deployments(cluster, view, recorded, &deployments);
    }
    let recorded_deployments = || recorded.iter().filter(|it| it.kind == Kind::Deployment);
    // The node was applied again meanwhile: its Service and ConfigMap belong to what was applied.
    if !founders.is_empty() {
        return finish(cluster, recorded_deployments().cloned().collect(), Vec::new());
    }
    // Members may still receive data from a pod that is being deleted; it keeps its name until it is gone.
    for target in recorded_deployments() {
        if let Some(pod) = pods_of_deployment(&target.name, cluster).next() {
            return wait(format!("{target} is gone, but its pod {} still exists", pod.name));
        }
    }
    services(cluster, view, recorded)
}

/// Marks everything that is to be removed, which can be derived only while the Deployments exist, then deletes those.
fn with_deployments<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    recorded: &[RemovalTarget],
    deployments: &[&'a Workload],
) -> BootstrapStage {
    if let Some(going) = deployments.iter().find(|it| it.metadata.is_terminating()) {
        return wait(format!("Deployment {} and its pods are being deleted", going.metadata.name));
    }
    // A missing member may still join through this node.
    if let Some(why) = still_needed(cluster, view) {
        return BootstrapStage::Kept(why);
    }
    let targets = view.removal_targets(cluster, deployments);
    if targets != recorded {
        return correct_record(cluster, view, recorded, targets, deployments);
    }
    let unmarked = targets.iter().find_map(|target| {
        let meta = meta_in_view(cluster, view, target)?;
        (!is_marked(meta, &cluster.workload.metadata.uid)).then(|| pending(target, meta))
    });
    if let Some(next) = unmarked {
        let says = format!("marking {} for removal", next.target);
        return BootstrapStage::Going(says, Some(Box::new(LeaderStep::MarkForRemoval(next))));
    }
    let first = targets.iter().find(|it| it.kind == Kind::Deployment);
    first.and_then(|it| Some((it, meta_in_view(cluster, view, it)?))).map_or_else(
        || wait("waiting until the guard sees its Deployment".to_owned()),
        |(target, meta)| delete(target, meta),
    )
}

/// Replaces a record that does not name exactly what is to be removed: a person wrote it, or the objects have changed
/// since.
fn correct_record<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    recorded: &[RemovalTarget],
    targets: Vec<RemovalTarget>,
    deployments: &[&'a Workload],
) -> BootstrapStage {
    let dropped = recorded.iter().filter(|it| !targets.contains(it));
    let events = dropped.filter_map(|target| {
        let why = reason_to_stay(cluster, view, target, deployments)?;
        Some(not_removed(&cluster.id, target, &why))
    });
    let events = events.collect();
    let mark = Mark::with(cluster, Some(&Removal::InProgress(targets)));
    let says = "correcting the record of what is removed with it".to_owned();
    BootstrapStage::Going(says, Some(Box::new(LeaderStep::CorrectRecord { events, mark })))
}

/// Returns why an object that the record names stays, as far as the view shows; `None`: it is removed or gone.
fn reason_to_stay<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    target: &RemovalTarget,
    deployments: &[&'a Workload],
) -> Option<String> {
    let ns = &*cluster.id.namespace;
    let meta = meta_in_view(cluster, view, target);
    // The view contains ConfigMaps only while a guarded workload reads them.
    if meta.map_or(target.kind != Kind::ConfigMap, Meta::is_terminating) {
        return None;
    }
    let why = match target.kind {
        Kind::Service => view.service(ns, &target.name).and_then(|it| view.service_stays(cluster, it)),
        Kind::ConfigMap => {
            view.config_map(ns, &target.name).and_then(|it| view.config_map_stays(cluster, it, deployments))
        }
        _ => None,
    };
    let unknown = || format!("nothing shows that it belongs to the bootstrap node of {}", cluster.id.name);
    Some(why.unwrap_or_else(unknown))
}

/// Removes the Services, once the Deployments and their pods are gone.
fn services<'a>(cluster: &'a Cluster, view: &View<'a>, recorded: &[RemovalTarget]) -> BootstrapStage {
    let (ns, uid) = (&*cluster.id.namespace, &*cluster.workload.metadata.uid);
    let mut left = Vec::new();
    for target in recorded.iter().filter(|it| it.kind == Kind::Service) {
        let service = view.service(ns, &target.name).filter(|it| target.is(Kind::Service, &it.metadata));
        match service {
            None => {}
            Some(Service { metadata, .. }) if metadata.is_terminating() => {
                return wait(format!("{target} is being deleted"));
            }
            Some(service) => match view.service_stays(cluster, service) {
                Some(why) => left.push((target.clone(), why)),
                None if is_marked(&service.metadata, uid) => {
                    return delete(target, &service.metadata);
                }
                None => left.push((target.clone(), UNMARKED.to_owned())),
            },
        }
    }
    let is_left = |it: &RemovalTarget| left.iter().any(|(target, _)| target == it);
    let remaining = recorded.iter().filter(|it| !is_left(it)).cloned().collect();
    finish(cluster, remaining, left)
}

/// The reason to keep an object without a mark. Marks are written while the Deployment exists and all objects are in
/// the view.
pub(super) const UNMARKED: &str =
    "gatera had not marked it while the bootstrap node existed, so it may belong to something else";

/// Ends the removal. The view contains a ConfigMap only while a guarded workload reads it, so the rest is looked up.
fn finish(
    cluster: &Cluster,
    remaining: Vec<RemovalTarget>,
    left: Vec<(RemovalTarget, String)>,
) -> BootstrapStage {
    let finish = Finish { remaining, left, count: cluster.count() };
    let says = match finish.left.first() {
        Some((target, why)) => format!("{target} is not removed: {why}"),
        None => "checking that nothing of it is left, then recording its removal".to_owned(),
    };
    BootstrapStage::Going(says, Some(Box::new(LeaderStep::Finish(finish))))
}

fn wait(what: String) -> BootstrapStage {
    BootstrapStage::Going(what, None)
}

fn delete(target: &RemovalTarget, meta: &Meta) -> BootstrapStage {
    let step = LeaderStep::Delete(pending(target, meta));
    BootstrapStage::Going(format!("deleting {target}"), Some(Box::new(step)))
}

fn pending(target: &RemovalTarget, meta: &Meta) -> PendingDeletion {
    PendingDeletion { target: target.clone(), version: meta.resource_version.clone() }
}

/// Returns the metadata of exactly this object, if the view contains it.
fn meta_in_view<'a>(cluster: &Cluster, view: &View<'a>, target: &RemovalTarget) -> Option<&'a Meta> {
    let ns = &*cluster.id.namespace;
    let meta = match target.kind {
        Kind::Deployment => {
            view.world.facts().deployments.get(&Id::new(ns, &target.name)).map(|it| &it.metadata)
        }
        Kind::Service => view.service(ns, &target.name).map(|it| &it.metadata),
        Kind::ConfigMap => view.config_map(ns, &target.name).map(|it| &it.metadata),
        _ => None,
    };
    meta.filter(|meta| target.is(target.kind, meta))
}

/// Returns whether the Deployment has a pod or wants one.
fn runs(deployment: &Workload, cluster: &Cluster) -> bool {
    deployment.replicas() > 0 || pods_of_deployment(&deployment.metadata.name, cluster).next().is_some()
}

fn pods_of_deployment<'c>(deployment: &'c str, cluster: &'c Cluster) -> impl Iterator<Item = &'c PodFact> {
    cluster.bootstrap.pods.iter().map(AsRef::as_ref).filter(move |pod| pod.deployment() == Some(deployment))
}

/// Returns why a bootstrap pod that nothing re-creates stays, and how to remove it.
fn left_to_a_person(cluster: &Cluster) -> Option<String> {
    let pod = cluster.bootstrap.pods.iter().find(|pod| pod.bootstrap && pod.owner.is_none())?;
    let (ns, name) = (&cluster.id.namespace, &pod.name);
    Some(format!(
        "pod {name} has no Deployment, so gatera does not remove it; when all members are Ready: kubectl -n {ns} delete pod {name}"
    ))
}

/// Returns what keeps the bootstrap node until a person acts.
pub fn kept_until_a_person_acts<'a>(cluster: &'a Cluster, view: &View<'a>) -> Option<String> {
    if cluster.bootstrap.pods.is_empty() {
        return None;
    }
    let reapplied = || match stage(cluster, view) {
        BootstrapStage::LeftAlone(why) if Removal::of(&cluster.workload.metadata) == Some(Removal::Done) => {
            Some(why)
        }
        _ => None,
    };
    left_to_a_person(cluster)
        .or_else(|| never_removed(cluster, view))
        .or_else(|| unverified(cluster))
        .or_else(reapplied)
}

/// Returns why the guard never removes this node.
fn never_removed(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let twin = || {
        view.twin(cluster).map(|twin| {
            format!(
                "{} has the same instance label, so it is unclear which of the two it belongs to; give one of them another label, or remove the bootstrap node yourself",
                twin.id.name
            )
        })
    };
    super::only_observes(cluster, view).or_else(twin)
}

/// Returns what keeps the bootstrap node for now; `None`: no member needs it.
fn still_needed(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if let Some(why) = never_removed(cluster, view) {
        return Some(why);
    }
    if cluster.members.is_empty() {
        return Some("the StatefulSet has 0 replicas".to_owned());
    }
    if let Some(founder) = transfer::stranded_bootstrap_pod(cluster, view.now) {
        let way_out = transfer::way_out(cluster, founder);
        return Some(format!("{} has lost its majority: {way_out}", founder.name));
    }
    let complete = i64::try_from(cluster.members.len()) == Ok(cluster.workload.replicas());
    if !complete || !cluster.members.iter().all(facts::view::Member::ready) || !cluster.leaving.is_empty() {
        return Some(cluster.describe());
    }
    let rolls = || cluster.rolls().then(|| "a rollout of the StatefulSet is under way".to_owned());
    let reserved = || {
        let (pod, _) = view.reservations.other_leaving(cluster, "")?;
        Some(format!("{pod} was allowed to leave moments ago"))
    };
    unverified(cluster).or_else(rolls).or_else(reserved)
}

/// Returns the members whose Ready proves nothing, and what to do about them.
pub fn unverified(cluster: &Cluster) -> Option<String> {
    let all: Vec<_> = cluster.unverified().collect();
    let first = all.first()?;
    let names = all.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ");
    let ns = &cluster.id.namespace;
    Some(match all.iter().find(|it| it.pod.as_ref().is_some_and(|pod| pod.injected)) {
        Some(injected) => format!(
            "{} has a readiness probe that does not check Galera's state, so nothing proves it Synced; check it yourself, then remove the bootstrap node: `gatera explain G05`",
            injected.name
        ),
        None => format!(
            "{names} started without gatera, so Ready does not prove Synced; unless wsrep_cluster_state_uuid is zeros (gatera explain G04), restart them one at a time, each when the one before is Ready again: kubectl -n {ns} delete pod {}",
            first.name
        ),
    })
}
