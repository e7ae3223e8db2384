//! The line of a text that a finding is about, as far as it can be shown: a line may hold a password.
//!
//! Owns: which part of a line is quoted. Keys are quoted; a value only if the finding itself names it, or if it is an apiVersion,
//! a kind or a name. Must not know: rules, formats.

use std::cell::OnceCell;

use crate::manifest::Place;
use engine::rules::UNREADABLE;
use engine::verdict::Finding;
use objects::Kind;
use objects::visible;

/// The length, in characters, above which a line is not quoted.
const MAX_LINE_CHARS: usize = 120;
/// Rules whose findings are about values that must not be shown.
const SECRET_RULES: [&str; 3] = [UNREADABLE, "G11", "G12"];

/// A line without values that could be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text of the line.
    pub line: String,
    /// The number of characters before the caret.
    pub caret: usize,
}

/// A text, split into lines.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    lines: OnceCell<Vec<&'a str>>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text, lines: OnceCell::new() }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns how many lines there are.
    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.text.lines().count()).unwrap_or(u64::MAX)
    }

    fn line(&self, place: Place) -> Option<&'a str> {
        let lines = self.lines.get_or_init(|| self.text.trim_start_matches('\u{feff}').lines().collect());
        lines.get(usize::try_from(place.line.checked_sub(1)?).ok()?).copied()
    }

    /// Returns the line that a finding is about; `None`: it is empty or too long.
    pub(super) fn quoted(&self, place: Place, kind: Kind, finding: &Finding) -> Option<Excerpt> {
        let line = self.line(place)?;
        let says =
            if SECRET_RULES.contains(&finding.rule) || kind == Kind::Secret { "" } else { &*finding.says };
        let line = visible(&redacted(&line.replace('\t', " "), says));
        let caret = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let caret = caret.min(line.chars().count().saturating_sub(1));
        (!line.trim().is_empty() && line.chars().count() <= MAX_LINE_CHARS).then_some(Excerpt { line, caret })
    }
}

/// Returns the line with an ellipsis for a value that the finding does not name.
fn redacted(line: &str, says: &str) -> String {
    let (before, value) = line.split_at(value_start(line));
    // A comment may hold a secret.
    let bare = value.split(" #").next().unwrap_or_default().trim();
    let unquoted = bare.trim_matches(['"', '\'']);
    let key = before.trim_matches([' ', '-', ':', '=', '"', '\'']);
    let plain = unquoted.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
    let named = plain && ["apiVersion", "kind", "name"].contains(&key);
    let is_harmless = bare.is_empty() || named || ["|", "|-", "|+", ">", ">-", "{}", "[]"].contains(&bare);
    if is_harmless || names_word(says, unquoted) { format!("{before}{bare}") } else { format!("{before}…") }
}

/// Returns where the value of a line begins: behind `key:` or `key =`, and behind the dashes of lists.
fn value_start(line: &str) -> usize {
    let mut at = line.len() - line.trim_start().len();
    while let Some(rest) = line[at..].strip_prefix("- ") {
        at = line.len() - rest.trim_start().len();
    }
    let part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let rest = &line[at..];
    let key = rest
        .trim_start_matches(['"', '\''])
        .trim_start_matches(part)
        .trim_start_matches(['"', '\''])
        .trim_start();
    let named = key.len() < rest.len();
    match key.strip_prefix([':', '=']) {
        Some(value) if named && (value.is_empty() || value.starts_with(' ') || key.starts_with('=')) => {
            line.len() - value.trim_start().len()
        }
        _ => at,
    }
}

/// Returns whether the message contains this as a whole word.
fn names_word(says: &str, word: &str) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let mut found = says.match_indices(word).filter(|_| !word.is_empty());
    found
        .any(|(at, _)| apart(says[..at].chars().next_back()) && apart(says[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_only_if_the_finding_names_it() {
        for (line, says, quoted) in [
            ("  replicas: 1", "3 -> 1 replicas", "  replicas: 1"),
            ("  replicas: 11", "3 -> 1 replicas", "  replicas: …"),
            (
                "    - image: \"mariadb:latest\"  # hunter2",
                "image mariadb:latest is not pinned",
                "    - image: \"mariadb:latest\"",
            ),
            ("    livenessProbe:", "", "    livenessProbe:"),
            ("- apiVersion: apps/v1", "", "- apiVersion: apps/v1"),
            ("  my.cnf: |", "", "  my.cnf: |"),
            ("    binlog_format = STATEMENT", "binlog_format=STATEMENT", "    binlog_format = STATEMENT"),
            ("    wsrep_sst_auth=root:hunter2", "wsrep_sst_auth is old", "    wsrep_sst_auth=…"),
            ("    mysql -phunter2", "", "    …"),
            ("    - mysql", "", "    - …"),
            ("    [galera]", "", "    …"),
            ("  spec: {password: hunter2}", "spec", "  spec: …"),
            ("hunter2", "", "…"),
            ("- - a: b", "", "- - a: …"),
            ("  - name: mariadb", "", "  - name: mariadb"),
            ("  \"name\": \"A\", \"value\": \"hunter2\"", "", "  \"name\": …"),
            ("  name: A, value: hunter2}]", "", "  name: …"),
            ("kind: ConfigMap, data: {c: \"wsrep_sst_auth=root:hunter2\"}}", "", "kind: …"),
        ] {
            assert_eq!(redacted(line, says), quoted, "{line}");
        }
    }

    #[test]
    fn secret_values_are_never_quoted() {
        let lines = Lines::of("a: mariadb\nb: 1\n");
        let quoted = |rule, kind| {
            let finding = Finding::new(rule, engine::verdict::Verdict::Deny, "", "mariadb", "", "");
            lines.quoted(Place { line: 1, column: 4 }, kind, &finding).unwrap().line
        };
        assert_eq!(quoted("G09", Kind::ConfigMap), "a: mariadb");
        assert_eq!(quoted("G09", Kind::Secret), "a: …");
        for rule in SECRET_RULES {
            assert_eq!(quoted(rule, Kind::ConfigMap), "a: …");
        }
    }
}
