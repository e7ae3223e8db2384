//! The pod template of a cluster, for the rules about templates.
//!
//! Not a rule. Must not know: what any rule checks.

use facts::galera::server;
use facts::view::{View, is_cluster};
use objects::{Container, Object, Template, Workload};

/// Returns the pod template of a cluster or of its bootstrap node, with its server's container; `None`: the object is neither,
/// or is not adopted.
pub(super) fn of<'a>(object: Option<&'a Object>, view: &View<'_>) -> Option<(&'a Template, &'a Container)> {
    let adoption = view.adoption();
    let template = match object? {
        Object::StatefulSet(it) => Some(&it.spec.template).filter(|_| is_cluster(it, adoption)),
        Object::Deployment(it) => Some(&it.spec.template).filter(|it| adoption.adopts(&it.metadata.labels)),
        _ => None,
    }?;
    Some((template, server::of(template)?))
}

/// Returns the workload of this object, if its pods are adopted; they may run no server.
pub(super) fn adopted<'a>(object: Option<&'a Object>, view: &View<'_>) -> Option<&'a Workload> {
    object?.get::<Workload>().filter(|it| view.adoption().adopts(&it.spec.template.metadata.labels))
}
