//! What there is to tell of a cluster, asked once: of the view, of the plan, and of what injection would write today.
//!
//! Must not know: how it is laid out (`report` does).

use crate::audit::Audit;
use engine::inject;
use engine::verdict::Effect;
use facts::marks;
use facts::marks::overrides::Override;
use facts::view::condition::{self, Condition, Diagnosis};
use facts::view::{Cluster, Member, State, View};
use leader::plan::{bootstrap, rollout};
use leader::recovery;

/// One cluster.
#[derive(Debug)]
pub struct ClusterStatus<'a> {
    /// As the view has it.
    pub cluster: &'a Cluster,
    /// How it is, in a word.
    pub state: State,
    /// Each member, and what is the matter with it.
    pub members: Vec<(&'a Member, Option<Condition>)>,
    /// The one command that brings it back, if no member is Ready.
    pub way_back: Option<String>,
    /// What is the matter with all of them, with the way out.
    pub matters: Vec<Diagnosis>,
    /// How far its bootstrap node is.
    pub bootstrap: bootstrap::Stage,
    /// Members that run with the addresses of before.
    pub behind: Vec<&'a str>,
    /// How far it is with its configuration.
    pub configuration: rollout::Stage,
    /// What somebody should do about members that prove nothing.
    pub unverified: Option<String>,
    /// What its StatefulSet releases now.
    pub waived: Option<Override>,
    /// What is released in its whole namespace now.
    pub glass: Option<Override>,
    /// Its namespace is none of the guard's business.
    pub left_alone: bool,
    /// What would be refused in its namespace as it is, each in its headline, if that was asked.
    pub findings: Vec<String>,
}

impl<'a> ClusterStatus<'a> {
    /// Of this cluster.
    pub fn of(cluster: &'a Cluster, view: &View<'a>) -> Self {
        let bootstrap = bootstrap::stage(cluster, view);
        let outdated = inject::outdated(cluster, view);
        let waived = cluster.workload.metadata.mark(marks::OVERRIDE);
        Self {
            cluster,
            state: view.state(cluster),
            members: cluster.members.iter().map(|it| (it, Condition::of(it, view))).collect(),
            way_back: recovery::way_back(cluster, view),
            matters: condition::matters(cluster, view),
            behind: outdated.iter().map(|(pod, _)| &*pod.name).collect(),
            configuration: rollout::stage(cluster, view),
            // What keeps the bootstrap node says it already.
            unverified: bootstrap::unverified(cluster)
                .filter(|_| !matches!(bootstrap, bootstrap::Stage::Kept(_))),
            waived: waived.and_then(|text| Override::read(text, view.now).ok()),
            glass: view.active_break_glass(&cluster.id.namespace),
            left_alone: view.left_alone(&cluster.id.namespace),
            bootstrap,
            findings: Vec::new(),
        }
    }

    /// With what an audit found in its namespace.
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
