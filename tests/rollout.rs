//! A changed configuration reaches the members one at a time: what is due in which situation (`planned.rs`), what whoever
//! changes it is told (`published_events.rs`), what a pod starts with (`started.rs`), how a template is taken back (`taken_back.rs`), and what
//! comes of it on a control plane with nodes (`live.rs`).

mod live;
mod planned;
mod situation;
mod started;
mod taken_back;
mod told;
