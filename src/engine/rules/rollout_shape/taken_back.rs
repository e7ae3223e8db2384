//! The part of G14 about undoing a template with which a member hangs.

use super::{RULE, TEMPLATE};
use crate::verdict::Finding;
use facts::galera::start_report::JoinPhase;
use facts::view::{Cluster, HANGS_AFTER, PodFact, State, View};
use facts::way_out::{CommandLine, WayOut, run, say};
use objects::Workload;

/// Returns whether there is a template that [`judge`] allows.
pub(super) fn is_known(cluster: &Cluster, view: &View<'_>) -> bool {
    let mut pods = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    pods.any(|pod| {
        let known = &pod.template;
        cluster.is_earlier(pod)
            && view.knows_revision(&cluster.id, known)
            && hanging(cluster, known, cluster.workload.parallel(), view).is_some()
    })
}

/// Returns the member that hangs with another template than this revision's, if this revision may replace it; and whether all
/// others were created from this revision.
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
    // With podManagementPolicy Parallel the controller does not wait, so there must be no other member to restart.
    let is_safe = !parallel || all_others_run_it && hangs.phase() != Some(JoinPhase::Receives);
    let counts = is_safe && pods().any(runs_it) && cluster.leaving.is_empty() && !cluster.has_no_identity();
    (counts && view.state(cluster) != State::Unknown).then_some((hangs, all_others_run_it))
}

/// Returns the warning for a change back to the template of the Ready members, while a member hangs with another.
pub(super) fn judge(cluster: &Cluster, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let known = view.revision_of(&cluster.id, &new.spec.template)?;
    let (hangs, all_others_run_it) = hanging(cluster, known, new.parallel(), view)?;
    Some(RULE.warn(
        TEMPLATE,
        format!(
            "its pod template changes back to that of the Ready members; allowed, although {} is not Ready ({})",
            hangs.name,
            view.count(cluster)
        ),
        "a member that hangs with another template blocks all the others",
        replaced(cluster, hangs, all_others_run_it),
    ))
}

/// Returns how the pod that hangs is replaced. While others are to be replaced as well, G02 refuses to delete it by hand.
fn replaced(cluster: &Cluster, hangs: &PodFact, may_be_deleted: bool) -> WayOut {
    let (ns, name, minutes) = (&cluster.id.namespace, &hangs.name, HANGS_AFTER.as_mins());
    if hangs.phase() == Some(JoinPhase::Receives) {
        say(format!("wait until {name} is Ready: it receives a copy"))
    } else if may_be_deleted {
        run(CommandLine::new(format!("kubectl -n {ns} delete pod {name}")))
            .or(format!("wait: gatera replaces it when it has made no progress for {minutes} minutes"))
    } else {
        say(format!(
            "gatera replaces {name} when it has made no progress for {minutes} minutes, then the others, one at a time"
        ))
    }
}
