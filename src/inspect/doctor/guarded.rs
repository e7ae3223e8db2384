//! Rows about what is guarded: namespaces and clusters.

use std::collections::BTreeSet;

use super::{DoctorRow, count};
use crate::{audit, check};
use engine::exceptions;
use engine::rulebook::Rulebook;
use facts::galera::server;
use facts::marks::{BREAK_GLASS, PREFIX};
use facts::mode::Mode;
use facts::view::{Cluster, Id, MODE_LABEL, State, View, is_cluster};
use facts::way_out::{CommandLine, WayOut, run, say};
use leader::once_guarded;
use objects::{Meta, Workload};
use serde_json::json;

const NAMESPACES: &str = "namespaces";
/// The most unhealthy clusters that have a row each; if there are more, all of them share one row.
const MOST_CLUSTER_ROWS: usize = 10;
/// The subject of rows about what no selector adopts.
pub const ADOPTION: &str = "adoption";

/// Returns rows about how the namespaces with clusters are guarded.
pub fn namespaces(view: &View<'_>, clusters: &[&Cluster]) -> Vec<DoctorRow> {
    let names: BTreeSet<&str> = clusters.iter().map(|it| &*it.id.namespace).collect();
    let row = |ns: &str| {
        let label = CommandLine::new(format!("kubectl label namespace {ns} {MODE_LABEL}=enforce"));
        let (says, instead): (_, WayOut) = if let Some(active) = view.active_break_glass(ns) {
            let close = CommandLine::new(format!("gatera break-glass {ns} --close"));
            let says = format!(
                "namespace {ns}: refusals are suspended by break-glass until {}: {}",
                active.until, active.reason
            );
            (says, say("to end it: ").run(close))
        } else if let Some(mode) = view.invalid_mode(ns) {
            let says =
                format!("namespace {ns} has {MODE_LABEL}: {mode}, which is not a mode and counts as enforce");
            (says, label.arg("--overwrite").into())
        } else if let Some(problem) = view.invalid_break_glass(ns) {
            let says =
                format!("namespace {ns} has {PREFIX}{BREAK_GLASS}, which suspends nothing now: {problem}");
            (says, exceptions::end_break_glass_command(ns).into())
        } else {
            match view.namespace_mode(ns) {
                None => {
                    let says = format!(
                        "namespace {ns} has no label {MODE_LABEL}: requests without labels of their own (scaling, evictions, a ConfigMap created by hand) are judged only while a guard answers, or not at all"
                    );
                    (says, label.into())
                }
                Some(Mode::Enforce) => {
                    return DoctorRow::well(NAMESPACES, format!("namespace {ns} is guarded as a whole"));
                }
                Some(mode) => {
                    let says =
                        format!("namespace {ns} is in mode {}, so nothing is refused there", mode.name());
                    (says, label.arg("--overwrite").into())
                }
            }
        };
        DoctorRow::remark(NAMESPACES, says, instead)
    };
    names.into_iter().map(row).collect()
}

/// Returns rows about clusters that are not healthy, and about objects that would be refused as they are.
pub fn clusters(rulebook: &Rulebook, view: &View<'_>, clusters: &[&Cluster]) -> Vec<DoctorRow> {
    const CLUSTERS: &str = "clusters";
    if clusters.is_empty() {
        let says = "no Galera cluster is adopted: the guard has nothing to guard";
        return vec![DoctorRow::remark(CLUSTERS, says, "label the pod template: gatera.dev/cluster: NAME")];
    }
    let unwell: Vec<_> = clusters.iter().filter(|it| view.state(it) != State::Healthy).collect();
    let mut rows: Vec<_> = if unwell.len() > MOST_CLUSTER_ROWS {
        let of_state = |state: State| unwell.iter().filter(|it| view.state(it) == state).count();
        let counts =
            State::ALL.map(|state| (of_state(state), state.name())).into_iter().filter(|it| it.0 > 0);
        let counts: Vec<_> = counts.map(|(number, name)| format!("{number} {name}")).collect();
        let says =
            format!("{} of {} clusters are not HEALTHY: {}", unwell.len(), clusters.len(), counts.join(", "));
        vec![DoctorRow::remark(CLUSTERS, says, CommandLine::new("gatera status --output wide"))]
    } else {
        let of_one = |it: &&&Cluster| {
            let says = format!("{} is {}: {}", it.id, view.state(it).name(), view.describe(it));
            let Id { namespace, name } = &it.id;
            DoctorRow::remark(
                CLUSTERS,
                says,
                CommandLine::new(format!("gatera status {name} -n {namespace}")),
            )
        };
        unwell.iter().map(of_one).collect()
    };
    let refused = audit::run(rulebook, view).refused();
    if refused > 0 {
        let says =
            format!("{} would be refused if applied today as they are", count(refused, "object", "objects"));
        rows.push(DoctorRow::remark(CLUSTERS, says, CommandLine::new("gatera audit")));
    }
    if rows.is_empty() {
        rows.push(DoctorRow::well(
            CLUSTERS,
            format!("{} adopted, and healthy", count(clusters.len(), "cluster", "clusters")),
        ));
    }
    rows
}

/// Returns rows about clusters that the settings no longer adopt.
pub fn once_guarded(view: &View<'_>) -> Vec<DoctorRow> {
    let row = |(id, _): (&Id, &str)| {
        let says = format!("StatefulSet {id}: {}", once_guarded::EXPLANATION);
        DoctorRow::wrong(ADOPTION, says, once_guarded::way_out(id))
    };
    view.no_longer_adopted().map(row).collect()
}

/// Returns the row about a StatefulSet that runs a database server and that no selector adopts.
pub fn unguarded(workload: &Workload, view: &View<'_>) -> Option<DoctorRow> {
    let Meta { namespace, name, .. } = &workload.metadata;
    let dropped = || view.no_longer_adopted().any(|(id, _)| id.namespace == *namespace && id.name == *name);
    if server::of(&workload.spec.template).is_none() || is_cluster(workload, view.adoption()) || dropped() {
        return None;
    }
    if let Some(owner) = workload.metadata.operator() {
        let says =
            format!("{namespace}/{name} runs a database server and is left to its operator: {owner} owns it");
        return Some(DoctorRow::remark(ADOPTION, says, ""));
    }
    let (says, when) = if check::is_galera(workload, view, namespace) {
        ("looks like Galera and is not guarded", "")
    } else {
        ("runs a database server and is not guarded", "if it is Galera: ")
    };
    let labels = json!({ format!("{PREFIX}cluster"): name });
    let patch = json!({ "spec": { "template": { "metadata": { "labels": labels } } } });
    let label =
        CommandLine::new(format!("kubectl -n {namespace} patch statefulset {name} --type=merge --patch"));
    let label = say(when).run(label.arg(patch.to_string())).say(", which restarts its members one at a time");
    let instead = label.or("add a selector to `adopt` in the settings, which restarts nothing");
    Some(DoctorRow::remark(ADOPTION, format!("{namespace}/{name} {says}"), instead))
}

/// Returns rows about bootstrap nodes without a StatefulSet, which failed installations leave behind.
pub fn lone_bootstrap_nodes(view: &View<'_>) -> Vec<DoctorRow> {
    let row = |it: &Workload| {
        let Meta { namespace, name, .. } = &it.metadata;
        let delete = CommandLine::new(format!("kubectl -n {namespace} delete deployment {name}"));
        let instead = run(delete).say(", then its Service and ConfigMap");
        let says =
            format!("Deployment {namespace}/{name} runs, but there is no StatefulSet whose members join it");
        DoctorRow::remark("bootstrap node", says, say("if its installation failed: ").and(instead))
    };
    view.lone_bootstrap_deployments().map(row).collect()
}
