//! What the leader does next: a pure function of the view.
//!
//! Owns: [`LeaderStep`] and [`next`]. Must not know: clients; `reconcile.rs` applies the steps. A step that is done is not
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

use bootstrap::BootstrapStage;
use rollout::Configure;

pub use incremental::IncrementalPlanner;
pub use scheduler::StepScheduler;
pub use warrant::{LookedUp, Warrant, is_marked, warrant};

/// One step of the plan, which the leader carries out.
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
    RecordIdentity {
        id: Id,
        uid: String,
    },
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
        id: Id,
        pod: String,
        uid: String,
        /// The step must be due for this long before it is done.
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
    /// Finish a clean-up; each part of it may be repeated.
    Finish(Finish),
    /// Publish what the clean-up waits for, if it waits for long.
    Announce(Announcement),
}

impl LeaderStep {
    /// Returns whether the step deletes or restarts something, or decides what is deleted or restarted; such a step
    /// begins only if it still follows from the current view.
    pub fn destroys(&self) -> bool {
        matches!(self, Self::Delete(_) | Self::Finish(_) | Self::Configure(_) | Self::Evict { .. })
    }

    /// Returns the StatefulSet that the step is about.
    pub fn cluster(&self) -> Id {
        match self {
            Self::UpdateOptionFile { pod, .. } | Self::AnnotateIdentity { pod, .. } => {
                let set = pod.name.rsplit_once('-').map_or(&*pod.name, |(set, _)| set);
                Id::new(&pod.namespace, set)
            }
            Self::MarkForRemoval(it) | Self::Delete(it) => it.id.clone(),
            Self::Mark(Mark { id, .. })
            | Self::CorrectRecord { mark: Mark { id, .. }, .. }
            | Self::Finish(Finish { id, .. })
            | Self::Announce(Announcement { id, .. })
            | Self::Evict { id, .. }
            | Self::RecordIdentity { id, .. } => id.clone(),
            Self::Configure(it) => it.id.clone(),
        }
    }

    /// Returns the object that the step changes, as `kubectl get` names it.
    pub fn object(&self) -> String {
        match self {
            Self::UpdateOptionFile { pod, .. } | Self::AnnotateIdentity { pod, .. } => format!("Pod {pod}"),
            Self::Evict { id, pod, .. } => format!("Pod {}/{pod}", id.namespace),
            Self::MarkForRemoval(it) | Self::Delete(it) => {
                format!("{} {}/{}", it.target.kind.name(), it.id.namespace, it.target.name)
            }
            _ => format!("StatefulSet {}", self.cluster()),
        }
    }

    /// Returns how long the step must be due without a break before it is done.
    pub fn patience(&self) -> Duration {
        match self {
            Self::Announce(_) => ANNOUNCE_AFTER,
            Self::Configure(it) => it.patience,
            Self::Evict { patience, .. } => *patience,
            _ => Duration::ZERO,
        }
    }
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
            Self::RecordIdentity { .. } => {
                f.write_str("read the cluster's identity from its members and record it")
            }
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

/// An object that is about to be deleted, in the version that was judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingDeletion {
    /// The StatefulSet whose bootstrap node it belongs to; it is in the same namespace.
    pub id: Id,
    /// The uid of that StatefulSet.
    pub owner: String,
    pub target: RemovalTarget,
    pub version: String,
}

/// The rest of a clean-up: delete what no watch shows, publish Events, and record that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finish {
    pub id: Id,
    pub uid: String,
    /// Objects that the view does not show: gone already, or to be looked up and judged ([`warrant`]).
    pub remaining: Vec<RemovalTarget>,
    /// Objects that stay, each with the reason.
    pub left: Vec<(RemovalTarget, String)>,
    pub count: String,
}

impl Finish {
    /// Returns the Events to publish if these objects stay.
    pub fn events(&self, left: &[(RemovalTarget, String)]) -> Vec<Announcement> {
        let stays = |target: &RemovalTarget| left.iter().any(|(it, _)| it == target);
        let gone: Vec<_> = self.remaining.iter().filter(|it| !stays(it)).map(ToString::to_string).collect();
        let about = |reason, note| Announcement { id: self.id.clone(), uid: self.uid.clone(), reason, note };
        let removed = (!gone.is_empty())
            .then(|| about(REMOVED, format!("removed {}: {}", gone.join(", "), self.count)));
        let kept = left.iter().map(|(target, why)| about(NOT_REMOVED, not_removed(&self.id, target, why)));
        kept.chain(removed).collect()
    }

    /// Returns the mark that records the end of the clean-up.
    pub fn mark(&self) -> Mark {
        let bootstrap = Some(Removal::Done.record(&self.uid));
        Mark { id: self.id.clone(), uid: self.uid.clone(), version: String::new(), bootstrap }
    }
}

/// The marks of a StatefulSet: whether it holds data, and what becomes of its bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    pub id: Id,
    pub uid: String,
    /// The mark is written only to this version of the StatefulSet; empty means any.
    pub version: String,
    /// What becomes of its bootstrap node, if that is known.
    pub bootstrap: Option<String>,
}

impl Mark {
    fn of(cluster: &Cluster) -> Self {
        let meta = &cluster.workload.metadata;
        let bootstrap = meta.mark(marks::BOOTSTRAP).map(str::to_owned);
        Self { id: cluster.id.clone(), uid: meta.uid.clone(), version: String::new(), bootstrap }
    }

    /// Returns the marks with this removal as the record, for the StatefulSet in its current version.
    fn with(cluster: &Cluster, removal: Option<&Removal>) -> Self {
        let (mark, version) = (Self::of(cluster), cluster.workload.metadata.resource_version.clone());
        Self { bootstrap: removal.map(|it| it.record(&mark.uid)), version, ..mark }
    }
}

/// An Event about a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    pub id: Id,
    pub uid: String,
    pub reason: &'static str,
    /// The text of the Event.
    pub note: String,
}

impl Announcement {
    fn about(cluster: &Cluster, reason: &'static str, note: String) -> Self {
        Self { id: cluster.id.clone(), uid: cluster.workload.metadata.uid.clone(), reason, note }
    }
}

/// Returns all steps that are due, always in the same order: by namespace, then by name.
pub fn next(view: &View<'_>) -> Vec<LeaderStep> {
    view.world.clusters().flat_map(|cluster| steps_of(cluster, view)).chain(no_longer_adopted(view)).collect()
}

/// Returns whether this step of a cluster still follows from the view.
pub fn still_due(step: &LeaderStep, view: &View<'_>) -> bool {
    let Id { namespace, name } = step.cluster();
    view.cluster(&namespace, &name).is_some_and(|cluster| steps_of(cluster, view).contains(step))
}

/// Returns the Events about clusters that the settings no longer adopt. Their number is limited, because an editor of a
/// namespace can write the mark on any number of StatefulSets.
fn no_longer_adopted(view: &View<'_>) -> impl Iterator<Item = LeaderStep> {
    let current = view.freshness == Freshness::Current;
    view.no_longer_adopted().filter(move |_| current).take(MAX_NO_LONGER_GUARDED).map(|(id, uid)| {
        let note = format!("{}; {}", once_guarded::EXPLANATION, once_guarded::way_out(id));
        LeaderStep::Announce(Announcement {
            id: id.clone(),
            uid: uid.to_owned(),
            reason: NO_LONGER_GUARDED,
            note,
        })
    })
}

fn steps_of<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<LeaderStep> {
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
            steps.push(LeaderStep::Announce(Announcement::about(cluster, KEPT, note)));
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
        steps.push(LeaderStep::RecordIdentity {
            id: cluster.id.clone(),
            uid: cluster.workload.metadata.uid.clone(),
        });
    }
    steps
}

/// Returns why the guard only observes in the cluster's namespace, and removes and restarts nothing there, if that is so.
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
/// The number of clusters that no selector adopts any more and that Events name; `gatera status` names all.
const MAX_NO_LONGER_GUARDED: usize = 100;
/// The Event reason for a cluster that no selector adopts any more.
pub const NO_LONGER_GUARDED: &str = "NoLongerGuarded";

fn not_removed(id: &Id, target: &RemovalTarget, why: &str) -> String {
    format!(
        "{target} is not removed: {why}; if nothing needs it: kubectl -n {} delete {} {}",
        id.namespace,
        target.kind.name().to_ascii_lowercase(),
        target.name
    )
}
