//! The guard's annotations, all in one table. Each begins with `gatera.dev/`.
//!
//! Owns: [`MARKS`], which says whose each is and where it may stand. G18 and `amend.rs` keep the guard's out of
//! everybody else's hands by it, the webhook entries ask by it, and docs/members.md lists it. Must not know: what a mark
//! leads to. What people do not set is the guard's, also what this version does not know: a mark that a later version
//! believes cannot be planted before it comes, and while two versions run one does not undo the other's.

pub mod overrides;
pub mod recovery;
pub mod stopped;

pub use objects::PREFIX;

/// Releases a rule for a while ([`overrides`]).
pub const OVERRIDE: &str = "override";
/// Releases every rule in a namespace for a while ([`overrides`]).
pub const BREAK_GLASS: &str = "break-glass";
pub use crate::galera::server::CONTAINER;
/// How the server's image takes options: official, bitnami, unknown.
pub const PROFILE: &str = "profile";
/// `keep` leaves the readiness probe alone. Such a pod proves nothing by being Ready.
pub const READINESS: &str = "readiness";
/// `keep` leaves the cluster address alone.
pub const ADDRESS: &str = "address";
/// required, preferred or none.
pub const ANTI_AFFINITY: &str = "anti-affinity";
/// `keep` leaves the command of the server alone: nothing recovers its position after a crash.
pub const START: &str = "start";
/// Seconds that a member may take to start, if an hour is not enough.
pub const STARTUP_LIMIT: &str = "startup-limit";

/// From which member a cluster that is down is to be started again ([`recovery`]).
pub const RECOVER: &str = "recover";
/// Where a member's data ends since it was stopped ([`stopped`]).
pub const STOPPED: &str = "stopped";

/// The version that injected a pod, and [`UNPROVEN`] if its readiness probe is not one that sees Galera's state.
pub const INJECTED: &str = "injected";
/// Such a pod proves nothing by being Ready.
pub const UNPROVEN: &str = "readiness unproven";
/// The text of the script that a pod mounts.
pub const SCRIPT: &str = "script";
/// The text of the step that starts the server.
pub const START_SCRIPT: &str = "start-script";
/// The text of the option file that a pod mounts.
pub const MY_CNF: &str = "my-cnf";
/// Whether a member ever held data: none, present.
pub const DATA: &str = "data";
/// The id of the cluster, on a StatefulSet; on a pod it may be [`UNKNOWN`], [`FOUNDS`] or [`FREE`]; on both it may be
/// [`NONE`].
pub const IDENTITY: &str = "identity";
/// The guard does not know the cluster of this pod, and wants to be told.
pub const UNKNOWN: &str = "unknown";
/// This pod may found the cluster: it is a first install, or somebody has taken the responsibility.
pub const FOUNDS: &str = "founds";
/// Nobody asks this pod, and nothing stops it.
pub const FREE: &str = "free";
/// Its members formed it without comparing what they have (a power failure, and nobody asked for their positions).
pub const NONE: &str = "none";
/// The recovery that the guard has verified: [`RECOVER`], word for word. On a pod its identity begins with this word, and the
/// position follows: from there, and from nowhere else, it may start the cluster again.
pub const RECOVERY: &str = "recovery";
/// Which of its ConfigMaps' contents members start with (`view/configuration.rs`).
pub const CONFIGURATION: &str = "configuration";
/// What a pod's server read of its ConfigMaps, as copies keep it (`revision.rs`).
pub const REVISION: &str = "revision";
/// The ConfigMap that this one keeps a content of.
pub const KEEPS: &str = "keeps";
/// `paused`, or the revision that members are to run although the ConfigMap holds another (`view/rollout_request.rs`).
pub const ROLLOUT: &str = "rollout";
/// What the guard removes of the bootstrap node, or that it did (`view/bootstrap.rs`).
pub const BOOTSTRAP: &str = "bootstrap";
/// The StatefulSet, by uid, whose bootstrap node this was part of: the guard is about to delete it.
pub const REMOVING: &str = "removing";

/// Whose a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// People set it; the guard reads it.
    Peoples,
    /// The guard writes it; whoever else does is corrected.
    Guards,
}

/// Where a mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// On a pod template, and so on the pods that are made from it.
    Template,
    /// On the object that is changed, and on the StatefulSet for all that its cluster uses.
    Anything,
    /// On a StatefulSet.
    StatefulSet,
    /// On a namespace.
    Namespace,
    /// On a StatefulSet, and on its pods.
    Cluster,
    /// On a pod alone.
    Pod,
    /// On a member's claim.
    Claim,
    /// On a ConfigMap that the guard made.
    Kept,
    /// On what the guard is about to delete: a Deployment, a Service or a ConfigMap.
    Doomed,
}

impl Stands {
    /// As docs/members.md says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "pod template",
            Self::Anything => "any object",
            Self::StatefulSet => "StatefulSet",
            Self::Namespace => "namespace",
            Self::Cluster => "StatefulSet, pod",
            Self::Pod => "pod",
            Self::Claim => "claim",
            Self::Kept => "ConfigMap of the guard's",
            Self::Doomed => "what is about to be deleted",
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// The part of its key after [`PREFIX`].
    pub name: &'static str,
    /// Whose it is.
    pub whose: Whose,
    /// Where it counts.
    pub stands: Stands,
    /// In a few words.
    pub means: &'static str,
}

const fn peoples(name: &'static str, stands: Stands, means: &'static str) -> Mark {
    Mark { name, whose: Whose::Peoples, stands, means }
}

const fn guards(name: &'static str, stands: Stands, means: &'static str) -> Mark {
    Mark { name, whose: Whose::Guards, stands, means }
}

/// Every mark.
pub const MARKS: &[Mark] = &[
    peoples(OVERRIDE, Stands::Anything, "releases a rule for an hour at most"),
    peoples(
        BREAK_GLASS,
        Stands::Namespace,
        "releases every rule in it for an hour at most; `gatera break-glass` writes it",
    ),
    peoples(CONTAINER, Stands::Template, "the database server, where it cannot be told"),
    peoples(PROFILE, Stands::Template, "how the image takes options, where it cannot be told"),
    peoples(
        READINESS,
        Stands::Template,
        "leaves the readiness probe alone; such a pod proves nothing by being Ready",
    ),
    peoples(ADDRESS, Stands::Template, "leaves the cluster address alone"),
    peoples(ANTI_AFFINITY, Stands::Template, "instead of what the number of nodes suggests"),
    peoples(
        START,
        Stands::Template,
        "leaves the server's command alone; after a crash it does not know its position",
    ),
    peoples(STARTUP_LIMIT, Stands::Template, "how long a member may take to start, if an hour is not enough"),
    peoples(
        ROLLOUT,
        Stands::StatefulSet,
        "holds up a rollout of the configuration, tries what was given up once more (again with other words), or has members run an earlier revision",
    ),
    peoples(
        RECOVER,
        Stands::StatefulSet,
        "asks that a cluster that is down is started again from this member; `gatera recover` writes it",
    ),
    peoples(
        STOPPED,
        Stands::Claim,
        "where the member's data ended when it was stopped; `gatera stop` writes it, and `gatera start` takes it off",
    ),
    guards(INJECTED, Stands::Pod, "the version that prepared it, and whether Ready proves Synced"),
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
        "what was asked by `recover` was true, and this member may start first",
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

/// The names of the marks that are theirs.
pub fn of(whose: Whose) -> impl Iterator<Item = &'static str> {
    MARKS.iter().filter(move |mark| mark.whose == whose).map(|mark| mark.name)
}

/// This annotation is the guard's to write, and nobody else's.
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
