//! An orderly stop as text: what will be done, what is being done, and how to start the cluster again.

use facts::view::{Cluster, View};
use leader::stop::StopStep;
use objects::visible;

/// Returns the text that announces a stop before it begins.
pub fn proposal(cluster: &Cluster, view: &View<'_>) -> String {
    let mut names: Vec<_> = cluster.members.iter().map(|member| &*member.name).collect();
    names.reverse();
    format!(
        "{} ({})\nIts members are stopped one after the other: {}. While the cluster is stopped, no member serves; the data stays on the members' claims.\n",
        cluster.id,
        view.count(cluster),
        names.join(", ")
    )
}

/// Returns the line that reports this step; empty: there is nothing to report.
pub fn step_text(step: &StopStep) -> String {
    let text = match step {
        StopStep::Wait(what) => format!("waiting: {what}"),
        StopStep::Record { .. } => {
            "recording on the members' claims that they are about to be stopped".to_owned()
        }
        StopStep::Leave { member, to, .. } => format!("{member}: leaving (replicas: {to})"),
        StopStep::Follow { member, kept: None, .. } => format!("{member}: waiting until it is gone"),
        StopStep::Follow { member, kept: Some(why), .. } => {
            format!("{member}: waiting until it is gone; {why}")
        }
        StopStep::Stopped | StopStep::Cannot(_) => String::new(),
    };
    visible(&text)
}

/// Returns the message that another client set the replicas back during the stop.
pub fn raised_meanwhile(cluster: &Cluster, fewest: i64) -> String {
    format!(
        "the replicas of {} were set from {fewest} back to {} by another client, such as Helm, a GitOps tool or an autoscaler: suspend that client and run this command again; or start the cluster again: {}",
        cluster.id,
        cluster.workload.replicas(),
        cluster.start_command()
    )
}

/// Returns the last lines of a stop.
pub fn stopped(cluster: &Cluster) -> String {
    let mut text = format!("{} is stopped\n", cluster.id);
    if cluster.stopped_members().is_none() {
        return text
            + "its claims record neither the number of its members nor the positions of their data; gatera explain G01 shows how to start it\n";
    }
    for claim in &cluster.claims {
        if let Some(record) = &claim.stopped {
            text += &format!("  {}: {}\n", claim.name, visible(&record.to_string()));
        }
    }
    text + &format!("to start it again: {}\n", cluster.start_command())
}
