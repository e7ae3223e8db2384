//! The rules of Gatera, and the one function that asks them.
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
