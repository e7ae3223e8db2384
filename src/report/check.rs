//! Findings of `gatera check`, laid out for people at a terminal and for the programs of pipelines.
//!
//! Owns: the table of formats, and what they share. Each format has a file of its own; the sentences come from the
//! findings.

mod code_quality;
mod github;
mod json;
mod junit;
mod markdown;
mod sarif;
mod text;

use std::collections::HashMap;

use ring::digest;

use super::{count, downgrade_reason};
use engine::rules::UNREADABLE;
use engine::verdict::Effect;
use facts::pages::Pages;
use inspect::check::{CheckFinding, CheckFindingKind, Checked, Level};
use objects::visible;

pub use json::Document;
use json::OutcomeCounts;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    /// One line per finding, for people and `grep`.
    Concise,
    Json,
    /// Code scanning: SARIF 2.1.0.
    Sarif,
    /// A pipeline that shows tests.
    Junit,
    /// A job of GitHub Actions: annotations.
    Github,
    /// A merge request of GitLab: code quality.
    Gitlab,
    /// A comment in a pull request.
    Markdown,
}

impl Format {
    /// All formats, with the names that `--output` takes and a description.
    pub const ALL: [(Format, &str, &str); 8] = [
        (Format::Text, "text", "for people: the line, the reason and the way out"),
        (Format::Concise, "concise", "one line per finding"),
        (Format::Json, "json", "for programs; docs/schemas/check.json describes it"),
        (Format::Sarif, "sarif", "SARIF 2.1.0, for code scanning"),
        (Format::Junit, "junit", "JUnit XML, with one test per object"),
        (Format::Github, "github", "GitHub Actions annotations"),
        (Format::Gitlab, "gitlab", "a GitLab code quality report"),
        (Format::Markdown, "markdown", "a summary for a pull request"),
    ];

    /// Returns the format of this name.
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format)
    }
}

/// Lays out the findings. Colours are for terminals.
pub fn lay_out(checked: &Checked, format: Format, colour: bool) -> String {
    match format {
        Format::Text => escape_commands(&text::text(checked, colour)),
        Format::Concise => escape_commands(&text::concise(checked, colour)),
        Format::Json => format!("{:#}\n", json::of(checked)),
        Format::Sarif => format!("{:#}\n", sarif::of(checked)),
        Format::Junit => junit::of(checked),
        Format::Github => escape_commands(&github::of(checked)),
        Format::Gitlab => format!("{:#}\n", code_quality::of(checked)),
        Format::Markdown => markdown::of(checked),
    }
}

/// Lays out only the findings. If no object was judged, the output says so.
pub fn in_brief(checked: &Checked, format: Format, colour: bool) -> String {
    match format {
        Format::Text if !checked.findings.is_empty() => {
            escape_commands(text::findings(checked, colour).trim_end_matches('\n')) + "\n"
        }
        Format::Concise if !checked.findings.is_empty() => escape_commands(&text::lines(checked, colour)),
        format => lay_out(checked, format, colour),
    }
}

/// Lays out the findings, each object without one, and each file that is not a manifest.
pub fn in_full(checked: &Checked, format: Format, colour: bool) -> String {
    let fine = escape_commands(&(text::fine_objects(checked, colour) + &text::skipped_files(checked)));
    let separator = if format == Format::Text && !fine.is_empty() { "\n" } else { "" };
    format!("{fine}{separator}{}", lay_out(checked, format, colour))
}

/// Escapes the commands that runners of pipelines look for anywhere in a job's output; names may hold any text.
fn escape_commands(text: &str) -> String {
    text.replace("##[", "#\\u{23}[").replace("##vso[", "#\\u{23}vso[")
}

/// Returns the code by which programs tell kinds of findings apart: the id of a rule, one of [`OTHER_CODES`], or `unread`.
fn code(finding: &CheckFinding) -> &'static str {
    match &finding.what {
        CheckFindingKind::Finding { judged, .. } => judged.finding.rule,
        CheckFindingKind::Remark(_) => "remark",
        CheckFindingKind::Unjudged(_) => "unjudged",
        CheckFindingKind::Comment(_) => "waiver",
        CheckFindingKind::Unread(_) => "unread",
    }
}

/// Codes of findings that no rule has, each with a longer name for SARIF and its meaning.
const OTHER_CODES: [(&str, &str, &str); 4] = [
    (UNREADABLE, "unreadable-object", "an object of a known kind cannot be read"),
    ("remark", "other-warning", "another warning that the API server would return"),
    ("unjudged", "not-judged", "something was not judged, and why"),
    ("waiver", "waiver-comment", "a waiver comment is invalid or waives nothing"),
];

/// Returns the name for a code: the rule's name, or the code itself.
fn rule_name(checked: &Checked, code: &'static str) -> &'static str {
    checked.rules.iter().find(|page| page.id == code).map_or(code, |page| page.name)
}

/// Returns what was found.
fn message(finding: &CheckFinding) -> &str {
    match &finding.what {
        CheckFindingKind::Finding { judged, .. } => &judged.finding.says,
        CheckFindingKind::Remark(message)
        | CheckFindingKind::Unjudged(message)
        | CheckFindingKind::Comment(message)
        | CheckFindingKind::Unread(message) => message,
    }
}

/// Returns the object that the finding is about, as every message names it; empty: the finding is about no object.
fn subject(finding: &CheckFinding) -> &str {
    finding.object.as_ref().map(|object| &*object.subject).unwrap_or_default()
}

/// Returns one line: the object, and what was found.
pub fn headline(finding: &CheckFinding) -> String {
    match &finding.what {
        CheckFindingKind::Finding { .. } => visible(&format!("{}: {}", subject(finding), message(finding))),
        _ => visible(message(finding)),
    }
}

/// Returns the whole text of a finding, without its place.
fn full_text(finding: &CheckFinding) -> String {
    let CheckFindingKind::Finding { judged, waived } = &finding.what else { return headline(finding) };
    let mut text = super::text(subject(finding), &judged.finding, &Pages::Program);
    if let Some(softened) = &judged.softened {
        let only = if judged.effect == Effect::Recorded { "only noted" } else { "only a warning" };
        text.push_str(&format!("\n  {only}: {}", visible(&downgrade_reason(softened))));
    }
    if let Some(reason) = waived {
        text.push_str(&format!("\n  waived here: {}", visible(reason)));
    }
    text
}

/// Returns a place that code hosts show: that of the finding, with its column if that is known, or, for an object that was
/// removed, the place that stands in for it. The file is a path below the top of the repository.
fn place_at_host(finding: &CheckFinding) -> (&str, u64, Option<u64>) {
    let ((file, line), exact) = match &finding.shown_at {
        Some((file, line)) => ((&**file, *line), None),
        None => (place(finding), finding.location.place),
    };
    let column = exact.filter(|place| place.line == line && place.column > 0).map(|place| place.column);
    (file.strip_prefix("./").unwrap_or(file), line, column)
}

/// Returns the whole text for a code host: it shows a removed object at another place, so the text names the real one.
fn full_text_at_host(finding: &CheckFinding) -> String {
    let (file, line) = place(finding);
    let removed_from =
        if finding.location.in_base { format!("\n  removed: {file} line {line}") } else { String::new() };
    full_text(finding) + &visible_lines(&removed_from)
}

fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Returns a place that other programs can show: a file of the repository, and a line of it. An object that came
/// through a pipe is shown at its template, whose lines differ.
fn place(finding: &CheckFinding) -> (&str, u64) {
    let line = finding.location.place.map_or(1, |place| place.line);
    match (&*finding.location.file, &finding.location.template) {
        ("-", Some(template)) => (template, 1),
        ("-", None) => ("stdin", line),
        (file, _) => (file, line),
    }
}

/// Returns a fingerprint for each finding, which stays the same while lines move. It is made from code, object and field, and
/// from a number that counts the findings in which these three are the same.
fn fingerprints(checked: &Checked) -> Vec<String> {
    let mut seen = HashMap::<String, usize>::new();
    let fingerprint = |finding: &CheckFinding| {
        let field = match &finding.what {
            CheckFindingKind::Finding { judged, .. } => &judged.finding.field,
            _ => &headline(finding),
        };
        let object = finding.object.as_ref().map_or(place(finding).0, |object| &*object.subject);
        let text = format!("{}\0{object}\0{field}", code(finding));
        let times = seen.entry(text.clone()).or_default();
        *times += 1;
        let digest = digest::digest(&digest::SHA256, format!("{text}\0{times}").as_bytes());
        digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    };
    checked.findings.iter().map(fingerprint).collect()
}

/// Returns the counts, as in "14 findings: 11 refused, 3 warnings", which add up; `None`: there is no finding.
fn finding_counts(checked: &Checked) -> Option<String> {
    let levels = [Level::Unread, Level::Refused, Level::Warning, Level::Waived, Level::Note];
    let counts = levels.map(|level| (checked.count(level), level)).into_iter().filter(|(many, _)| *many > 0);
    let counts = counts.map(|(many, level)| match level {
        Level::Unread => format!("{many} that cannot be read"),
        Level::Warning | Level::Note => count(many, level.name()),
        Level::Refused | Level::Waived => format!("{many} {}", level.name()),
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    (!counts.is_empty()).then(|| format!("{}: {counts}", count(checked.findings.len(), "finding")))
}

/// Returns the counts of objects, as in "8 objects: 2 would be refused, 1 allowed with a warning, 5 fine", which add
/// up, and what else there is to know.
fn object_counts(checked: &Checked) -> String {
    let settings =
        checked.settings.as_ref().map(|it| format!("; settings of {}", visible(it))).unwrap_or_default();
    let OutcomeCounts { all, refused, warning, waived, not_judged: unjudged, unchanged, fine } =
        OutcomeCounts::of(checked);
    if all == 0 {
        return format!(
            "nothing to judge: no Kubernetes object was found{}{settings}",
            skipped_documents(checked)
        );
    }
    let not_judged = match checked.objects_without_rule() {
        0 => "not judged".to_owned(),
        number if number == unjudged => "not judged (no rule covers this kind)".to_owned(),
        some => format!("not judged ({some} of them because no rule covers their kind)"),
    };
    let mut text =
        format!("{}: {refused} would be refused, {warning} allowed with a warning", count(all, "object"));
    for (count, what) in
        [(waived, "waived"), (unjudged, &*not_judged), (fine, "fine"), (unchanged, "unchanged")]
    {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    let clusters = match checked.clusters {
        0 => "no Galera cluster among them".to_owned(),
        clusters => count(clusters, "Galera cluster"),
    };
    format!("{text}; {clusters}{}{settings}", skipped_documents(checked))
}

fn skipped_documents(checked: &Checked) -> String {
    /// The largest number of files that are named.
    const MOST_NAMED: usize = 3;
    let files: Vec<_> = checked.skipped_files.iter().filter(|file| &***file != "-").collect();
    let mut named = files.iter().take(MOST_NAMED).map(|file| visible(file)).collect::<Vec<_>>().join(", ");
    if files.len() > MOST_NAMED {
        named.push_str(&format!(" and {} more, which --verbose lists", files.len() - MOST_NAMED));
    }
    if !named.is_empty() {
        named.insert_str(0, ": ");
    }
    match checked.skipped_documents {
        0 => String::new(),
        1 => format!("; 1 document without a kind was skipped{named}"),
        many => format!("; {many} documents without a kind were skipped{named}"),
    }
}
