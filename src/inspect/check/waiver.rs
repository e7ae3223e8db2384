//! Comments that waive a finding in place: `# gatera: waive G11 reason=the lab's own password`.
//!
//! Owns: their form, and which findings each waives: those on its own line or on the line below it, or all of the object
//! that begins there. They count only in a check, because the API server sees no comments. Must not know: what was found.

use std::cell::Cell;

use crate::manifest::{Place, YamlDocument};
use engine::rulebook::Rulebook;
use engine::rules::UNREADABLE;

/// The line that a comment is about if nothing follows it in its document. Lines are counted from 1.
const NO_LINE: u64 = 0;
/// The words with which a waiver comment begins.
const MARKER: &str = "gatera: waive";

/// The comments of a text.
#[derive(Debug, Default)]
pub(super) struct Waivers {
    valid: Vec<Waiver>,
    /// Comments that are invalid, and why.
    invalid: Vec<(u64, String)>,
}

#[derive(Debug)]
struct Waiver {
    rule: &'static str,
    reason: String,
    /// The line of the comment.
    line: u64,
    /// The line that it is about: its own, or the one below.
    about: u64,
    used: Cell<bool>,
}

impl Waivers {
    /// Reads all comments of a text.
    pub(super) fn read(text: &str, rulebook: &Rulebook) -> Self {
        let mut all = Self::default();
        if !text.contains(MARKER) {
            return all;
        }
        let (mut above, mut began) = (Vec::new(), false);
        for (line, number) in text.lines().zip(1_u64..) {
            let (comment, separator) = (comment(line), line.starts_with("---"));
            let alone = line.trim().is_empty() || line.trim_start().starts_with('#') || separator;
            // A comment at the end of a document is not about the next one.
            if separator && began {
                all.add(above.drain(..), NO_LINE, rulebook);
            }
            began |= !alone;
            if !alone {
                all.add(above.drain(..), number, rulebook);
            }
            if let Some(body) = comment {
                if alone {
                    above.push((number, body));
                } else {
                    all.add([(number, body)], number, rulebook);
                }
            }
        }
        all.add(above, NO_LINE, rulebook);
        all
    }

    fn add<'t>(
        &mut self,
        comments: impl IntoIterator<Item = (u64, &'t str)>,
        about: u64,
        rulebook: &Rulebook,
    ) {
        for (line, body) in comments {
            match parse(body, rulebook) {
                Ok((rules, reason)) => self.valid.extend(rules.into_iter().map(|rule| Waiver {
                    rule,
                    reason: reason.clone(),
                    line,
                    about,
                    used: Cell::new(false),
                })),
                Err(problem) => self.invalid.push((line, format!("this comment waives nothing: {problem}"))),
            }
        }
    }

    /// Returns the reason why the finding of this rule at this place is waived.
    pub(super) fn waives(&self, rule: &str, place: Place, document: &YamlDocument) -> Option<String> {
        let start = document.start().line;
        let here = |it: &&Waiver| it.rule == rule && (it.about == place.line || it.about == start);
        let waiver = self.valid.iter().find(here)?;
        waiver.used.set(true);
        Some(waiver.reason.clone())
    }

    /// Returns remarks about comments that are invalid or waive nothing, with their lines. If the rule of a comment was not
    /// applied, or unchanged objects were not judged, the comment may still be needed.
    pub(super) fn remarks(&self, rules: &[&str], compared: bool) -> Vec<(u64, String)> {
        let unused =
            |it: &&Waiver| !compared && !it.used.get() && (rules.is_empty() || rules.contains(&it.rule));
        let message =
            |rule| format!("{rule} finds nothing here, so there is nothing to waive; remove this comment");
        let unused = self.valid.iter().filter(unused).map(|it| (it.line, message(it.rule)));
        self.invalid.iter().cloned().chain(unused).collect()
    }
}

/// Returns the text after the marker, if the line has a waiver comment.
fn comment(line: &str) -> Option<&str> {
    let (before, body) = line.split_once(MARKER)?;
    let before = before.trim_end().strip_suffix('#')?;
    // Text in quotes is not a comment.
    let quoted = ['"', '\''].iter().any(|quote| before.matches(*quote).count() % 2 == 1);
    let before = if quoted { return None } else { before };
    (before.is_empty() || before.ends_with(char::is_whitespace)).then_some(body)
}

fn parse(body: &str, rulebook: &Rulebook) -> Result<(Vec<&'static str>, String), String> {
    const FORM: &str = "write `# gatera: waive G11 reason=…`";
    let (named, reason) = body.split_once("reason=").ok_or_else(|| format!("it has no reason; {FORM}"))?;
    let reason = reason.trim();
    if reason.is_empty() || reason == "…" {
        return Err(format!("its reason is empty; {FORM}"));
    }
    let mut rules = Vec::new();
    for word in named.split([',', ' ']).filter(|word| !word.is_empty()) {
        match rulebook.rule(word) {
            Some(rule) => rules.push(rule.id),
            None if word.eq_ignore_ascii_case(UNREADABLE) => {
                return Err(format!("{UNREADABLE} is about what cannot be judged, and cannot be waived"));
            }
            None => return Err(format!("there is no rule {word}; `gatera explain` lists them")),
        }
    }
    if rules.is_empty() { Err(format!("it names no rule; {FORM}")) } else { Ok((rules, reason.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    const TEXT: &str = "\
# gatera: waive G13 reason=one node is all there is
---
# gatera: waive G07, g09 reason=a lab
kind: StatefulSet
spec:
  # gatera: waive G01 reason=two is enough here

  replicas: 2
  serviceName: x  # gatera: waive G16 reason=it comes
  text: 'x# gatera: waive G11 reason=not a comment'
";

    #[test]
    fn a_comment_waives_its_line_the_one_below_or_a_whole_object() {
        let document = manifest::read(TEXT).remove(0).unwrap();
        let waivers = Waivers::read(TEXT, &Rulebook::new(&[]));
        let reason_at = |rule, line| waivers.waives(rule, Place { line, column: 3 }, &document);
        for (rule, line, reason) in [
            ("G13", 9, Some("one node is all there is")),
            ("G07", 5, Some("a lab")),
            ("G09", 9, Some("a lab")),
            ("G01", 8, Some("two is enough here")),
            ("G01", 9, None),
            ("G16", 8, None),
            ("G16", 9, Some("it comes")),
            ("G11", 10, None),
        ] {
            assert_eq!(reason_at(rule, line).as_deref(), reason, "{rule} line {line}");
        }
        assert_eq!(waivers.remarks(&[], false).len(), 0);
    }

    #[test]
    fn a_comment_at_the_end_of_a_document_is_not_about_the_next_one() {
        let text = "kind: A\ndata:\n  readme: |\n    # gatera: waive G11 reason=from a text\n---\nkind: B\n";
        let documents: Vec<_> = manifest::read(text).into_iter().map(Result::unwrap).collect();
        let waivers = Waivers::read(text, &Rulebook::new(&[]));
        assert_eq!(waivers.waives("G11", Place { line: 6, column: 1 }, &documents[1]), None);
        let quoted = "a: \"x # gatera: waive G11 reason=in a text\"\n";
        let document = manifest::read(quoted).remove(0).unwrap();
        assert_eq!(
            Waivers::read(quoted, &Rulebook::new(&[])).waives("G11", Place { line: 1, column: 4 }, &document),
            None
        );
    }

    #[test]
    fn comments_that_waive_nothing_are_reported() {
        for (comment, message) in [
            (
                "# gatera: waive G01",
                "this comment waives nothing: it has no reason; write `# gatera: waive G11 reason=…`",
            ),
            (
                "# gatera: waive G01 reason= ",
                "this comment waives nothing: its reason is empty; write `# gatera: waive G11 reason=…`",
            ),
            (
                "# gatera: waive G01 reason=…",
                "this comment waives nothing: its reason is empty; write `# gatera: waive G11 reason=…`",
            ),
            (
                "# gatera: waive reason=x",
                "this comment waives nothing: it names no rule; write `# gatera: waive G11 reason=…`",
            ),
            (
                "# gatera: waive G99 reason=x",
                "this comment waives nothing: there is no rule G99; `gatera explain` lists them",
            ),
            (
                "# gatera: waive g00 reason=x",
                "this comment waives nothing: G00 is about what cannot be judged, and cannot be waived",
            ),
            (
                "# gatera: waive G01 reason=x",
                "G01 finds nothing here, so there is nothing to waive; remove this comment",
            ),
        ] {
            let said = Waivers::read(&format!("a: 1\n{comment}\n"), &Rulebook::new(&[])).remarks(&[], false);
            assert_eq!(said, [(2, message.to_owned())]);
        }
        let waivers = Waivers::read("# gatera: waive G01 reason=x\n", &Rulebook::new(&[]));
        assert_eq!(waivers.remarks(&["G02"], false).len(), 0, "G01 was not applied");
        assert_eq!(waivers.remarks(&[], true).len(), 0, "unchanged objects are not judged");
    }
}
