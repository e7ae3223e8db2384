//! The diagnosis of a guard, and of what it should guard: each answer, and what it means.
//!
//! Owns: which answers are well, worth a remark, or wrong, and the messages. Must not know: how questions are asked
//! (`command/doctor.rs`), or answers laid out (`report/doctor.rs`). A question that could not be asked is a row of its own:
//! nothing is assumed to be well.

mod guard;
mod guarded;

use facts::way_out::{CommandLine, WayOut, run, say};
use objects::Kind;

pub use guard::{
    Replica, Right, api_server, authority, leader, outside_cluster, replicas, rights, settings, webhooks,
};
pub use guarded::{ADOPTION, clusters, lone_bootstrap_nodes, namespaces, once_guarded, unguarded};

/// The answer to a question, or why there is none.
pub type AnswerOrReason<T> = Result<T, String>;

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerState {
    /// All is well.
    Well,
    /// It works, and you should know about it.
    Remark,
    /// The question could not be asked.
    NotAsked,
    /// The guard does not do what it should.
    Wrong,
}

impl AnswerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Remark => "remark",
            Self::NotAsked => "not asked",
            Self::Wrong => "wrong",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorRow {
    /// Its subject, in a word or two.
    pub about: &'static str,
    /// The state of the subject.
    pub state: AnswerState,
    pub says: String,
    /// The way out; empty: there is nothing to do.
    pub instead: WayOut,
}

impl DoctorRow {
    /// Returns a row for a subject that is well.
    pub fn well(about: &'static str, says: impl Into<String>) -> Self {
        Self { about, state: AnswerState::Well, says: says.into(), instead: WayOut::default() }
    }

    /// Returns a row for a subject that works, and about which you should know.
    pub fn remark(about: &'static str, says: impl Into<String>, instead: impl Into<WayOut>) -> Self {
        Self { about, state: AnswerState::Remark, says: says.into(), instead: instead.into() }
    }

    /// Returns a row for a subject that is wrong.
    pub fn wrong(about: &'static str, says: impl Into<String>, instead: impl Into<WayOut>) -> Self {
        Self { about, state: AnswerState::Wrong, says: says.into(), instead: instead.into() }
    }

    /// Returns a row for a question that could not be asked.
    pub fn not_asked(about: &'static str, why: impl Into<String>) -> Self {
        Self { about, state: AnswerState::NotAsked, says: why.into(), instead: WayOut::default() }
    }
}

/// Parts of the messages with which an API server refuses to let a user read something.
const FORBIDDEN: [&str; 2] = [" cannot get resource ", " cannot list resource "];
/// The resources that are read about the guard itself, besides the kinds that it watches.
const OF_THE_GUARD: [&str; 4] =
    ["validatingwebhookconfigurations", "mutatingwebhookconfigurations", "leases", "configmaps"];

/// Merges the rows about questions that this user has no right to ask, if there are several, into one row with the commands by
/// which an administrator can grant the rights. `kinds`: the kinds that are read.
pub fn merge_missing_rights(
    rows: Vec<DoctorRow>,
    kinds: impl Iterator<Item = Kind>,
    user: &str,
) -> Vec<DoctorRow> {
    let needs_a_right = |row: &DoctorRow| {
        row.state == AnswerState::NotAsked && FORBIDDEN.iter().any(|part| row.says.contains(part))
    };
    let (lacking, mut rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(needs_a_right);
    if lacking.len() < 2 {
        rows.extend(lacking);
        return rows;
    }
    let mut about: Vec<_> = lacking.iter().map(|row| row.about).collect();
    about.dedup();
    let says = format!(
        "{} questions need rights that user {user} does not have (about: {})",
        lacking.len(),
        about.join(", ")
    );
    let named = |kind: Kind| match kind.group() {
        "" => kind.plural().to_owned(),
        group => format!("{}.{group}", kind.plural()),
    };
    let mut resources: Vec<_> = kinds.map(named).chain(OF_THE_GUARD.map(str::to_owned)).collect();
    resources.sort();
    resources.dedup();
    let role = CommandLine::new("kubectl create clusterrole gatera-reader --verb=get,list,watch")
        .arg(format!("--resource={}", resources.join(",")));
    let bind =
        CommandLine::new("kubectl create clusterrolebinding gatera-reader --clusterrole=gatera-reader")
            .arg(format!("--user={user}"));
    let instead = say("an administrator can grant them: ").run(role).then(run(bind));
    rows.push(DoctorRow { instead, ..DoctorRow::not_asked("rights", says) });
    rows
}

/// Returns the worst state, which decides the exit code.
pub fn worst(rows: &[DoctorRow]) -> AnswerState {
    rows.iter().map(|row| row.state).max().unwrap_or(AnswerState::Well)
}

fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}
