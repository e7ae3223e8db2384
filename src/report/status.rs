//! The state of each cluster and what the guard does with it, as a tree.
//!
//! Must not know: clients, or where the facts come from (`status.rs` of `inspect` does).

mod json;
mod table;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::json::Document;
pub use self::table::table;

use super::paint::Paint;
use super::{WAY_BACK, count};
use engine::exceptions;
use facts::galera::bitnami;
use facts::marks::overrides::Override;
use facts::view::condition::Condition;
use facts::view::{Cluster, Id, Member, State};
use inspect::doctor::{self, AnswerState, DoctorRow};
use inspect::status::ClusterStatus;
use leader::plan::bootstrap::BootstrapStage;
use leader::plan::rollout::RolloutStage;
use objects::Kind;
use objects::visible;

/// A step of the plan.
#[derive(Serialize, JsonSchema)]
struct PlanStep {
    name: &'static str,
    status: &'static str,
    says: String,
}

/// The status of a step, and its description.
type StepState = (&'static str, String);

/// The most findings that are printed; `gatera audit` prints all.
const MOST_FINDINGS: usize = 5;
const COMPLETE: &str = "COMPLETE";
const IN_PROGRESS: &str = "IN_PROGRESS";
const PENDING: &str = "PENDING";
const SKIPPED: &str = "SKIPPED";
const GIVEN_UP: &str = "GIVEN_UP";

/// Returns a status in plain words.
pub(super) fn status_text(status: &str) -> &'static str {
    match status {
        COMPLETE => "done",
        IN_PROGRESS => "under way",
        PENDING => "waits",
        GIVEN_UP => "given up",
        _ => "not needed",
    }
}

/// Returns the steps of the plan.
fn steps(cluster_status: &ClusterStatus<'_>) -> [PlanStep; 5] {
    let ClusterStatus { cluster, bootstrap, .. } = cluster_status;
    let steps = [
        ("bootstrap node", bootstrap_node(cluster, bootstrap)),
        ("members", members(cluster)),
        ("remove the bootstrap node", removal(bootstrap)),
        ("membership", membership(&cluster_status.outdated)),
        ("configuration", configuration(cluster_status)),
    ];
    let mut steps = steps.map(|(name, (status, says))| PlanStep { name, status, says });
    if cluster_status.mode_off {
        for step in steps.iter_mut().skip(2) {
            (step.status, step.says) = (SKIPPED, "the namespace is in mode off".to_owned());
        }
    }
    steps
}

/// Returns the status of the whole plan.
fn plan_status(steps: &[PlanStep]) -> &'static str {
    let is_over = |step: &PlanStep| matches!(step.status, COMPLETE | SKIPPED);
    if steps.iter().any(|it| it.status == GIVEN_UP) {
        GIVEN_UP
    } else if steps.iter().all(is_over) {
        COMPLETE
    } else {
        IN_PROGRESS
    }
}

/// Returns the status of the configuration, and its description.
pub(super) fn configuration_step(cluster_status: &ClusterStatus<'_>) -> StepState {
    let [.., last] = steps(cluster_status);
    (last.status, last.says)
}

/// Returns the step of the bootstrap node.
fn bootstrap_node(cluster: &Cluster, stage: &BootstrapStage) -> StepState {
    match (stage, cluster.bootstrap.pods.iter().find(|pod| pod.bootstrap)) {
        (_, Some(pod)) if pod.ready => (COMPLETE, format!("{} is Ready", pod.name)),
        (_, Some(pod)) if pod.terminating => (COMPLETE, format!("{} is being deleted", pod.name)),
        (_, Some(pod)) => (IN_PROGRESS, format!("{} is not Ready yet", pod.name)),
        (BootstrapStage::Removed, _) => (COMPLETE, "removed".to_owned()),
        _ if cluster.has_data() => (SKIPPED, "the members hold data and need none".to_owned()),
        (BootstrapStage::Kept(_), _) => (PENDING, "its pod does not exist".to_owned()),
        _ if cluster.server().is_some_and(|(_, it)| bitnami::is_its_image(it)) => {
            (SKIPPED, "the first member founds the cluster by itself".to_owned())
        }
        _ => {
            let says = "no bootstrap node runs; unless an operator or the first member founds the cluster, apply the Deployment of a bootstrap node";
            (PENDING, says.to_owned())
        }
    }
}

fn members(cluster: &Cluster) -> StepState {
    let replicas = usize::try_from(cluster.workload.replicas()).unwrap_or_default();
    let all = replicas > 0 && cluster.ready() >= replicas && cluster.leaving.is_empty();
    let status = match (all, cluster.rolls()) {
        (true, false) => COMPLETE,
        (_, true) => IN_PROGRESS,
        _ if replicas == 0 => SKIPPED,
        _ => IN_PROGRESS,
    };
    let rolls = if cluster.rolls() { ", a rollout is under way" } else { "" };
    (status, format!("{}{rolls}", cluster.describe()))
}

fn removal(stage: &BootstrapStage) -> StepState {
    match stage {
        BootstrapStage::Absent => (SKIPPED, "no bootstrap node exists".to_owned()),
        BootstrapStage::Removed => (COMPLETE, String::new()),
        BootstrapStage::LeftAlone(why) => (SKIPPED, why.clone()),
        BootstrapStage::Kept(why) => (PENDING, why.clone()),
        BootstrapStage::Going(what, _) => (IN_PROGRESS, what.clone()),
    }
}

fn membership(outdated: &[&str]) -> StepState {
    match outdated {
        [] => (COMPLETE, String::new()),
        names => (IN_PROGRESS, format!("the address list has yet to reach {}", names.join(", "))),
    }
}

fn configuration(cluster_status: &ClusterStatus<'_>) -> StepState {
    let Id { namespace, name } = &cluster_status.cluster.id;
    let given_up = cluster_status.cluster.rollout.as_ref().and_then(|it| it.stopped.as_ref());
    match (&cluster_status.configuration, given_up) {
        (RolloutStage::Absent, _) => (SKIPPED, "members read no option file from a ConfigMap".to_owned()),
        (RolloutStage::Settled, _) => (COMPLETE, String::new()),
        (RolloutStage::Stopped(why, _), Some(given_up)) => {
            let maps = given_up.revision.config_maps();
            let retry = format!("gatera rollout retry {name} -n {namespace}");
            (
                GIVEN_UP,
                format!("{why}; correct {maps}, which starts a new try, or try the same again: {retry}"),
            )
        }
        (RolloutStage::Held(why) | RolloutStage::Waits(why) | RolloutStage::Stopped(why, None), _) => {
            (PENDING, why.clone())
        }
        (RolloutStage::Rolls(says, _) | RolloutStage::Stopped(says, Some(_)), _) => {
            (IN_PROGRESS, says.clone())
        }
    }
}

/// Returns a member's state in a few words.
fn member_state(member: &Member, condition: Option<Condition>) -> &'static str {
    match (condition, &member.pod) {
        (Some(condition), _) => condition.description(),
        (None, Some(pod)) if pod.verified => "Synced",
        _ => "Ready, unverified",
    }
}

/// Returns the clusters as text.
pub fn text(all: &[ClusterStatus<'_>], colour: bool) -> String {
    all.iter().map(|it| tree(it, Paint(colour))).collect::<Vec<_>>().join("\n")
}

fn tree(cluster_status: &ClusterStatus<'_>, paint: Paint) -> String {
    let ClusterStatus {
        cluster,
        state,
        members,
        way_back,
        diagnoses,
        unverified,
        active_override,
        break_glass,
        ..
    } = cluster_status;
    let (state, steps) = (paint.state(*state, 0), steps(cluster_status));
    let mut text = format!("{}  {state}  {}\n", paint.bold(&cluster.id.to_string()), cluster.describe());
    text.extend(way_back.iter().map(|way| visible(&format!("├── {WAY_BACK}: {way}")) + "\n"));
    match cluster.identity() {
        Some(identity) => text.push_str(&format!("├── Identity {identity}\n")),
        None if cluster.has_no_identity() => text.push_str("├── Identity none\n"),
        None => {}
    }
    let Id { namespace, name } = &cluster.id;
    if let Some(active) = active_override {
        let end = exceptions::end_override_command(Kind::StatefulSet, namespace, name);
        text += &(visible(&format!("├── Override {active} (to end it: {end})")) + "\n");
    }
    if let Some(Override { until, reason, .. }) = break_glass {
        let end = exceptions::end_break_glass_command(namespace);
        let effect = format!("refusals are suspended until {until}: {reason} (to end it: {end})");
        text += &(visible(&format!("├── Break-glass: {effect}")) + "\n");
    }
    let rows: Vec<_> = members.iter().map(|(it, condition)| (*it, member_state(it, *condition))).collect();
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or_default();
    let name_width = longest(&mut rows.iter().map(|(it, _)| it.name.len()));
    let word_width = longest(&mut rows.iter().map(|(_, word)| word.len()));
    let lines = rows.iter().map(|(member, word)| {
        let node = member.pod.as_ref().map_or("", |pod| &pod.node);
        format!("{:name_width$}  {word:word_width$}  {node}", member.name)
    });
    section(&mut text, "Members", lines);
    let starts = cluster.start_reports().map(|(name, report)| format!("{name:name_width$}  {report}"));
    section(&mut text, "Start positions of members that have not joined, as each reported", starts);
    let problems = diagnoses.iter().map(ToString::to_string);
    section(&mut text, "What is wrong, and the way out (see gatera explain G02)", problems);
    let going = cluster.claims.iter().filter(|claim| claim.terminating).map(|claim| claim.name.clone());
    let heading = "Claims that are deleted as soon as their pods are gone: back up their data first";
    section(&mut text, heading, going);
    let mut heading = "Claims of members that are gone, kept with their data".to_owned();
    // In every other state G07 refuses to delete them.
    if cluster_status.state == State::Healthy {
        let delete = cluster.delete_left_claims_command();
        heading += &format!("; if you no longer need the data, and have a backup: {delete}");
    }
    section(&mut text, &heading, cluster.left_claims().map(|claim| claim.name.clone()));
    let more = cluster_status.findings.len().saturating_sub(MOST_FINDINGS);
    let more = (more > 0).then(|| format!("and {more} more"));
    let listed = cluster_status.findings.iter().take(MOST_FINDINGS).cloned().chain(more);
    section(&mut text, "What would be refused in its namespace (see gatera audit)", listed);
    text.push_str(&format!("└── Steps of the guard: {}\n", status_text(plan_status(&steps))));
    let lines = steps.iter().map(|PlanStep { name, status, says }| match &**says {
        "" => format!("{name}: {}", status_text(status)),
        says => format!("{name}: {} ({says})", status_text(status)),
    });
    branches(&mut text, "    ", &lines.collect::<Vec<_>>());
    if let Some(advice) = unverified {
        text.push_str(&format!("unverified: {}\n", visible(advice)));
    }
    text
}

/// Adds a branch of the tree with these lines below it, if there are any.
fn section(text: &mut String, heading: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<_> = lines.collect();
    if !lines.is_empty() {
        text.push_str(&format!("├── {heading}\n"));
        branches(text, "│   ", &lines);
    }
}

pub(super) fn branches(text: &mut String, indent: &str, lines: &[String]) {
    for (index, line) in lines.iter().enumerate() {
        let branch = if index + 1 == lines.len() { "└──" } else { "├──" };
        text.push_str(format!("{indent}{branch} {}", visible(line)).trim_end());
        text.push('\n');
    }
}

/// Returns the guard's state as text: its worst state in one word, and what needs attention.
pub fn guard(rows: &[DoctorRow]) -> String {
    let state = doctor::worst(rows);
    let mut text = format!("\nGuard [{}]\n", state.name().to_uppercase());
    let listed = rows.iter().filter(|row| matches!(row.state, AnswerState::Remark | AnswerState::Wrong));
    let mut lines: Vec<_> =
        listed.map(|row| format!("{}: {}", row.about, super::doctor::one_line(row))).collect();
    let not_asked = rows.iter().filter(|row| row.state == AnswerState::NotAsked).count();
    if not_asked > 0 {
        lines.push(format!(
            "{not_asked} of {} questions could not be asked; gatera doctor lists them",
            rows.len()
        ));
    }
    branches(&mut text, "", &lines);
    text
}

/// Returns the clusters as JSON.
pub fn json(all: &[ClusterStatus<'_>], guard: &[DoctorRow]) -> Value {
    crate::json::value(Document::of(all, guard))
}
