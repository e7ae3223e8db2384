//! The diagnosis of a guard, and of what it should guard: each answer, and what it means.
//!
//! Owns: when something is well, worth a remark, or wrong, and the words. Must not know: how anything is asked
//! (`command/doctor.rs`), or laid out (`report/doctor.rs`). A question that could not be asked is a row of its own:
//! nothing is assumed to be well.

mod guard;
mod guarded;

use facts::way_out::WayOut;

pub use guard::{
    Replica, Right, api_server, authority, leader, outside, replicas, rights, settings, webhooks,
};
pub use guarded::{ADOPTION, clusters, lone_founders, namespaces, once_guarded, unguarded};

/// The answer to a question, or why there is none.
pub type Asked<T> = Result<T, String>;

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All is well.
    Well,
    /// It works, and you should know about it.
    Remark,
    /// It could not be asked.
    NotAsked,
    /// The guard does not do what it should.
    Wrong,
}

impl State {
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
pub struct Row {
    /// Its subject, in a word.
    pub about: &'static str,
    /// The state of the subject.
    pub state: State,
    pub says: String,
    /// The way out; empty: there is nothing to do.
    pub instead: WayOut,
}

impl Row {
    /// A row for a subject that is well.
    pub fn well(about: &'static str, says: impl Into<String>) -> Self {
        Self { about, state: State::Well, says: says.into(), instead: WayOut::default() }
    }

    /// A row for a subject that works, and about which you should know.
    pub fn remark(about: &'static str, says: impl Into<String>, instead: impl Into<WayOut>) -> Self {
        Self { about, state: State::Remark, says: says.into(), instead: instead.into() }
    }

    /// A row for a subject that is wrong.
    pub fn wrong(about: &'static str, says: impl Into<String>, instead: impl Into<WayOut>) -> Self {
        Self { about, state: State::Wrong, says: says.into(), instead: instead.into() }
    }

    /// A row for a question that could not be asked.
    pub fn not_asked(about: &'static str, why: impl Into<String>) -> Self {
        Self { about, state: State::NotAsked, says: why.into(), instead: WayOut::default() }
    }
}

/// Returns the worst state, which decides the exit code.
pub fn worst(rows: &[Row]) -> State {
    rows.iter().map(|row| row.state).max().unwrap_or(State::Well)
}

fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}
