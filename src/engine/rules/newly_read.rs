//! ConfigMaps that a new template begins to read.
//!
//! Not a rule: rules that judge the text of a ConfigMap judge it again when a template begins to read it, so that the order in
//! which objects are applied does not matter. The guard reads the text from the API server, because its view holds only
//! ConfigMaps that a cluster reads. `gatera check` has all of its files at once, and judges each ConfigMap itself.

use super::template;
use crate::verdict::{Finding, Findings, Verdict};
use facts::review::Review;
use facts::revision;
use facts::view::View;
use objects::{ConfigMap, Kind, Workload};

/// Returns findings about these ConfigMaps, reported for the template.
pub(super) fn judged(
    review: &Review,
    view: &View<'_>,
    judge: impl Fn(&ConfigMap, &Workload) -> Findings,
) -> Findings {
    let new = template::adopted(review.new.as_ref(), view);
    let Some(new) = new.filter(|_| !review.origin.judges_each(Kind::ConfigMap)) else {
        return Findings::new();
    };
    let before = template::adopted(review.old.as_ref(), view);
    let before = before.map(|old| revision::reaching(&old.spec.template.spec)).unwrap_or_default();
    let names = revision::reaching(&new.spec.template.spec).into_keys().filter(|it| !before.contains_key(it));
    let maps = names.filter_map(|name| view.config_map(&review.namespace, &name));
    let found = maps.flat_map(|map| {
        // A ConfigMap that is recognised as Galera's without a reader was judged when it was written. Repeat only the findings
        // with which the template must be refused.
        let judged_before = view.is_galeras(&review.namespace, map);
        let news =
            judge(map, new).into_iter().filter(move |it| !judged_before || it.verdict == Verdict::Deny);
        news.map(|finding| of_template(finding, &format!("its ConfigMap {}", map.metadata.name)))
    });
    found.collect()
}

/// Returns the finding, reported for the template. The field does not name the ConfigMap, so the same fault under another name is
/// not new.
pub(super) fn of_template(finding: Finding, map: &str) -> Finding {
    Finding {
        field: format!("spec.template.spec.volumes: {}", finding.field),
        says: format!("{map}: {}", finding.says),
        ..finding
    }
}
