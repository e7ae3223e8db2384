//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the source code.
//!
//! ```text
//!   command ─── what people type
//!      │
//!      v
//!   act ─────── what reaches the outside: clients, sockets, files, the clock
//!      │           request ──> answer ──┐
//!      │           watch ──> facts ─────┤            ┌──> reconcile, lease (the leader)
//!      v                                v            │
//!   crates that decide, without a client, a runtime or a clock, each on top of the next
//!
//!   report ──── words for people and programs
//!   inspect ─── check of files, audit, doctor, status
//!   leader ──── the next steps: plan, recovery, stop
//!   packs ───── rules for other systems, a crate each, handed in below
//!   engine ──── rules, Rulebook::evaluate, injection, webhook entries
//!   facts ───── Galera, annotations, one request, the view of all clusters
//!   objects ─── Kubernetes objects, as far as they are read
//! ```
//!
//! Three laws. *One engine*: the webhook, `gatera check` and the audit call the same `Rulebook::evaluate`. *Deciding is pure,
//! doing is thin*: no crate that decides depends on a client, a runtime or a clock. *Parse once*: `objects` turns JSON into
//! types. Code depends only on what is below it: between crates cargo refuses circles, inside a crate a test (`tests/house.rs`).
#![forbid(unsafe_code)]

pub mod act;
pub mod command;

use std::sync::LazyLock;

use engine::rulebook::{Pack, Rulebook};

/// Every pack, in the order of their rules' ids. A pack that is removed here is not part of the program.
const PACKS: &[Pack] = &[gatera_kudo::PACK, gatera_mariadb::PACK, gatera_rds::PACK, gatera_wordpress::PACK];

/// Returns the rulebook with Galera's rules and those of the packs.
pub fn rulebook() -> &'static Rulebook {
    static RULEBOOK: LazyLock<Rulebook> = LazyLock::new(|| Rulebook::new(PACKS));
    &RULEBOOK
}

#[cfg(test)]
mod tests {
    use super::rulebook;

    #[test]
    fn ids_are_unique_and_in_order() {
        assert!(rulebook().rules().windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn a_message_that_begins_with_an_id_belongs_to_that_page() {
        for page in rulebook().pages() {
            assert_eq!(
                rulebook().page_of_message(&format!("[{}] Pod a/b: c", page.id)).map(|it| it.id),
                Some(page.id)
            );
        }
        for text in ["[G99] x", "G07 x", "[G07", "[g07] x", "[G07]x", ""] {
            assert!(rulebook().page_of_message(text).is_none(), "{text}");
        }
    }

    #[test]
    fn every_manual_page_says_what_why_and_what_instead() {
        for rule in rulebook().rules() {
            let manual = rule.page().text();
            assert!(manual.starts_with(&format!("{}: ", rule.id)), "{}", rule.id);
            for heading in ["# Why", "# Example", "# What to do instead", "# Exceptions"] {
                assert!(manual.contains(heading), "{} has no {heading:?}", rule.id);
            }
        }
    }

    #[test]
    fn every_page_fits_the_width_except_examples_and_commands() {
        for page in rulebook().pages() {
            for width in [40, 80, 200] {
                for line in report::manual::rendered(&page.text(), width, false)
                    .lines()
                    .filter(|line| !line.starts_with("    "))
                {
                    let fits = line.chars().count() <= width || line.contains('`');
                    assert!(fits, "{} at {width}: {line}", page.id);
                }
            }
        }
    }
}
