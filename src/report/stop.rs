//! An orderly stop, laid out for a person: what will be done, what is being done, and how it is started again.

use facts::view::{Cluster, View};
use leader::stop::Step;
use objects::visible;

/// What will be done, before it is.
pub fn proposal(cluster: &Cluster, view: &View<'_>) -> String {
    let mut names: Vec<_> = cluster.members.iter().map(|member| &*member.name).collect();
    names.reverse();
    format!(
        "{} ({})\nIts members are stopped one after the other: {}. Then nobody serves; the data stays on their claims.\n",
        cluster.id,
        view.count(cluster),
        names.join(", ")
    )
}

/// What is done now.
pub fn says(step: &Step) -> String {
    let text = match step {
        Step::Wait(what) => format!("waiting: {what}"),
        Step::Record { .. } => {
            "recording on the members' claims that they are about to be stopped".to_owned()
        }
        Step::Leave { member, to, .. } => format!("{member}: leaving (replicas: {to})"),
        Step::Follow { member, kept: None, .. } => format!("{member}: waiting until it is gone"),
        Step::Follow { member, kept: Some(why), .. } => format!("{member}: waiting until it is gone; {why}"),
        Step::Stopped | Step::Cannot(_) => String::new(),
    };
    visible(&text)
}

/// Somebody set the replicas back.
pub fn healed(cluster: &Cluster, fewest: i64) -> String {
    format!(
        "somebody set the replicas of {} back to {} from {fewest}: Helm, a GitOps tool or an autoscaler that knows another number; \
         suspend it, and run this again; or gatera start, which takes back what was recorded for the stop",
        cluster.id,
        cluster.workload.replicas()
    )
}

/// At the end.
pub fn stopped(cluster: &Cluster) -> String {
    let mut text = format!("{} is stopped\n", cluster.id);
    if cluster.stopped_members().is_none() {
        return text + "nothing on its claims tells how many members it had, and where their data ends\n";
    }
    for claim in &cluster.claims {
        if let Some(record) = &claim.stopped {
            text += &format!("  {}: {}\n", claim.name, visible(&record.to_string()));
        }
    }
    text + &format!("to start it again: {}\n", cluster.start_command())
}
