//! The JSON of `gatera status`. A status of a step is `COMPLETE`, `IN_PROGRESS`, `PENDING` (something must come first),
//! `SKIPPED` (nothing to do) or `GIVEN_UP` (it failed, and does not go on by itself).

use schemars::JsonSchema;
use serde::Serialize;

use super::{PlanStep, member_state, plan_status, steps};
use crate::doctor;
use crate::json::{ClusterHead, VERSION};
use facts::galera::start_report::{JoinPhase, StartReport};
use facts::marks::overrides::Override;
use facts::revision::Revision;
use facts::view::Member;
use facts::view::condition::Condition;
use inspect::doctor::{DoctorRow, worst};
use inspect::status::ClusterStatus;

/// The state of clusters, and of the guard.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    version: u32,
    clusters: Vec<ClusterItem<'a>>,
    guard: GuardItem<'a>,
}

/// The guard itself, as in `gatera doctor`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Guard")]
struct GuardItem<'a> {
    /// The worst state of its rows.
    state: &'static str,
    rows: Vec<doctor::AnswerItem<'a>>,
}

/// A cluster.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterItem<'a> {
    #[serde(flatten)]
    head: ClusterHead<'a>,
    members: Vec<MemberItem<'a>>,
    /// The override on its StatefulSet, while it is in effect.
    #[serde(rename = "override")]
    active_override: Option<Exception<'a>>,
    /// The break-glass exception of its namespace, while it is in effect.
    break_glass: Option<Exception<'a>>,
    /// Claims that are deleted as soon as their pods are gone.
    claims_being_deleted: Vec<&'a str>,
    /// Claims of members that are gone; they are kept, with their data.
    left_claims: Vec<&'a str>,
    /// What would be refused in its namespace as it is.
    findings: &'a [String],
    plan: Plan,
}

/// A member.
#[derive(Serialize, JsonSchema)]
struct MemberItem<'a> {
    name: &'a str,
    says: &'static str,
    /// The name of its condition; null if it is Ready.
    condition: Option<&'static str>,
    ready: bool,
    /// The revision of the configuration that it runs; null: it reads the ConfigMap itself.
    revision: Option<String>,
    /// Its readiness probe proves that it is Synced.
    verified: bool,
    node: Option<&'a str>,
    /// What a probe last saw of a member that joined and is not Ready: looks, waits, receives, stalls, full, strays, freezes.
    seen: Option<&'static str>,
    /// What it reported of its last start, while it is not Ready.
    start: Option<StartItem>,
}

/// A start, as the member reported it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StartItem {
    says: String,
    at: Option<String>,
    id: Option<String>,
    seqno: Option<u64>,
    safe_to_bootstrap: Option<bool>,
    /// What a probe sees it do.
    doing: Option<&'static str>,
}

/// An exception from the rules.
#[derive(Serialize, JsonSchema)]
struct Exception<'a> {
    /// The rules; absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a [String]>,
    until: String,
    reason: &'a str,
}

/// The steps of the guard.
#[derive(Serialize, JsonSchema)]
struct Plan {
    status: &'static str,
    steps: [PlanStep; 5],
}

impl<'a> Document<'a> {
    pub(super) fn of(all: &'a [ClusterStatus<'a>], guard: &'a [DoctorRow]) -> Self {
        let guard = GuardItem { state: worst(guard).name(), rows: doctor::AnswerItem::all(guard) };
        Self { version: VERSION, clusters: all.iter().map(ClusterItem::of).collect(), guard }
    }
}

impl<'a> ClusterItem<'a> {
    fn of(it: &'a ClusterStatus<'a>) -> Self {
        let ClusterStatus { cluster, members, active_override, break_glass, .. } = it;
        let steps = steps(it);
        Self {
            head: ClusterHead::of(it),
            members: members.iter().map(|(member, condition)| MemberItem::of(member, *condition)).collect(),
            active_override: active_override
                .as_ref()
                .map(|it| Exception { rules: Some(&it.rules), ..Exception::of(it) }),
            break_glass: break_glass.as_ref().map(Exception::of),
            claims_being_deleted: cluster
                .claims
                .iter()
                .filter(|it| it.terminating)
                .map(|it| &*it.name)
                .collect(),
            left_claims: cluster.left_claims().map(|it| &*it.name).collect(),
            findings: &it.findings,
            plan: Plan { status: plan_status(&steps), steps },
        }
    }
}

impl<'a> MemberItem<'a> {
    fn of(member: &'a Member, condition: Option<Condition>) -> Self {
        let pod = member.pod.as_ref();
        Self {
            name: &member.name,
            says: member_state(member, condition),
            condition: condition.map(Condition::name),
            ready: member.ready(),
            revision: pod.and_then(|pod| pod.revision.as_ref()).map(Revision::to_string),
            verified: pod.is_some_and(|pod| pod.verified),
            node: pod.map(|pod| &*pod.node).filter(|node| !node.is_empty()),
            seen: pod.and_then(|pod| pod.seen).map(JoinPhase::name),
            start: pod
                .filter(|_| !member.ready())
                .and_then(|pod| pod.start_report.as_deref())
                .map(StartItem::of),
        }
    }
}

impl StartItem {
    fn of(report: &StartReport) -> Self {
        let (start, position) = (report.start(), report.position());
        Self {
            says: report.to_string(),
            at: start.map(|it| it.at.to_string()),
            id: position.map(|it| it.id.clone()),
            seqno: position.map(|it| it.seqno),
            safe_to_bootstrap: start.and_then(|it| it.safe_to_bootstrap),
            doing: report.phase().map(JoinPhase::name),
        }
    }
}

impl<'a> Exception<'a> {
    fn of(it: &'a Override) -> Self {
        Self { rules: None, until: it.until.to_string(), reason: &it.reason }
    }
}
