//! W09: nothing else is called wordpress where the operator makes its own.
//!
//! Warns of a Deployment called `wordpress` that belongs to no Wordpress, in a namespace that has one.
//!
//! # Why
//!
//! The operator asks whether there is a Deployment of this name, and makes none if there is: the site is never made, or somebody else's is
//! taken for it. The example's operator is called so itself: installed beside its Wordpress, it takes itself for the site.
//!
//! # Example
//!
//! ```text
//! $ kubectl apply -f deploy/operator.yaml
//! Warning: [W09] Deployment web/wordpress: Wordpress blog makes a Deployment of this name, and would take this one for it
//! ```
//!
//! # What to do instead
//!
//! Put the operator into a namespace of its own, or call its Deployment wordpress-operator.
//!
//! # Exceptions
//!
//! Annotate the Deployment, for an hour at most: `gatera.dev/override: "W09 until=TIME reason=…"`. It is only a warning.

use super::{WORDPRESS, part};
use engine::rule::{Rule, Verb};
use engine::verdict::{Findings, Verdict};
use facts::review::Review;
use facts::view::View;
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "W09",
    name: "wp-collision",
    touches: &[(Kind::Deployment, &[Verb::Create])],
    source: include_str!("collision.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(Object::Deployment(it)) = review.new.as_ref() else { return Findings::new() };
    if it.metadata.name != "wordpress" || part(&it.metadata).is_some() {
        return Findings::new();
    }
    let finding = |other: &str| {
        let says =
            format!("Wordpress {other} makes a Deployment of this name, and would take this one for it");
        let why = "the operator makes nothing where something is called so already: there would be no site";
        let instead = "call it otherwise, or put it into another namespace";
        RULE.finding(Verdict::Warn, "metadata.name", says, why, instead)
    };
    view.named(WORDPRESS, &review.namespace).take(1).map(finding).collect()
}
