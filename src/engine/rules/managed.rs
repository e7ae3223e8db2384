//! The command that scales a StatefulSet. If Helm manages the StatefulSet, it is a command of Helm: after a change by kubectl the
//! next `helm upgrade` sets the field back, or fails with a conflict. Other tools that manage objects are not recognised.
//!
//! Not a rule.

use facts::way_out::{CommandLine, WayOut, edit, run};
use objects::Meta;

/// Returns the command that scales a StatefulSet to this number of replicas.
pub(super) fn scale(set: Option<&Meta>, namespace: &str, name: &str, replicas: i64) -> WayOut {
    let Some((set, release)) = set.and_then(|set| Some((set, set.helm_release()?))) else {
        let command = format!("kubectl -n {namespace} scale statefulset {name} --replicas={replicas}");
        let live = run(CommandLine::new(command)).say(" (or make the same change in your manifest)");
        return edit(live, format!("write replicas: {replicas}"));
    };
    let chart = set.labels.get("helm.sh/chart").map_or("", String::as_str);
    let known = CHARTS.iter().find(|(begin, ..)| chart.starts_with(begin));
    let (chart, value) = known.map_or(("CHART", "VALUE"), |(_, chart, value)| (*chart, *value));
    let upgrade =
        format!("helm -n {namespace} upgrade {release} {chart} --reuse-values --set {value}={replicas}");
    let upgrade = CommandLine::new(upgrade);
    // Our own chart refuses such a size without this.
    let is_usual_size = replicas > 2 && replicas % 2 == 1;
    let upgrade = if value == "nodeCount" && !is_usual_size {
        upgrade.arg("--set").arg("allowEvenOrSmall=true")
    } else {
        upgrade
    };
    run(upgrade).say(match (known.is_some(), chart) {
        (true, "CHART") => " (CHART: the chart of this release)",
        (true, _) if !is_usual_size => " (with the last step, set allowEvenOrSmall=false again)",
        (true, _) => "",
        (false, _) => " (CHART: the chart of this release, VALUE: its value for the number of members)",
    })
}

/// The beginning of a chart's label, the chart as it is installed, and its value for the number of members.
const CHARTS: [(&str, &str, &str); 2] =
    [("galera-", "charts/galera", "nodeCount"), ("mariadb-galera-", "CHART", "replicaCount")];
