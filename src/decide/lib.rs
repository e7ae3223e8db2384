//! What the guard decides, and the words it says: pure functions of what was asked and what is known. No client, no runtime,
//! no clock, no file: this crate depends on none (`cargo tree --package gatera-decide`).
//!
//! ```text
//!   text ──> object ──> review ─┐                           ┌─> report ──> text
//!                               ├─> Rulebook::evaluate──────┤
//!            object ──> view ───┘      │                    └─> amend ──> patch
//!                        │             └─ passing, marks, galera, packs, revision, config
//!                        ├─> plan ──> the leader's next steps
//!                        ├─> audit ─> what would be refused today
//!   manifest ──> check ──┘            what would be refused of files
//!                        ├─> recovery, stop ─> what `gatera recover`, `start`, `stop` do next
//!                        └─> story ─> what `gatera status` tells
//! ```
//!
//! *Parse once*: JSON stops at `object`, behind `review` and `view`; only `amend` edits it. Time comes in with the
//! [`view::View`]. `webhooks` says which requests API servers should send, from the same tables that `rules` decides by.
#![forbid(unsafe_code)]

pub mod amend;
pub mod audit;
pub mod check;
pub mod config;
pub mod doctor;
pub mod exceptions;
pub mod exemptions;
pub mod galera;
pub mod grant;
pub mod inject;
pub mod manifest;
pub mod marks;
pub mod mode;
pub mod object;
pub mod once_guarded;
pub mod packs;
pub mod pages;
pub mod plan;
pub mod recovery;
pub mod report;
pub mod review;
pub mod revision;
pub mod rule;
pub mod rulebook;
pub mod rules;
pub mod snapshot;
pub mod stop;
pub mod stored;
pub mod story;
pub mod verdict;
pub mod view;
pub mod webhooks;
