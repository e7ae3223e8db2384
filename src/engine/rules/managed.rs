//! Who manages a StatefulSet, as far as advice depends on it: a field that somebody else sets is no longer Helm's, and the next
//! `helm upgrade` sets it back, or fails with a conflict. Other tools do so too, and are not known here.
//!
//! Owns: no rule.

use objects::Meta;

/// The command that gives a StatefulSet so many replicas.
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

/// Charts whose value is known, by how their label begins.
const CHARTS: [(&str, &str); 2] = [("galera-", "nodeCount"), ("mariadb-galera-", "replicaCount")];
