//! The progress of a changed configuration and the snapshots that are kept, as text.
//!
//! Must not know: clients.

use jiff::Timestamp;

use super::status::{configuration_step, status_text};
use facts::revision::Revision;
use facts::view::Cluster;
use inspect::status::ClusterStatus;
use leader::plan::rollout::RolloutStage;
use objects::visible;

/// A snapshot of a ConfigMap that members read, or have read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSnapshot {
    pub name: String,
    /// The ConfigMap that it is a snapshot of.
    pub source: String,
    pub made: Option<Timestamp>,
}

/// Returns whether the rollout continues by itself.
pub fn continues(cluster_status: &ClusterStatus<'_>) -> bool {
    let stage = &cluster_status.configuration;
    cluster_status.cluster.rolls()
        || matches!(
            stage,
            RolloutStage::Rolls(..) | RolloutStage::Waits(_) | RolloutStage::Stopped(_, Some(_))
        )
}

/// Returns whether nothing is left to do: every member runs the revision that it should, or the guard does not manage the
/// configuration.
pub fn is_done(cluster_status: &ClusterStatus<'_>) -> bool {
    !cluster_status.cluster.rolls()
        && matches!(cluster_status.configuration, RolloutStage::Settled | RolloutStage::Absent)
}

/// Returns the rollout of one cluster: its stage, and the revision of each member.
pub fn status(cluster_status: &ClusterStatus<'_>) -> String {
    let cluster = cluster_status.cluster;
    let (status, says) = configuration_step(cluster_status);
    let says = if says.is_empty() { String::new() } else { format!(" ({says})") };
    let mut text = visible(&format!("{}  configuration: {}{says}", cluster.id, status_text(status))) + "\n";
    let described = |revision: &Revision| {
        revision_state(cluster, revision)
            .map_or_else(|| revision.to_string(), |it| format!("{revision}  {it}"))
    };
    let lines: Vec<_> = cluster
        .members
        .iter()
        .map(|member| {
            let pod = member.pod.as_ref();
            let runs = match pod.map(|pod| pod.revision.as_ref().map(described)) {
                None => "does not exist".to_owned(),
                Some(None) => "no snapshot: it reads the ConfigMap itself until it restarts".to_owned(),
                Some(Some(runs)) => runs,
            };
            let trouble = member.trouble().map(|it| format!("  {it}")).unwrap_or_default();
            format!("{}  {runs}{trouble}", member.name)
        })
        .collect();
    super::status::branches(&mut text, "", &lines);
    text
}

/// Returns the role of a revision in a cluster's rollout, in one word.
fn revision_state(cluster: &Cluster, revision: &Revision) -> Option<&'static str> {
    let record = cluster.rollout.as_ref()?;
    if record.next.as_ref().is_some_and(|next| next.revision == *revision) {
        Some("new")
    } else if record.good == *revision {
        Some("good")
    } else if record.stopped.as_ref().is_some_and(|it| it.revision == *revision) {
        Some("failed")
    } else {
        None
    }
}

/// Returns a line for each snapshot: its revision, its time, its role in the rollout, and the members that run it.
pub fn history(cluster: &Cluster, snapshots: &[KeptSnapshot]) -> String {
    let mut text = String::new();
    for snapshot in snapshots {
        let is = |revision: &Revision| revision.snapshots().any(|name| name == snapshot.name);
        let runs = cluster
            .members
            .iter()
            .filter(|it| it.pod.as_ref().is_some_and(|pod| pod.revision.as_ref().is_some_and(is)));
        let runs: Vec<_> = runs.map(|it| &*it.name).collect();
        let mut states = Vec::new();
        if let Some(record) = &cluster.rollout {
            states.extend(is(&record.good).then_some("good"));
            states.extend(record.next.as_ref().is_some_and(|it| is(&it.revision)).then_some("new"));
            states.extend(record.stopped.as_ref().is_some_and(|it| is(&it.revision)).then_some("failed"));
        }
        states.extend(cluster.live.as_ref().is_ok_and(is).then_some("in the ConfigMap"));
        let made = snapshot.made.map(|made| made.to_string()).unwrap_or_default();
        let digest = snapshot.name.rsplit('-').next().unwrap_or_default();
        let runs = if runs.is_empty() { String::new() } else { format!("  run by {}", runs.join(", ")) };
        let line = format!("{}={digest}  {made}  {}{runs}", snapshot.source, states.join(", "));
        text.push_str(visible(&line).trim_end());
        text.push('\n');
    }
    if snapshots.is_empty() {
        text.push_str("no snapshots are kept\n");
    }
    text
}
