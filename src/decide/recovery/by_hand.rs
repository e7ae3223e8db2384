//! Members whose servers do not start by gatera's step: they tell nobody where their data ends, and go on without comparing it, so
//! that members made now could form a cluster that lacks what only one of them has. No pod of theirs is made.
//!
//! Must not know: how they are started instead (`gatera explain G20`, "Without the step").

use serde_json::Value;

use crate::amend::inject::{Prospect, Start};
use crate::galera::start::Front;
use crate::object::{Kind, Object};
use crate::view::{Cluster, PodFact};

/// Why servers of new pods would not start by the step; `None`: they would.
pub(super) fn why(cluster: &Cluster) -> Option<&'static str> {
    let (spec, server) = cluster.server()?;
    if Front::of(server) == Front::Step {
        return None;
    }
    let claims = cluster.workload.spec.volume_claim_templates.iter().map(|claim| &*claim.metadata.name);
    match Prospect::of(server, &cluster.workload.spec.template.metadata, spec, claims).start {
        Start::Prepended => None,
        Start::Blind { why, .. } => Some(why),
        Start::Recovers => {
            Some("its image, or its command, looks for the position itself and tells it nobody")
        }
    }
}

/// Why no pod is made beside those that are there.
pub(super) fn beside(cluster: &Cluster) -> Option<String> {
    let blind = |pod: &&PodFact| pod.server && !pod.step && !pod.going;
    let pod = cluster.members.iter().filter_map(|member| member.pod.as_deref()).find(blind)?;
    let (ns, name) = (&cluster.id.namespace, &pod.name);
    Some(format!(
        "the server of {name} does not start by gatera's step, so pods that are made beside it may go on with it without comparing what \
         they have; unless its log or grastate.dat tells an id of zeros (gatera explain G04), make it anew, with the override of G02 on it \
         (gatera explain G02): kubectl -n {ns} delete pod {name}; then run this again"
    ))
}

/// What to do about members whose servers do not start by the step.
pub fn blind(serves: bool) -> &'static str {
    if serves {
        "nothing asks the server for its position after a crash: gatera explain G19 says what helps (a pod that was made while the guard was \
         away only has to be made anew)"
    } else {
        "nothing asks the server for its position, so members that come back together go on without comparing what they have: make no \
         pod; gatera explain G20 (\"Without the step\") starts the cluster from its newest data (a pod that was made while the guard was \
         away only has to be made anew)"
    }
}

/// The server in this pod, as an API server would make it.
pub fn starts_by_the_step(pod: &Value) -> bool {
    match Object::read(Kind::Pod, &pod.to_string()) {
        Ok(Object::Pod(pod)) => PodFact::of(&pod).step,
        _ => false,
    }
}
