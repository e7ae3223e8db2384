//! Manifests before they reach a cluster: what of them would be refused, and what was not judged.
//!
//! Owns: the way from texts to what was found, in the order of the texts. The verdicts come from the same `evaluate` as the
//! webhook's, on a World drawn from the texts: what is not in them is not known. Must not know: files, revisions, formats.
//! Data: texts -> items -> reviews -> decisions -> [`Checked`], which `report/check.rs` lays out.

mod change;
mod deployed;
mod excerpt;
mod item;
mod unjudged;
mod waiver;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use self::excerpt::Lines;
use self::item::{Item, NoItem};
use self::waiver::Waivers;
use crate::config::Settings;
use crate::manifest::{self, Place};
use crate::object::Kind;
use crate::review::Review;
use crate::rules::{self, UNREADABLE};
use crate::verdict::{Effect, Judged};
use crate::view::{Facts, Freshness, Id, View, World};

pub use excerpt::Excerpt;

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
    pub hits: Vec<Hit>,
    /// Every object, and what became of it; in the order of the texts, what was removed last.
    pub objects: Vec<Outcome>,
    /// Galera clusters among them.
    pub clusters: usize,
    /// Documents that are no manifests: values of a chart, settings of a tool.
    pub strangers: usize,
    /// From where the settings come, if they are not the usual ones.
    pub settings: Option<String>,
}

/// What became of an object.
#[derive(Debug)]
pub struct Outcome {
    /// Where it stands.
    pub spot: Spot,
    /// Which it is.
    pub object: Named,
    /// The worst that is said of it, if anything is.
    pub worst: Option<Level>,
    /// It is as it was, so nobody was asked.
    pub unchanged: bool,
}

/// One thing that was found.
#[derive(Debug)]
pub struct Hit {
    /// Where.
    pub spot: Spot,
    /// At which object.
    pub object: Option<Named>,
    /// What.
    pub what: What,
    /// The line, without what could be a secret.
    pub excerpt: Option<Excerpt>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
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
        judged: Judged,
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

impl Hit {
    fn plain(spot: Spot, what: What) -> Self {
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

    /// Objects of which this is the worst that is said.
    pub fn objects_of(&self, level: Level) -> usize {
        self.objects.iter().filter(|it| it.worst == Some(level)).count()
    }
}

/// Judges every document as if it were applied now. With a base: what changes of it.
pub fn run(new: &[Input], base: Option<&[Input]>, question: &Question<'_>) -> Checked {
    let mut desk = Desk { question, sheets: Vec::new(), checked: Checked::default() };
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

/// Where texts lie open while they are judged.
struct Desk<'a> {
    question: &'a Question<'a>,
    sheets: Vec<Sheet<'a>>,
    checked: Checked,
}

/// A text that was read: what is quoted of it, and what its comments waive.
struct Sheet<'a> {
    name: Arc<str>,
    in_base: bool,
    lines: Lines<'a>,
    waivers: Waivers,
}

impl<'a> Desk<'a> {
    /// Every object in the texts; what is none is said. Of a base only what cannot be read: what else is odd in it was odd before.
    fn read(&mut self, inputs: &'a [Input], in_base: bool) -> Vec<Item> {
        let mut items = Vec::new();
        for input in inputs {
            let sheet = self.sheets.len();
            let spot = |place| Spot { file: input.name.clone(), place, template: None, in_base, sheet };
            let text = input.text.as_deref();
            let waivers = text.map(Waivers::read).unwrap_or_default();
            let lines = Lines::of(text.unwrap_or_default());
            self.sheets.push(Sheet { name: input.name.clone(), in_base, lines, waivers });
            let documents = match text {
                Ok(text) => manifest::read(text),
                Err(why) => {
                    let what = match why.clone() {
                        NoText::Unread(problem) => What::Unread(problem),
                        NoText::LeftOut(words) => What::Unjudged(words),
                    };
                    self.checked.hits.push(Hit::plain(spot(None), what));
                    continue;
                }
            };
            for document in documents {
                match document.map(|it| item::of(sheet, it, self.question.namespace)) {
                    Ok(Ok(item)) => items.push(item),
                    Ok(Err(NoItem::Stranger)) => self.checked.strangers += usize::from(!in_base),
                    Ok(Err(NoItem::Odd(place, words))) => {
                        let hit = Hit::plain(spot(Some(place)), What::Unjudged(words));
                        self.checked.hits.extend(Some(hit).filter(|_| !in_base));
                    }
                    // Whoever mends a file is not told to mend what was there before.
                    Err(problem) if in_base => {
                        let words = format!("what stood here was not compared: {problem}");
                        self.checked.hits.push(Hit::plain(spot(Some(problem.place)), What::Unjudged(words)));
                    }
                    Err(problem) => {
                        let what = What::Unread(problem.to_string());
                        self.checked.hits.push(Hit::plain(spot(Some(problem.place)), what));
                    }
                }
            }
        }
        if !in_base {
            self.look_for_twins(&items);
        }
        items
    }

    /// The same object twice: patches for a kustomization, or a mistake. For all others the last one counts, as in a cluster.
    fn look_for_twins(&mut self, items: &[Item]) {
        let mut first = BTreeMap::new();
        for item in items {
            let Some((kind, id)) = item.key() else { continue };
            let place = item.document.start();
            let Some((sheet, other)) = first.insert((kind, id), (item.sheet, place)) else { continue };
            let (name, line, subject) = (&self.sheets[sheet].name, other.line, item.named().subject);
            let words = format!(
                "{subject} stands in {name} line {line} as well; what is built of several files is judged as it comes out: kubectl kustomize DIR | gatera check -"
            );
            self.checked
                .hits
                .push(Hit::plain(self.sheets[item.sheet].spot(item, place), What::Unjudged(words)));
        }
    }

    /// Each as if it were created, beside all others.
    fn judge_as_created(&mut self, items: &[Item]) {
        let mut facts = Facts::of(&self.question.settings.adoption);
        for item in items {
            item.put_into(&mut facts);
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, self.question.now, self.question.settings);
        for item in items {
            self.judge(item, &item.created(), &view, None);
        }
    }

    /// Asks the rules about an object.
    fn judge(&mut self, item: &Item, review: &Review, view: &View<'_>, besides: Option<(Place, What)>) {
        let decision = rules::evaluate(review, view);
        let sheet = &self.sheets[item.sheet];
        let named = item.named();
        let asked = |judged: &Judged| {
            let (rule, rules) = (judged.finding.rule, self.question.rules);
            rules.is_empty() || rules.contains(&rule) || rule == UNREADABLE
        };
        let finding = |judged: Judged| {
            let place = item.document.find(&judged.finding.field);
            let excerpt = sheet.lines.quoted(place, item.kind(), &judged.finding).filter(|_| !sheet.in_base);
            let waived = sheet.waivers.waives(judged.finding.rule, place, &item.document);
            let what = What::Finding { judged, waived };
            Hit { spot: sheet.spot(item, place), object: Some(named.clone()), what, excerpt }
        };
        let mut found: Vec<_> = decision.judged.into_iter().filter(asked).map(finding).collect();
        let plain = |place: Place, what: What| Hit {
            object: Some(named.clone()),
            ..Hit::plain(sheet.spot(item, place), what)
        };
        let remarks = decision.remarks.into_iter();
        found.extend(remarks.map(|remark| plain(item.document.start(), What::Remark(remark))));
        let odd = unjudged::version(item).map(|(place, words)| (place, What::Remark(words)));
        let odd = odd
            .or_else(|| Some(unjudged::of(item, view)?).map(|(place, words)| (place, What::Unjudged(words))));
        found.extend(odd.into_iter().chain(besides).map(|(place, what)| plain(place, what)));
        let worst = found.iter().map(Hit::level).max();
        self.checked.hits.append(&mut found);
        self.note(item, worst, false);
    }

    /// What became of it.
    fn note(&mut self, item: &Item, worst: Option<Level>, unchanged: bool) {
        let spot = self.sheets[item.sheet].spot(item, item.document.start());
        self.checked.clusters += usize::from(item.is_cluster(&self.question.settings.adoption));
        self.checked.objects.push(Outcome { spot, object: item.named(), worst, unchanged });
    }

    /// Everything in the order of the texts, with what is to be said of comments.
    fn cleared(self) -> Checked {
        let Self { question, sheets, mut checked } = self;
        let compared = sheets.iter().any(|sheet| sheet.in_base);
        for (number, sheet) in sheets.iter().enumerate().filter(|(_, sheet)| !sheet.in_base) {
            checked.hits.extend(sheet.waivers.left(question.rules, compared).map(|(line, words)| {
                let place = Some(Place { line, column: 1 });
                let spot =
                    Spot { file: sheet.name.clone(), place, template: None, in_base: false, sheet: number };
                Hit::plain(spot, What::Comment(words))
            }));
        }
        checked.hits.sort_by_key(|hit| (hit.spot.sheet, hit.spot.place));
        checked
    }
}

impl Sheet<'_> {
    fn spot(&self, item: &Item, place: Place) -> Spot {
        let template = item.document.template.clone();
        Spot {
            file: self.name.clone(),
            place: Some(place),
            template,
            in_base: self.in_base,
            sheet: item.sheet,
        }
    }
}
