//! The position of each member's data, as its step script reported it, and what would be lost by starting the cluster from one of
//! them.
//!
//! Positions can be compared only within one history. A member that reported nothing may have the newest data.

use std::fmt;

use facts::galera::start_report::{Position, Start, StartPosition, StartReport};
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, View};

/// A member, and what is known about its data.
#[derive(Clone, Debug)]
pub struct MemberData<'a> {
    pub member: &'a Member,
    pub data_end: DataEnd<'a>,
}

/// What is known about a member's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataEnd<'a> {
    /// The position at which the data ends.
    Position {
        position: &'a Position,
        /// How the position is known.
        how: &'a str,
        /// Galera marked the member as safe to bootstrap.
        safe: bool,
    },
    /// The data directory is empty.
    Empty,
    /// A full state transfer to this member was not finished.
    Unfinished,
    /// The reported position is old, because the member has served since.
    Served,
    /// Nothing is known, for this reason.
    Unknown(String),
    /// Nothing is known yet, because the pod is starting.
    NotYetKnown(String),
}

/// The word in a report for a table that was being changed when the server crashed. If two members have the same position, a
/// report without this word is better.
const DDL: &str = "DDL";

impl<'a> DataEnd<'a> {
    fn of(member: &'a Member, cluster: &Cluster, view: &View<'_>) -> Self {
        let Some(pod) = member.pod.as_deref() else {
            let claim = cluster.claims.iter().find(|claim| claim.ordinal == member.ordinal && claim.bound);
            let has_claim = cluster.workload.spec.volume_claim_templates.is_empty() || claim.is_some();
            let why = if has_claim { "has no pod" } else { "has no claim with a volume" };
            return Self::Unknown(why.to_owned());
        };
        let condition = Condition::of(member, view);
        match condition {
            Some(Condition::NodeAway) => {
                return Self::Unknown(format!(
                    "is on node {}, which does not answer: its server may still run and serve",
                    pod.node
                ));
            }
            Some(Condition::Leaving) => return Self::NotYetKnown("is being deleted".to_owned()),
            _ => {}
        }
        if let Some(reader) = member.reader.as_deref() {
            return match reader.start_report.as_deref() {
                _ if reader.terminating => {
                    Self::NotYetKnown(format!("is checked again after pod {} is deleted", reader.name))
                }
                Some(report) => Self::reported(report),
                None if reader.stuck => Self::Unknown(format!(
                    "has a pod that does not run, and pod {} could not read its data (kubectl describe pod and kubectl logs say \
                     why)",
                    reader.name
                )),
                None => Self::NotYetKnown(format!(
                    "has a pod that does not run, and pod {} has not reported its position yet",
                    reader.name
                )),
            };
        }
        match pod.start_report.as_deref() {
            Some(report) => Self::reported(report),
            None if !pod.step => {
                Self::Unknown("starts without gatera's step script, so its position is not known".to_owned())
            }
            None if pod.running && pod.starting_since.is_none() => Self::Served,
            None if member.does_not_run() => {
                Self::NotYetKnown("has a pod that does not run (kubectl describe pod says why)".to_owned())
            }
            None if pod.stuck => Self::NotYetKnown("keeps failing, and reported no position".to_owned()),
            None => Self::NotYetKnown("has not reported its position yet".to_owned()),
        }
    }

    fn reported(report: &'a StartReport) -> Self {
        match report {
            StartReport::Refused(why) => Self::Unknown(format!("was not started by its step script: {why}")),
            StartReport::Started(Start { from, safe_to_bootstrap, .. }) => match from {
                StartPosition::Position(position, how) => {
                    Self::Position { position, how, safe: *safe_to_bootstrap == Some(true) }
                }
                StartPosition::Words(words) if words == "empty" => Self::Empty,
                StartPosition::Words(words) if words.starts_with("a state transfer was not finished") => {
                    Self::Unfinished
                }
                StartPosition::Words(words) => Self::Unknown(format!("reported no position: {words}")),
            },
        }
    }

    /// Returns the position at which the data ends.
    pub fn position(&self) -> Option<&'a Position> {
        match self {
            Self::Position { position, .. } => Some(position),
            _ => None,
        }
    }

    /// Returns the value by which members are ranked; the largest is the best.
    fn rank(&self) -> Option<(u64, bool, bool)> {
        match self {
            Self::Position { position, how, safe } => Some((position.seqno, !how.contains(DDL), *safe)),
            _ => None,
        }
    }
}

impl fmt::Display for DataEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { position, how, .. } => write!(f, "ends at {position} ({how})"),
            Self::Served => {
                f.write_str("has served since it reported its position, and its server still runs")
            }
            Self::Empty => f.write_str("is empty"),
            Self::Unfinished => f.write_str("has incomplete data: a state transfer was not finished"),
            Self::Unknown(why) | Self::NotYetKnown(why) => f.write_str(why),
        }
    }
}

/// Returns what is known about the data of every member that should exist.
pub fn member_data<'a>(cluster: &'a Cluster, view: &View<'_>) -> Vec<MemberData<'a>> {
    cluster
        .members
        .iter()
        .map(|member| MemberData { member, data_end: DataEnd::of(member, cluster, view) })
        .collect()
}

/// The data that is lost by starting from a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataLoss {
    /// Nothing: no member has newer data.
    Nothing,
    Transactions {
        lost: u64,
        newer: NewerData,
    },
    /// The loss is unknown, for these reasons.
    Unknown(Vec<String>),
    /// The cluster cannot start from this member, because nothing is known about its data.
    Impossible(String),
}

/// The holder of newer data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewerData {
    /// A member whose pod can run.
    Member(String),
    /// A member whose pod does not run.
    HeldUp(String),
    /// No member has it, but this claim had it when its member was stopped.
    Claim(String),
}

impl NewerData {
    fn of(member: &Member) -> Self {
        let name = member.name.clone();
        if member.does_not_run() { Self::HeldUp(name) } else { Self::Member(name) }
    }
}

impl fmt::Display for NewerData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(name) => write!(f, "{name} has newer data"),
            Self::HeldUp(name) => write!(f, "{name} has newer data, but its pod does not run"),
            Self::Claim(name) => {
                write!(
                    f,
                    "claim {name} had newer data when its member stopped, and no member has that data now"
                )
            }
        }
    }
}

impl DataLoss {
    /// Returns the loss as the user has to write it to accept it.
    pub fn loss(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Transactions { lost: 1, .. } => Some("1 transaction".to_owned()),
            Self::Transactions { lost, .. } => Some(format!("{lost} transactions")),
            Self::Unknown(_) | Self::Impossible(_) => Some("unknown".to_owned()),
        }
    }
}

impl fmt::Display for DataLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no member has newer data"),
            Self::Transactions { newer, .. } => newer.fmt(f),
            Self::Unknown(why) => f.write_str(&why.join("; ")),
            Self::Impossible(why) => f.write_str(why),
        }
    }
}

/// Returns the data that is lost by starting from this member.
pub fn data_loss(all: &[MemberData<'_>], from: &MemberData<'_>, cluster: &Cluster) -> DataLoss {
    let name = |row: &MemberData<'_>| row.member.name.clone();
    let Some(at) = from.data_end.position() else {
        return DataLoss::Impossible(format!("{} {}", name(from), from.data_end));
    };
    let mut doubts = Vec::new();
    if cluster.has_no_identity() {
        doubts.push(
            "the cluster lost its identity, so positions cannot be compared (gatera explain G04, a cluster without an \
             identity)"
                .to_owned(),
        );
    }
    if let Some(recorded) = cluster.identity().filter(|it| it.as_str() != at.id) {
        doubts.push(format!("{} has data of cluster {}, but this is cluster {recorded}", name(from), at.id));
    }
    for pod in cluster.leaving.iter().chain(&cluster.bootstrap.pods).filter(|pod| pod.running) {
        doubts.push(format!("{} still runs, and its state is not known", pod.name));
    }
    let mut newest: Option<(NewerData, u64)> = None;
    for row in all {
        match &row.data_end {
            DataEnd::Position { position, .. } if position.id != at.id => doubts.push(format!(
                "{} and {} have different histories ({} and {}): two clusters were created",
                name(from),
                name(row),
                at.id,
                position.id
            )),
            DataEnd::Position { position, .. } if newest.as_ref().is_none_or(|it| position.seqno > it.1) => {
                newest = Some((NewerData::of(row.member), position.seqno));
            }
            // A member that was receiving a full copy had no data of its own.
            DataEnd::Position { .. } | DataEnd::Unfinished => {}
            data_end => doubts.push(format!("{} {data_end}, and may have had newer data", name(row))),
        }
    }
    // Since then, the volume may have been replaced by an older one, or by one of another cluster.
    for claim in &cluster.claims {
        let Some(ended) = claim.stopped.as_ref().and_then(|it| it.position.as_ref()) else { continue };
        if ended.id != at.id {
            let (claim, ns) = (&claim.name, &cluster.id.namespace);
            doubts.push(format!(
                "claim {claim} last held data of cluster {}, but {} has data of {} (if that is intended: kubectl -n {ns} annotate \
                 pvc {claim} gatera.dev/stopped-)",
                ended.id,
                name(from),
                at.id
            ));
        } else if newest.as_ref().is_none_or(|it| ended.seqno > it.1) {
            newest = Some((NewerData::Claim(claim.name.clone()), ended.seqno));
        }
    }
    match newest {
        _ if !doubts.is_empty() => DataLoss::Unknown(doubts),
        Some((newer, most)) if most > at.seqno => DataLoss::Transactions { lost: most - at.seqno, newer },
        _ => DataLoss::Nothing,
    }
}

/// Returns the best member to start from: the one with the newest data of the recorded history; among equals, first one without
/// an unfinished table change, then one that is safe to bootstrap, then the lowest ordinal. A member whose pod does not run
/// cannot start the cluster.
pub fn best_member<'r, 'a>(all: &'r [MemberData<'a>], cluster: &Cluster) -> Option<&'r MemberData<'a>> {
    let usable = |row: &&MemberData<'_>| {
        let id = row.data_end.position().map(|it| &*it.id);
        id.is_some()
            && !row.member.does_not_run()
            && cluster.identity().is_none_or(|recorded| id == Some(recorded.as_str()))
    };
    all.iter().filter(usable).max_by_key(|row| (row.data_end.rank(), std::cmp::Reverse(row.member.ordinal)))
}
