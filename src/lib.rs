//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the house.
//!
//! ```text
//!   command ─── what people type
//!      │
//!      v
//!   act ─────── what reaches the world: clients, sockets, files, the clock
//!      │           request ──> answer ──┐
//!      │           watch ──> facts ─────┤            ┌──> reconcile, lease (the leader)
//!      v                                v            │
//!   what decides: crates without a client, a runtime or a clock, each on top of the next
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
//! Three laws. *One engine*: webhook, `gatera check` and the audit call the same `Rulebook::evaluate`. *Deciding is pure, doing is
//! thin*: no crate that decides depends on a client, a runtime or a clock. *Parse once*: JSON stops at `objects`. Arrows go down
//! only: between crates cargo refuses others, and inside a crate a test does (`tests/house.rs`).
#![forbid(unsafe_code)]

pub mod act;
pub mod command;

use std::sync::LazyLock;

use engine::rulebook::{Pack, Rulebook};

/// Every pack, in the order of their rules' ids. One that is taken out here is gone.
const PACKS: &[Pack] = &[gatera_kudo::PACK, gatera_rds::PACK, gatera_wordpress::PACK];

/// Galera's rules and those of the packs.
pub fn rulebook() -> &'static Rulebook {
    static RULEBOOK: LazyLock<Rulebook> = LazyLock::new(|| Rulebook::new(PACKS));
    &RULEBOOK
}
