//! The names of the guard's annotations. Each begins with `gatera.dev/`.
//!
//! Owns: who sets each annotation. G18 and `amend.rs` protect those of the guard, the conditions of the webhook entries use them,
//! and docs/members.md lists all. Must not know: what an annotation leads to. Every annotation that people do not set is the
//! guard's, even an unknown one: so people cannot set an annotation of a later version before that version runs, and two versions
//! do not undo each other's annotations.

pub mod overrides;
pub mod password;
pub mod recovery;
pub mod stopped;

pub use objects::PREFIX;

/// Suspends a rule for a while ([`overrides`]).
pub const OVERRIDE: &str = "override";
/// Suspends every rule in a namespace for a while ([`overrides`]).
pub const BREAK_GLASS: &str = "break-glass";
pub use crate::galera::server::CONTAINER;
/// How the server's image takes options: official, bitnami, unknown.
pub const PROFILE: &str = "profile";
/// `keep` leaves the readiness probe unchanged. Ready then does not prove Synced.
pub const READINESS: &str = "readiness";
/// `keep` leaves the cluster address unchanged.
pub const ADDRESS: &str = "address";
/// `required`, `preferred` or `none`.
pub const ANTI_AFFINITY: &str = "anti-affinity";
/// `keep` leaves the server's command unchanged: then gatera does not recover its position after a crash.
pub const START: &str = "start";
/// Seconds that a member may take to start, if an hour is not enough.
pub const STARTUP_LIMIT: &str = "startup-limit";

/// The member from which a cluster that is down is to be recovered ([`recovery`]).
pub const RECOVER: &str = "recover";
/// The position of a member that was stopped ([`stopped`]).
pub const STOPPED: &str = "stopped";
/// The key of a Secret whose new password MariaDB already accepts ([`password`]).
pub const PASSWORD: &str = "password";

/// The version that injected a pod, and [`UNPROVEN`] if its readiness probe does not check Galera's state.
pub const INJECTED: &str = "injected";
/// The addition to [`INJECTED`] on a pod whose Ready does not prove Synced.
pub const UNPROVEN: &str = "readiness unproven";
/// The text of the script that the probes and the preStop hook of a pod run.
pub const SCRIPT: &str = "script";
/// The text of the step script, which stands in front of the server.
pub const START_SCRIPT: &str = "start-script";
/// The text of the script that puts the step script in front of the server in Bitnami's image.
pub const BITNAMI_SCRIPT: &str = "bitnami-script";
/// The text of the option file that a pod mounts.
pub const MY_CNF: &str = "my-cnf";
/// Whether a member has ever held data: none, present.
pub const DATA: &str = "data";
/// The identity of the cluster, on a StatefulSet; on a pod it may be [`UNKNOWN`], [`FOUNDS`] or [`FREE`]; on both it
/// may be [`NONE`].
pub const IDENTITY: &str = "identity";
/// The value for a pod whose cluster the guard does not know; the guard waits for the pod's report.
pub const UNKNOWN: &str = "unknown";
/// The value for a pod that may found the cluster: it is a first install, or a user has accepted the responsibility.
pub const FOUNDS: &str = "founds";
/// The value for a pod that need not report, and that the step script does not stop.
pub const FREE: &str = "free";
/// The value for a cluster that was formed without comparing positions (after a power failure, without the step script).
pub const NONE: &str = "none";
/// The recovery that the guard has confirmed: [`RECOVER`], word for word. On a pod the identity begins with this word,
/// and the position follows: the pod may start the cluster again from exactly there.
pub const RECOVERY: &str = "recovery";
/// The record of a rollout: the revisions that members start with (`view/configuration.rs`).
pub const CONFIGURATION: &str = "configuration";
/// The revision that a pod's server read, as snapshots keep it (`revision.rs`).
pub const REVISION: &str = "revision";
/// The ConfigMap that this one is a snapshot of.
pub const KEEPS: &str = "keeps";
/// `paused`, or the revision that members are to run although the ConfigMap holds another (`view/rollout_request.rs`).
pub const ROLLOUT: &str = "rollout";
/// The objects of the bootstrap node that the guard removes, or the fact that it has removed them (`view/bootstrap.rs`).
pub const BOOTSTRAP: &str = "bootstrap";
/// On an object of a bootstrap node that the guard is about to delete: the uid of the StatefulSet that it belonged to.
pub const REMOVING: &str = "removing";

/// The annotations that people set and the guard reads. docs/members.md names the objects on which each has an effect.
pub const OF_PEOPLE: [&str; 13] = [
    OVERRIDE,
    BREAK_GLASS,
    CONTAINER,
    PROFILE,
    READINESS,
    ADDRESS,
    ANTI_AFFINITY,
    START,
    STARTUP_LIMIT,
    ROLLOUT,
    RECOVER,
    STOPPED,
    PASSWORD,
];

/// The annotations that the guard writes, and corrects if anyone else writes them.
pub const OF_GUARD: [&str; 13] = [
    INJECTED,
    SCRIPT,
    START_SCRIPT,
    BITNAMI_SCRIPT,
    MY_CNF,
    DATA,
    IDENTITY,
    RECOVERY,
    CONFIGURATION,
    REVISION,
    KEEPS,
    BOOTSTRAP,
    REMOVING,
];

/// Returns whether only the guard may write this annotation.
pub fn is_guards(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|name| !OF_PEOPLE.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_that_people_do_not_set_is_the_guards() {
        for key in ["gatera.dev/data", "gatera.dev/removing", "gatera.dev/of-a-later-version", "gatera.dev/"]
        {
            assert!(is_guards(key), "{key}");
        }
        for key in ["gatera.dev/override", "gatera.dev/readiness", "example.com/gatera.dev/data", "data"] {
            assert!(!is_guards(key), "{key}");
        }
    }
}
