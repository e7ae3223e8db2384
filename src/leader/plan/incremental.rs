//! The plan, kept between two looks: the steps of a namespace are valid until something in it changes, or for ten
//! seconds.
//!
//! Must not know: what a step is for, or a clock; the caller counts the time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Step, no_longer_adopted, of};
use facts::view::{Changed, Freshness, View, WorldDiff};

/// The time after which all namespaces are planned again: some steps follow from time alone, such as the end of a
/// reservation, and a few follow from another namespace.
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// The steps of the last look, and the world that they follow from.
#[derive(Debug, Default)]
pub struct IncrementalPlanner {
    last: WorldDiff,
    /// The steps of each namespace that has any.
    steps: BTreeMap<String, Vec<Step>>,
}

impl IncrementalPlanner {
    /// Returns all steps that are due, in the order of [`super::next`].
    pub fn next(&mut self, view: &View<'_>, now: Duration) -> Vec<Step> {
        if view.freshness != Freshness::Current {
            *self = Self::default();
            return Vec::new();
        }
        match self.last.changed(view, now, AT_LEAST_EVERY) {
            Changed::Everywhere => {
                self.steps.clear();
                for cluster in view.world.clusters() {
                    let steps = of(cluster, view);
                    if !steps.is_empty() {
                        self.steps.entry(cluster.id.namespace.clone()).or_default().extend(steps);
                    }
                }
            }
            Changed::In(mut places) => {
                // A planned step may be outdated by time alone.
                places.extend(self.steps.keys().cloned());
                for place in places {
                    let steps: Vec<_> = view.clusters_in(&place).flat_map(|it| of(it, view)).collect();
                    if steps.is_empty() {
                        self.steps.remove(&place)
                    } else {
                        self.steps.insert(place, steps)
                    };
                }
            }
        }
        self.steps.values().flatten().cloned().chain(no_longer_adopted(view)).collect()
    }
}
