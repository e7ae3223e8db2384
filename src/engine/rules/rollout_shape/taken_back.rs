//! The part of G14 about a template that is taken back while a member hangs with it.

use super::{TEMPLATE, warn};
use crate::verdict::Finding;
use facts::galera::start_report::JoinPhase;
use facts::view::{Cluster, HANGS, PodFact, State, View};
use objects::Workload;

/// There is a template that [`judge`] allows.
pub(super) fn is_known(cluster: &Cluster, view: &View<'_>) -> bool {
    let mut pods = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    pods.any(|pod| {
        let known = &pod.template;
        cluster.is_earlier(pod)
            && view.knows_revision(&cluster.id, known)
            && hanging(cluster, known, cluster.workload.parallel(), view).is_some()
    })
}

/// The member that hangs with another template than this revision's, if that may take its place; and whether all others were made
/// from this revision.
fn hanging<'c>(
    cluster: &'c Cluster,
    known: &str,
    parallel: bool,
    view: &View<'_>,
) -> Option<(&'c PodFact, bool)> {
    let pods = || cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let hangs = pods().find(|pod| !pod.ready && pod.template != known)?;
    let runs_it = |pod: &PodFact| pod.ready && pod.template == known;
    let all_others_run_it = pods().all(|pod| runs_it(pod) || pod.name == hangs.name);
    // With podManagementPolicy Parallel the controller waits for nothing, so it may find no other member to restart.
    let is_safe = !parallel || all_others_run_it && hangs.doing() != Some(JoinPhase::Receives);
    let counts = is_safe && pods().any(runs_it) && cluster.leaving.is_empty() && !cluster.has_no_identity();
    (counts && view.state(cluster) != State::Unknown).then_some((hangs, all_others_run_it))
}

/// The template that members were made from that are Ready takes the place of one with which a member hangs.
pub(super) fn judge(cluster: &Cluster, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let known = view.revision_of(&cluster.id, &new.spec.template)?;
    let (hangs, all_others_run_it) = hanging(cluster, known, new.parallel(), view)?;
    Some(warn(
        TEMPLATE,
        format!(
            "its pod template goes back to what Ready members were made from; allowed, although {} is not Ready ({})",
            hangs.name,
            view.count(cluster)
        ),
        "a member that hangs with another template holds up all the others",
        replaced(cluster, hangs, all_others_run_it),
    ))
}

/// What becomes of the pod that hangs. While others are to be replaced as well it may not be deleted by hand (G02).
fn replaced(cluster: &Cluster, hangs: &PodFact, may_be_deleted: bool) -> String {
    let (ns, name, minutes) = (&cluster.id.namespace, &hangs.name, HANGS.as_mins());
    if hangs.doing() == Some(JoinPhase::Receives) {
        format!("wait until {name} is Ready: it receives a copy")
    } else if may_be_deleted {
        format!(
            "kubectl -n {ns} delete pod {name}; otherwise gatera replaces it when it has stood still for {minutes} minutes"
        )
    } else {
        format!(
            "gatera replaces {name} when it has stood still for {minutes} minutes, then the others, one at a time"
        )
    }
}
