//! JUnit XML: each file is a suite, each object a test. An object that would be refused fails, one that cannot be read
//! is an error, one that is waived is skipped; warnings are the test's output.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::{code, full_text, headline};
use inspect::check::{CheckFinding, Checked, Level, Outcome};
use objects::visible;

pub(super) fn of(checked: &Checked) -> String {
    let mut files: Vec<&str> = Vec::new();
    let locations =
        checked.objects.iter().map(|it| &it.location).chain(checked.findings.iter().map(|it| &it.location));
    for location in locations {
        if !files.contains(&&*location.file) {
            files.push(&location.file);
        }
    }
    let (failures, errors) = (checked.objects_of(Level::Refused), checked.count(Level::Unread));
    let tests = checked.objects.len() + errors;
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuites name=\"gatera check\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">"
    );
    text.extend(files.into_iter().map(|file| suite(checked, file)));
    text + "</testsuites>\n"
}

fn suite(checked: &Checked, file: &str) -> String {
    let objects: Vec<_> = checked.objects.iter().filter(|it| &*it.location.file == file).collect();
    let own: Vec<_> = checked.findings.iter().filter(|it| &*it.location.file == file).collect();
    let mut of_objects = HashMap::<_, Vec<&CheckFinding>>::new();
    for finding in &own {
        if let Some(object) = &finding.object {
            of_objects.entry((&object.subject, finding.location.in_base)).or_default().push(finding);
        }
    }
    let unread: Vec<_> = own.iter().filter(|it| it.level() == Level::Unread).collect();
    let failures = objects.iter().filter(|it| it.worst == Some(Level::Refused)).count();
    let skipped = objects
        .iter()
        .filter(|it| it.worst == Some(Level::Waived) || it.unchanged || it.has_no_rule())
        .count();
    let (tests, errors) = (objects.len() + unread.len(), unread.len());
    let mut text = format!(
        "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">\n",
        xml(file)
    );
    for finding in unread {
        let line = finding.location.place.map(|it| format!(" line {}", it.line)).unwrap_or_default();
        let (name, message) = (xml(&format!("{file}{line}")), xml(&headline(finding)));
        let _ = writeln!(
            text,
            "    <testcase classname=\"{}\" name=\"{name}\"><error type=\"unread\" message=\"{message}\"/></testcase>",
            xml(file)
        );
    }
    for object in objects {
        let findings = of_objects.get(&(&object.object.subject, object.location.in_base));
        test(&mut text, object, findings.map_or(&[], |findings| findings));
    }
    let apart: String = own
        .iter()
        .filter(|it| it.object.is_none() && it.level() < Level::Unread)
        .map(|it| with_place(it))
        .collect();
    if !apart.is_empty() {
        let _ = writeln!(text, "    <system-out>{}</system-out>", xml(&apart));
    }
    text + "  </testsuite>\n"
}

fn test(text: &mut String, outcome: &Outcome, findings: &[&CheckFinding]) {
    let Outcome { location, object, .. } = outcome;
    let of_this = |level: Level| findings.iter().filter(move |it| it.level() == level);
    let _ =
        write!(text, "    <testcase classname=\"{}\" name=\"{}\"", xml(&location.file), xml(&object.subject));
    if outcome.is_fine() {
        text.push_str("/>\n");
        return;
    }
    text.push_str(">\n");
    let mut refused = of_this(Level::Refused).peekable();
    if let Some(first) = refused.peek() {
        let (code, message) = (code(first), xml(&headline(first)));
        let all: String = refused.map(|it| with_place(it)).collect();
        let _ =
            writeln!(text, "      <failure type=\"{code}\" message=\"{message}\">{}</failure>", xml(&all));
    } else if outcome.unchanged {
        text.push_str("      <skipped message=\"unchanged\"/>\n");
    } else if outcome.has_no_rule() {
        text.push_str("      <skipped message=\"no rule covers this kind\"/>\n");
    } else if outcome.worst == Some(Level::Waived) {
        let all: String = of_this(Level::Waived).map(|it| with_place(it)).collect();
        let _ = writeln!(text, "      <skipped message=\"waived\">{}</skipped>", xml(&all));
    }
    let besides: String =
        of_this(Level::Warning).chain(of_this(Level::Note)).map(|it| with_place(it)).collect();
    if !besides.is_empty() {
        let _ = writeln!(text, "      <system-out>{}</system-out>", xml(&besides));
    }
    text.push_str("    </testcase>\n");
}

fn with_place(finding: &CheckFinding) -> String {
    let place = finding.location.place.map(|it| format!(":{}:{}", it.line, it.column)).unwrap_or_default();
    format!("{}{place}\n{}\n", visible(&finding.location.file), full_text(finding))
}

/// Escapes a text for XML, in which control characters are not allowed.
fn xml(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\n' => "&#10;".to_owned(),
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
