//! `gatera check` on manifests that have not reached a cluster yet: its options, its findings and its output formats.

mod base;
mod changes;
mod command_line;
mod formats;
mod live;
mod odd;
mod pipelines;
mod walk;

use std::path::Path;

use facts::settings::Settings;
use gatera::rulebook;
use inspect::check::{self, CheckFinding, CheckOptions, Checked, Input, Level};

use crate::scene;

/// The manifests of a Galera cluster in which nothing is wrong.
const CLUSTER: &str = include_str!("fixtures/galera.yaml");

fn input(name: &str, text: &str) -> Input {
    Input { name: name.into(), below: Path::new("").into(), text: Ok(text.to_owned()) }
}

fn judged(new: &[Input], base: Option<&[Input]>) -> Checked {
    let settings = Settings::default();
    let options = CheckOptions {
        rulebook: rulebook(),
        settings: &settings,
        namespace: "db",
        now: scene::now(),
        rules: &[],
    };
    let checked = check::run(new, base, &options);
    assert_adds_up(&checked);
    checked
}

/// Returns a finding as "refused G01 line 91: the words", without the parts that it does not have.
fn line(finding: &CheckFinding) -> String {
    let words = report::check::headline(finding);
    let place = finding.location.place.map(|it| format!(" line {}", it.line)).unwrap_or_default();
    let base = if finding.location.in_base { " of the base" } else { "" };
    format!("{} {}{place}{base}: {words}", finding.level().name(), finding.rule().unwrap_or("-"))
}

fn lines(checked: &Checked) -> Vec<String> {
    checked.findings.iter().map(line).collect()
}

/// Asserts that every object and every finding is counted exactly once.
fn assert_adds_up(checked: &Checked) {
    let of = |level| checked.objects_of(level);
    let unchanged = checked.objects.iter().filter(|it| it.unchanged).count();
    let fine = checked.objects.iter().filter(|it| it.is_fine()).count();
    let reported = of(Level::Refused) + of(Level::Warning) + of(Level::Waived) + checked.unjudged_objects();
    assert_eq!(reported + unchanged + fine, checked.objects.len(), "objects: {:?}", checked.objects);
    let levels = [Level::Note, Level::Waived, Level::Warning, Level::Refused, Level::Unread];
    let counted: usize = levels.iter().map(|level| checked.count(*level)).sum();
    assert_eq!(counted, checked.findings.len(), "findings: {:?}", lines(checked));
}
