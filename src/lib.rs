//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the house.
//!
//! ```text
//!   command ── what people type: serve, check, status, audit, rollout, recover, selftest, explain
//!      │
//!      ▼
//!   act ────── what reaches the world: clients, sockets, files, the clock
//!      │         request ──> answer ──┐
//!      │         watch ──> facts ─────┤            ┌──> reconcile, lease (the leader)
//!      ▼                              ▼            │
//!   decide ─── a crate of its own: review + World ─┴─> decision, patch, plan, audit, words
//! ```
//!
//! Three laws. *One engine*: webhook, `gatera check` and the audit call the same `engine::rules::evaluate`. *Deciding is pure,
//! doing is thin*: the crate in `src/decide` depends on no client, no runtime and no clock. *Parse once*: JSON stops at
//! `objects`. Arrows go down only.
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
