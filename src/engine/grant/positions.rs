//! Where each member's data ends, as the step in front of its server told it, and what would be lost by starting the cluster
//! from one of them.
//!
//! A position counts only beside the identity of its history: numbers of two histories say nothing of each other. A member that
//! told nothing may have the newest data.

use std::fmt;

use facts::galera::start_report::{Position, Start, StartPosition, StartReport};
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, View};

/// A member, and what is known of its data.
#[derive(Clone, Debug)]
pub struct MemberData<'a> {
    /// The member.
    pub member: &'a Member,
    /// What it told.
    pub told: DataEnd<'a>,
}

/// What is known of a member's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataEnd<'a> {
    /// Where it ends.
    Position {
        /// The last transaction, and of which history.
        position: &'a Position,
        /// How that is known.
        how: &'a str,
        /// Galera calls it safe to start from.
        safe: bool,
    },
    /// Its directory is empty.
    Empty,
    /// It was copying everything from another, and was not done.
    Unfinished,
    /// Where it ended when it started; it has served since.
    Served,
    /// Nothing, for this reason.
    Nothing(String),
    /// Nothing yet: its pod starts.
    NotYet(String),
}

/// A table was about to change when the server died, or its record was lost: of two with the same position the other one is better.
const DDL: &str = "DDL";

impl<'a> DataEnd<'a> {
    fn of(member: &'a Member, cluster: &Cluster, view: &View<'_>) -> Self {
        let Some(pod) = member.pod.as_deref() else {
            let claim = cluster.claims.iter().find(|claim| claim.ordinal == member.ordinal && claim.bound);
            let there = cluster.workload.spec.volume_claim_templates.is_empty() || claim.is_some();
            let why = if there { "has no pod" } else { "has no claim with a volume" };
            return Self::Nothing(why.to_owned());
        };
        let condition = Condition::of(member, view);
        match condition {
            Some(Condition::NodeAway) => {
                return Self::Nothing(format!(
                    "is on node {}, which does not answer: its server may still run and serve",
                    pod.node
                ));
            }
            Some(Condition::Leaving) => return Self::NotYet("is being deleted".to_owned()),
            _ => {}
        }
        if let Some(reader) = member.reader.as_deref() {
            return match reader.start_note.as_deref() {
                _ if reader.going => {
                    Self::NotYet(format!("is waited for until pod {} has gone", reader.name))
                }
                Some(note) => Self::by(note),
                None if reader.stuck => Self::Nothing(format!(
                    "has a pod that does not run, and pod {} could not read its data (kubectl describe pod and kubectl logs say why)",
                    reader.name
                )),
                None => Self::NotYet(format!(
                    "has a pod that does not run, and pod {} has not told yet what it reads of its data",
                    reader.name
                )),
            };
        }
        match pod.start_note.as_deref() {
            Some(note) => Self::by(note),
            None if !pod.step => Self::Nothing(
                "does not start by gatera's step, so nobody asks it for its position".to_owned(),
            ),
            None if pod.running && pod.began.is_none() => Self::Served,
            None if member.does_not_run() => {
                Self::NotYet("has a pod that does not run (kubectl describe pod says why)".to_owned())
            }
            None if pod.stuck => Self::NotYet("keeps failing, and told no position".to_owned()),
            None => Self::NotYet("has not told yet where its data ends".to_owned()),
        }
    }

    fn by(note: &'a StartReport) -> Self {
        match note {
            StartReport::Refused(why) => Self::Nothing(format!("was not started by its step: {why}")),
            StartReport::Started(Start { from, safe_to_bootstrap, .. }) => match from {
                StartPosition::Position(position, how) => {
                    Self::Position { position, how, safe: *safe_to_bootstrap == Some(true) }
                }
                StartPosition::Words(words) if words == "empty" => Self::Empty,
                StartPosition::Words(words) if words.starts_with("a state transfer was not finished") => {
                    Self::Unfinished
                }
                StartPosition::Words(words) => Self::Nothing(format!("told no position: {words}")),
            },
        }
    }

    /// Where the data ends.
    pub fn position(&self) -> Option<&'a Position> {
        match self {
            Self::Position { position, .. } => Some(position),
            _ => None,
        }
    }

    /// What the better one of two members has more of.
    fn worth(&self) -> Option<(u64, bool, bool)> {
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
                f.write_str("has served since it told where its data ends, and its server still runs")
            }
            Self::Empty => f.write_str("is empty"),
            Self::Unfinished => f.write_str("holds half a copy: a state transfer was not finished"),
            Self::Nothing(why) | Self::NotYet(why) => f.write_str(why),
        }
    }
}

/// Every member that should exist.
pub fn rows<'a>(cluster: &'a Cluster, view: &View<'_>) -> Vec<MemberData<'a>> {
    cluster
        .members
        .iter()
        .map(|member| MemberData { member, told: DataEnd::of(member, cluster, view) })
        .collect()
}

/// What is lost by starting from a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataLoss {
    /// Nothing: nobody has more.
    Nothing,
    /// So many transactions.
    Transactions {
        /// How many.
        lost: u64,
        /// Who has them.
        newer: Newer,
    },
    /// Nobody can tell, for these reasons.
    Unknown(Vec<String>),
    /// It cannot be started from: nothing is known of its data.
    Impossible(String),
}

/// Who has newer data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Newer {
    /// A member that could start.
    Member(String),
    /// One whose pod does not run.
    HeldUp(String),
    /// Nobody any more: this claim had it when it was stopped.
    Claim(String),
}

impl Newer {
    fn of(member: &Member) -> Self {
        let name = member.name.clone();
        if member.does_not_run() { Self::HeldUp(name) } else { Self::Member(name) }
    }
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(name) => write!(f, "{name} has newer data"),
            Self::HeldUp(name) => write!(f, "{name} has newer data, and its pod does not run"),
            Self::Claim(name) => {
                write!(f, "claim {name} had newer data when it was stopped, and nobody has it now")
            }
        }
    }
}

impl DataLoss {
    /// As whoever accepts it has to write it.
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
            Self::Nothing => f.write_str("nobody has newer data"),
            Self::Transactions { newer, .. } => newer.fmt(f),
            Self::Unknown(why) => f.write_str(&why.join("; ")),
            Self::Impossible(why) => f.write_str(why),
        }
    }
}

/// What is lost by starting from this one.
pub fn stake(rows: &[MemberData<'_>], from: &MemberData<'_>, cluster: &Cluster) -> DataLoss {
    let name = |row: &MemberData<'_>| row.member.name.clone();
    let Some(own) = from.told.position() else {
        return DataLoss::Impossible(format!("{} {}", name(from), from.told));
    };
    let mut doubts = Vec::new();
    if cluster.has_no_identity() {
        doubts.push("the cluster lost its identity, so positions say nothing (gatera explain G04, a cluster without an identity)".to_owned());
    }
    if let Some(recorded) = cluster.identity().filter(|it| it.as_str() != own.id) {
        doubts.push(format!("{} has data of cluster {}, and this is cluster {recorded}", name(from), own.id));
    }
    for pod in cluster.leaving.iter().chain(&cluster.bootstrap.pods).filter(|pod| pod.running) {
        doubts.push(format!("{} still runs: what it does is not known", pod.name));
    }
    let mut newest: Option<(Newer, u64)> = None;
    for row in rows {
        match &row.told {
            DataEnd::Position { position, .. } if position.id != own.id => doubts.push(format!(
                "{} and {} have different histories ({} and {}): two clusters were founded",
                name(from),
                name(row),
                own.id,
                position.id
            )),
            DataEnd::Position { position, .. } if newest.as_ref().is_none_or(|it| position.seqno > it.1) => {
                newest = Some((Newer::of(row.member), position.seqno));
            }
            // Whoever copies everything had nothing that counted.
            DataEnd::Position { .. } | DataEnd::Unfinished => {}
            told => doubts.push(format!("{} {told}, and may have had newer data", name(row))),
        }
    }
    // A volume may have been replaced since by an older one, or by another cluster's.
    for claim in &cluster.claims {
        let Some(ended) = claim.stopped.as_ref().and_then(|it| it.position.as_ref()) else { continue };
        if ended.id != own.id {
            let (claim, ns) = (&claim.name, &cluster.id.namespace);
            doubts.push(format!(
                "claim {claim} was stopped with data of cluster {}, and {} has data of {} (if that is known: kubectl -n {ns} annotate \
                 pvc {claim} gatera.dev/stopped-)",
                ended.id,
                name(from),
                own.id
            ));
        } else if newest.as_ref().is_none_or(|it| ended.seqno > it.1) {
            newest = Some((Newer::Claim(claim.name.clone()), ended.seqno));
        }
    }
    match newest {
        _ if !doubts.is_empty() => DataLoss::Unknown(doubts),
        Some((newer, most)) if most > own.seqno => DataLoss::Transactions { lost: most - own.seqno, newer },
        _ => DataLoss::Nothing,
    }
}

/// The best to start from: of the recorded history the newest; of equals one without a half-changed table, one that was stopped
/// last, the first. One whose pod does not run starts nothing.
pub fn best<'r, 'a>(rows: &'r [MemberData<'a>], cluster: &Cluster) -> Option<&'r MemberData<'a>> {
    let own = |row: &&MemberData<'_>| {
        let id = row.told.position().map(|it| &*it.id);
        id.is_some()
            && !row.member.does_not_run()
            && cluster.identity().is_none_or(|recorded| id == Some(recorded.as_str()))
    };
    rows.iter().filter(own).max_by_key(|row| (row.told.worth(), std::cmp::Reverse(row.member.ordinal)))
}
