//! Gatera's facts about Galera, about one request, and about the clusters that it guards. This crate has only pure
//! functions and values, and judges nothing.
//!
//! | room | owns |
//! |---|---|
//! | `alike` | what a misspelt name was meant to be |
//! | `mode`, `pages` | how strictly a rule counts, and where its page is |
//! | `way_out` | what a user does instead, as steps and commands |
//! | `galera` | options, images, addresses, data folders, start reports |
//! | `marks` | annotations, by who writes them |
//! | `settings` | what an administrator chooses |
//! | `review` | one request |
//! | `revision` | what servers read from ConfigMaps, as a value that can be compared |
//! | `view` | facts from the watches, the World of clusters, and the View of it at one moment |
//!
//! Each room uses only those above it. The current time is part of the [`view::View`].
#![forbid(unsafe_code)]

pub mod alike;
pub mod galera;
pub mod marks;
pub mod mode;
pub mod pages;
pub mod review;
pub mod revision;
pub mod settings;
pub mod view;
pub mod way_out;
