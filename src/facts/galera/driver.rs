//! The resource of mariadb-operator that drives a StatefulSet.
//!
//! mariadb-operator founds and recovers the cluster, restarts members for a new configuration, and writes their addresses, so the
//! guard leaves these tasks to it. What the guard adds to pods does not depend on the operator.

use objects::{Owner, Workload};

/// The group of mariadb-operator's resources.
pub const GROUP: &str = "k8s.mariadb.com";

/// Returns the resource that drives this StatefulSet.
pub fn of(set: &Workload) -> Option<&Owner> {
    set.metadata.operator().filter(|owner| owner.is_of(GROUP, "MariaDB"))
}
