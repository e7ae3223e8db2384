//! Commands for a StatefulSet that Helm manages: if kubectl changes a field, the next `helm upgrade` sets it back, or fails
//! with a conflict. Other tools that do the same are not known here.
//!
//! Owns: no rule.

use facts::way_out::{Command, WayOut, run};
use objects::Meta;

/// The command that scales a StatefulSet to this number of replicas.
pub(super) fn scale(set: Option<&Meta>, namespace: &str, name: &str, replicas: i64) -> WayOut {
    let Some((set, release)) = set.and_then(|set| Some((set, set.helm_release()?))) else {
        let command = format!("kubectl -n {namespace} scale statefulset {name} --replicas={replicas}");
        return run(Command::new(command)).say(" (or make the same change in what you apply)");
    };
    let chart = set.labels.get("helm.sh/chart").map_or("", String::as_str);
    let value = CHARTS.iter().find(|(begin, _)| chart.starts_with(begin));
    let named = value.map_or("VALUE", |(_, value)| value);
    let upgrade =
        format!("helm -n {namespace} upgrade {release} CHART --reuse-values --set {named}={replicas}");
    let upgrade = run(Command::new(upgrade));
    if value.is_some() {
        upgrade
    } else {
        upgrade.say(" (VALUE: what this chart calls the number of members)")
    }
}

/// The name of the replicas value, by the beginning of the chart's label.
const CHARTS: [(&str, &str); 2] = [("galera-", "nodeCount"), ("mariadb-galera-", "replicaCount")];
