//! Inspection of manifests, running clusters and the guard itself, without changes to any of them.
//!
//! | room | owns |
//! |---|---|
//! | `audit` | which objects would be refused if they were applied today |
//! | `manifest`, `stored`, `check` | YAML with its line numbers; the objects that API servers store; what would be refused |
//! | `doctor` | whether the guard works, and what it guards |
//! | `status` | the state of one cluster |
#![forbid(unsafe_code)]

pub mod audit;
pub mod check;
pub mod doctor;
pub mod manifest;
pub mod status;
pub mod stored;
