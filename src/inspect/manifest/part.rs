//! The text between two `---`: a YAML error in it does not affect the other parts.
//!
//! Owns: where a text is split, as kubectl splits it, and the messages about YAML errors. Must not know: what documents
//! contain.

use serde_saphyr::Spanned;

use super::Place;
use super::node::YamlNode;

/// A text between two `---`.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    /// The number of lines before it.
    pub(super) lines_above: u64,
}

/// The error of a text that is not YAML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct YamlError {
    /// Where the YAML error is.
    pub place: Place,
    /// Whether it is a template that another program fills in.
    pub is_template: bool,
    problem: String,
}

/// The message about a text that another program fills in.
pub(crate) const TEMPLATE_PROBLEM: &str =
    "this is a template, not a manifest; judge its output: helm template CHART | gatera check -";

/// Returns whether a text looks like a manifest: one of its lines begins with `apiVersion` or `kind`, or it has `"kind"` in
/// quotes.
pub fn looks_like_manifest(text: &str) -> bool {
    let head = |line: &str| {
        let line = line.trim_start_matches(['\u{feff}', ' ', '\t', '-', '{', '"', '\'']);
        line.starts_with("apiVersion") || line.starts_with("kind")
    };
    text.lines().any(head) || text.contains("\"kind\"")
}

/// Splits a text into its parts; each `---` line belongs to the part after it.
pub(super) fn split(text: &str) -> impl Iterator<Item = Part<'_>> {
    let (mut rest, mut lines_above) = (text, 0);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (length, lines) = first_part_length(rest);
        let part = Part { text: &rest[..length], lines_above };
        rest = &rest[length..];
        lines_above += lines;
        Some(part)
    })
}

/// Returns the length of the first part, in bytes and in lines. A directive belongs to the part after it.
fn first_part_length(text: &str) -> (usize, u64) {
    let (mut bytes, mut lines, mut only_directives) = (0, 0, true);
    for line in text.split_inclusive('\n') {
        let splits = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if splits && lines > 0 && !only_directives {
            break;
        }
        only_directives = only_directives && !splits && (line.starts_with('%') || line.trim().is_empty());
        bytes += line.len();
        lines += 1;
    }
    (bytes, lines)
}

impl Part<'_> {
    /// Parses the YAML. Aliases may expand a small text without limit, so the result is limited; a long text may hold as many
    /// nodes as it has bytes.
    pub(super) fn parse(&self) -> Result<Vec<Spanned<YamlNode>>, YamlError> {
        let (length, defaults) = (self.text.len(), serde_saphyr::Budget::default());
        let options = serde_saphyr::options! {
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_documents: defaults.max_documents.max(length),
                max_events: defaults.max_events.max(length),
                max_nodes: defaults.max_nodes.max(length),
            },
        };
        serde_saphyr::from_multiple_with_options(self.text, options).map_err(|error| {
            let at = error.location().map_or((1, 1), |it| (it.line(), it.column()));
            let is_template = self.is_template(at.0);
            let problem =
                if is_template { TEMPLATE_PROBLEM.to_owned() } else { self.message(&error.to_string(), at) };
            YamlError { place: Place { line: self.lines_above + at.0, column: at.1 }, is_template, problem }
        })
    }

    /// Returns whether the text, which is not YAML at this line, is a template.
    fn is_template(&self, line: u64) -> bool {
        let at = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        // A placeholder may cause an error up to two lines further down.
        self.text.lines().skip(at.saturating_sub(2)).take(3).any(|it| it.contains("{{"))
            || !looks_like_manifest(self.text)
                && self.text.lines().any(|it| it.trim_start().starts_with("{{"))
    }

    /// Returns the template that Helm rendered this from, as Helm writes it above each document.
    pub(super) fn template(&self) -> Option<String> {
        let head = self
            .text
            .lines()
            .take_while(|line| line.starts_with('#') || line.starts_with("---") || line.trim().is_empty());
        let name = head.filter_map(|line| line.strip_prefix("# Source: ")).last()?.trim();
        Some(name.to_owned()).filter(|name| !name.is_empty())
    }

    /// Returns the message for the key at this place, if the same map also has it further up.
    fn repeated_key(&self, line: usize, column: usize) -> Option<String> {
        let lines: Vec<_> = self.text.lines().take(line + 1).collect();
        let key_at = |line: &str| {
            let key = line.get(column..)?.split(':').next()?.trim().trim_matches(['"', '\'']).to_owned();
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            (!key.is_empty() && key.len() <= 63 && key.chars().all(plain)).then_some(key)
        };
        let key = key_at(lines.last()?)?;
        // A line with less indentation, or one that begins an item, is in another map.
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
        let above = lines.iter().enumerate().take(line).rev();
        let mut same = above
            .filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'))
            .take_while(|(_, text)| indent(text) >= column);
        let (first, _) =
            same.find(|(_, text)| indent(text) == column && key_at(text).as_ref() == Some(&key))?;
        let number = |line: usize| self.lines_above + u64::try_from(line).unwrap_or_default() + 1;
        Some(format!(
            "key {key} occurs twice in the same map, on lines {} and {}",
            number(first),
            number(line)
        ))
    }

    /// Returns the message for an error. Messages of the parser that quote the text are replaced: the text could be a
    /// password.
    fn message(&self, parser_says: &str, (line, column): (u64, u64)) -> String {
        let at = |place: u64| usize::try_from(place.saturating_sub(1)).unwrap_or(usize::MAX);
        let first = parser_says.lines().next().unwrap_or_default();
        let first = first.split(" at line ").next().unwrap_or_default().trim_end_matches(':');
        let known = PROBLEMS.iter().find(|(parts, _)| parts.iter().all(|part| first.contains(part)));
        let known = known.map_or(first, |(_, problem)| problem);
        let repeated = (known == REPEATED_KEY).then(|| self.repeated_key(at(line), at(column))).flatten();
        format!("this is not YAML: {}", repeated.as_deref().unwrap_or(known))
    }
}

const REPEATED_KEY: &str = "a key occurs twice in the same map";
const NOT_CLOSED: &str = "a bracket or a brace is not closed";
const TOO_LARGE: &str = "its aliases expand to too much text";

/// Problems, each with the parts of the parser's message about it. The first whose parts are all in a message counts.
const PROBLEMS: [(&[&str], &str); 14] = [
    (&["tabs"], "a tab where YAML needs spaces"),
    (&["escape"], "a backslash in double quotes before a character that cannot follow it"),
    (&["quoted scalar"], "a quote is not closed"),
    (&["illegal placement"], NOT_CLOSED),
    (&["unclosed"], NOT_CLOSED),
    (&["flow"], NOT_CLOSED),
    (&["string scalar"], "a key is not a string"),
    (&["non-finite"], "there is no such number"),
    (&["duplicate mapping key"], REPEATED_KEY),
    (
        &["mapping values are not allowed"],
        "a `:` where no key can be; indent this line like the one above it, or put the value in quotes",
    ),
    (&["Depth"], "its maps and lists are nested deeper than 64 levels"),
    (&["budget"], TOO_LARGE),
    (&["alias", "limit"], TOO_LARGE),
    (&["unknown anchor"], "it refers to an anchor that does not exist"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_where_kubectl_splits_it() {
        let parts = |text: &'static str| split(text).map(|it| (it.text, it.lines_above)).collect::<Vec<_>>();
        assert_eq!(parts("a\n---\nb\n--- # c\nd"), [("a\n", 0), ("---\nb\n", 1), ("--- # c\nd", 3)]);
        assert_eq!(parts("%YAML 1.2\n---\na\n"), [("%YAML 1.2\n---\na\n", 0)]);
        assert_eq!(parts("a: |\n  ---\n ---\n---x\n"), [("a: |\n  ---\n ---\n---x\n", 0)]);
        assert_eq!(parts("---\r\na\r\n---\r\n"), [("---\r\na\r\n", 0), ("---\r\n", 2)]);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn the_template_of_a_part_is_read_from_its_comment() {
        let template = |text: &'static str| split(text).last().and_then(|it| it.template());
        assert_eq!(template("---\n# Source: a/b.yaml\nkind: Pod\n").as_deref(), Some("a/b.yaml"));
        assert_eq!(template("---\n# Source: a\n# Source: b\nk: v\n").as_deref(), Some("b"), "the nearest");
        assert_eq!(template("kind: Pod\n# Source: a\n"), None);
        assert_eq!(template("# Source:  \n"), None);
    }

    #[test]
    fn yaml_errors_are_explained_in_plain_words() {
        for (text, line, words) in [
            ("a: \"x\nb: 1\n", 2, "this is not YAML: a quote is not closed"),
            ("a:\n\tb: 1\n", 2, "this is not YAML: a tab where YAML needs spaces"),
            (
                "a: 1\nb: 2\na: hunter2\n",
                3,
                "this is not YAML: key a occurs twice in the same map, on lines 1 and 3",
            ),
            (
                "- x:\n    a: 1\n  b: 1\n- b: 1\n  c: 2\n  # b\n  b: 2\n",
                7,
                "this is not YAML: key b occurs twice in the same map, on lines 4 and 7",
            ),
            ("{a: 1, a: hunter2}\n", 1, "this is not YAML: a key occurs twice in the same map"),
            (
                "a: b: c\n",
                1,
                "this is not YAML: a `:` where no key can be; indent this line like the one above it, or put the value in quotes",
            ),
            ("a: *nope\n", 1, "this is not YAML: it refers to an anchor that does not exist"),
            (
                "a: {{ .Values.a }}\n",
                1,
                "this is a template, not a manifest; judge its output: helm template CHART | gatera check -",
            ),
            (
                "{{- if .Values.a }}\na: 1\n{{- end }}\n",
                1,
                "this is a template, not a manifest; judge its output: helm template CHART | gatera check -",
            ),
        ] {
            let problem = split(text).next().unwrap().parse().unwrap_err();
            assert_eq!((problem.place.line, &*problem.to_string()), (line, words), "{text}");
        }
    }
}
