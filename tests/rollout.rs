//! A changed configuration reaches the members one at a time: the steps in each situation (`planned.rs`, `held.rs`), the warnings
//! for the user who changes it (`reported.rs`), what a pod starts with (`started.rs`), how a template is taken back
//! (`taken_back.rs`), and the result on a control plane with nodes (`live.rs`).

mod held;
mod live;
mod planned;
mod reported;
mod situation;
mod started;
mod taken_back;
