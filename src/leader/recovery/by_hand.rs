//! Members whose servers do not start by gatera's step script: they report no position and start without comparing it,
//! so members that are created now could form a cluster that lacks rows which only one of them has. No pods are created
//! for them.
//!
//! Must not know: how they are started instead (`gatera explain G20`, "Without the step").

use serde_json::Value;

use engine::inject::{PlannedInjection, StartMethod};
use facts::galera::start::EntryPoint;
use facts::view::{Cluster, PodFact, View};
use objects::{Kind, Object};

/// Returns why servers of new pods would not start by the step script; `None`: they would.
pub(super) fn why(cluster: &Cluster) -> Option<&'static str> {
    let (spec, server) = cluster.server()?;
    if EntryPoint::of(server) == EntryPoint::Step {
        return None;
    }
    let claims = cluster.workload.spec.volume_claim_templates.iter().map(|claim| &*claim.metadata.name);
    match PlannedInjection::of(server, &cluster.workload.spec.template.metadata, spec, claims).start {
        StartMethod::Prepended => None,
        StartMethod::Blind { why, .. } => Some(why),
        StartMethod::Recovers => {
            Some("its image or command recovers the position itself and does not report it")
        }
    }
}

/// Returns why no pod is created beside those that exist; `None`: pods may be created.
pub(super) fn beside(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let blind = |pod: &&PodFact| pod.server && !pod.step && !pod.terminating;
    let pod = cluster.members.iter().filter_map(|member| member.pod.as_deref()).find(blind)?;
    let (ns, name) = (&cluster.id.namespace, &pod.name);
    let until = view.example_override_end();
    Some(format!(
        "the server of {name} does not start by gatera's step script; pods created beside it may join it without comparing data. Look at its \
         grastate.dat first: if its uuid is zeros, see gatera explain G04; otherwise: kubectl -n {ns} annotate pod {name} \
         'gatera.dev/override=G02 until={until} reason=…', then kubectl -n {ns} delete pod {name}, then run this again"
    ))
}

/// Returns whether the server in this pod starts by the step script, given the pod as an API server would make it.
pub fn starts_by_the_step(pod: &Value) -> bool {
    match Object::read(Kind::Pod, &pod.to_string()) {
        Ok(Object::Pod(pod)) => PodFact::of(&pod).step,
        _ => false,
    }
}
