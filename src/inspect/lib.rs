//! Manifests, clusters and the guard itself, looked over without changing anything.
#![forbid(unsafe_code)]

pub mod audit;
pub mod check;
pub mod doctor;
pub mod manifest;
pub mod stored;
pub mod story;
