//! The plan, kept from one pass to the next: a cluster is planned again if something that concerns it has changed, if it has
//! steps, or after ten seconds.
//!
//! Must not know: what a step is for, or a clock; the caller counts the time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{PlannedStep, no_longer_adopted, steps_of};
use facts::view::{Changed, Cluster, Freshness, Id, Places, View, WorldDiff};

/// The time after which all clusters are planned again: some steps follow from time alone, such as the end of a
/// reservation, and a few follow from another cluster or namespace.
const FULL_PLAN_INTERVAL: Duration = Duration::from_secs(10);

/// The steps that were planned last, and the world from which they follow.
#[derive(Debug, Default)]
pub struct IncrementalPlanner {
    last: WorldDiff,
    /// The steps of each cluster that has any.
    steps: BTreeMap<Id, Vec<PlannedStep>>,
}

impl IncrementalPlanner {
    /// Returns all steps that are due, in the order of [`super::next`].
    pub fn next(&mut self, view: &View<'_>, now: Duration) -> Vec<PlannedStep> {
        if view.freshness != Freshness::Current {
            *self = Self::default();
            return Vec::new();
        }
        match self.last.changed(view, now, FULL_PLAN_INTERVAL) {
            Changed::Everywhere => {
                self.steps.clear();
                view.world.clusters().for_each(|cluster| self.plan(cluster, view));
            }
            Changed::In(Places { whole, mut clusters }) => {
                // A planned step may be outdated by time alone.
                clusters.extend(std::mem::take(&mut self.steps).into_keys());
                let named = clusters.iter().filter_map(|id| view.cluster(&id.namespace, &id.name));
                let named = named.filter(|it| !whole.contains(&it.id.namespace));
                let there = whole.iter().flat_map(|place| view.clusters_in(place));
                named.chain(there).for_each(|cluster| self.plan(cluster, view));
            }
        }
        self.steps.values().flatten().cloned().chain(no_longer_adopted(view)).collect()
    }

    fn plan(&mut self, cluster: &Cluster, view: &View<'_>) {
        let steps = steps_of(cluster, view);
        if !steps.is_empty() {
            self.steps.insert(cluster.id.clone(), steps);
        }
    }
}
