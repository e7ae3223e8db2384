//! W03: a namespace has at most one Wordpress.
//!
//! Refuses a second one.
//!
//! # Why
//!
//! The operator gives its objects fixed names (wordpress, wordpress-mysql, mysql-pv-claim, wp-pv-claim). For a second Wordpress it
//! creates nothing: both share one site and one database, and deleting the first deletes the data of the second.
//!
//! # Example
//!
//! ```text
//! $ kubectl apply -f second.yaml
//! [W03] Wordpress web/shop: namespace web already has Wordpress blog
//! ```
//!
//! # What to do instead
//!
//! Give it a namespace of its own. charts/wordpress can be installed several times in one namespace (`namePrefix`).
//!
//! # Exceptions
//!
//! Annotate the Wordpress, for an hour at most: `gatera.dev/override: "W03 until=TIME reason=…"`.

use super::WORDPRESS;
use engine::rule::{All, Findings, Origin, Review, Rule, Verb, View};
use engine::rules::unlisted::unlisted;

pub(super) const RULE: Rule = Rule {
    id: "W03",
    name: "one-wordpress",
    judges: &[(WORDPRESS, &[Verb::Create], All(check))],
    depends_on_state: false,
    source: include_str!("one_per_namespace.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.new.is_none() {
        return Findings::new();
    }
    let ns = &*review.namespace;
    let others = view.resource_names(WORDPRESS, ns).filter(|name| *name != review.name);
    let finding = |other: &str| {
        let says = format!("namespace {ns} already has Wordpress {other}");
        let why = "their parts have the same names: both would share one site and one database, and deleting one deletes both";
        RULE.deny("metadata.namespace", says, why, "give it a namespace of its own")
    };
    // An audit reports every Wordpress except the first.
    let found: Findings = others
        .filter(|other| review.origin != Origin::Audit || **other < *review.name)
        .take(1)
        .map(finding)
        .collect();
    let unknown = || unlisted(&RULE, WORDPRESS, review, view).into_iter().collect();
    if found.is_empty() && review.origin != Origin::Audit { unknown() } else { found }
}
