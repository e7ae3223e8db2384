//! What the leader does next: a pure function of the view.
//!
//! Owns: [`PlannedStep`] and [`next`]. Must not know: clients; `reconcile.rs` applies the steps. A step that is done is not
//! planned again, so in steady state there is nothing to do and no API call is made. `plan/bootstrap.rs` decides when
//! the bootstrap node is removed, and `plan/warrant.rs` which objects that the view does not show may be deleted.

pub mod bootstrap;
pub mod identity;
mod incremental;
pub mod rollout;
mod scheduler;
mod warrant;

use std::fmt;
use std::time::Duration;

use crate::once_guarded;
use engine::inject;
use facts::marks;
use facts::view::{Cluster, Freshness, Id, Removal, RemovalTarget, View};
use objects::Meta;

use bootstrap::BootstrapStage;
use rollout::Configure;

pub use incremental::IncrementalPlanner;
pub use scheduler::StepScheduler;
pub use warrant::{LookedUp, Warrant, is_marked, warrant};

/// One step of the plan, which the leader carries out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedStep {
    /// The StatefulSet that the step is about.
    pub id: Id,
    /// The uid of that StatefulSet.
    pub uid: String,
    pub step: LeaderStep,
}

impl PlannedStep {
    /// Returns the object that the step changes, as `kubectl get` names it.
    pub fn object(&self) -> String {
        let Self { id, step, .. } = self;
        match step {
            LeaderStep::UpdateOptionFile { pod, .. } | LeaderStep::AnnotateIdentity { pod, .. } => {
                format!("Pod {pod}")
            }
            LeaderStep::Evict { pod, .. } => format!("Pod {}/{pod}", id.namespace),
            LeaderStep::MarkForRemoval(it) | LeaderStep::Delete(it) => {
                format!("{} {}/{}", it.target.kind.name(), id.namespace, it.target.name)
            }
            _ => format!("StatefulSet {id}"),
        }
    }

    /// Returns whether the step deletes or restarts something, or decides what is deleted or restarted; such a step
    /// begins only if it still follows from the current view.
    pub fn destroys(&self) -> bool {
        use LeaderStep::{Configure, Delete, Evict, Finish};
        matches!(self.step, Delete(_) | Finish(_) | Configure(_) | Evict { .. })
    }

    /// Returns for how long the step must be due without a break before it is carried out.
    pub fn patience(&self) -> Duration {
        match &self.step {
            LeaderStep::Announce(_) => ANNOUNCE_AFTER,
            LeaderStep::Configure(it) => it.patience,
            LeaderStep::Evict { patience, .. } => *patience,
            _ => Duration::ZERO,
        }
    }
}

/// What the leader does in a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaderStep {
    /// Write the marks of a cluster that holds data.
    Mark(Mark),
    /// Write a new option file for a member that runs.
    UpdateOptionFile {
        pod: Id,
        uid: String,
        text: String,
    },
    /// Read the cluster's identity from the Events of its pods, and record what follows.
    RecordIdentity,
    /// Write the cluster's identity on a pod that runs.
    AnnotateIdentity {
        pod: Id,
        uid: String,
        /// The identity, or the value of the mark that stands for none.
        value: String,
    },
    /// Record which configuration members start with.
    Configure(Box<Configure>),
    /// Restart a member.
    Evict {
        pod: String,
        uid: String,
        /// The step must be due for this long before it is carried out.
        patience: Duration,
    },
    /// Write the guard's mark on an object that is about to be deleted.
    MarkForRemoval(PendingDeletion),
    Delete(PendingDeletion),
    /// Correct a record that names objects which must stay, and publish Events about it.
    CorrectRecord {
        events: Vec<Announcement>,
        /// The corrected mark; a mark without a record removes the record.
        mark: Mark,
    },
    /// Finish the removal of the bootstrap node; each part of this step may be repeated.
    Finish(Finish),
    /// Publish why something waits or stays, if that lasts.
    Announce(Announcement),
}

/// Prints what the step does, for logs that name the object beside it.
impl fmt::Display for LeaderStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(Mark { bootstrap: None, .. }) => f.write_str("record that the cluster holds data"),
            Self::Mark(Mark { bootstrap: Some(_), .. }) => {
                f.write_str("record that the cluster holds data and that its bootstrap node is being removed")
            }
            Self::UpdateOptionFile { .. } => {
                f.write_str("give the member the current addresses of its peers")
            }
            Self::RecordIdentity => f.write_str("read the cluster's identity from its members and record it"),
            Self::AnnotateIdentity { value, .. } => {
                write!(f, "give the member its cluster's identity ({value})")
            }
            Self::Configure(_) => f.write_str("record the configuration that its members start with"),
            Self::Evict { .. } => f.write_str("restart the member with its current configuration"),
            Self::MarkForRemoval(_) => f.write_str("mark the object for removal with the bootstrap node"),
            Self::Delete(_) => f.write_str("delete the object, which belongs to the bootstrap node"),
            Self::CorrectRecord { .. } => {
                f.write_str("correct the record of what is removed with the bootstrap node")
            }
            Self::Finish(_) => f.write_str("finish the removal of the bootstrap node"),
            Self::Announce(it) => write!(f, "write an Event ({}: {})", it.reason, it.note),
        }
    }
}

/// An object in the cluster's namespace that is about to be deleted, in the version that was judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingDeletion {
    pub target: RemovalTarget,
    pub version: String,
}

/// The rest of a clean-up: delete what no watch shows, publish Events, and record that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finish {
    /// Objects that the view does not show: gone already, or to be looked up and judged ([`warrant`]).
    pub remaining: Vec<RemovalTarget>,
    /// Objects that stay, each with the reason.
    pub left: Vec<(RemovalTarget, String)>,
    /// How many members are Synced, as a text for the Event.
    pub count: String,
}

impl Finish {
    /// Returns the Events about this cluster to publish if these objects stay.
    pub fn events(&self, cluster: &Id, left: &[(RemovalTarget, String)]) -> Vec<Announcement> {
        let stays = |target: &RemovalTarget| left.iter().any(|(it, _)| it == target);
        let gone: Vec<_> = self.remaining.iter().filter(|it| !stays(it)).map(ToString::to_string).collect();
        let removed = || format!("removed {}: {}", gone.join(", "), self.count);
        let removed = (!gone.is_empty()).then(|| Announcement { reason: REMOVED, note: removed() });
        let kept = left.iter().map(|(target, why)| not_removed(cluster, target, why));
        kept.chain(removed).collect()
    }
}

/// The marks of a StatefulSet: whether it holds data, and what becomes of its bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The mark is written only to this version of the StatefulSet; empty means any.
    pub version: String,
    /// What becomes of its bootstrap node, if that is known.
    pub bootstrap: Option<String>,
}

impl Mark {
    fn of(cluster: &Cluster) -> Self {
        let bootstrap = cluster.workload.metadata.mark(marks::BOOTSTRAP).map(str::to_owned);
        Self { version: String::new(), bootstrap }
    }

    /// Returns the marks with this removal as the record, for the StatefulSet in its current version.
    fn with(cluster: &Cluster, removal: Option<&Removal>) -> Self {
        let Meta { uid, resource_version, .. } = &cluster.workload.metadata;
        Self { version: resource_version.clone(), bootstrap: removal.map(|it| it.record(uid)) }
    }

    /// Returns the mark that records the end of a clean-up, for the StatefulSet with this uid.
    pub fn of_finished(uid: &str) -> Self {
        Self { version: String::new(), bootstrap: Some(Removal::Done.record(uid)) }
    }
}

/// An Event about a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    pub reason: &'static str,
    /// The text of the Event.
    pub note: String,
}

/// Returns all steps that are due, always in the same order: by namespace, then by name.
pub fn next(view: &View<'_>) -> Vec<PlannedStep> {
    view.world.clusters().flat_map(|cluster| steps_of(cluster, view)).chain(no_longer_adopted(view)).collect()
}

/// Returns whether this step of a cluster still follows from the view.
pub fn still_due(step: &PlannedStep, view: &View<'_>) -> bool {
    let Id { namespace, name } = &step.id;
    view.cluster(namespace, name).is_some_and(|cluster| steps_of(cluster, view).contains(step))
}

/// Returns the Events about clusters that the settings no longer adopt. Their number is limited, because an editor of a
/// namespace can write the mark on any number of StatefulSets.
fn no_longer_adopted(view: &View<'_>) -> impl Iterator<Item = PlannedStep> {
    let current = view.freshness == Freshness::Current;
    view.no_longer_adopted().filter(move |_| current).take(MAX_NO_LONGER_GUARDED).map(|(id, uid)| {
        let note = format!("{}; {}", once_guarded::EXPLANATION, once_guarded::way_out(id));
        let step = LeaderStep::Announce(Announcement { reason: NO_LONGER_GUARDED, note });
        PlannedStep { id: id.clone(), uid: uid.to_owned(), step }
    })
}

fn steps_of<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<PlannedStep> {
    let ns = &*cluster.id.namespace;
    let view = &view.of_namespace(ns);
    // Members of a deleted StatefulSet are not created again, so nothing is planned for them.
    let is_ignored = cluster.orphaned
        || cluster.workload.metadata.is_terminating()
        || view.namespace_is_terminating(ns)
        || view.is_mode_off(ns);
    if view.freshness != Freshness::Current || is_ignored {
        return Vec::new();
    }
    let mut steps = Vec::new();
    // Unverified members count, too: a member may hold data even if its Ready proves nothing, and without the mark a
    // second bootstrap can wipe that data.
    let mut must_mark = cluster.workload.metadata.mark(marks::DATA) == Some("none") && cluster.ready() > 0;
    match bootstrap::stage(cluster, view) {
        BootstrapStage::Absent
        | BootstrapStage::LeftAlone(_)
        | BootstrapStage::Removed
        | BootstrapStage::Going(_, None) => {}
        BootstrapStage::Kept(why) => {
            let note = format!("the bootstrap node stays: {why}");
            steps.push(LeaderStep::Announce(Announcement { reason: KEPT, note }));
        }
        BootstrapStage::Going(_, Some(step)) => {
            must_mark &= !matches!(*step, LeaderStep::Mark(_));
            steps.push(*step);
        }
    }
    if must_mark {
        steps.insert(0, LeaderStep::Mark(Mark::of(cluster)));
    }
    let outdated = inject::outdated_addresses(cluster, view).into_iter();
    steps.extend(outdated.map(|(pod, text)| LeaderStep::UpdateOptionFile {
        pod: Id::new(&cluster.id.namespace, &pod.name),
        uid: pod.uid.clone(),
        text,
    }));
    let outdated = inject::identity::outdated_values(cluster, view).into_iter();
    steps.extend(outdated.map(|(pod, value)| LeaderStep::AnnotateIdentity {
        pod: Id::new(&cluster.id.namespace, &pod.name),
        uid: pod.uid.clone(),
        value: value.to_owned(),
    }));
    steps.extend(rollout::stage(cluster, view).step());
    if identity::must_read_reports(cluster, view) {
        steps.push(LeaderStep::RecordIdentity);
    }
    let uid = &cluster.workload.metadata.uid;
    let planned = |step| PlannedStep { id: cluster.id.clone(), uid: uid.clone(), step };
    steps.into_iter().map(planned).collect()
}

/// Returns why the guard removes and restarts nothing in the cluster's namespace, if the mode says so.
fn only_observes(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let ns = &*cluster.id.namespace;
    let mode = view.read_only_mode(ns)?;
    Some(format!("namespace {ns} is in mode {}, in which gatera removes and restarts nothing", mode.name()))
}

/// The time for which a state must last to be worth an Event.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(10);

const KEPT: &str = "BootstrapKept";
const REMOVED: &str = "BootstrapRemoved";
const NOT_REMOVED: &str = "NotRemoved";
/// The maximum number of Events about clusters that no selector adopts any more; `gatera status` names all of them.
const MAX_NO_LONGER_GUARDED: usize = 100;
/// The Event reason for a cluster that no selector adopts any more.
pub const NO_LONGER_GUARDED: &str = "NoLongerGuarded";

/// Returns the Event about an object of this cluster's bootstrap node that stays.
fn not_removed(cluster: &Id, target: &RemovalTarget, why: &str) -> Announcement {
    let note = format!(
        "{target} is not removed: {why}; if nothing needs it: kubectl -n {} delete {} {}",
        cluster.namespace,
        target.kind.name().to_ascii_lowercase(),
        target.name
    );
    Announcement { reason: NOT_REMOVED, note }
}
