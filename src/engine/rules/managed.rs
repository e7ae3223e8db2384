//! Commands for a StatefulSet that Helm manages: if kubectl changes a field, the next `helm upgrade` sets it back, or fails
//! with a conflict. Other tools that do the same are not known here.
//!
//! Owns: no rule.

use objects::Meta;

/// The command that scales a StatefulSet to this number of replicas.
pub(super) fn scale(set: Option<&Meta>, namespace: &str, name: &str, replicas: i64) -> String {
    let Some((set, release)) = set.and_then(|set| Some((set, set.helm_release()?))) else {
        let command = format!("kubectl -n {namespace} scale statefulset {name} --replicas={replicas}");
        return format!("{command} (or make the same change in what you apply)");
    };
    let chart = set.labels.get("helm.sh/chart").map_or("", String::as_str);
    let value = CHARTS.iter().find(|(begin, _)| chart.starts_with(begin));
    let what = match value {
        Some((_, value)) => format!("--set {value}={replicas}"),
        None => format!("--set VALUE={replicas} (VALUE: what this chart calls the number of members)"),
    };
    format!("helm -n {namespace} upgrade {release} CHART --reuse-values {what}")
}

/// The name of the replicas value, by the beginning of the chart's label.
const CHARTS: [(&str, &str); 2] = [("galera-", "nodeCount"), ("mariadb-galera-", "replicaCount")];
