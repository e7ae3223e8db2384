//! When the bootstrap node goes, and what comes first.
//!
//! A note on the StatefulSet; then its name leaves every member's address; then a mark on everything that is to go; then
//! its Deployment goes with its pods; then its Service and ConfigMap; then an Event and the note that it is done. Each step
//! follows from what the API server shows, so a leader that comes in the middle goes on where the other stopped. Note and
//! marks are reminders: people can write them too, so what goes is derived anew each time, and what the note names beyond
//! that is left alone, with an Event. A bootstrap pod without a Deployment is left to the person who made it: nothing
//! re-creates it, and the guard has no right to delete pods.

use super::warrant::is_marked;
use super::{Announcement, Finish, Mark, NOT_REMOVED, PendingDeletion, Step, not_removed};
use engine::inject;
use facts::view::{Cluster, PodFact, Removal, RemovalTarget, View, transfer};
use objects::{Kind, Meta, Service, Workload};

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
    let Some(removal) = Removal::of(&cluster.workload.metadata) else {
        return before(cluster, view);
    };
    if let Some(why) = super::looks_only(cluster, view).filter(|_| removal != Removal::Done) {
        return Stage::Kept(why);
    }
    match removal {
        // A removal begins when all members are Ready, and says in the same breath that there is data.
        Removal::Going(_) if !cluster.has_data() => taken_out(cluster, "no member ever held data"),
        Removal::Going(targets) => going(cluster, view, &targets),
        Removal::Odd => taken_out(cluster, "it is not written as gatera writes it"),
        Removal::Done => match view.founders(cluster).next() {
            None => Stage::Removed,
            Some(again) => Stage::LeftAlone(format!(
                "Deployment {} was applied again after it was removed; take it out of what you apply",
                again.metadata.name
            )),
        },
    }
}

/// A note that the guard cannot have written says nothing.
fn taken_out(cluster: &Cluster, why: &str) -> Stage {
    let says = format!("the note gatera.dev/bootstrap is not gatera's: {why}");
    let note = format!(
        "{says}; nothing was removed for it, and it is taken out; look who wrote it: kubectl -n {} get statefulset {} --show-managed-fields --output=yaml",
        cluster.id.namespace, cluster.id.name
    );
    let told = vec![Announcement::about(cluster, NOT_REMOVED, note)];
    let version = cluster.workload.metadata.resource_version.clone();
    let mark = Mark { bootstrap: None, version, ..Mark::of(cluster) };
    Stage::Going(says, Some(Box::new(Step::Correct { told, mark })))
}

fn before<'a>(cluster: &'a Cluster, view: &View<'a>) -> Stage {
    let founders: Vec<_> = view.founders(cluster).collect();
    let running: Vec<_> = founders.iter().copied().filter(|it| runs(it, cluster)).collect();
    if let Some(why) = left_to_you(cluster) {
        return Stage::Kept(why);
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

fn going<'a>(cluster: &'a Cluster, view: &View<'a>, noted: &[RemovalTarget]) -> Stage {
    if !inject::outdated(cluster, view).is_empty() {
        return wait("taking its name out of the members' address".to_owned());
    }
    let founders: Vec<_> = view.founders(cluster).collect();
    let is_noted = |it: &Workload| noted.iter().any(|target| target.is(Kind::Deployment, &it.metadata));
    let own: Vec<_> = founders.iter().copied().filter(|it| is_noted(it) || runs(it, cluster)).collect();
    if !own.is_empty() {
        return with_deployments(cluster, view, noted, &own);
    }
    let deployments = || noted.iter().filter(|it| it.kind == Kind::Deployment);
    // Applied again meanwhile: Service and ConfigMap are a part of what was applied.
    if !founders.is_empty() {
        return finish(cluster, deployments().cloned().collect(), Vec::new());
    }
    // Members may still receive from a pod that is on its way out; it keeps its name until it is gone.
    for target in deployments() {
        if let Some(pod) = pods_of(&target.name, cluster).next() {
            return wait(format!("{target} is gone, its pod {} is still there", pod.name));
        }
    }
    services(cluster, view, noted)
}

/// While its Deployments are there, everything that goes can be derived, and is marked.
fn with_deployments<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    noted: &[RemovalTarget],
    own: &[&'a Workload],
) -> Stage {
    if let Some(going) = own.iter().find(|it| it.metadata.going()) {
        return wait(format!("Deployment {} goes with its pods", going.metadata.name));
    }
    // Whoever is missing may come back by way of this node.
    if let Some(why) = holds_up(cluster, view) {
        return Stage::Kept(why);
    }
    let due = view.goes_with(cluster, own);
    if due != noted {
        return corrected(cluster, view, noted, due, own);
    }
    let unmarked = due.iter().find_map(|target| {
        let meta = seen(cluster, view, target)?;
        (!is_marked(meta, &cluster.workload.metadata.uid)).then(|| condemned(cluster, target, meta))
    });
    if let Some(next) = unmarked {
        let says = format!("marking {}", next.target);
        return Stage::Going(says, Some(Box::new(Step::Condemn(next))));
    }
    let first = due.iter().find(|it| it.kind == Kind::Deployment);
    first.and_then(|it| Some((it, seen(cluster, view, it)?))).map_or_else(
        || wait("looking for its Deployment".to_owned()),
        |(target, meta)| delete(cluster, target, meta),
    )
}

/// The note names something else than what goes: somebody wrote it, or the world is another one by now.
fn corrected<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    noted: &[RemovalTarget],
    due: Vec<RemovalTarget>,
    own: &[&'a Workload],
) -> Stage {
    let dropped = noted.iter().filter(|it| !due.contains(it));
    let told = dropped.filter_map(|target| {
        let why = stays(cluster, view, target, own)?;
        Some(Announcement::about(cluster, NOT_REMOVED, not_removed(&cluster.id, target, &why)))
    });
    let told = told.collect();
    let version = cluster.workload.metadata.resource_version.clone();
    let mark = Mark { version, ..Mark::with(cluster, &Removal::Going(due)) };
    let says = "writing down anew what goes".to_owned();
    Stage::Going(says, Some(Box::new(Step::Correct { told, mark })))
}

/// Why an object that the note names stays, as far as the view shows; `None`: it goes or is gone.
fn stays<'a>(
    cluster: &'a Cluster,
    view: &View<'a>,
    target: &RemovalTarget,
    own: &[&'a Workload],
) -> Option<String> {
    let ns = &*cluster.id.namespace;
    let there = seen(cluster, view, target);
    // ConfigMaps are seen only while a workload of ours reads them.
    if there.map_or(target.kind != Kind::ConfigMap, Meta::going) {
        return None;
    }
    let why = match target.kind {
        Kind::Service => view.service(ns, &target.name).and_then(|it| view.service_stays(cluster, it)),
        Kind::ConfigMap => {
            view.config_map(ns, &target.name).and_then(|it| view.config_map_stays(cluster, it, own))
        }
        _ => None,
    };
    let unknown = || format!("nothing shows that it belongs to the bootstrap node of {}", cluster.id.name);
    Some(why.unwrap_or_else(unknown))
}

/// The Deployments and their pods are gone.
fn services<'a>(cluster: &'a Cluster, view: &View<'a>, noted: &[RemovalTarget]) -> Stage {
    let (ns, uid) = (&*cluster.id.namespace, &*cluster.workload.metadata.uid);
    let mut left = Vec::new();
    for target in noted.iter().filter(|it| it.kind == Kind::Service) {
        let there = view.service(ns, &target.name).filter(|it| target.is(Kind::Service, &it.metadata));
        match there {
            None => {}
            Some(Service { metadata, .. }) if metadata.going() => return wait(format!("{target} goes")),
            Some(service) => match view.service_stays(cluster, service) {
                Some(why) => left.push((target.clone(), why)),
                None if is_marked(&service.metadata, uid) => {
                    return delete(cluster, target, &service.metadata);
                }
                None => left.push((target.clone(), UNMARKED.to_owned())),
            },
        }
    }
    let is_left = |it: &RemovalTarget| left.iter().any(|(target, _)| target == it);
    let rest = noted.iter().filter(|it| !is_left(it)).cloned().collect();
    finish(cluster, rest, left)
}

/// Marks are written while the Deployment is there and everything can be seen.
pub(super) const UNMARKED: &str = "it was not marked while the bootstrap node was there to show whose it is";

/// A ConfigMap is shown to the guard only while a workload of ours reads it, so the rest is looked up.
fn finish(cluster: &Cluster, rest: Vec<RemovalTarget>, left: Vec<(RemovalTarget, String)>) -> Stage {
    let finish = Finish {
        id: cluster.id.clone(),
        uid: cluster.workload.metadata.uid.clone(),
        rest,
        left,
        count: cluster.count(),
    };
    let says = match finish.left.first() {
        Some((target, why)) => format!("{target} is left alone: {why}"),
        None => "looking up what is left, and telling everybody".to_owned(),
    };
    Stage::Going(says, Some(Box::new(Step::Finish(finish))))
}

fn wait(what: String) -> Stage {
    Stage::Going(what, None)
}

fn delete(cluster: &Cluster, target: &RemovalTarget, meta: &Meta) -> Stage {
    let step = Step::Delete(condemned(cluster, target, meta));
    Stage::Going(format!("deleting {target}"), Some(Box::new(step)))
}

fn condemned(cluster: &Cluster, target: &RemovalTarget, meta: &Meta) -> PendingDeletion {
    let (owner, version) = (cluster.workload.metadata.uid.clone(), meta.resource_version.clone());
    PendingDeletion { id: cluster.id.clone(), owner, target: target.clone(), version }
}

/// This very object, as the view shows it.
fn seen<'a>(cluster: &Cluster, view: &View<'a>, target: &RemovalTarget) -> Option<&'a Meta> {
    let ns = &*cluster.id.namespace;
    let meta = match target.kind {
        Kind::Deployment => {
            view.deployments_in(ns).map(|it| &it.metadata).find(|meta| meta.name == target.name)
        }
        Kind::Service => view.service(ns, &target.name).map(|it| &it.metadata),
        Kind::ConfigMap => view.config_map(ns, &target.name).map(|it| &it.metadata),
        _ => None,
    };
    meta.filter(|meta| target.is(target.kind, meta))
}

/// It has a pod, or wants one.
fn runs(deployment: &Workload, cluster: &Cluster) -> bool {
    deployment.replicas() > 0 || pods_of(&deployment.metadata.name, cluster).next().is_some()
}

/// Pods of this Deployment.
fn pods_of<'c>(deployment: &'c str, cluster: &'c Cluster) -> impl Iterator<Item = &'c PodFact> {
    cluster.bootstrap.pods.iter().map(AsRef::as_ref).filter(move |pod| pod.deployment() == Some(deployment))
}

/// A bootstrap pod that nothing re-creates.
fn left_to_you(cluster: &Cluster) -> Option<String> {
    let pod = cluster.bootstrap.pods.iter().find(|pod| pod.bootstrap && pod.owner.is_none())?;
    let (ns, name) = (&cluster.id.namespace, &pod.name);
    Some(format!(
        "pod {name} has no Deployment, so gatera does not remove it; when all members are Ready: kubectl -n {ns} delete pod {name}"
    ))
}

/// What keeps the bootstrap node until a person does something about it, in words.
pub fn kept_by_more_than_time<'a>(cluster: &'a Cluster, view: &View<'a>) -> Option<String> {
    if cluster.bootstrap.pods.is_empty() {
        return None;
    }
    let again = || match stage(cluster, view) {
        Stage::LeftAlone(why) if Removal::of(&cluster.workload.metadata) == Some(Removal::Done) => Some(why),
        _ => None,
    };
    left_to_you(cluster)
        .or_else(|| never_removed(cluster, view))
        .or_else(|| unverified(cluster))
        .or_else(again)
}

/// It is not the guard's to remove.
fn never_removed(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let twin = || {
        view.twin(cluster).map(|twin| {
            format!(
                "{} has the same instance label, so it is unclear which of the two it belongs to; give one another label, or remove it yourself",
                twin.id.name
            )
        })
    };
    super::looks_only(cluster, view).or_else(twin)
}

/// What keeps the bootstrap node from going, in words; `None`: everybody can do without it.
fn holds_up(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if let Some(why) = never_removed(cluster, view) {
        return Some(why);
    }
    if cluster.members.is_empty() {
        return Some("no member is asked for (0 replicas)".to_owned());
    }
    if let Some(founder) = transfer::stranded(cluster, view.now) {
        let way_out = transfer::way_out(cluster, founder);
        return Some(format!("{} has lost its majority: {way_out}", founder.name));
    }
    let everybody = i64::try_from(cluster.members.len()) == Ok(cluster.workload.replicas());
    if !everybody || !cluster.members.iter().all(facts::view::Member::ready) || !cluster.leaving.is_empty() {
        return Some(cluster.describe());
    }
    let rolls = || cluster.rolls().then(|| "a rollout of the StatefulSet runs".to_owned());
    let reserved = || {
        let (pod, _) = view.reservations.besides(cluster, "")?;
        Some(format!("{pod} was allowed to leave moments ago"))
    };
    unverified(cluster).or_else(rolls).or_else(reserved)
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
            "{names} started without gatera, so Ready does not prove Synced; unless wsrep_cluster_state_uuid is zeros (gatera explain G04), take over one at a time, the next when it is Ready again: kubectl -n {ns} delete pod {}",
            first.name
        ),
    })
}
