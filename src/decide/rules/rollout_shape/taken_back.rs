//! The part of G14 about a template that is taken back while a member hangs with it.

use super::{TEMPLATE, warn};
use crate::galera::start_note::Doing;
use crate::object::Workload;
use crate::verdict::Finding;
use crate::view::{Cluster, HANGS, PodFact, State, View};

/// What members that are Ready were made from is known, and it is not the newest template.
pub(super) fn is_known(cluster: &Cluster, view: &View<'_>) -> bool {
    let is = |pod: &PodFact| {
        pod.ready && cluster.is_earlier(pod) && view.knows_revision(&cluster.id, &pod.template)
    };
    cluster.members.iter().filter_map(|member| member.pod.as_deref()).any(is)
}

/// The template that members were made from that are Ready takes the place of one with which a member hangs.
pub(super) fn judge(cluster: &Cluster, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let known = view.revision_of(&cluster.id, &new.spec.template)?;
    let pods = || cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let hangs = pods().find(|pod| !pod.ready && pod.template != known)?;
    let runs_it = |pod: &PodFact| pod.ready && pod.template == known;
    let all_others_run_it = pods().all(|pod| runs_it(pod) || pod.name == hangs.name);
    // With podManagementPolicy Parallel the controller waits for nothing, so it may find no other member to restart.
    let is_safe = !new.parallel() || all_others_run_it && hangs.doing() != Some(Doing::Receives);
    let counts = is_safe && pods().any(runs_it) && cluster.leaving.is_empty() && !cluster.has_no_identity();
    (counts && view.state(cluster) != State::Unknown).then(|| {
        warn(
            TEMPLATE,
            format!(
                "its pod template goes back to what Ready members were made from; let through, although {} is not Ready ({})",
                hangs.name,
                view.count(cluster)
            ),
            "a member that hangs with another template holds up all the others",
            replaced(cluster, hangs, all_others_run_it),
        )
    })
}

/// What becomes of the pod that hangs. While others are to be replaced as well it may not be deleted by hand (G02).
fn replaced(cluster: &Cluster, hangs: &PodFact, may_be_deleted: bool) -> String {
    let (ns, name, minutes) = (&cluster.id.namespace, &hangs.name, HANGS.as_mins());
    if may_be_deleted {
        format!(
            "kubectl -n {ns} delete pod {name}; else gatera replaces it when it has not been Ready for {minutes} minutes"
        )
    } else {
        format!(
            "gatera replaces {name} when it has not been Ready for {minutes} minutes, then the others, one at a time"
        )
    }
}
