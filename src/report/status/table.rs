//! Clusters as a table, with a line for each.

use jiff::{SignedDuration, Timestamp};

use super::{COMPLETE, SKIPPED, plan_status, status_text, steps};
use crate::paint::Paint;
use facts::view::State;
use facts::view::condition::Diagnosis;
use inspect::status::ClusterStatus;
use objects::visible;

const HEADERS: [&str; 5] = ["NAMESPACE", "NAME", "STATE", "READY", "AGE"];

/// Returns the table. `now` is the time by the API server's clock.
pub fn table(all: &[ClusterStatus<'_>], now: Timestamp, headers: bool, colour: bool) -> String {
    if all.is_empty() {
        return "no Galera cluster\n".to_owned();
    }
    let rows: Vec<_> = all.iter().map(|it| (it.state, cells(it, now), what(it))).collect();
    let heads = HEADERS.map(str::to_owned);
    let shown = rows.iter().map(|(_, cells, _)| cells).chain(headers.then_some(&heads));
    let widths = shown.fold([0; 5], |widest: [usize; 5], cells| {
        std::array::from_fn(|at| widest[at].max(cells[at].chars().count()))
    });
    let line = |state: Option<State>, cells: &[String; 5], what: &str| {
        let mut text = String::new();
        for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
            match state.filter(|_| at == 2) {
                Some(state) => text.push_str(&Paint(colour).state(state, width)),
                None => text.push_str(&format!("{cell:width$}")),
            }
            text.push_str("  ");
        }
        (text + &visible(what)).trim_end().to_owned() + "\n"
    };
    let head = headers.then(|| line(None, &heads, "WHAT"));
    head.into_iter().chain(rows.iter().map(|(state, cells, what)| line(Some(*state), cells, what))).collect()
}

fn cells(it: &ClusterStatus<'_>, now: Timestamp) -> [String; 5] {
    let cluster = it.cluster;
    let ready = format!("{}/{}", cluster.ready(), cluster.workload.replicas());
    let age = cluster.workload.metadata.creation_timestamp.map(|since| age(now.duration_since(since)));
    let (namespace, name) = (cluster.id.namespace.clone(), cluster.id.name.clone());
    [namespace, name, it.state.name().to_owned(), ready, age.unwrap_or_else(|| "?".to_owned())]
}

/// Returns an age in the largest unit of which there are at least two: 45s, 12m, 7h, 3d.
fn age(since: SignedDuration) -> String {
    match since.as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Returns the problems of a cluster in a few words, or else the step that is under way, the exception, or the number of
/// findings; empty: all is well.
fn what(it: &ClusterStatus<'_>) -> String {
    if it.diagnoses.is_empty() && it.state != State::Healthy {
        return it.cluster.describe();
    }
    if !it.diagnoses.is_empty() {
        let one = |diagnosis: &Diagnosis| {
            format!("{} {}", diagnosis.condition.name(), diagnosis.members.join(", ")).trim_end().to_owned()
        };
        return it.diagnoses.iter().map(one).collect::<Vec<_>>().join("; ");
    }
    let steps = steps(it);
    let step = steps.iter().find(|step| !matches!(step.status, COMPLETE | SKIPPED));
    let exception = || {
        let until = it.break_glass.as_ref().map(|it| format!("break-glass until {}", it.until));
        until.or_else(|| it.active_override.as_ref().map(|it| format!("override until {}", it.until)))
    };
    let findings = || match it.findings.len() {
        0 => String::new(),
        number => format!("{} would be refused", super::count(number, "object")),
    };
    match step {
        Some(step) if plan_status(&steps) != COMPLETE => {
            format!("{}: {} ({})", step.name, status_text(step.status), step.says)
        }
        _ => exception().unwrap_or_else(findings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        for (seconds, says) in
            [(-3, "0s"), (45, "45s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
        {
            assert_eq!(age(SignedDuration::from_secs(seconds)), says);
        }
    }
}
