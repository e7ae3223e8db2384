//! What `gatera stop` does next: a pure function of the view, called again after every look, like a recovery
//! (`recovery/steps.rs`).
//!
//! Members leave one at a time, the highest ordinal first, while all others are Ready, so that Galera records on each
//! member that the others continue, and on the last member that it was the last. The position of each member is recorded
//! on its claims. Nothing is remembered between two looks.

use crate::plan::bootstrap;
use engine::exceptions::end_override_command;
use facts::galera::data::Backing;
use facts::galera::driver;
use facts::marks::overrides::Override;
use facts::marks::{OVERRIDE, RECOVER};
use facts::view::condition;
use facts::view::{Cluster, Id, Member, PodFact, State, View, way_out_of_silent_node};
use objects::Kind;

/// The next step of a stop, for `gatera stop` to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// Nothing: no member is left.
    Stopped,
    Wait(String),
    Cannot(String),
    /// Record on these claims that their members are about to be stopped: the number of members must still be known when
    /// they are gone.
    Record {
        claims: Vec<String>,
    },
    /// Remove this member by setting the replicas.
    Leave {
        member: String,
        claims: Vec<String>,
        /// The replicas that remain.
        to: i64,
    },
    /// Wait for a member that is leaving. When it has left, the position at which its data ends is recorded on its claims.
    Follow {
        member: String,
        claims: Vec<String>,
        /// What keeps it from leaving, and what to do about that.
        kept: Option<String>,
    },
}

impl StopStep {
    /// Returns the step without the texts that change while nothing happens.
    #[must_use]
    pub fn without_texts(&self) -> Self {
        match self {
            Self::Wait(_) => Self::Wait(String::new()),
            Self::Follow { member, claims, .. } => {
                Self::Follow { member: member.clone(), claims: claims.clone(), kept: None }
            }
            other => other.clone(),
        }
    }
}

/// Returns the next step.
pub fn next(cluster: &Cluster, view: &View<'_>) -> StopStep {
    let recorded =
        |name: &String| cluster.claims.iter().any(|claim| claim.name == *name && claim.stopped.is_some());
    if let Some(pod) = cluster.leaving.first() {
        let ordinal = pod.name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
        // A member that was removed before the stop is not one of those that are stopped.
        let stopped = ordinal.map_or_else(Vec::new, |it| claims(cluster, it)).into_iter();
        let claims = stopped.filter(recorded).collect();
        return StopStep::Follow { member: pod.name.clone(), claims, kept: node_away(pod, view) };
    }
    let Some(last) = cluster.members.last() else { return StopStep::Stopped };
    if let Some(owner) = driver::of(&cluster.workload) {
        return StopStep::Cannot(format!("{owner} drives it, and its operator would start it again"));
    }
    if let Some(why) = obstacle(cluster, view) {
        return StopStep::Cannot(why);
    }
    if let Some(step) = blocking_step(cluster, view) {
        return step;
    }
    let all = || cluster.members.iter().flat_map(|member| claims(cluster, member.ordinal));
    if all().any(|name| !recorded(&name)) {
        return StopStep::Record { claims: all().filter(|name| !recorded(name)).collect() };
    }
    StopStep::Leave {
        member: last.name.clone(),
        claims: claims(cluster, last.ordinal),
        to: cluster.workload.replicas() - 1,
    }
}

/// Returns why the pod stays, if its node does not answer: it then stays until the node is back.
fn node_away(pod: &PodFact, view: &View<'_>) -> Option<String> {
    let node = view.node(&pod.node).filter(|node| !node.is_reachable())?;
    let name = &node.metadata.name;
    Some(format!("its node {name} does not answer: {}", way_out_of_silent_node(name)))
}

fn claims(cluster: &Cluster, ordinal: i64) -> Vec<String> {
    cluster.claims.iter().filter(|claim| claim.ordinal == ordinal).map(|claim| claim.name.clone()).collect()
}

/// The reason in the override that lets the last member leave. It shows that the override is gatera's own.
pub const OVERRIDE_REASON: &str = "gatera stop stops the last member";

/// Returns whether this override is gatera's own.
pub fn is_own_override(text: &str) -> bool {
    text.strip_suffix(OVERRIDE_REASON).is_some_and(|rest| rest.ends_with(" reason="))
}

/// Returns why the cluster cannot be stopped. Waiting does not help.
fn obstacle(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    state_obstacle(cluster, view)
        .or_else(|| loses_data(cluster, view))
        .or_else(|| start_obstacle(cluster))
        .or_else(|| foreign_override(cluster, view))
}

fn state_obstacle(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    match view.state(cluster) {
        _ if cluster.workload.metadata.mark(RECOVER).is_some() => Some(format!(
            "a recovery is under way; to continue it (or, with --abort, to withdraw it): {}",
            cluster.recover_command()
        )),
        State::Forming => {
            Some("no member has held data yet: wait until its first install is complete".to_owned())
        }
        State::Down => Some(format!(
            "no member is Ready, so it is unknown which has the newest data ({}); recover it first: {}",
            view.describe(cluster),
            cluster.recover_command()
        )),
        _ => None,
    }
}

/// Returns why a member that leaves would lose its data.
pub fn loses_data(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if cluster.workload.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete" {
        let why = "persistentVolumeClaimRetentionPolicy.whenScaled is Delete, so members that leave lose their data: set it to Retain first";
        return Some(why.to_owned());
    }
    if let Some(claim) = cluster.claims.iter().find(|claim| claim.terminating) {
        let name = &claim.name;
        return Some(format!("claim {name} is being deleted and is lost with its pod: copy its data first"));
    }
    let place = view.data_folder(&cluster.id.namespace, &cluster.workload);
    let kept = |member: &&Member| match place.as_ref().map(|place| &place.backing) {
        Some(Backing::Template(template)) => {
            claims(cluster, member.ordinal).contains(&format!("{template}-{}", member.name))
        }
        Some(_) => false,
        None => !claims(cluster, member.ordinal).is_empty(),
    };
    let member = cluster.members.iter().find(|member| !kept(member))?;
    Some(match member.pod {
        Some(_) => {
            format!("{} has no claim of its own for its data, which would be lost with its pod", member.name)
        }
        None => format!("{} has neither a pod nor a claim, so its data is missing", member.name),
    })
}

/// Returns why it would be unknown which member may start first.
fn start_obstacle(cluster: &Cluster) -> Option<String> {
    if cluster.has_no_identity() {
        let why = "it has no identity, so nothing would show which member may start first: see gatera explain G04, a cluster without an identity";
        return Some(why.to_owned());
    }
    let blind = cluster.members.iter().find(|member| member.pod.as_deref().is_some_and(|pod| !pod.step))?;
    Some(format!(
        "{} does not start by gatera's step script, so gatera start could not ask it where its data ends; gatera explain G01 and G04 show how to stop and start it by hand",
        blind.name
    ))
}

/// Returns that the StatefulSet has an override of another writer, which the stop would overwrite.
fn foreign_override(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let text = cluster.workload.metadata.mark(OVERRIDE)?;
    let is_foreign = Override::read(text, view.now).is_ok_and(|it| it.reason != OVERRIDE_REASON);
    let Id { namespace, name } = &cluster.id;
    is_foreign.then(|| {
        format!(
            "there is an override on its StatefulSet; remove it first: {}",
            end_override_command(Kind::StatefulSet, namespace, name)
        )
    })
}

/// Returns what the stop waits for, or why waiting does not help.
fn blocking_step(cluster: &Cluster, view: &View<'_>) -> Option<StopStep> {
    if view.state(cluster) == State::Unknown || !cluster.members.iter().all(Member::ready) {
        let ways_out: Vec<_> = condition::diagnoses(cluster, view).iter().map(ToString::to_string).collect();
        let all = [&[view.describe(cluster)][..], &ways_out].concat();
        return Some(StopStep::Wait(all.join("; ")));
    }
    if cluster.rolls() {
        return Some(StopStep::Wait("a rollout of its template is under way".to_owned()));
    }
    let pod = cluster.bootstrap.pods.first().map(|pod| &pod.name)?;
    Some(match bootstrap::kept_until_a_person_acts(cluster, view) {
        Some(why) => StopStep::Cannot(format!(
            "its bootstrap node {pod} still exists, and gatera does not remove it: {why}"
        )),
        None => StopStep::Wait(format!(
            "bootstrap pod {pod} still exists; the guard removes it when no member needs it"
        )),
    })
}
