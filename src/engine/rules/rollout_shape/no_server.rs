//! The part of G14 about a template that no longer runs a server.

use super::RULE;
use crate::verdict::Finding;
use facts::galera::runs;
use facts::galera::server;
use facts::view::{Cluster, View};
use facts::way_out::{CommandLine, say};
use objects::Workload;

/// Returns a finding if the members of this cluster, which serve, would restart without a database server.
pub(super) fn judge(old: &Workload, new: &Workload, cluster: &Cluster, view: &View<'_>) -> Option<Finding> {
    let before = server::of(&old.spec.template).filter(|it| runs::no_server(it).is_none())?;
    let now = new.spec.template.spec.containers.iter().find(|it| it.name == before.name)?;
    let program = runs::no_server(now)?;
    let member = cluster.members.first().map_or(&cluster.id.name, |it| &it.name);
    let shell = format!("kubectl -n {} exec -it {member} -c {} -- bash", cluster.id.namespace, now.name);
    Some(RULE.deny(
        format!("spec.template.spec.containers[{}].command", now.name),
        format!(
            "container {} would run {program} instead of the server: the database stops ({})",
            now.name,
            view.count(cluster)
        ),
        "a member that restarts no longer serves, but its pod may be Ready: the rollout continues until the last server has stopped",
        say("keep its command")
            .or("to open a shell in a member: ")
            .run(CommandLine::new(shell))
            .or("to stop the database in order: ")
            .run(cluster.stop_command()),
    ))
}
