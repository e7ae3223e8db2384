//! Facts about MariaDB and Galera: what makes a pod a Galera server, the meaning of its option files, cluster address,
//! image and probes, and how many members a cluster needs.
//!
//! Owns: facts that follow from texts and objects alone, without the state of a cluster. Must not know: rules, requests,
//! the view. Every function is pure: it takes text and parsed objects, and returns facts about them.

pub mod accounts;
pub mod added;
pub mod address;
pub mod adopt;
pub mod bitnami;
pub mod credentials;
pub mod data;
pub mod driver;
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
