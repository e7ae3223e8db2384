//! What a rule is: its id, what it is asked about, its page.
//!
//! Must not know: any rule (`rules.rs`), or when rules are asked (`rulebook.rs`).

use crate::verdict::{Finding, Findings, Verdict};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::Kind;

/// One rule. Its module's documentation is the manual page that `gatera explain` prints.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Stable once published.
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it looks at, and at which of the things that can be done to it; it is asked about nothing else.
    pub touches: &'static [(Kind, &'static [Verb])],
    /// Its verdict depends on how the cluster is, so it needs a case in each state.
    pub depends_on_state: bool,
    pub source: &'static str,
    pub check: fn(&Review, &View<'_>) -> Findings,
}

/// What is done to an object, as far as rules tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the verbs of the API, and its subresources")]
pub enum Verb {
    Create,
    Update,
    Delete,
    Scale,
    Evict,
    /// Whoever reports how an object does may write its metadata, too.
    Report,
}

/// What to do while the view does not say enough.
pub const UNTIL_SEEN: &str = "repeat the command in a minute; /readyz of gatera (port 8080) says what it waits for, or what found no room";

/// What to do where members run without a StatefulSet.
pub const APPLY_AGAIN: &str = "apply the StatefulSet again as it was, which takes its pods back";

/// Every write of the object itself.
pub const WRITTEN: &[Verb] = &[Verb::Create, Verb::Update];

impl Verb {
    /// As programs call it.
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

    /// `None`: no rule looks at this.
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

/// What `gatera explain` prints of an id: a rule, or what is not judged.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    pub source: &'static str,
}

impl Page {
    /// The module documentation of its file.
    pub fn text(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    /// Its first sentence, without the id.
    pub fn summary(&self) -> String {
        let text = self.text();
        let first = text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, rest)| rest).trim_end_matches('.').to_owned()
    }
}

impl Rule {
    /// What this rule found: how bad it is, where, what is wrong, the fact about Galera behind it, and what to do instead.
    pub fn finding(
        &self,
        verdict: Verdict,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Finding {
        Finding::new(self.id, verdict, field, says, why, instead)
    }

    /// It is asked when this is done to an object of this kind.
    pub fn looks_at(&self, kind: Kind, verb: Verb) -> bool {
        self.touches.iter().any(|(touched, verbs)| *touched == kind && verbs.contains(&verb))
    }

    /// Its page.
    pub fn page(&self) -> Page {
        Page { id: self.id, name: self.name, source: self.source }
    }

    /// The manual page: the module documentation of the rule's file.
    pub fn manual(&self) -> String {
        self.page().text()
    }

    /// The first sentence of the manual page, without the id.
    pub fn summary(&self) -> String {
        self.page().summary()
    }
}
