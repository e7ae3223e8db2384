//! Annotations of a GitHub Actions job: commands that its runner reads from the output of a step. It shows ten of each
//! kind per step.

use super::{code, finding_counts, full_text_at_host, object_counts, place_at_host, rule_name};
use inspect::check::{CheckFinding, Checked, Level};
use objects::visible;

pub(super) fn of(checked: &Checked) -> String {
    let mut text: String = checked.findings.iter().map(|finding| annotation(checked, finding)).collect();
    text.extend(finding_counts(checked).map(|counts| counts + "\n"));
    text + &format!("{}\n", object_counts(checked))
}

fn annotation(checked: &Checked, finding: &CheckFinding) -> String {
    let kind = match finding.level() {
        Level::Refused | Level::Unread => "error",
        Level::Warning => "warning",
        Level::Waived | Level::Note => "notice",
    };
    let (file, line, column) = place_at_host(finding);
    let column = column.map(|it| format!(",col={it}")).unwrap_or_default();
    let title = match (code(finding), rule_name(checked, code(finding))) {
        (code, name) if code == name => format!("gatera: {name}"),
        (code, name) => format!("{code} {name}"),
    };
    let (file, title) = (property(&visible(file)), property(&title));
    // An annotation at a file that does not exist would not be shown; one without a file is listed beside the run.
    let gone = finding.location.in_base && finding.shown_at.is_none();
    let at = if gone { String::new() } else { format!("file={file},line={line}{column},") };
    format!("::{kind} {at}title={title}::{}\n", data(&full_text_at_host(finding)))
}

/// Escapes a text as the runner decodes it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
