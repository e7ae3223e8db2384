//! The type of a rule: its id, the operations that it judges, its page.
//!
//! Must not know: any rule (`rules.rs`), or when rules are evaluated (`rulebook.rs`).

use facts::way_out::WayOut;
use objects::Kind;

// Every rule imports these from here.
pub use crate::verdict::{Finding, Findings, Verdict, YieldsTo};
pub use facts::review::{Change, Operation, Origin, Review};
pub use facts::view::View;

/// A rule. Its module's documentation is the manual page that `gatera explain` prints.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The id, which never changes once it is published.
    pub id: &'static str,
    pub name: &'static str,
    /// Each kind that the rule judges, with the operations and the function that judges them. The rule is not evaluated for
    /// others.
    pub judges: &'static [(Kind, &'static [Verb], Check)],
    /// Whether the verdict depends on the state of the cluster, so that the rule needs a test case in each state.
    pub depends_on_state: bool,
    pub source: &'static str,
}

/// The function that finds what is wrong with a change.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// At most one finding.
    One(fn(&Review, &View<'_>) -> Option<Finding>),
    /// Any number of findings.
    All(fn(&Review, &View<'_>) -> Findings),
    /// Any number of findings, all of them about the templates of a workload: an update that changes none cannot make them
    /// worse, and is not judged.
    OfTemplates(fn(&Review, &View<'_>) -> Findings),
}

pub use Check::{All, OfTemplates, One};

impl Check {
    pub fn judge(self, review: &Review, view: &View<'_>) -> Findings {
        match self {
            Self::One(check) => check(review, view).into_iter().collect(),
            Self::All(check) | Self::OfTemplates(check) => check(review, view),
        }
    }
}

/// The operations that rules distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the verbs of the API, and its subresources")]
pub enum Verb {
    Create,
    Update,
    Delete,
    Scale,
    Evict,
    /// A write of the status, which can change the metadata too.
    Report,
}

/// The advice while the view does not know enough.
pub const UNTIL_SEEN: &str = "repeat the command in a minute; /readyz of gatera (port 8080) says what it waits for, or what it \
                              has no room for";

/// The advice for members that run without a StatefulSet.
pub const APPLY_AGAIN: &str = "apply the StatefulSet again as it was, which takes over its pods";

/// Returns " and 2 more", for a message that names only the first of a list; empty if there is no other.
pub fn and_more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" and {others} more") }
}

/// Every write of the object itself.
pub const WRITTEN: &[Verb] = &[Verb::Create, Verb::Update];

impl Verb {
    /// Returns the name in machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Scale => "scale",
            Self::Evict => "evict",
            Self::Report => "status",
        }
    }

    /// Returns the verb of a request; `None`: no rule judges it.
    pub fn of(review: &Review) -> Option<Self> {
        match (&*review.subresource, review.operation) {
            ("", Operation::Create) => Some(Self::Create),
            ("" | "resize", Operation::Update) => Some(Self::Update),
            ("", Operation::Delete) => Some(Self::Delete),
            ("scale", _) => Some(Self::Scale),
            ("eviction", _) => Some(Self::Evict),
            ("status" | "finalize", Operation::Update) => Some(Self::Report),
            _ => None,
        }
    }
}

/// A page that `gatera explain` prints: about a rule, or about objects that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub id: &'static str,
    pub name: &'static str,
    pub source: &'static str,
}

impl Page {
    /// Returns the module documentation of the page's file.
    pub fn text(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    /// Returns the first sentence of the page, without the id.
    pub fn summary(&self) -> String {
        let text = self.text();
        let first = text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, rest)| rest).trim_end_matches('.').to_owned()
    }
}

impl Rule {
    /// Returns a finding of this rule: the verdict, the field, what is wrong, the fact about Galera behind it, and what to do
    /// instead.
    pub fn finding(
        &self,
        verdict: Verdict,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<WayOut>,
    ) -> Finding {
        Finding::new(self.id, verdict, field, says, why, instead)
    }

    /// Returns a finding that refuses the request.
    pub fn deny(
        &self,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<WayOut>,
    ) -> Finding {
        self.finding(Verdict::Deny, field, says, why, instead)
    }

    /// Returns a finding that warns.
    pub fn warn(
        &self,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<WayOut>,
    ) -> Finding {
        self.finding(Verdict::Warn, field, says, why, instead)
    }

    /// Returns a finding that refuses a request because the view does not show enough: `says` names what is unknown, and the
    /// time when the view was last current is added.
    pub fn unknown(&self, field: &str, says: &str, why: &str, view: &View<'_>) -> Finding {
        self.finding(Verdict::Unknown, field, format!("{says} ({})", view.seen()), why, UNTIL_SEEN)
    }

    /// Returns the function that judges this operation on this kind, if the rule does.
    pub fn check(&self, kind: Kind, verb: Verb) -> Option<Check> {
        let mut all = self.judges.iter();
        all.find(|(judged, verbs, _)| *judged == kind && verbs.contains(&verb)).map(|(.., check)| *check)
    }

    pub fn page(&self) -> Page {
        Page { id: self.id, name: self.name, source: self.source }
    }
}
