//! M04: the image of a MariaDB has a known version, and its server is never older than the data.
//!
//! Refuses what G17 refuses of a StatefulSet: an image without a version, another vendor's server, a step back to an older
//! series, or a step over several series. Allows one step forward, with a warning that says how to do it.
//!
//! # Why
//!
//! The operator writes the image into the StatefulSet and restarts the members with it, one after the other; it compares no versions.
//! [G17](G17.md) says what a server that is older than its data does.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch mariadb galera --type=merge -p '{"spec":{"image":"mariadb:10.11"}}'
//! [M04] MariaDB db/galera: mariadb:11.4 -> mariadb:10.11 is older than the data (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Name a version, and upgrade in the steps that [G17](G17.md) lists.
//!
//! # Exceptions
//!
//! Annotate the MariaDB, for an hour at most: `gatera.dev/override: "M04 until=TIME reason=…"`. What the operator then
//! writes into the StatefulSet is not judged by G17.

use super::{MARIADB, MariaDb, driven};
use engine::rule::{All, Findings, Review, Rule, Verb, View};
use engine::rules::image::ImagePlace;

pub(super) const RULE: Rule = Rule {
    id: "M04",
    name: "mariadb-image",
    judges: &[(MARIADB, &[Verb::Update], All(check))],
    depends_on_state: true,
    source: include_str!("image.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<MariaDb>() else { return Findings::new() };
    let [before, after] = [old, new].map(|it| it.spec.image.look());
    // An image that is not named is the operator's choice.
    let changes = before != after && !after.is_empty();
    let Some(cluster) = driven(review, view).filter(|_| changes) else { return Findings::new() };
    let place = ImagePlace { rule: &RULE, field: "spec.image".to_owned(), prefix: String::new() };
    let step = place.step(before, after, Some(cluster), view);
    place.unpinned(after, true).into_iter().chain(step).collect()
}
