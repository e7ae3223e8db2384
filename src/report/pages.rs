//! The last line of a refusal: the command that prints the rule's page, with gatera or with kubectl from the ConfigMap
//! that the chart installs. A person at a keyboard has kubectl and often nothing else.
//!
//! Must not know: which request is refused, or whether the ConfigMap exists.

use std::collections::BTreeSet;

use facts::pages::Pages;

/// Returns the line with the command that prints the rule's page. With kubectl, that command also prints the other pages
/// that the way out names.
pub(super) fn more(pages: &Pages, rule: &str, others: BTreeSet<&str>) -> String {
    let Pages::ConfigMap { namespace, name } = pages else {
        return format!("  more: gatera explain {rule}");
    };
    let all = [rule].into_iter().chain(others.into_iter().filter(|id| *id != rule));
    let all: String = all.map(|id| format!("{{.data.{id}}}")).collect();
    format!("  more: kubectl -n {namespace} get configmap {name} -o 'jsonpath={all}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_printed_by_the_program_or_by_kubectl() {
        let others = BTreeSet::from(["G07", "G04", "G01"]);
        assert_eq!(more(&Pages::Program, "G01", others.clone()), "  more: gatera explain G01");
        assert_eq!(
            more(&Pages::read("gatera/gatera-rules").unwrap(), "G01", others),
            "  more: kubectl -n gatera get configmap gatera-rules -o 'jsonpath={.data.G01}{.data.G04}{.data.G07}'"
        );
    }
}
