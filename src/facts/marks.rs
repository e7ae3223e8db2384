//! The guard's annotations, all in one table. Each begins with `gatera.dev/`.
//!
//! Owns: [`MARKS`], which says who sets each one and on which objects. G18 and `amend.rs` use it to protect the guard's
//! annotations, the webhook entries select by it, and docs/members.md lists it. Must not know: what an annotation leads
//! to. Every annotation that people do not set is the guard's, also unknown ones: one of a later version cannot be
//! planted before that version runs, and two versions do not undo each other's.

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
/// `keep` leaves the server's command unchanged: nothing recovers its position after a crash.
pub const START: &str = "start";
/// Seconds that a member may take to start, if an hour is not enough.
pub const STARTUP_LIMIT: &str = "startup-limit";

/// The member from which a cluster that is down is to be recovered ([`recovery`]).
pub const RECOVER: &str = "recover";
/// The position of a member since it was stopped ([`stopped`]).
pub const STOPPED: &str = "stopped";
/// The key of a Secret whose new password MariaDB accepts already ([`password`]).
pub const PASSWORD: &str = "password";

/// The version that injected a pod, and [`UNPROVEN`] if its readiness probe does not check Galera's state.
pub const INJECTED: &str = "injected";
/// For such a pod Ready does not prove Synced.
pub const UNPROVEN: &str = "readiness unproven";
/// The text of the script that a pod mounts.
pub const SCRIPT: &str = "script";
/// The text of the step that starts the server.
pub const START_SCRIPT: &str = "start-script";
/// The text of the option file that a pod mounts.
pub const MY_CNF: &str = "my-cnf";
/// Whether a member ever held data: none, present.
pub const DATA: &str = "data";
/// The identity of the cluster, on a StatefulSet; on a pod it may be [`UNKNOWN`], [`FOUNDS`] or [`FREE`]; on both it
/// may be [`NONE`].
pub const IDENTITY: &str = "identity";
/// The guard does not know the cluster of this pod, and waits for its report.
pub const UNKNOWN: &str = "unknown";
/// This pod may found the cluster: it is a first install, or a person has taken the responsibility.
pub const FOUNDS: &str = "founds";
/// This pod need not report, and nothing stops it.
pub const FREE: &str = "free";
/// The cluster was formed without comparing positions (after a power failure, without the step).
pub const NONE: &str = "none";
/// The recovery that the guard has confirmed: [`RECOVER`], word for word. On a pod the identity begins with this word,
/// and the position follows: from exactly there it may start the cluster again.
pub const RECOVERY: &str = "recovery";
/// The revision of its ConfigMaps that members start with (`view/configuration.rs`).
pub const CONFIGURATION: &str = "configuration";
/// The revision that a pod's server read, as snapshots keep it (`revision.rs`).
pub const REVISION: &str = "revision";
/// The ConfigMap that this one is a snapshot of.
pub const KEEPS: &str = "keeps";
/// `paused`, or the revision that members are to run although the ConfigMap holds another (`view/rollout_request.rs`).
pub const ROLLOUT: &str = "rollout";
/// The objects of the bootstrap node that the guard removes, or that it did so (`view/bootstrap.rs`).
pub const BOOTSTRAP: &str = "bootstrap";
/// The uid of the StatefulSet whose bootstrap node this was part of: the guard is about to delete it.
pub const REMOVING: &str = "removing";

/// Who sets an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// People set it; the guard reads it.
    Peoples,
    /// The guard writes it, and corrects it if anyone else does.
    Guards,
}

/// The objects on which an annotation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// On a pod template, and so on its pods.
    Template,
    /// On the object that is changed, and on the StatefulSet for all that its cluster uses.
    Anything,
    StatefulSet,
    Namespace,
    Secret,
    /// On a StatefulSet, and on its pods.
    Cluster,
    Pod,
    Claim,
    /// On a snapshot that the guard made.
    Kept,
    /// On an object that the guard is about to delete: a Deployment, a Service or a ConfigMap.
    Doomed,
}

impl Stands {
    /// Returns the name, as docs/members.md writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "pod template",
            Self::Anything => "any object",
            Self::StatefulSet => "StatefulSet",
            Self::Namespace => "namespace",
            Self::Secret => "Secret",
            Self::Cluster => "StatefulSet, pod",
            Self::Pod => "pod",
            Self::Claim => "claim",
            Self::Kept => "ConfigMap of the guard",
            Self::Doomed => "an object about to be deleted",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// The part of its key after [`PREFIX`].
    pub name: &'static str,
    pub whose: Whose,
    pub stands: Stands,
    pub means: &'static str,
}

const fn peoples(name: &'static str, stands: Stands, means: &'static str) -> Mark {
    Mark { name, whose: Whose::Peoples, stands, means }
}

const fn guards(name: &'static str, stands: Stands, means: &'static str) -> Mark {
    Mark { name, whose: Whose::Guards, stands, means }
}

pub const MARKS: &[Mark] = &[
    peoples(OVERRIDE, Stands::Anything, "suspends a rule for an hour at most"),
    peoples(
        BREAK_GLASS,
        Stands::Namespace,
        "suspends every rule in it for an hour at most; `gatera break-glass` writes it",
    ),
    peoples(CONTAINER, Stands::Template, "the database server, if it cannot be recognised"),
    peoples(PROFILE, Stands::Template, "how the image takes options, if it cannot be recognised"),
    peoples(
        READINESS,
        Stands::Template,
        "leaves the readiness probe unchanged; Ready then does not prove Synced",
    ),
    peoples(ADDRESS, Stands::Template, "leaves the cluster address unchanged"),
    peoples(ANTI_AFFINITY, Stands::Template, "instead of what the number of nodes suggests"),
    peoples(
        START,
        Stands::Template,
        "leaves the server's command unchanged; after a crash it does not know its position",
    ),
    peoples(STARTUP_LIMIT, Stands::Template, "how long a member may take to start, if an hour is not enough"),
    peoples(
        ROLLOUT,
        Stands::StatefulSet,
        "pauses a rollout of the configuration, retries a revision that was given up (again with other words), or keeps members on an earlier revision",
    ),
    peoples(
        RECOVER,
        Stands::StatefulSet,
        "requests that a cluster that is down is recovered from this member; `gatera recover` writes it",
    ),
    peoples(
        STOPPED,
        Stands::Claim,
        "where the member's data ended when it was stopped; `gatera stop` writes it, and `gatera start` removes it",
    ),
    peoples(
        PASSWORD,
        Stands::Secret,
        "lets one write change the key that it names, because MariaDB accepts the new password already; `gatera passwd` writes it, and removes it",
    ),
    guards(INJECTED, Stands::Pod, "the version that injected it, and whether Ready proves Synced"),
    guards(SCRIPT, Stands::Pod, "the script that its probes run"),
    guards(START_SCRIPT, Stands::Pod, "the step by which its server starts"),
    guards(MY_CNF, Stands::Pod, "the option file that its server reads"),
    guards(DATA, Stands::StatefulSet, "whether a member ever held data"),
    guards(
        IDENTITY,
        Stands::Cluster,
        "which cluster it is, once its members agree: no other is founded in its place",
    ),
    guards(
        RECOVERY,
        Stands::StatefulSet,
        "the request in `recover` is confirmed: this member may start first",
    ),
    guards(
        CONFIGURATION,
        Stands::StatefulSet,
        "which revision of the configuration members start with, and how far a rollout is",
    ),
    guards(REVISION, Stands::Pod, "the revision of the configuration that its server started with"),
    guards(KEEPS, Stands::Kept, "the ConfigMap of which it keeps a revision"),
    guards(BOOTSTRAP, Stands::StatefulSet, "what became of the bootstrap node"),
    guards(REMOVING, Stands::Doomed, "the cluster whose bootstrap node it was part of"),
];

/// Returns the names of the annotations of either group.
pub fn of(whose: Whose) -> impl Iterator<Item = &'static str> {
    MARKS.iter().filter(move |mark| mark.whose == whose).map(|mark| mark.name)
}

/// Tells whether only the guard may write this annotation.
pub fn is_guards(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|name| of(Whose::Peoples).all(|theirs| theirs != name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_do_not_set_is_the_guards() {
        for key in ["gatera.dev/data", "gatera.dev/removing", "gatera.dev/of-a-later-version", "gatera.dev/"]
        {
            assert!(is_guards(key), "{key}");
        }
        for key in ["gatera.dev/override", "gatera.dev/readiness", "example.com/gatera.dev/data", "data"] {
            assert!(!is_guards(key), "{key}");
        }
    }
}
