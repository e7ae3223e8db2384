//! What Gatera knows of Galera and of the clusters it guards.
#![forbid(unsafe_code)]

pub mod config;
pub mod galera;
pub mod marks;
pub mod mode;
pub mod pages;
pub mod review;
pub mod revision;
pub mod view;
