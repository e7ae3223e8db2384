//! A summary for a pull request: a table, and below it the details of each refusal.

use std::fmt::Write as _;

use super::{code, finding_counts, full_text, headline, object_counts, place, rule_name, subject};
use inspect::check::{CheckFinding, CheckFindingKind, Checked, Level};
use objects::visible;

/// The most rows of the table.
const MOST_ROWS: usize = 50;

pub(super) fn of(checked: &Checked) -> String {
    let refused = checked.objects_of(Level::Refused);
    let title = match (checked.count(Level::Unread), refused) {
        _ if checked.objects.is_empty() => "nothing to judge".to_owned(),
        (0, 0) => "nothing would be refused".to_owned(),
        (0, refused) => {
            format!("{refused} of {} would be refused", super::count(checked.objects.len(), "object"))
        }
        (unread, _) => format!("{} cannot be read", super::count(unread, "document")),
    };
    let mut text = format!("### gatera: {title}\n\n");
    let mut findings: Vec<_> = checked.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level()));
    let shown = &findings[..findings.len().min(MOST_ROWS)];
    if !shown.is_empty() {
        text.push_str("| | rule | where | what |\n|---|---|---|---|\n");
    }
    for finding in shown {
        let (file, line) = place(finding);
        let (code, name) = (code(finding), rule_name(checked, code(finding)));
        let rule = if code == name { code.to_owned() } else { format!("{code} {name}") };
        let waived = match &finding.what {
            CheckFindingKind::Finding { waived: Some(reason), .. } => visible(&format!("; waived: {reason}")),
            _ => String::new(),
        };
        let cells = [
            finding.level().name(),
            &rule,
            &visible(&format!("{file}:{line}")),
            &format!("{}{waived}", headline(finding)),
        ]
        .map(cell);
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if findings.len() > MOST_ROWS {
        let _ = writeln!(text, "\n{} more are not listed here.", findings.len() - MOST_ROWS);
    }
    for finding in shown.iter().filter(|finding| finding.level() == Level::Refused) {
        let details = details(finding);
        if text.len() + details.len() < LONGEST_SUMMARY {
            text.push_str(&details);
        }
    }
    text.extend(finding_counts(checked).map(|counts| format!("\n{counts}  \n")));
    text + &format!("{}\n", object_counts(checked))
}

fn details(finding: &CheckFinding) -> String {
    let text = full_text(finding);
    // The fence must be longer than any fence in the text.
    let longest_fence = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest_fence.max(2) + 1);
    let summary = html(&visible(&format!("{} {}", code(finding), subject(finding))));
    format!("\n<details><summary>{summary}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>\n")
}

/// The most characters of one cell.
const LONGEST_CELL: usize = 300;
/// The most bytes up to the last details; a GitHub comment may have 65,536 characters.
const LONGEST_SUMMARY: usize = 60_000;

/// Shortens and escapes a text so that it adds no column, no link and no mention of a person.
fn cell(text: &str) -> String {
    let escaped = |c: char| match c {
        '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '~' => format!("\\{c}"),
        c => c.to_string(),
    };
    let mut short: String = text.chars().take(LONGEST_CELL).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    html(&short.chars().map(escaped).collect::<String>())
}

/// Escapes HTML.
fn html(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' => " ".to_owned(),
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        // An HTML entity would still be a mention.
        '@' => "@\u{200b}".to_owned(),
        c => c.to_string(),
    };
    let text: String = text.chars().map(escaped).collect();
    text.replace("://", "&#58;//").replace("www.", "www&#46;")
}
