//! Manifests before they reach a cluster: what would be refused, and what was not judged.
//!
//! Owns: the result of a check ([`Checked`]), and how texts lead to it. The verdicts come from the same `evaluate` as the
//! webhook's, on a World that is built from the texts, so an object that is not in them is unknown; only `check/live.rs` starts
//! from the World of a cluster. Must not know: files, revisions, formats.
//! Data: texts -> items -> requests -> decisions -> [`Checked`], which `report/check.rs` lays out.

mod change;
mod deployed;
mod excerpt;
mod gaps;
mod item;
mod live;
mod session;
mod stand_in;
mod unjudged;
mod unjudged_files;
mod waiver;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use self::item::ManifestItem;
use self::session::CheckSession;
use crate::manifest::Place;
use engine::rule::Page;
use engine::rulebook::Rulebook;
use engine::verdict::{Effect, Judged};
use facts::settings::Settings;
use facts::view::Id;
use objects::Kind;

pub use excerpt::Excerpt;
pub use live::{Live, LiveObject};
pub use unjudged::is_galera;

/// A text to judge, or why there is none.
#[derive(Clone, Debug)]
pub struct Input {
    /// The name under which it was given.
    pub name: Arc<str>,
    /// The path below the given folder, which identifies the same file in another folder; empty: the file itself was given.
    pub below: Arc<Path>,
    pub text: Result<String, MissingText>,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingText {
    /// The text cannot be read.
    Unread(String),
    /// The text is left out, for this reason.
    LeftOut(String),
    /// The folder holds the templates of a chart.
    Chart,
}

/// What a check needs besides its texts.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions<'a> {
    /// The rules that judge.
    pub rulebook: &'a Rulebook,
    pub settings: &'a Settings,
    /// The namespace of objects that name none.
    pub namespace: &'a str,
    pub now: Timestamp,
    /// Ids of the rules to apply; empty: all.
    pub rules: &'a [&'static str],
}

#[derive(Debug, Default)]
pub struct Checked {
    /// The findings, in the order of the texts.
    pub findings: Vec<CheckFinding>,
    /// Every object and its result, in the order of the texts; removed objects last.
    pub objects: Vec<Outcome>,
    pub clusters: usize,
    /// The number of documents that are not manifests, such as values of a chart or settings of a tool.
    pub skipped_documents: usize,
    /// The files that hold these documents.
    pub skipped_files: Vec<Arc<str>>,
    /// The pages of all rules, also of those that were not applied.
    pub rules: Vec<Page>,
    /// The file of the settings, if they are not the defaults.
    pub settings: Option<String>,
    /// The address of the rules' pages, if it is known.
    pub rules_url: Option<String>,
}

/// The result for one object.
#[derive(Debug)]
pub struct Outcome {
    pub location: Location,
    pub object: NamedObject,
    /// The worst finding, if there is any.
    pub worst: Option<Level>,
    /// Whether the object did not change, so that it was not judged.
    pub unchanged: bool,
}

impl Outcome {
    /// Returns whether the object was not judged because no rule covers its kind.
    pub fn has_no_rule(&self) -> bool {
        self.worst.is_none() && !self.unchanged && self.object.kind == Kind::Other
    }

    /// Returns whether the object was judged without a finding.
    pub fn is_fine(&self) -> bool {
        self.worst.is_none() && !self.unchanged && !self.has_no_rule()
    }
}

/// One result of the check, about a place in a text.
#[derive(Debug)]
pub struct CheckFinding {
    pub location: Location,
    pub object: Option<NamedObject>,
    pub what: CheckFindingKind,
    /// The line of the text, without values that could be secret.
    pub excerpt: Option<Excerpt>,
    /// The place at which code hosts show a finding about a removed object: a file that still exists, and a line of it.
    pub shown_at: Option<(Arc<str>, u64)>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub file: Arc<str>,
    /// Line and column; none: the whole text.
    pub place: Option<Place>,
    /// The template that the text was rendered from.
    pub template: Option<String>,
    /// Whether the text is in the base, as for an object that was removed.
    pub in_base: bool,
    source: usize,
}

/// An object by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    pub kind: Kind,
    pub id: Id,
    /// The object as every message names it, as in "StatefulSet db/galera".
    pub subject: String,
}

#[derive(Debug)]
pub enum CheckFindingKind {
    Finding {
        /// The finding, and its effect.
        judged: Box<Judged>,
        /// The reason, if a comment in the file waives the finding.
        waived: Option<String>,
    },
    /// A remark about the object.
    Remark(String),
    /// Something was not judged, and why.
    Unjudged(String),
    /// A waiver comment is invalid, or waives nothing.
    Comment(String),
    Unread(String),
}

/// How serious a finding is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For information.
    Note,
    /// Waived in the file, with a reason.
    Waived,
    /// It would be allowed with a warning.
    Warning,
    Refused,
    /// The text cannot be read.
    Unread,
}

impl Level {
    /// Returns the name in formats for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Waived => "waived",
            Self::Warning => "warning",
            Self::Refused => "refused",
            Self::Unread => "unread",
        }
    }
}

impl CheckFinding {
    fn plain(location: Location, what: CheckFindingKind) -> Self {
        Self { location, object: None, what, excerpt: None, shown_at: None }
    }

    /// Returns the level of the finding.
    pub fn level(&self) -> Level {
        match &self.what {
            CheckFindingKind::Finding { waived: Some(_), .. } => Level::Waived,
            CheckFindingKind::Finding { judged, .. } => match judged.effect {
                Effect::Refused => Level::Refused,
                Effect::Warned => Level::Warning,
                Effect::Recorded => Level::Note,
            },
            CheckFindingKind::Remark(_) => Level::Warning,
            CheckFindingKind::Unjudged(_) | CheckFindingKind::Comment(_) => Level::Note,
            CheckFindingKind::Unread(_) => Level::Unread,
        }
    }

    /// Returns the id of the rule that made the finding.
    pub fn rule(&self) -> Option<&'static str> {
        match &self.what {
            CheckFindingKind::Finding { judged, .. } => Some(judged.finding.rule),
            _ => None,
        }
    }
}

impl Checked {
    /// Changes each way out to edits of the files, instead of commands that change objects in a cluster.
    pub fn advise_edits(&mut self) {
        for finding in &mut self.findings {
            if let CheckFindingKind::Finding { judged, .. } = &mut finding.what {
                let instead = std::mem::take(&mut judged.finding.instead);
                judged.finding.instead = instead.in_files(finding.location.in_base);
            }
        }
    }

    /// Counts the findings of this level.
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level() == level).count()
    }

    /// Counts the findings that say what was not judged.
    pub fn unjudged_findings(&self) -> usize {
        self.findings.iter().filter(|finding| matches!(finding.what, CheckFindingKind::Unjudged(_))).count()
    }

    /// Counts objects that were not judged, because no rule covers their kind or for the reason that a finding names.
    pub fn unjudged_objects(&self) -> usize {
        self.objects_of(Level::Note) + self.objects_of(Level::Unread) + self.objects_without_rule()
    }

    /// Counts objects whose kind no rule covers.
    pub fn objects_without_rule(&self) -> usize {
        self.objects.iter().filter(|outcome| outcome.has_no_rule()).count()
    }

    /// Counts objects with this as their worst level.
    pub fn objects_of(&self, level: Level) -> usize {
        self.objects.iter().filter(|outcome| outcome.worst == Some(level)).count()
    }
}

/// Judges every document as if it were applied now; with a base, only what changes.
pub fn run(new: &[Input], base: Option<&[Input]>, options: &CheckOptions<'_>) -> Checked {
    let mut session = CheckSession::new(options);
    let items = session.read(new, false);
    match base {
        None => session.judge_as_created(&items),
        Some(base) => {
            let before = session.read(base, true);
            change::judge(&mut session, &items, &before);
        }
    }
    session.into_checked()
}

/// Returns what to look up in a cluster: the objects in these texts, and the ConfigMaps that their workloads read.
pub fn names(new: &[Input], options: &CheckOptions<'_>) -> BTreeSet<(Kind, Id)> {
    let items = CheckSession::new(options).read(new, false);
    let key = |item: &ManifestItem| item.key().map(|(kind, id)| (kind, id.clone()));
    items.iter().flat_map(|item| key(item).into_iter().chain(live::reads(item))).collect()
}

/// Judges what these texts would change in a live cluster.
pub fn run_live(new: &[Input], live: Live<'_>, options: &CheckOptions<'_>) -> Checked {
    let mut session = CheckSession::new(options);
    let items = session.read(new, false);
    live::judge(&mut session, &items, live);
    session.into_checked()
}
