//! A summary for a pull request: a table, and below it the details of each refusal.

use std::fmt::Write as _;

use super::{code, findings, headline, name, objects, place, whole};
use inspect::check::{CheckFinding, Checked, Level, What};
use objects::visible;

/// The most rows of the table; a comment has at most 65,536 characters.
const MOST: usize = 50;

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
    let mut hits: Vec<_> = checked.hits.iter().collect();
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.level()));
    let shown = &hits[..hits.len().min(MOST)];
    if !shown.is_empty() {
        text.push_str("| | rule | where | what |\n|---|---|---|---|\n");
    }
    for hit in shown {
        let (file, line) = place(hit);
        let (code, name) = (code(hit), name(checked, code(hit)));
        let rule = if code == name { code.to_owned() } else { format!("{code} {name}") };
        let waived = match &hit.what {
            What::Finding { waived: Some(reason), .. } => visible(&format!("; waived: {reason}")),
            _ => String::new(),
        };
        let cells = [
            hit.level().name(),
            &rule,
            &visible(&format!("{file}:{line}")),
            &format!("{}{waived}", headline(hit)),
        ]
        .map(cell);
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if hits.len() > MOST {
        let _ = writeln!(text, "\n{} more are not listed here.", hits.len() - MOST);
    }
    for hit in shown.iter().filter(|hit| hit.level() == Level::Refused) {
        let details = details(hit);
        if text.len() + details.len() < ROOM {
            text.push_str(&details);
        }
    }
    if !hits.is_empty() {
        let _ = writeln!(text, "\n{}  ", findings(checked));
    }
    text + &format!("{}\n", objects(checked))
}

fn details(hit: &CheckFinding) -> String {
    let (words, subject) = (whole(hit), hit.object.as_ref().map(|it| &*it.subject).unwrap_or_default());
    // The fence must be longer than any fence in the text.
    let within = words.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(within.max(2) + 1);
    let summary = html(&visible(&format!("{} {subject}", code(hit))));
    format!("\n<details><summary>{summary}</summary>\n\n{fence}text\n{words}\n{fence}\n\n</details>\n")
}

/// The most characters of one cell.
const LONGEST: usize = 300;
/// The most bytes of the whole summary; a GitHub comment may have 65,536 characters.
const ROOM: usize = 60_000;

/// Escapes a user's text so that it makes no column, no link and no mention of a person.
fn cell(text: &str) -> String {
    let escaped = |c: char| match c {
        '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '~' => format!("\\{c}"),
        c => c.to_string(),
    };
    let mut short: String = text.chars().take(LONGEST).collect();
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
