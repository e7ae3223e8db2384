//! The guard's own annotations, all in one place. Each begins with `gatera.dev/`.
//!
//! Some are for people to set, on a StatefulSet's pod template or on the object they change; some are the guard's.

/// What every mark begins with.
pub const PREFIX: &str = "gatera.dev/";

/// People: releases a rule for a while (`overrides.rs`).
pub const OVERRIDE: &str = "override";
/// People: the name of the server container, where it cannot be told.
pub const CONTAINER: &str = "container";
/// People: how the server's image takes options: official, bitnami, unknown.
pub const PROFILE: &str = "profile";
/// People: `keep` leaves the readiness probe alone. Such a pod proves nothing by being Ready.
pub const READINESS: &str = "readiness";
/// People: `keep` leaves the cluster address alone.
pub const ADDRESS: &str = "address";
/// People: required, preferred or none.
pub const ANTI_AFFINITY: &str = "anti-affinity";
/// People: seconds that a member may take to start, if an hour is not enough.
pub const STARTUP_LIMIT: &str = "startup-limit";

/// The guard, on a pod: the version that injected it, and [`UNPROVEN`] if its readiness probe is not one that sees
/// Galera's state.
pub const INJECTED: &str = "injected";
/// Such a pod proves nothing by being Ready.
pub const UNPROVEN: &str = "readiness unproven";
/// The guard, on a pod: the text of the script it mounts.
pub const SCRIPT: &str = "script";
/// The guard, on a pod: the text of the option file it mounts.
pub const MY_CNF: &str = "my-cnf";
/// The guard, on a StatefulSet: whether a member ever held data: none, present.
pub const DATA: &str = "data";
/// The guard, on a StatefulSet: what it removes of the bootstrap node, or that it did (`view/bootstrap.rs`).
pub const BOOTSTRAP: &str = "bootstrap";
/// The guard, on an object of a bootstrap node that it is about to delete: the uid of the StatefulSet. Only a reminder:
/// before the object is deleted, the right to do so is derived anew.
pub const REMOVING: &str = "removing";
