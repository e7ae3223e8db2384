//! A template that has the label of a cluster, but no known server.

use super::RULE;
use crate::verdict::Finding;
use facts::galera::runs::Runs;
use facts::galera::{adopt, server};
use objects::Workload;

pub(super) const NAME_IT: &str =
    "name the server's container in an annotation of spec.template: gatera.dev/container: NAME";

/// Returns a warning if the template has the label of a cluster, but no container is known to run a server.
pub(super) fn judge(new: &Workload) -> Option<Finding> {
    let template = &new.spec.template;
    let (label, containers) = (adopt::INSTANCE_LABELS[0], &template.spec.containers);
    let may_serve = || containers.iter().any(|it| matches!(Runs::of(it), Runs::Unknown | Runs::Server));
    if !template.metadata.labels.contains_key(label) || server::of(template).is_some() || !may_serve() {
        return None;
    }
    Some(RULE.warn(
        format!("spec.template.metadata.labels[{label}]"),
        format!("it has the label {label}, but gatera sees no database server in its containers"),
        "without a server it does not count as a cluster: nothing is injected, and no rule protects its members",
        NAME_IT,
    ))
}
