//! When the bootstrap node goes, and what comes first.
//!
//! A note on the StatefulSet; then its name leaves every member's address; then its Deployment goes with its pods; then its
//! Service and ConfigMap; then an Event and the note that it is done. Each step follows from what the API server shows, so
//! a leader that comes in the middle goes on where the other stopped. A bootstrap pod without a Deployment is left to the
//! person who made it: nothing re-creates it, and the guard has no right to delete pods.

use super::{Mark, REMOVED, Step, Told};
use crate::inject;
use crate::object::{Kind, Meta, Workload};
use crate::verdict::Mode;
use crate::view::{Cluster, PodFact, Removal, Target, View};

/// How far a cluster is with its bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    Absent,
    /// It is not touched, because it was applied again or does nothing.
    LeftAlone(String),
    /// It stays for now: why.
    Kept(String),
    /// It goes: what is being done, and the next step unless that is only to wait.
    Going(String, Option<Box<Step>>),
    /// It was removed.
    Removed,
}

/// How far this cluster is.
pub fn stage<'a>(cluster: &'a Cluster, view: &View<'a>) -> Stage {
    match Removal::of(&cluster.workload.metadata) {
        None => before(cluster, view),
        Some(Removal::Going(targets)) => going(cluster, view, &targets),
        Some(Removal::Done) => match view.founders(cluster).next() {
            None => Stage::Removed,
            Some(again) => Stage::LeftAlone(format!(
                "Deployment {} was applied again after it was removed; take it out of what you apply",
                again.metadata.name
            )),
        },
    }
}

fn before<'a>(cluster: &'a Cluster, view: &View<'a>) -> Stage {
    let founders: Vec<_> = view.founders(cluster).collect();
    let running: Vec<_> = founders.iter().copied().filter(|it| runs(it, cluster)).collect();
    if let Some(pod) = cluster.bootstrap.pods.iter().find(|pod| pod.bootstrap && pod.owner.is_none()) {
        let (ns, name) = (&cluster.id.namespace, &pod.name);
        return Stage::Kept(format!(
            "pod {name} has no Deployment, so it is left to you; when all members are Ready: kubectl -n {ns} delete pod {name}"
        ));
    }
    match (running.first(), founders.first()) {
        (None, None) => return Stage::Absent,
        (None, Some(held)) => {
            return Stage::LeftAlone(format!(
                "Deployment {} has 0 replicas and harms nobody; take it out of what you apply",
                held.metadata.name
            ));
        }
        (Some(_), _) => {}
    }
    if let Some(going) = running.iter().find(|it| it.metadata.going()) {
        return Stage::LeftAlone(format!(
            "Deployment {} is being deleted by somebody else",
            going.metadata.name
        ));
    }
    if let Some(why) = holds_up(cluster, view) {
        return Stage::Kept(why);
    }
    let removal = Removal::Going(view.goes_with(cluster, &running));
    let version = cluster.workload.metadata.resource_version.clone();
    let mark = Mark { version, ..Mark::with(cluster, &removal) };
    Stage::Going("all members are Synced".to_owned(), Some(Box::new(Step::Mark(mark))))
}

fn going<'a>(cluster: &'a Cluster, view: &View<'a>, targets: &[Target]) -> Stage {
    let ns = &*cluster.id.namespace;
    let wait = |what: String| Stage::Going(what, None);
    let delete = |target: &Target| {
        Stage::Going(
            format!("deleting {target}"),
            Some(Box::new(Step::Delete(ns.to_owned(), target.clone()))),
        )
    };
    let deployments = || targets.iter().filter(|it| it.kind == Kind::Deployment);
    if !inject::outdated(cluster, view).is_empty() {
        return wait("taking its name out of the members' address".to_owned());
    }
    for target in deployments() {
        match there(view.deployments_in(ns).map(|it| &it.metadata), target) {
            Some(meta) if meta.going() => return wait(format!("{target} goes with its pods")),
            // Whoever is missing may come back by way of this node.
            Some(_) => match holds_up(cluster, view) {
                Some(why) => return Stage::Kept(why),
                None => return delete(target),
            },
            None => {}
        }
    }
    // Applied again meanwhile: Service and ConfigMap are a part of what was applied.
    let again = |it: &Target| view.deployments_in(ns).any(|other| other.metadata.name == it.name);
    if deployments().any(again) {
        return finish(cluster, &deployments().cloned().collect::<Vec<_>>());
    }
    // Members may still receive from a pod that is on its way out; it keeps its name until it is gone.
    for target in deployments() {
        if let Some(pod) = pods_of(&target.name, cluster).next() {
            return wait(format!("{target} is gone, its pod {} is still there", pod.name));
        }
    }
    for target in targets.iter().filter(|it| it.kind == Kind::Service) {
        match there(view.services_in(ns).map(|it| &it.metadata), target) {
            Some(meta) if meta.going() => return wait(format!("{target} goes")),
            Some(_) => return delete(target),
            None => {}
        }
    }
    finish(cluster, targets)
}

/// A ConfigMap is shown to the guard only while a workload of ours reads it, so it is deleted without looking.
fn finish(cluster: &Cluster, targets: &[Target]) -> Stage {
    let names: Vec<_> = targets.iter().map(ToString::to_string).collect();
    let note = format!("removed {}: {}", names.join(", "), cluster.count());
    let delete = targets.iter().filter(|it| it.kind == Kind::ConfigMap).cloned().collect();
    let told = Told::about(cluster, REMOVED, note);
    let mark = Mark::with(cluster, &Removal::Done);
    Stage::Going("telling everybody".to_owned(), Some(Box::new(Step::Finish { delete, told, mark })))
}

/// This very object, among those of its kind.
fn there<'m>(mut all: impl Iterator<Item = &'m Meta>, target: &Target) -> Option<&'m Meta> {
    all.find(|meta| meta.name == target.name && meta.uid == target.uid)
}

/// It has a pod, or wants one.
fn runs(deployment: &Workload, cluster: &Cluster) -> bool {
    deployment.replicas() > 0 || pods_of(&deployment.metadata.name, cluster).next().is_some()
}

/// Pods of this Deployment: their `ReplicaSet` is named after it.
fn pods_of<'c>(deployment: &str, cluster: &'c Cluster) -> impl Iterator<Item = &'c PodFact> {
    let own = move |pod: &&PodFact| {
        let set = pod.owner.as_ref().filter(|(kind, _)| kind == "ReplicaSet").map(|(_, name)| &**name);
        let rest = set.and_then(|set| set.strip_prefix(deployment));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let pods: Vec<_> = cluster.bootstrap.pods.iter().map(AsRef::as_ref).filter(own).collect();
    pods.into_iter()
}

/// What keeps the bootstrap node from going, in words; `None`: everybody can do without it.
fn holds_up(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let ns = &*cluster.id.namespace;
    if let Some(mode @ (Mode::Audit | Mode::Off)) = view.namespace_mode(ns) {
        return Some(format!("namespace {ns} is in mode {}, in which gatera only looks", mode.name()));
    }
    if cluster.members.is_empty() {
        return Some("no member is asked for (0 replicas)".to_owned());
    }
    let everybody = i64::try_from(cluster.members.len()) == Ok(cluster.workload.replicas());
    if !everybody || !cluster.members.iter().all(crate::view::Member::ready) || !cluster.leaving.is_empty() {
        return Some(cluster.describe());
    }
    let rolls = || cluster.workload.rolls().then(|| "a roll-out of the StatefulSet runs".to_owned());
    let let_go = || {
        let (pod, _) = view.released.besides(cluster, "")?;
        Some(format!("{pod} was let go moments ago"))
    };
    unverified(cluster).or_else(rolls).or_else(let_go)
}

/// Members whose Ready proves nothing, and what to do about them.
pub fn unverified(cluster: &Cluster) -> Option<String> {
    let all: Vec<_> = cluster.unverified().collect();
    let first = all.first()?;
    let names = all.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ");
    let ns = &cluster.id.namespace;
    Some(match all.iter().find(|it| it.pod.as_ref().is_some_and(|pod| pod.injected)) {
        Some(seen) => format!(
            "{} is Ready by a probe that does not see Galera's state, so nothing proves it Synced; look yourself, then remove the bootstrap node: `gatera explain G05`",
            seen.name
        ),
        None => format!(
            "{names} started without gatera, so Ready does not prove Synced; take over one at a time, the next when it is Ready again: kubectl -n {ns} delete pod {}",
            first.name
        ),
    })
}
