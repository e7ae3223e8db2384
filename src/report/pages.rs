//! The last line of a refusal: the command that prints the rule's page, with gatera or with kubectl from the ConfigMap
//! that the chart installs. A person at a keyboard has kubectl and often nothing else.
//!
//! Must not know: which request is refused, or whether the ConfigMap exists.

use std::collections::BTreeSet;

use facts::pages::Pages;

/// How findings name a page.
const EXPLAIN: &str = "gatera explain ";

/// Appends the line that prints the finding's page. With kubectl, one command prints the other pages that the text
/// names, too.
pub(super) fn added_to(pages: &Pages, text: String, rule: &str) -> String {
    let Pages::ConfigMap { namespace, name } = pages else {
        return format!("{text}\n  more: {EXPLAIN}{rule}");
    };
    let others: BTreeSet<_> = named(&text).filter(|id| *id != rule).map(str::to_owned).collect();
    let all: String =
        [rule].into_iter().chain(others.iter().map(|id| &**id)).map(|id| format!("{{.data.{id}}}")).collect();
    let text = without_program(text);
    format!("{text}\n  more: kubectl -n {namespace} get configmap {name} -o 'jsonpath={all}'")
}

/// Returns the ids of the pages that a text names.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split(EXPLAIN).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let id = &rest[..end];
        (id.starts_with(|c: char| c.is_ascii_uppercase()) && id.ends_with(|c: char| c.is_ascii_digit()))
            .then_some(id)
    })
}

/// Returns the text with pages named as pages, for a reader without gatera.
pub fn without_program(text: String) -> String {
    let ids: BTreeSet<_> = named(&text).map(str::to_owned).collect();
    ids.iter().fold(text, |text, id| {
        let (named, page) = (format!("{EXPLAIN}{id}"), format!("page {id}"));
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
            added_to(&Pages::Program, text.into(), "G01"),
            format!("{text}\n  more: gatera explain G01")
        );
        assert_eq!(
            added_to(&Pages::read("gatera/gatera-rules").unwrap(), text.into(), "G01"),
            "[G01] x: y\n  do instead: page G04 shows the steps, page G07 the rest\n  \
             more: kubectl -n gatera get configmap gatera-rules -o 'jsonpath={.data.G01}{.data.G04}{.data.G07}'"
        );
    }
}
