//! The status of a cluster, collected once: from the view, from the plan, and from what injection would write today.
//!
//! Must not know: how it is laid out (`report` does).

use crate::audit::Audit;
use engine::inject;
use engine::verdict::Effect;
use facts::marks;
use facts::marks::overrides::Override;
use facts::view::condition::{self, Condition, Diagnosis};
use facts::view::{Cluster, Member, State, View};
use facts::way_out::WayOut;
use leader::plan::bootstrap::{self, BootstrapStage};
use leader::plan::rollout::{self, RolloutStage};
use leader::recovery;

#[derive(Debug)]
pub struct ClusterStatus<'a> {
    pub cluster: &'a Cluster,
    pub state: State,
    /// Each member, with its condition.
    pub members: Vec<(&'a Member, Option<Condition>)>,
    /// How to bring the cluster back, if it is stopped or down, or if its StatefulSet is gone.
    pub way_back: Option<WayOut>,
    /// What is wrong, with the way out.
    pub diagnoses: Vec<Diagnosis>,
    /// The stage of the removal of its bootstrap node.
    pub bootstrap: BootstrapStage,
    /// Members that run with outdated addresses.
    pub outdated: Vec<&'a str>,
    /// The stage of the rollout of its configuration.
    pub configuration: RolloutStage,
    /// What to do about members that are Ready without proof that they are Synced; `None` while the bootstrap node is kept.
    pub unverified: Option<String>,
    /// The override on its StatefulSet that is in effect now.
    pub active_override: Option<Override>,
    /// The break-glass exception of its namespace that is in effect now.
    pub break_glass: Option<Override>,
    /// Whether its namespace is in mode off.
    pub mode_off: bool,
    /// The headline of each finding that would refuse an object in its namespace; empty unless an audit was requested.
    pub findings: Vec<String>,
}

impl<'a> ClusterStatus<'a> {
    pub fn of(cluster: &'a Cluster, view: &View<'a>) -> Self {
        let bootstrap = bootstrap::stage(cluster, view);
        let outdated = inject::outdated_addresses(cluster, view);
        let annotation = cluster.workload.metadata.mark(marks::OVERRIDE);
        Self {
            cluster,
            state: view.state(cluster),
            members: cluster.members.iter().map(|it| (it, Condition::of(it, view))).collect(),
            way_back: recovery::way_back(cluster, view),
            diagnoses: condition::diagnoses(cluster, view),
            outdated: outdated.iter().map(|(pod, _)| &*pod.name).collect(),
            configuration: rollout::stage(cluster, view),
            // The reason to keep the bootstrap node is shown instead: it is often this advice.
            unverified: bootstrap::unverified(cluster)
                .filter(|_| !matches!(bootstrap, BootstrapStage::Kept(_))),
            active_override: annotation.and_then(|text| Override::read(text, view.now).ok()),
            break_glass: view.active_break_glass(&cluster.id.namespace),
            mode_off: view.is_mode_off(&cluster.id.namespace),
            bootstrap,
            findings: Vec::new(),
        }
    }

    /// Returns the status of each cluster.
    pub fn all(view: &View<'a>) -> Vec<Self> {
        view.world.clusters().map(|it| Self::of(it, view)).collect()
    }

    /// Adds the findings of an audit in its namespace.
    #[must_use]
    pub fn with_findings(self, audit: &Audit) -> Self {
        let ours = audit.objects.iter().filter(|it| it.id.namespace == self.cluster.id.namespace);
        let refused = ours.flat_map(|it| {
            it.decision.with(Effect::Refused).map(move |judged| (&it.subject, &judged.finding))
        });
        let findings = refused
            .map(|(subject, finding)| format!("[{}] {subject}: {}", finding.rule, finding.says))
            .collect();
        Self { findings, ..self }
    }
}
