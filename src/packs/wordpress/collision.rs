//! W09: no other Deployment has the name wordpress in the namespace of a Wordpress.
//!
//! Warns about a Deployment called `wordpress` that does not belong to the Wordpress in its namespace.
//!
//! # Why
//!
//! The operator creates its Deployment only if there is none of this name: otherwise the site is never created, or another Deployment
//! counts as the site. The example's operator itself has this name: installed beside its Wordpress, it treats itself as the site.
//!
//! # Example
//!
//! ```text
//! $ kubectl apply -f deploy/operator.yaml
//! Warning: [W09] Deployment web/wordpress: Wordpress blog needs a Deployment of this name, and would use this one
//! ```
//!
//! # What to do instead
//!
//! Put the operator into a namespace of its own, or name its Deployment wordpress-operator.
//!
//! # Exceptions
//!
//! Annotate the Deployment, for an hour at most: `gatera.dev/override: "W09 until=TIME reason=…"`. It is only a warning.

use super::{WORDPRESS, part};
use engine::rule::{All, Findings, Review, Rule, Verb, View};
use objects::{Kind, Workload};

pub(super) const RULE: Rule = Rule {
    id: "W09",
    name: "wp-collision",
    judges: &[(Kind::Deployment, &[Verb::Create], All(check))],
    depends_on_state: false,
    source: include_str!("collision.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(it) = review.change::<Workload>().new else { return Findings::new() };
    if it.metadata.name != "wordpress" || part(&it.metadata).is_some() {
        return Findings::new();
    }
    let finding = |other: &str| {
        let says = format!("Wordpress {other} needs a Deployment of this name, and would use this one");
        let why =
            "the operator does not create its Deployment if one of this name exists: there would be no site";
        let instead = "use another name, or put it into another namespace";
        RULE.warn("metadata.name", says, why, instead)
    };
    view.resource_names(WORDPRESS, &review.namespace).take(1).map(finding).collect()
}
