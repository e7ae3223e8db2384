//! Where a rule's page is read: with the program, or with kubectl from the ConfigMap that the chart installs, because whoever is
//! refused at a keyboard has kubectl and often nothing else.
//!
//! Owns: the last line of a refusal. Must not know: who is refused, or whether the ConfigMap is there.

use std::collections::BTreeSet;

use crate::rules;

/// How findings name a page.
const EXPLAIN: &str = "gatera explain ";

/// Where pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// `gatera explain` prints them.
    #[default]
    Program,
    /// Every page under the id of its rule.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Pages {
    /// `NAMESPACE/NAME` of a ConfigMap. It becomes part of a command, so it has to be what objects are called.
    pub fn read(text: &str) -> Option<Self> {
        let called = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        let (namespace, name) =
            text.split_once('/').filter(|(namespace, name)| called(namespace) && called(name))?;
        Some(Self::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// A finding's text with the line that prints its page. With kubectl one command prints the pages that the text names
    /// as well.
    pub(super) fn added_to(&self, text: String, rule: &str) -> String {
        let Self::ConfigMap { namespace, name } = self else {
            return match rules::page(rule) {
                Some(_) => format!("{text}\n  more: {EXPLAIN}{rule}"),
                None => text,
            };
        };
        let named = rules::RULES
            .iter()
            .map(|it| it.id)
            .filter(|id| *id != rule && text.contains(&format!("{EXPLAIN}{id}")));
        let others: BTreeSet<_> = named.collect();
        let pages: String = rules::page(rule)
            .iter()
            .map(|it| it.id)
            .chain(others)
            .map(|id| format!("{{.data.{id}}}"))
            .collect();
        if pages.is_empty() {
            return text;
        }
        let text = without_program(text);
        format!("{text}\n  more: kubectl -n {namespace} get configmap {name} -o 'jsonpath={pages}'")
    }
}

/// Pages named as pages, for whoever does not have the program.
pub fn without_program(text: String) -> String {
    rules::RULES.iter().fold(text, |text, rule| {
        let (named, page) = (format!("{EXPLAIN}{}", rule.id), format!("page {}", rule.id));
        text.replace(&format!("`{named}`"), &page).replace(&named, &page)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_by_the_program_or_printed_by_kubectl() {
        let text =
            "[G01] x: y\n  do instead: `gatera explain G04` shows the steps, gatera explain G07 the rest";
        assert_eq!(
            Pages::Program.added_to(text.into(), "G01"),
            format!("{text}\n  more: gatera explain G01")
        );
        assert_eq!(
            Pages::read("gatera/gatera-rules").unwrap().added_to(text.into(), "G01"),
            "[G01] x: y\n  do instead: page G04 shows the steps, page G07 the rest\n  \
             more: kubectl -n gatera get configmap gatera-rules -o 'jsonpath={.data.G01}{.data.G04}{.data.G07}'"
        );
        for rule in ["G98", ""] {
            assert_eq!(Pages::Program.added_to("x".into(), rule), "x", "what is no rule has no page");
            assert_eq!(Pages::read("a/b").unwrap().added_to("x".into(), rule), "x");
        }
    }

    #[test]
    fn what_becomes_part_of_a_command_is_a_name() {
        for text in ["", "a", "a/", "/b", "a/b/c", "a/$(b)", "a/b c", "a/'", "-n/b", "a/-o", "A/b"] {
            assert_eq!(Pages::read(text), None, "{text}");
        }
    }
}
