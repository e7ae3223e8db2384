//! Manifests before they reach a cluster: what of them would be refused, and what was not judged.
//!
//! Owns: what can be found in texts, and the way there. The verdicts come from the same `evaluate` as the
//! webhook's, on a World drawn from the texts: what is not in them is not known. Must not know: files, revisions, formats.
//! Data: texts -> items -> reviews -> decisions -> [`Checked`], which `report/check.rs` lays out.

mod change;
mod deployed;
mod excerpt;
mod item;
mod live;
mod session;
mod unjudged;
mod waiver;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use self::item::Item;
use self::session::CheckSession;
use crate::manifest::Place;
use engine::rule::Page;
use engine::rulebook::Rulebook;
use engine::verdict::{Effect, Judged};
use facts::settings::Settings;
use facts::view::Id;
use objects::Kind;

pub use excerpt::Excerpt;
pub use live::{Found, Live};
pub use unjudged::unadopted;

/// A text to judge, or why there is none.
#[derive(Clone, Debug)]
pub struct Input {
    /// As whoever asks calls it.
    pub name: Arc<str>,
    /// What it says.
    pub text: Result<String, NoText>,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoText {
    /// It cannot be read.
    Unread(String),
    /// It is none that is judged.
    LeftOut(String),
}

/// How it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The rules that are asked.
    pub rulebook: &'a Rulebook,
    /// Adoption and modes.
    pub settings: &'a Settings,
    /// Of objects that name none.
    pub namespace: &'a str,
    /// The time.
    pub now: Timestamp,
    /// Ids of the rules that are asked; none: all.
    pub rules: &'a [&'static str],
}

/// What was found.
#[derive(Debug, Default)]
pub struct Checked {
    /// In the order of the texts.
    pub hits: Vec<CheckFinding>,
    /// Every object, and what became of it; in the order of the texts, what was removed last.
    pub objects: Vec<Outcome>,
    /// Galera clusters among them.
    pub clusters: usize,
    /// Documents that are no manifests: values of a chart, settings of a tool.
    pub strangers: usize,
    /// The pages of the rules that were asked.
    pub rules: Vec<Page>,
    /// From where the settings come, if they are not the usual ones.
    pub settings: Option<String>,
}

/// What became of an object.
#[derive(Debug)]
pub struct Outcome {
    /// Where it stands.
    pub spot: Location,
    /// Which it is.
    pub object: Named,
    /// The worst that is said of it, if anything is.
    pub worst: Option<Level>,
    /// It is as it was, so nobody was asked.
    pub unchanged: bool,
}

impl Outcome {
    /// Nothing is said of it, because no rule is about its kind.
    pub fn is_of_no_rule(&self) -> bool {
        self.worst.is_none() && !self.unchanged && self.object.kind == Kind::Other
    }

    /// It was judged, and nothing is said of it.
    pub fn is_fine(&self) -> bool {
        self.worst.is_none() && !self.unchanged && !self.is_of_no_rule()
    }
}

/// One thing that was found.
#[derive(Debug)]
pub struct CheckFinding {
    /// Where.
    pub spot: Location,
    /// At which object.
    pub object: Option<Named>,
    /// What.
    pub what: What,
    /// The line, without what could be a secret.
    pub excerpt: Option<Excerpt>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The text.
    pub file: Arc<str>,
    /// Line and column; none: the text as a whole.
    pub place: Option<Place>,
    /// The template that it was made of.
    pub template: Option<String>,
    /// The text is of the base: what stands there is not there any more.
    pub in_base: bool,
    sheet: usize,
}

/// An object, by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub id: Id,
    /// "StatefulSet db/galera", as every message begins.
    pub subject: String,
}

/// What was found.
#[derive(Debug)]
pub enum What {
    /// A rule found it.
    Finding {
        /// What, and what becomes of it.
        judged: Box<Judged>,
        /// Why a comment in the file waives it.
        waived: Option<String>,
    },
    /// It is said of the object besides.
    Remark(String),
    /// Something was not judged, and why.
    Unjudged(String),
    /// A comment that waives is not taken, or waives nothing.
    Comment(String),
    /// It cannot be read.
    Unread(String),
}

/// How much it matters, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is said.
    Note,
    /// It is allowed here, with a reason.
    Waived,
    /// It would be allowed with a warning.
    Warning,
    /// It would be refused.
    Refused,
    /// It is not known.
    Unread,
}

impl Level {
    /// As programs call it.
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
    fn plain(spot: Location, what: What) -> Self {
        Self { spot, object: None, what, excerpt: None }
    }

    /// How much it matters.
    pub fn level(&self) -> Level {
        match &self.what {
            What::Finding { waived: Some(_), .. } => Level::Waived,
            What::Finding { judged, .. } => match judged.effect {
                Effect::Refused => Level::Refused,
                Effect::Warned => Level::Warning,
                Effect::Recorded => Level::Note,
            },
            What::Remark(_) => Level::Warning,
            What::Unjudged(_) | What::Comment(_) => Level::Note,
            What::Unread(_) => Level::Unread,
        }
    }

    /// The id of the rule that found it.
    pub fn rule(&self) -> Option<&'static str> {
        match &self.what {
            What::Finding { judged, .. } => Some(judged.finding.rule),
            _ => None,
        }
    }
}

impl Checked {
    /// How many of this level.
    pub fn count(&self, level: Level) -> usize {
        self.hits.iter().filter(|hit| hit.level() == level).count()
    }

    /// How many times something was not judged.
    pub fn unjudged(&self) -> usize {
        self.hits.iter().filter(|hit| matches!(hit.what, What::Unjudged(_))).count()
    }

    /// Objects that were not judged, or could not be.
    pub fn not_judged(&self) -> usize {
        self.objects_of(Level::Note) + self.objects_of(Level::Unread) + self.of_no_rule()
    }

    /// Objects of kinds that no rule is about.
    pub fn of_no_rule(&self) -> usize {
        self.objects.iter().filter(|it| it.is_of_no_rule()).count()
    }

    /// Objects of which this is the worst that is said.
    pub fn objects_of(&self, level: Level) -> usize {
        self.objects.iter().filter(|it| it.worst == Some(level)).count()
    }
}

/// Judges every document as if it were applied now. With a base: what changes of it.
pub fn run(new: &[Input], base: Option<&[Input]>, question: &Question<'_>) -> Checked {
    let mut desk = CheckSession::new(question);
    let items = desk.read(new, false);
    match base {
        None => desk.judge_as_created(&items),
        Some(base) => {
            let before = desk.read(base, true);
            change::judge(&mut desk, &items, &before);
        }
    }
    desk.cleared()
}

/// The objects in these texts that a cluster may have, and what they would read: by that they are looked for there.
pub fn names(new: &[Input], question: &Question<'_>) -> BTreeSet<(Kind, Id)> {
    let items = CheckSession::new(question).read(new, false);
    let own = |item: &Item| item.key().map(|(kind, id)| (kind, id.clone()));
    items.iter().flat_map(|item| own(item).into_iter().chain(live::reads(item))).collect()
}

/// Judges what these texts would change in a cluster that lives.
pub fn run_live(new: &[Input], live: Live<'_>, question: &Question<'_>) -> Checked {
    let mut desk = CheckSession::new(question);
    let items = desk.read(new, false);
    live::judge(&mut desk, &items, live);
    desk.cleared()
}
