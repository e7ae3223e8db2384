//! The vocabulary: what makes a pod a Galera server, what its option files, its cluster address, its image and its probes
//! say, and how many members a cluster needs.
//!
//! Owns: facts about MariaDB and Galera that hold whatever Kubernetes does. Must not know: rules, reviews, the view.
//! Data: text and parsed objects in, answers out; every function is pure.

pub mod added;
pub mod address;
pub mod adopt;
pub mod data;
pub mod identity;
pub mod image;
pub mod options;
pub mod ports;
pub mod programs;
pub mod quorum;
pub mod reading;
pub mod runs;
pub mod server;
pub mod start;
pub mod start_report;
