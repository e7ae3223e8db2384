//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the house.
//!
//! ```text
//!   request ──> serve ──> review ─┐                        ┌─> report ──> answer
//!                                 ├─> rules::evaluate ─────┤
//!   watch ───> facts ───> World ──┘     (one engine)       └─> amend ──> patch
//!                           │
//!                           ├─> plan ──> reconcile (leader)      check: files ──> the same World and reviews
//!                           └─> audit ─> gauges, Events, `gatera audit`
//! ```
//!
//! Three laws. *One engine*: webhook and `gatera check` call the same `evaluate`. *Deciding is pure, doing is thin*: what
//! decides is a crate of its own, `src/decide`, which depends on no client, no runtime and no clock. *Parse once*: JSON stops
//! at `decide::object`.
#![forbid(unsafe_code)]

pub mod certs;
pub mod check;
pub mod cli;
pub mod config_maps;
pub mod connect;
pub mod events;
pub mod guard;
pub mod inspect;
pub mod lease;
pub mod ownership;
pub mod reconcile;
pub mod register;
pub mod reload;
pub mod reserve;
pub mod rollout;
pub mod selftest;
pub mod serve;
pub mod telemetry;
pub mod watch;
