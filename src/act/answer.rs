//! The path of a request from the socket to its answer.
//!
//! `accept` takes connections through TLS (`tls`) and enforces their deadlines (`connections`); `router` reads a request
//! (`body`, `budget`) and writes its answer; `judge` makes the decision.

mod accept;
mod body;
mod budget;
mod connections;
mod judge;
mod router;
mod tls;

pub use accept::{ServingPort, ShutdownStage, accept};
pub use body::MAX_BODY_BYTES;
pub use router::{admission, operations};
pub use tls::Tls;
