//! Inspection of manifests, running clusters and the guard itself, without changes to any of them.
//!
//! | room | owns |
//! |---|---|
//! | `audit` | what would be refused if it were applied today |
//! | `manifest`, `stored`, `check` | YAML with its lines; what API servers make of it; what would be refused of it |
//! | `doctor` | whether the guard guards |
//! | `status` | the state of one cluster |
#![forbid(unsafe_code)]

pub mod audit;
pub mod check;
pub mod doctor;
pub mod manifest;
pub mod status;
pub mod stored;
