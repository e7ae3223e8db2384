//! The text format of Prometheus before OpenMetrics, for scrapers that ask for it.
//!
//! Must not know: what is counted. The library writes OpenMetrics only. For the guard's metrics, two things differ in the older
//! format: a counter is declared under the name of its samples, with `_total`, and no line marks the end. The guard uses
//! neither units nor exemplars.

use std::collections::BTreeSet;

/// Converts OpenMetrics text to the format `version=0.0.4`.
pub(super) fn classic(text: &str) -> String {
    let declared = |line: &'_ str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: BTreeSet<_> = text.lines().filter_map(declared).collect();
    let mut classic = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut parts = line.splitn(4, ' ');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                classic.push_str(&format!("# {what} {name}_total {rest}"));
            }
            _ => classic.push_str(line),
        }
        classic.push('\n');
    }
    classic
}

#[test]
fn counters_are_declared_as_they_are_counted() {
    let text =
        "# HELP a b c.\n# TYPE a counter\na_total{x=\"y z\"} 1\n# HELP b d.\n# TYPE b gauge\nb 1\n# EOF\n";
    let expected = "# HELP a_total b c.\n# TYPE a_total counter\na_total{x=\"y z\"} 1\n# HELP b d.\n# TYPE b gauge\nb 1\n";
    assert_eq!(classic(text), expected);
}
