//! As much of PromQL as is needed to find which metrics an expression asks for, and by which labels. Whether it is valid PromQL
//! is checked by promtool.

use std::collections::BTreeSet;

/// Keywords that need not be followed by a bracket. Keywords that no expression uses yet are left out: the test then fails with
/// the message that no guard has such a metric.
const WORDS: [&str; 8] = ["by", "count", "max", "min", "offset", "or", "sum", "unless"];

/// A metric, and the conditions on its labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Selector {
    pub metric: String,
    pub matchers: Vec<Matcher>,
}

/// A condition on a label: `label="value"`, or `label=~"one|other"`.
#[derive(Debug, PartialEq, Eq)]
pub struct Matcher {
    pub label: String,
    pub values: Vec<String>,
}

/// What an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub selectors: Vec<Selector>,
    /// The labels by which it groups.
    pub grouped: BTreeSet<String>,
}

pub fn asked(expression: &str) -> Asked {
    let mut asked = Asked::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let word = word(rest);
        if word.is_empty() {
            rest = &rest[first.len_utf8()..];
            // A range: a duration, or a Grafana variable.
            if first == '[' {
                rest = rest.split_once(']').unwrap().1;
            }
            continue;
        }
        rest = rest[word.len()..].trim_start();
        if word == "by" {
            let (labels, after) = rest.strip_prefix('(').unwrap().split_once(')').unwrap();
            asked.grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
            rest = after;
        } else if !(first.is_ascii_digit() || WORDS.contains(&word) || rest.starts_with('(')) {
            let braces = rest.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let (inside, after) = braces.unwrap_or(("", rest));
            asked.selectors.push(Selector { metric: word.to_owned(), matchers: matchers(inside) });
            rest = after;
        }
    }
    asked
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    &text[..end.unwrap_or(text.len())]
}

fn matchers(inside: &str) -> Vec<Matcher> {
    let parts = inside.split(',').filter(|part| !part.trim().is_empty());
    let read = |part: &str| {
        let (label, value) = part.split_once('=').unwrap();
        let value = value.trim_start_matches('~').trim().trim_matches('"');
        Matcher { label: label.trim().to_owned(), values: value.split('|').map(str::to_owned).collect() }
    };
    parts.map(read).collect()
}

#[test]
fn selectors_and_groups_are_found() {
    let found = asked(
        r#"sum by (a, b) (rate(x_total{n="1", m=~"p|q"}[5m])) / y:z > 0 or absent(w) - time() < 7 * 86400"#,
    );
    let matcher = |label: &str, values: &[&str]| Matcher {
        label: label.to_owned(),
        values: values.iter().map(|it| (*it).to_owned()).collect(),
    };
    let names: Vec<_> = found.selectors.iter().map(|it| &*it.metric).collect();
    assert_eq!(names, ["x_total", "y:z", "w"]);
    assert_eq!(found.selectors[0].matchers, [matcher("n", &["1"]), matcher("m", &["p", "q"])]);
    assert_eq!(found.grouped, ["a", "b"].map(str::to_owned).into());
    assert_eq!(asked("rate(x[$__rate_interval])").selectors.len(), 1);
}
