//! W04: what a WordPress holds outlives a careless command.
//!
//! Refuses to delete a Wordpress, the claim of its database or of its files, the namespace that they are in, and the definition
//! `wordpresses.example.com`, with which all of them go.
//!
//! # Why
//!
//! The operator is the owner of both claims, so Kubernetes deletes them after their Wordpress: the posts, the users and the uploaded
//! files are gone before anybody notices, and there is no question. What the garbage collector removes afterwards is not held up: then
//! it is too late.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete wordpress blog
//! [W04] Wordpress web/blog: its two volumes go with it: the database (mysql-pv-claim) and the files (wp-pv-claim)
//! ```
//!
//! # What to do instead
//!
//! Take a backup first (`mariadb-dump` or `mysqldump` of the database, and a copy of `/var/www/html`). To keep the volumes, delete the
//! Wordpress with `--cascade=orphan`: then everything stays, and nothing looks after it.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "W04 until=TIME reason=…"`. That is the confirmation.

use super::{Tier, part};
use crate::object::{Kind, Object};
use crate::packs::{confirmation, unheard};
use crate::review::{Operation, Review};
use crate::rules::{Rule, Verb};
use crate::verdict::{Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "W04",
    name: "wp-data",
    touches: &[
        (Kind::Wordpress, &[Verb::Delete]),
        (Kind::Claim, &[Verb::Delete]),
        (Kind::Namespace, &[Verb::Delete]),
        (Kind::Definition, &[Verb::Delete]),
    ],
    source: include_str!("data.rs"),
    check,
};

/// The definition of all Wordpresses.
const DEFINITION: &str = "wordpresses.example.com";

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation != Operation::Delete {
        return Findings::new();
    }
    let is_definition = matches!(&review.old, Some(Object::Definition(it)) if it.metadata.name == DEFINITION);
    if is_definition && let Some(unknown) = unheard(&RULE, Kind::Wordpress, review, view) {
        return vec![unknown];
    }
    let says = match &review.old {
        Some(Object::Wordpress(_)) if review.options.orphans() => None,
        Some(Object::Wordpress(_)) => Some(
            "its two volumes go with it: the database (mysql-pv-claim) and the files (wp-pv-claim)"
                .to_owned(),
        ),
        Some(Object::Claim(claim)) => part(&claim.metadata).map(|tier| of_claim(tier).to_owned()),
        Some(Object::Namespace(_)) => of_namespace(review, view),
        Some(_) if is_definition && !view.has_none(Kind::Wordpress) => Some(format!(
            "every Wordpress in every namespace goes with it ({}, {}), and so do their volumes",
            view.how_many(Kind::Wordpress),
            view.seen()
        )),
        _ => None,
    };
    let finding = |says| {
        let why = "nothing asks a second time, and nothing brings it back";
        let instead = format!("take a backup; then {}, and again", confirmation(review, RULE.id, view));
        RULE.finding(Verdict::Deny, "", says, why, instead)
    };
    says.map(finding).into_iter().collect()
}

fn of_claim(tier: Tier) -> &'static str {
    match tier {
        Tier::Database => "it holds the database of a WordPress",
        Tier::Site => "it holds the files of a WordPress: its plugins and what people uploaded",
    }
}

/// A claim is a claim, whoever made it: that of a chart is no Wordpress's.
fn of_namespace(review: &Review, view: &View<'_>) -> Option<String> {
    let claim = view.claims_in(&review.name).find(|it| part(&it.metadata).is_some())?;
    let name = &claim.metadata.name;
    Some(format!("it holds claim {name} of a WordPress ({}), whose data goes with it", view.seen()))
}
