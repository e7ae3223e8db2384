//! What the leader and `gatera recover`, `start`, `stop` and `passwd` do next: pure functions of a View and the time.
//!
//! | module | owns |
//! |---|---|
//! | `once_guarded` | clusters that no selector adopts any more |
//! | `password` | changing a password that members read from a Secret |
//! | `plan` | the next steps: bootstrap removal, rollouts, identities |
//! | `stop` | stopping a cluster in order |
//! | `recovery` | recovering a cluster that is down |
#![forbid(unsafe_code)]

pub mod once_guarded;
pub mod password;
pub mod plan;
pub mod recovery;
pub mod stop;
