//! The next steps of a rollout, a removal, a recovery and a stop.
#![forbid(unsafe_code)]

pub mod once_guarded;
pub mod plan;
pub mod recovery;
pub mod stop;
