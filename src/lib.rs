//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the house.
//!
//! ```text
//!   command ── what people type: serve, check, status, audit, doctor, rollout, recover, explain
//!      │
//!      ▼
//!   act ────── what reaches the world: clients, sockets, files, the clock
//!      │         request ──> answer ──┐
//!      │         watch ──> facts ─────┤            ┌──> reconcile, lease (the leader)
//!      ▼                              ▼            │
//!   decide ─── a crate of its own: review + World ─┴─> decision, patch, plan, audit, words
//! ```
//!
//! Three laws. *One engine*: webhook, `gatera check` and the audit call the same `decide::rules::evaluate`. *Deciding is pure,
//! doing is thin*: the crate in `src/decide` depends on no client, no runtime and no clock. *Parse once*: JSON stops at
//! `decide::object`. Arrows go down only.
#![forbid(unsafe_code)]

pub mod act;
pub mod command;
