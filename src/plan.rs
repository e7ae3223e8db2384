//! What the leader does next: a pure function of the view.
//!
//! Owns: [`Step`] and [`next`]. Must not know: clients; `reconcile.rs` applies the steps. A step that is done is not
//! planned again, so in steady state there is nothing to do and no API call is made. `plan/bootstrap.rs` knows when the
//! bootstrap node goes.

pub mod bootstrap;

use crate::inject;
use crate::marks;
use crate::view::{Cluster, Freshness, Id, Removal, Target, View};

use bootstrap::Stage;

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
    /// Delete this object.
    Delete(String, Target),
    /// The rest of a clean-up, each part harmless when it is done twice: delete what no watch shows, tell everybody, and
    /// write the mark by which it is over.
    Finish {
        /// The rest.
        delete: Vec<Target>,
        /// What is told.
        told: Told,
        /// Written last.
        mark: Mark,
    },
    /// Tell everybody what the clean-up waits for, if it waits for long.
    Tell(Told),
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
pub struct Told {
    /// Its StatefulSet.
    pub id: Id,
    /// The StatefulSet's uid.
    pub uid: String,
    /// One word for it.
    pub reason: &'static str,
    /// What is to be said.
    pub note: String,
}

impl Told {
    fn about(cluster: &Cluster, reason: &'static str, note: String) -> Self {
        Self { id: cluster.id.clone(), uid: cluster.workload.metadata.uid.clone(), reason, note }
    }
}

/// Everything there is to do, in an order that is always the same.
pub fn next(view: &View<'_>) -> Vec<Step> {
    if view.freshness != Freshness::Current {
        return Vec::new();
    }
    let stays = |it: &&Cluster| {
        let ns = &*it.id.namespace;
        !it.workload.metadata.going() && !view.namespace_going(ns) && !view.left_alone(ns)
    };
    view.world.clusters().filter(stays).flat_map(|cluster| of(cluster, view)).collect()
}

fn of<'a>(cluster: &'a Cluster, view: &View<'a>) -> Vec<Step> {
    let mut steps = Vec::new();
    // Verified or not: a Ready that proves nothing may still mean data, and a mark that is missing lets a second bootstrap
    // wipe it.
    let mut marks = cluster.workload.metadata.mark(marks::DATA) == Some("none") && cluster.ready() > 0;
    match bootstrap::stage(cluster, view) {
        Stage::Absent | Stage::LeftAlone(_) | Stage::Removed | Stage::Going(_, None) => {}
        Stage::Kept(why) => {
            let note = format!("the bootstrap node stays: {why}");
            steps.push(Step::Tell(Told::about(cluster, KEPT, note)));
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
    steps
}

/// Why an Event is written.
const KEPT: &str = "BootstrapKept";
const REMOVED: &str = "BootstrapRemoved";
