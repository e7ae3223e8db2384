//! Anti-affinity: no two members on one node, if there are enough nodes.

use serde_json::{Value, json};

use super::{InjectTarget, edit};
use facts::marks;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Adds anti-affinity by host name, unless the pod has a term of that kind or `gatera.dev/anti-affinity` is `none`.
pub(super) fn add(pod: &mut Value, target: &InjectTarget<'_>) {
    // An operator that finds a member without a node scales the whole cluster to 0 and back, again and again.
    let Some(cluster) = target.cluster.filter(|_| target.member && !target.is_driven()) else { return };
    let selector = &cluster.workload.spec.selector;
    if selector.is_empty() {
        // An empty term would keep members away from every pod of the namespace.
        return;
    }
    let existing = &pod["spec"]["affinity"]["podAntiAffinity"];
    if existing.to_string().contains(HOSTNAME) {
        return;
    }
    let (nodes, replicas) = (target.view.world.schedulable_nodes(), cluster.members.len());
    let required = match target.mark(marks::ANTI_AFFINITY) {
        Some("none") => return,
        Some("required") => true,
        Some("preferred") => false,
        _ => nodes >= replicas,
    };
    let labels = selector
        .match_labels
        .iter()
        .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }));
    let others = selector.match_expressions.iter().map(|it| match it.values.as_slice() {
        [] => json!({ "key": it.key, "operator": it.operator }),
        values => json!({ "key": it.key, "operator": it.operator, "values": values }),
    });
    let expressions: Vec<_> = labels.chain(others).collect();
    let term = json!({ "labelSelector": { "matchExpressions": expressions }, "topologyKey": HOSTNAME });
    let (list, item) = if required {
        ("requiredDuringSchedulingIgnoredDuringExecution", term)
    } else {
        ("preferredDuringSchedulingIgnoredDuringExecution", json!({ "weight": 100, "podAffinityTerm": term }))
    };
    // The user's own terms for other topologies stay.
    let own = edit::at(pod, &["spec", "affinity", "podAntiAffinity", list]);
    match own {
        Some(Value::Array(terms)) => terms.push(item),
        Some(empty @ Value::Null) => *empty = json!([item]),
        _ => {}
    }
}
