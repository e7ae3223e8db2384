//! The engine: the rules, and [`rulebook::Rulebook::evaluate`], the only function that evaluates them.
//!
//! ```text
//!   review + view ──> Rulebook::evaluate ──> Decision ──> amend ──> patch
//!                         │                                 │
//!                         ├─ exemptions, exceptions         └─ inject
//!                         └─ rules (Galera's), packs (handed in)
//! ```
//!
//! | room | owns |
//! |---|---|
//! | `snapshot` | the ConfigMaps that keep one content of another ConfigMap |
//! | `grant` | the right to start a cluster that is down |
//! | `inject` | what is added to a member's pod |
//! | `verdict` | findings, and their effects |
//! | `rule` | what a rule is |
//! | `exceptions`, `exemptions` | what suspends a rule temporarily; what is never judged |
//! | `rules` | Galera's rules, a file each |
//! | `amend` | what is changed in an object before it is stored |
//! | `webhooks` | which requests API servers send |
//! | `rulebook` | all rules, the packs, and their evaluation |
//!
//! Each room uses only those above it. No JSON is edited outside `amend` and `inject`.
#![forbid(unsafe_code)]

pub mod amend;
pub mod exceptions;
pub mod exemptions;
pub mod grant;
pub mod inject;
pub mod rule;
pub mod rulebook;
pub mod rules;
pub mod snapshot;
pub mod verdict;
pub mod webhooks;
