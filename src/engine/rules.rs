//! Galera's rules: one file each, whose documentation is the rule's page, and their table.
//!
//! Must not know: when rules are evaluated, and what happens to their findings (`rulebook.rs`).

mod anti_affinity;
mod bootstrap_needed;
mod cluster_address;
mod fixed_fields;
pub mod image;
mod managed;
mod member_data;
mod member_removal;
mod newly_read;
mod one_at_a_time;
mod own_marks;
pub mod owners;
pub mod owning;
mod password_drift;
mod plain_password;
mod probes;
mod recovery;
mod references;
pub mod restarts;
mod rollout_shape;
pub mod scale_order;
mod second_bootstrap;
mod services;
mod settings;
mod start;
mod template;
pub mod unlisted;
pub mod unreadable;
mod whole_stop;

pub use member_removal::{MemberRemoval, member_removal, refuse_unreserved};
pub use own_marks::{Correction, corrections};
pub use plain_password::is_secret;
pub use recovery::{RecoveryChange, recovery_change};
pub use second_bootstrap::held_at_zero;
pub use unreadable::UNREADABLE;

use crate::rule::Rule;

/// Galera's rules, in the order of their ids.
pub const GALERA: &[Rule] = &[
    scale_order::RULE,
    one_at_a_time::RULE,
    whole_stop::RULE,
    second_bootstrap::RULE,
    bootstrap_needed::RULE,
    cluster_address::RULE,
    member_data::RULE,
    fixed_fields::RULE,
    settings::RULE,
    references::RULE,
    plain_password::RULE,
    password_drift::RULE,
    anti_affinity::RULE,
    rollout_shape::RULE,
    probes::RULE,
    services::RULE,
    image::RULE,
    own_marks::RULE,
    start::RULE,
    recovery::RULE,
];
