//! What the leader does next: a pure function of the view.
//!
//! Owns: [`Step`] and [`next`]. Must not know: clients; `reconcile.rs` applies the steps. A step that is done is not
//! planned again, so in steady state there is nothing to do and no API call is made. `plan/bootstrap.rs` knows when the
//! bootstrap node goes, `plan/warrant.rs` what may be deleted without the view showing it.

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

use bootstrap::Stage;
use rollout::Configure;

pub use incremental::IncrementalPlanner;
pub use scheduler::StepScheduler;
pub use warrant::{Found, Warrant, is_marked, warrant};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write the marks of a cluster that holds data.
    Mark(Mark),
    /// A member that runs gets another option file.
    Address {
        /// Its pod.
        pod: Id,
        /// The pod's uid.
        uid: String,
        /// The option file.
        text: String,
    },
    /// Ask what the pods of a cluster told of its id, and record what follows.
    Ask {
        /// The StatefulSet.
        id: Id,
        /// Its uid.
        uid: String,
    },
    /// A pod that runs is told its cluster's id.
    Identity {
        /// The pod.
        pod: Id,
        /// Its uid.
        uid: String,
        /// What it is told: an id, or another word.
        is: String,
    },
    /// Write down which configuration members start with.
    Configure(Box<Configure>),
    /// A member restarts.
    Evict {
        /// Its StatefulSet.
        id: Id,
        /// Its pod.
        pod: String,
        /// The pod's uid.
        uid: String,
        /// It has to be due for so long before it is done.
        patience: Duration,
    },
    /// Write the guard's mark on an object that is about to go.
    Condemn(PendingDeletion),
    /// Delete this object.
    Delete(PendingDeletion),
    /// The note named what it must not: tell everybody, and put the right one in its place.
    Correct {
        /// What is told.
        told: Vec<Announcement>,
        /// Without a note it is taken out.
        mark: Mark,
    },
    /// The rest of a clean-up, each part harmless when it is done twice.
    Finish(Finish),
    /// Tell everybody what the clean-up waits for, if it waits for long.
    Announce(Announcement),
}

impl Step {
    /// It deletes or restarts something, or says who does: it begins only if it still follows from the world.
    pub fn destroys(&self) -> bool {
        matches!(self, Self::Delete(_) | Self::Finish(_) | Self::Configure(_) | Self::Evict { .. })
    }

    /// What it is done to, in the words of `kubectl get`.
    pub fn object(&self) -> String {
        let set = |id: &Id| format!("StatefulSet {id}");
        match self {
            Self::Address { pod, .. } | Self::Identity { pod, .. } => format!("Pod {pod}"),
            Self::Evict { id, pod, .. } => format!("Pod {}/{pod}", id.namespace),
            Self::Condemn(it) | Self::Delete(it) => {
                format!("{} {}/{}", it.target.kind.name(), it.id.namespace, it.target.name)
            }
            Self::Mark(Mark { id, .. })
            | Self::Correct { mark: Mark { id, .. }, .. }
            | Self::Finish(Finish { id, .. })
            | Self::Announce(Announcement { id, .. })
            | Self::Ask { id, .. } => set(id),
            Self::Configure(it) => set(&it.id),
        }
    }

    /// It is done once it was due for so long without a break: what lasts shorter is not worth it.
    pub fn patience(&self) -> Duration {
        match self {
            Self::Announce(_) => LASTS,
            Self::Configure(it) => it.patience,
            Self::Evict { patience, .. } => *patience,
            _ => Duration::ZERO,
        }
    }
}

/// What is done, for logs: the object stands beside it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(Mark { bootstrap: None, .. }) => f.write_str("record that the cluster holds data"),
            Self::Mark(Mark { bootstrap: Some(_), .. }) => {
                f.write_str("record that the cluster holds data, and that its bootstrap node goes")
            }
            Self::Address { .. } => f.write_str("give the member the addresses of its peers as they are now"),
            Self::Ask { .. } => f.write_str("read from its members which cluster they are in, and record it"),
            Self::Identity { is, .. } => write!(f, "tell the member its cluster's identity ({is})"),
            Self::Configure(_) => f.write_str("record which configuration its members start with"),
            Self::Evict { .. } => f.write_str("restart the member with what it is to run now"),
            Self::Condemn(_) => f.write_str("mark the object, which goes with the bootstrap node"),
            Self::Delete(_) => f.write_str("delete the object, which belongs to the bootstrap node"),
            Self::Correct { .. } => f.write_str("correct the record of what goes with the bootstrap node"),
            Self::Finish(_) => f.write_str("finish the removal of the bootstrap node"),
            Self::Announce(it) => write!(f, "write an Event ({}: {})", it.reason, it.note),
        }
    }
}

/// An object that goes, in the version in which it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingDeletion {
    /// The StatefulSet whose bootstrap node it belongs to; it is in the same namespace.
    pub id: Id,
    /// The uid of that StatefulSet.
    pub owner: String,
    /// The object.
    pub target: RemovalTarget,
    /// Its version.
    pub version: String,
}

/// The rest of a clean-up: delete what no watch shows, tell everybody, and write the note by which it is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The StatefulSet.
    pub id: Id,
    /// Its uid.
    pub uid: String,
    /// What the view does not show any more, or never did: gone, or to be looked up and judged ([`warrant`]).
    pub rest: Vec<RemovalTarget>,
    /// What is left alone, and why.
    pub left: Vec<(RemovalTarget, String)>,
    /// How the cluster is.
    pub count: String,
}

impl Finish {
    /// What everybody should know, if these are left alone.
    pub fn told(&self, left: &[(RemovalTarget, String)]) -> Vec<Announcement> {
        let stays = |target: &RemovalTarget| left.iter().any(|(it, _)| it == target);
        let gone: Vec<_> = self.rest.iter().filter(|it| !stays(it)).map(ToString::to_string).collect();
        let about = |reason, note| Announcement { id: self.id.clone(), uid: self.uid.clone(), reason, note };
        let removed = (!gone.is_empty())
            .then(|| about(REMOVED, format!("removed {}: {}", gone.join(", "), self.count)));
        let kept = left.iter().map(|(target, why)| about(NOT_REMOVED, not_removed(&self.id, target, why)));
        kept.chain(removed).collect()
    }

    /// By this note it is over.
    pub fn mark(&self) -> Mark {
        let bootstrap = Some(Removal::Done.note(&self.uid));
        Mark { id: self.id.clone(), uid: self.uid.clone(), version: String::new(), bootstrap }
    }
}

/// The marks of a StatefulSet: data, and what becomes of its bootstrap node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The StatefulSet.
    pub id: Id,
    /// Its uid.
    pub uid: String,
    /// Only if it is still this version of it; empty: any.
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

    fn with(cluster: &Cluster, removal: &Removal) -> Self {
        let mark = Self::of(cluster);
        Self { bootstrap: Some(removal.note(&mark.uid)), ..mark }
    }
}

/// Something about a cluster that everybody should see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// Its StatefulSet.
    pub id: Id,
    /// The StatefulSet's uid.
    pub uid: String,
    /// One word for it.
    pub reason: &'static str,
    /// What is to be said.
    pub note: String,
}

impl Announcement {
    fn about(cluster: &Cluster, reason: &'static str, note: String) -> Self {
        Self { id: cluster.id.clone(), uid: cluster.workload.metadata.uid.clone(), reason, note }
    }
}

/// Everything there is to do, in an order that is always the same: by namespace, and by name.
pub fn next(view: &View<'_>) -> Vec<Step> {
    view.world.clusters().flat_map(|cluster| of(cluster, view)).chain(no_longer_adopted(view)).collect()
}

/// Clusters that the settings no longer adopt. An editor of a namespace can write the mark on any number of StatefulSets.
fn no_longer_adopted(view: &View<'_>) -> impl Iterator<Item = Step> {
    let current = view.freshness == Freshness::Current;
    view.no_longer_adopted().filter(move |_| current).take(MOST_NO_LONGER_GUARDED).map(|(id, uid)| {
        let note = format!("{}; {}", once_guarded::SAYS, once_guarded::instead(id));
        Step::Announce(Announcement { id: id.clone(), uid: uid.to_owned(), reason: NO_LONGER_GUARDED, note })
    })
}

fn of<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<Step> {
    let ns = &*cluster.id.namespace;
    let view = &view.of_namespace(ns);
    // Where its StatefulSet is gone nobody makes a member anew.
    let over =
        cluster.left || cluster.workload.metadata.going() || view.namespace_going(ns) || view.left_alone(ns);
    if view.freshness != Freshness::Current || over {
        return Vec::new();
    }
    let mut steps = Vec::new();
    // Verified or not: a Ready that proves nothing may still mean data, and a mark that is missing lets a second bootstrap
    // wipe it.
    let mut marks = cluster.workload.metadata.mark(marks::DATA) == Some("none") && cluster.ready() > 0;
    match bootstrap::stage(cluster, view) {
        Stage::Absent | Stage::LeftAlone(_) | Stage::Removed | Stage::Going(_, None) => {}
        Stage::Kept(why) => {
            let note = format!("the bootstrap node stays: {why}");
            steps.push(Step::Announce(Announcement::about(cluster, KEPT, note)));
        }
        Stage::Going(_, Some(step)) => {
            marks &= !matches!(*step, Step::Mark(_));
            steps.push(*step);
        }
    }
    if marks {
        steps.insert(0, Step::Mark(Mark::of(cluster)));
    }
    let outdated = inject::outdated(cluster, view).into_iter();
    steps.extend(outdated.map(|(pod, text)| Step::Address {
        pod: Id::new(&cluster.id.namespace, &pod.name),
        uid: pod.uid.clone(),
        text,
    }));
    let outdated = inject::identity::outdated(cluster, view).into_iter();
    steps.extend(outdated.map(|(pod, is)| Step::Identity {
        pod: Id::new(&cluster.id.namespace, &pod.name),
        uid: pod.uid.clone(),
        is: is.to_owned(),
    }));
    steps.extend(rollout::stage(cluster, view).step());
    if identity::asks(cluster, view) {
        steps.push(Step::Ask { id: cluster.id.clone(), uid: cluster.workload.metadata.uid.clone() });
    }
    steps
}

/// Why nothing is done in its namespace.
fn looks_only(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let ns = &*cluster.id.namespace;
    let mode = view.only_looks(ns)?;
    Some(format!("namespace {ns} is in mode {}, in which gatera only looks", mode.name()))
}

/// What lasts shorter is not worth an Event.
const LASTS: Duration = Duration::from_secs(10);

/// Why an Event is written.
const KEPT: &str = "BootstrapKept";
const REMOVED: &str = "BootstrapRemoved";
const NOT_REMOVED: &str = "NotRemoved";
/// Events are written about this many clusters that no selector adopts any more; `gatera status` names all.
const MOST_NO_LONGER_GUARDED: usize = 100;
/// No selector adopts the cluster any more.
pub const NO_LONGER_GUARDED: &str = "NoLongerGuarded";

fn not_removed(id: &Id, target: &RemovalTarget, why: &str) -> String {
    format!(
        "{target} is left alone: {why}; if nothing needs it: kubectl -n {} delete {} {}",
        id.namespace,
        target.kind.name().to_ascii_lowercase(),
        target.name
    )
}
