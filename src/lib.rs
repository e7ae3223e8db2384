//! Gatera, a gate in front of MariaDB Galera on Kubernetes. This page is the map of the house.
//!
//! ```text
//!   request ──> serve ──> review ─┐                        ┌─> report ──> answer
//!                                 ├─> rules::evaluate ─────┤
//!   watch ───> facts ───> World ──┘     (one engine)       └─> mutate, inject ──> patch
//!                           │
//!                           ├─> plan ──> reconcile (leader)      check: files ──> the same World and reviews
//!                           └─> audit ─> gauges, Events, `gatera audit`
//! ```
//!
//! Three laws. *One engine*: webhook and `gatera check` call the same `evaluate`. *Deciding is pure, doing is thin*:
//! the modules of the first half know no client, no clock, no file; clippy's fence (clippy.toml) and `tests/house.rs`
//! hold them to it. *Parse once*: JSON stops at `object`, behind `review` and `view`; only `mutate` and `inject` edit it.
#![forbid(unsafe_code)]

/// Declares the modules that decide, with the fence around each.
macro_rules! deciding {
    ($($(#[$doc:meta])* $name:ident)+) => {
        $($(#[$doc])* #[deny(clippy::disallowed_types, clippy::disallowed_methods)] pub mod $name;)+
    };
}

deciding! {
    audit
    config
    edit
    exempt
    galera
    inject
    manifest
    marks
    mutate
    object
    overrides
    plan
    report
    review
    revision
    rules
    unread
    verdict
    view
    webhooks
}

// Doing: clients, sockets, files, the clock.
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
