//! Every test that needs more than one module of the crate. One binary, so one link step; this is its table of contents.
#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub, reason = "the modules of a test are nobody else's")]

mod anything;
mod cases;
mod cli;
mod cluster;
mod guarded;
mod house;
mod inject;
mod lab;
mod router;
mod scene;
mod script;
