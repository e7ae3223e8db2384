//! What is not judged: who may do what somebody else decided ([`exempt`]), and what no server reads ([`unread`]).
//!
//! Two tables. `rules` asks them before any rule, and `webhooks` turns them into conditions, so that such requests do not even
//! wait for a guard that is down.

pub mod exempt;
pub mod unread;
