//! Text for people: the place, the line with a caret, the reason and the way out; or one line per finding.

use std::collections::HashMap;

use inspect::check::{CheckFinding, CheckFindingKind, Checked, Excerpt, Level, Location, Outcome};
use objects::visible;

use crate::paint::{BAD, CALM, GOOD, NOTABLE, Paint};

/// Returns all findings in full, and the counts.
pub(super) fn text(checked: &Checked, colour: bool) -> String {
    findings(checked, colour) + &summary(checked)
}

/// Returns all findings in full. One that is found in several places is printed once, below all of them.
pub(super) fn findings(checked: &Checked, colour: bool) -> String {
    let paint = Paint(colour);
    let mut text = String::new();
    for (message, findings) in by_text(checked) {
        for finding in &findings {
            text.push_str(&format!(
                "{}: {}\n",
                paint.bold(&place_text(&finding.location)),
                paint.level(finding.level())
            ));
        }
        text.push_str(&excerpt(findings[0], paint));
        text.push_str(&format!("{message}\n\n"));
    }
    text
}

/// Returns the findings grouped by message and level, in the order in which each message is found first.
fn by_text(checked: &Checked) -> Vec<(String, Vec<&CheckFinding>)> {
    let mut all: Vec<(String, Vec<&CheckFinding>)> = Vec::new();
    let mut known = HashMap::new();
    for finding in &checked.findings {
        let message = super::full_text(finding);
        let at = *known.entry((finding.level(), message.clone())).or_insert(all.len());
        match all.get_mut(at) {
            Some((_, findings)) => findings.push(finding),
            None => all.push((message, vec![finding])),
        }
    }
    all
}

fn excerpt(finding: &CheckFinding, paint: Paint) -> String {
    let (Some(Excerpt { line, caret }), Some(place)) = (&finding.excerpt, finding.location.place) else {
        return String::new();
    };
    let indent = line.len() - line.trim_start().len();
    let (number, caret) = (place.line.to_string(), " ".repeat(caret.saturating_sub(indent)));
    let empty = " ".repeat(number.len());
    let bar = paint.dim("|");
    format!(
        "  {} {bar} {}\n  {empty} {bar} {caret}{}\n",
        paint.dim(&number),
        line.trim_start(),
        paint.level_of("^", finding.level())
    )
}

/// Returns a line for each object without a finding.
pub(super) fn fine_objects(checked: &Checked, colour: bool) -> String {
    let paint = Paint(colour);
    let fine = checked.objects.iter().filter(|it| it.is_fine());
    let line = |Outcome { location, object, .. }: &Outcome| {
        format!("{}: {} {}\n", place_text(location), paint.with(GOOD, "fine"), visible(&object.subject))
    };
    fine.map(line).collect()
}

/// Returns a line for each file that is not a manifest.
pub(super) fn skipped_files(checked: &Checked) -> String {
    checked.skipped_files.iter().map(|it| format!("{}: not a Kubernetes manifest\n", visible(it))).collect()
}

/// Returns one line per finding, and the counts.
pub(super) fn concise(checked: &Checked, colour: bool) -> String {
    lines(checked, colour) + &summary(checked)
}

/// Returns one line per finding.
pub(super) fn lines(checked: &Checked, colour: bool) -> String {
    let paint = Paint(colour);
    let line = |finding: &CheckFinding| {
        let rule = finding.rule().map_or(":".to_owned(), |rule| format!(" [{rule}]"));
        format!(
            "{}: {}{rule} {}\n",
            place_text(&finding.location),
            paint.level(finding.level()),
            super::headline(finding)
        )
    };
    checked.findings.iter().map(line).collect()
}

/// Returns the place, as in "galera.yaml:97:50", from which editors and terminals make a link.
fn place_text(location: &Location) -> String {
    // The runner of a pipeline would take a line that begins with `::` for a command.
    let here = if location.file.starts_with("::") { "./" } else { "" };
    let file = format!("{here}{}", visible(&location.file));
    let place = location.place.map(|it| format!(":{}:{}", it.line, it.column)).unwrap_or_default();
    let template = location.template.as_ref().map(|it| format!(" ({})", visible(it))).unwrap_or_default();
    let removed = if location.in_base { " (in the base)" } else { "" };
    format!("{file}{place}{template}{removed}")
}

fn summary(checked: &Checked) -> String {
    let mut text = String::new();
    let waived = checked.findings.iter().filter_map(|finding| match &finding.what {
        CheckFindingKind::Finding { judged, waived: Some(reason) } => {
            Some((finding, judged.finding.rule, reason))
        }
        _ => None,
    });
    for (number, (finding, rule, reason)) in waived.enumerate() {
        if number == 0 {
            text.push_str("waived in these files, which the API server does not see:\n");
        }
        let (at, subject) = (place_text(&finding.location), super::subject(finding));
        text.push_str(&(visible(&format!("  {at}: {rule} {subject}: {reason}")) + "\n"));
    }
    text.extend(super::finding_counts(checked).map(|counts| counts + "\n"));
    text + &format!("{}\n", super::object_counts(checked))
}

impl Paint {
    fn level(self, level: Level) -> String {
        let word = match level {
            Level::Unread => "not readable",
            level => level.name(),
        };
        self.level_of(word, level)
    }

    fn level_of(self, text: &str, level: Level) -> String {
        let code = match level {
            Level::Refused | Level::Unread => BAD,
            Level::Warning => NOTABLE,
            Level::Waived | Level::Note => CALM,
        };
        self.with(code, text)
    }
}
