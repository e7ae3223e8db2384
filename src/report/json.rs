//! Types that several JSON documents share. The schema of each document is generated from its types (`tests/schemas.rs`).
//!
//! The documents are a contract: fields are added, never renamed. Any other change gets another `version`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use facts::galera::identity::Identity;
use facts::view::Id;
use facts::view::condition::Diagnosis;
use facts::way_out::WayOut;
use inspect::status::ClusterStatus;
use objects::Kind;

/// The version of every document.
pub const VERSION: u32 = 1;

/// Returns a document as JSON. It consists of JSON values, so it cannot fail to serialize.
pub(crate) fn value(document: impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}

/// Names one object.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ObjectName<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> ObjectName<'a> {
    pub(crate) fn of(kind: Kind, id: &'a Id) -> Self {
        Self { kind: kind.name(), namespace: &id.namespace, name: &id.name }
    }
}

/// A cluster, as several documents begin it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterHead<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// HEALTHY, DEGRADED, JOINING, TRANSFER, FORMING, DOWN, STOPPED or UNKNOWN.
    pub(crate) state: &'static str,
    /// How many members are Synced, and the first problem.
    pub(crate) says: String,
    /// The identity of the cluster, once it is recorded.
    pub(crate) id: Option<&'a str>,
    /// The command that recovers the cluster if no member is Ready, and what the command does.
    #[schemars(with = "Option<String>")]
    pub(crate) way_back: Option<&'a WayOut>,
    /// The problems of the cluster and of its members.
    pub(crate) matters: Vec<Problem<'a>>,
}

impl<'a> ClusterHead<'a> {
    pub(crate) fn of(it: &'a ClusterStatus<'a>) -> Self {
        let ClusterStatus { cluster, state, way_back, diagnoses, .. } = it;
        Self {
            namespace: &cluster.id.namespace,
            name: &cluster.id.name,
            state: state.name(),
            says: cluster.describe(),
            id: cluster.identity().map(Identity::as_str),
            way_back: way_back.as_ref(),
            matters: Problem::all(diagnoses),
        }
    }
}

/// A problem of the cluster or of some of its members, and the way out.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Problem<'a> {
    /// The name of the condition, as `gatera explain G02` lists it.
    condition: &'static str,
    /// The members that have it; empty: the whole cluster.
    members: &'a [String],
    /// What to do.
    #[schemars(with = "String")]
    instead: &'a WayOut,
}

impl<'a> Problem<'a> {
    pub(crate) fn all(of: &'a [Diagnosis]) -> Vec<Self> {
        let one = |Diagnosis { condition, members, instead }: &'a Diagnosis| Self {
            condition: condition.name(),
            members,
            instead,
        };
        of.iter().map(one).collect()
    }
}
