//! W04: what a WordPress holds outlives a careless command.
//!
//! Refuses to delete a Wordpress, and to delete the claim of its database or of its files.
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
use crate::review::{Operation, Review};
use crate::rules::{Rule, Verb};
use crate::verdict::{Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "W04",
    name: "wp-data",
    touches: &[(Kind::Wordpress, &[Verb::Delete]), (Kind::Claim, &[Verb::Delete])],
    source: include_str!("data.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation != Operation::Delete {
        return Findings::new();
    }
    let says = match &review.old {
        Some(Object::Wordpress(_)) if review.options.orphans() => return Findings::new(),
        Some(Object::Wordpress(_)) => {
            "its two volumes go with it: the database (mysql-pv-claim) and the files (wp-pv-claim)".to_owned()
        }
        Some(Object::Claim(claim)) => match part(&claim.metadata) {
            Some(Tier::Database) => "it holds the database of a WordPress".to_owned(),
            Some(Tier::Site) => {
                "it holds the files of a WordPress: its plugins and what people uploaded".to_owned()
            }
            None => return Findings::new(),
        },
        _ => return Findings::new(),
    };
    let (kind, ns, name) = (review.kind.name().to_ascii_lowercase(), &review.namespace, &review.name);
    let until = view.half_an_hour_from_now();
    let instead = format!(
        "take a backup; then kubectl -n {ns} annotate {kind} {name} 'gatera.dev/override=W04 until={until} reason=…', and again"
    );
    vec![RULE.finding(
        Verdict::Deny,
        "",
        says,
        "nothing asks a second time, and nothing brings it back",
        instead,
    )]
}
