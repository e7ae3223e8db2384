//! Repeated audits: the findings of a namespace are reused until something in it changes, and for a minute at most.
//!
//! Must not know: metrics, Events, or a clock; the caller passes the time. Of a namespace only numbers, the states of its
//! clusters and the findings that were published are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Audit, Counts, NewFindings, PublishedFindings, audit_namespace, namespaces};
use engine::rulebook::Rulebook;
use facts::view::{Changed, Cluster, Freshness, Id, State, View, WorldDiff};
use leader::plan::rollout;

/// The longest time between two audits of a namespace in which nothing changes: overrides expire without a change, and an address
/// may name a Service of another namespace.
const MAX_AUDIT_INTERVAL: Duration = Duration::from_secs(60);

/// The state that the leader keeps between two audits.
#[derive(Debug, Default)]
pub struct IncrementalAudit {
    last: WorldDiff,
    namespaces: BTreeMap<String, NamespaceFindings>,
}

/// The state of one cluster in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReading {
    /// Namespace and name of its StatefulSet.
    pub id: Id,
    pub state: State,
    /// The stage of its configuration's rollout, as one word.
    pub rollout: &'static str,
    /// The number of members that there should be.
    pub members: i64,
    /// The number of members that are Ready.
    pub ready: usize,
}

impl ClusterReading {
    /// Reads the state of a cluster.
    pub fn of(cluster: &Cluster, view: &View<'_>) -> Self {
        Self {
            id: cluster.id.clone(),
            state: view.state(cluster),
            rollout: rollout::stage(cluster, view).name(),
            members: cluster.workload.replicas(),
            ready: cluster.ready(),
        }
    }
}

/// The findings of a namespace.
#[derive(Debug, Default)]
struct NamespaceFindings {
    clusters: Vec<Arc<ClusterReading>>,
    counts: Counts,
    judged: usize,
    refused: usize,
    warned: usize,
    published: PublishedFindings,
    /// The number of findings that are still to be published.
    held_back: usize,
}

/// The result of a round.
#[derive(Debug, Default)]
pub struct Round {
    /// Every cluster. Shared: most are the same as in the round before.
    pub clusters: Vec<Arc<ClusterReading>>,
    /// Objects by rule and verdict; `None` while the view is not current, because an old view proves neither that a
    /// finding exists nor that it is gone.
    pub counts: Option<Counts>,
    /// The number of objects that were judged, in this round or before.
    pub judged: usize,
    /// The number of objects that would be refused.
    pub refused: usize,
    /// The number of objects that would be allowed with a warning.
    pub warned: usize,
    /// The number of new findings that a later round publishes.
    pub held_back: usize,
}

impl IncrementalAudit {
    /// Judges what changed, passes each audit of a namespace to `see`, and publishes up to `most` new findings. A later round
    /// publishes the rest.
    pub fn next(
        &mut self,
        rulebook: &Rulebook,
        view: &View<'_>,
        now: Duration,
        most: usize,
        mut see: impl FnMut(&str, &Audit),
        mut publish: impl FnMut(&NewFindings<'_>),
    ) -> Round {
        if view.freshness != Freshness::Current {
            self.last = WorldDiff::default();
            let clusters = view.world.clusters().map(|it| Arc::new(ClusterReading::of(it, view)));
            return Round { clusters: clusters.collect(), ..Round::default() };
        }
        let due: BTreeSet<String> = match self.last.changed(view, now, MAX_AUDIT_INTERVAL) {
            Changed::Everywhere => {
                let there = namespaces(view);
                self.namespaces.retain(|name, _| there.contains(name));
                there
            }
            Changed::In(places) => {
                let mut due = places.namespaces();
                let waiting = self.namespaces.iter().filter(|(_, findings)| findings.held_back > 0);
                due.extend(waiting.map(|(name, _)| name.clone()));
                due
            }
        };
        let mut left = most;
        for name in due {
            let audit = audit_namespace(rulebook, view, &name);
            see(&name, &audit);
            let clusters = view.clusters_in(&name).map(|it| Arc::new(ClusterReading::of(it, view))).collect();
            let findings = self.namespaces.entry(name).or_default();
            findings.clusters = clusters;
            left -= findings.replace(&audit, left, &mut publish);
        }
        self.namespaces.retain(|_, findings| findings.judged > 0 || !findings.clusters.is_empty());
        self.sum()
    }

    /// Returns whether an object in this namespace had a finding when it was judged last.
    pub fn has_findings(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|findings| !findings.counts.is_empty())
    }

    fn sum(&self) -> Round {
        let mut sum = Round { counts: Some(Counts::new()), ..Round::default() };
        for findings in self.namespaces.values() {
            sum.clusters.extend(findings.clusters.iter().cloned());
            for (key, count) in &findings.counts {
                *sum.counts.get_or_insert_default().entry(*key).or_default() += count;
            }
            sum.judged += findings.judged;
            sum.refused += findings.refused;
            sum.warned += findings.warned;
            sum.held_back += findings.held_back;
        }
        sum
    }
}

impl NamespaceFindings {
    /// Replaces the earlier findings by these, and returns how many were published.
    fn replace(&mut self, audit: &Audit, most: usize, publish: &mut impl FnMut(&NewFindings<'_>)) -> usize {
        let (new, held_back) = self.published.new_findings(audit, most);
        new.iter().for_each(publish);
        (self.counts, self.judged, self.held_back) = (audit.counts(), audit.judged, held_back);
        (self.refused, self.warned) = (audit.refused(), audit.warned());
        new.len()
    }
}
