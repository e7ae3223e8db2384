//! A check in progress: the texts that were given to it, and the results so far.
//!
//! Owns: which lines are quoted, which findings are waived, and the order of the results. Must not know: where texts
//! come from, or what changed.

use std::collections::BTreeMap;

use super::excerpt::Lines;
use super::gaps::Gaps;
use super::item::{self, ManifestItem, NotAnObject};
use super::stand_in::StandIns;
use super::unjudged;
use super::unjudged_files::UnjudgedFile;
use super::waiver::Waivers;
use super::{
    CheckFinding, CheckFindingKind, CheckOptions, Checked, Input, Level, Location, MissingText, Outcome,
};
use crate::manifest::{self, Place, YamlDocument, YamlError};
use engine::rule::Rule;
use engine::rules::UNREADABLE;
use engine::verdict::{Effect, Judged};
use facts::review::Review;
use facts::view::{Freshness, View, World};
use objects::Kind;

/// A check in progress: its options, its texts and its results so far.
pub(super) struct CheckSession<'a> {
    pub(super) options: &'a CheckOptions<'a>,
    sources: Vec<SourceFile<'a>>,
    checked: Checked,
    unjudged_files: BTreeMap<UnjudgedFile, Vec<(usize, Option<Place>)>>,
}

/// One text of the check: its lines, and the findings that its comments waive.
struct SourceFile<'a> {
    input: &'a Input,
    in_base: bool,
    /// Whether a part of it, or all of it, could not be read.
    incomplete: bool,
    lines: Lines<'a>,
    waivers: Waivers,
}

impl<'a> CheckSession<'a> {
    pub(super) fn new(options: &'a CheckOptions<'a>) -> Self {
        let checked = Checked {
            rules: options.rulebook.rules().iter().map(Rule::page).collect(),
            ..Checked::default()
        };
        Self { options, sources: Vec::new(), checked, unjudged_files: BTreeMap::new() }
    }

    /// Returns the new texts that could not be read completely: what their earlier versions held does not count as removed.
    pub(super) fn gaps(&self) -> Gaps<'_> {
        let (base, new): (Vec<_>, Vec<_>) = self.sources.iter().partition(|file| file.in_base);
        let incomplete: Vec<_> = new.iter().filter(|file| file.incomplete).map(|file| file.input).collect();
        Gaps::of(&incomplete, &base.iter().map(|file| file.input).collect::<Vec<_>>(), new.len() == 1)
    }

    /// Returns the text that holds this object.
    pub(super) fn input_of(&self, item: &ManifestItem) -> &'a Input {
        self.sources[item.source].input
    }

    /// Reads every object in the texts, and notes documents that hold none. For a base only unreadable documents are
    /// noted: other problems existed before.
    pub(super) fn read(&mut self, inputs: &'a [Input], in_base: bool) -> Vec<ManifestItem> {
        let mut items = Vec::new();
        let texts: Vec<_> = inputs.iter().map(|input| input.text.as_deref().unwrap_or_default()).collect();
        for (input, documents) in inputs.iter().zip(manifest::read_all(&texts)) {
            let source = self.add_source(input, in_base);
            if let Err(why) = &input.text {
                self.note_missing_text(source, why.clone());
            }
            items.extend(documents.into_iter().filter_map(|document| self.item(source, document)));
        }
        if !in_base {
            self.note_duplicates(&items);
        }
        items
    }

    fn add_source(&mut self, input: &'a Input, in_base: bool) -> usize {
        let text = input.text.as_deref();
        let waivers = text.map(|text| Waivers::read(text, self.options.rulebook)).unwrap_or_default();
        let lines = Lines::of(text.unwrap_or_default());
        self.sources.push(SourceFile { input, in_base, incomplete: false, lines, waivers });
        self.sources.len() - 1
    }

    fn note_missing_text(&mut self, source: usize, why: MissingText) {
        let what = match why {
            MissingText::Unread(problem) => CheckFindingKind::Unread(problem),
            MissingText::LeftOut(message) => CheckFindingKind::Unjudged(message),
            MissingText::Chart => return self.set_aside(source, UnjudgedFile::Chart, None),
        };
        self.mark_incomplete(source, None, what);
    }

    /// Returns the object of a document, or notes why there is none.
    fn item(&mut self, source: usize, document: Result<YamlDocument, YamlError>) -> Option<ManifestItem> {
        let in_base = self.sources[source].in_base;
        match document.map(|document| item::of(source, document, self.options)) {
            Ok(Ok(item)) => {
                if item.kind() == Kind::Other {
                    self.look_for_kustomization(source, &item);
                }
                return Some(item);
            }
            Ok(Err(NotAnObject::WithoutKind(..) | NotAnObject::NotAManifest(..))) if in_base => {}
            Ok(Err(NotAnObject::NotAManifest(place, version))) => self.skip_document(source, place, &version),
            // The rest of the text could be read, so an object that is not in it was removed.
            Ok(Err(NotAnObject::WithoutKind(place, message))) => {
                self.add_finding(source, Some(place), CheckFindingKind::Unjudged(message.to_owned()));
            }
            Ok(Err(NotAnObject::WithoutApiVersion(place, message))) => {
                self.mark_incomplete(source, Some(place), unreadable(message, in_base));
            }
            // Only files that the user did not name are set aside: a file that the user names is meant as a manifest.
            Err(problem) if self.is_not_meant_as_manifest(source, &problem) => {
                let file_kind =
                    if problem.is_template { UnjudgedFile::Template } else { UnjudgedFile::NotYaml };
                self.set_aside(source, file_kind, Some(problem.place));
            }
            Err(problem) => {
                self.mark_incomplete(source, Some(problem.place), unreadable(&problem.to_string(), in_base));
            }
        }
        None
    }

    /// Returns whether a text that is not YAML was never meant as a manifest: the user did not name it, and nothing in it
    /// looks like a manifest.
    fn is_not_meant_as_manifest(&self, source: usize, problem: &YamlError) -> bool {
        let SourceFile { input, lines, .. } = &self.sources[source];
        let meant = !problem.is_template && manifest::looks_like_manifest(lines.text());
        !meant && !input.below.as_os_str().is_empty()
    }

    /// Counts a document that is not a manifest, or sets its text aside if it belongs to kustomize or KUDO.
    fn skip_document(&mut self, source: usize, place: Place, version: &str) {
        let file = self.sources[source].input.name.clone();
        if let Some(file_kind) = UnjudgedFile::of(&file, version, "") {
            return self.set_aside(source, file_kind, Some(place));
        }
        self.checked.skipped_documents += 1;
        if self.checked.skipped_files.last() != Some(&file) {
            self.checked.skipped_files.push(file);
        }
    }

    fn look_for_kustomization(&mut self, source: usize, item: &ManifestItem) {
        if self.sources[source].in_base {
            return;
        }
        let (file, kind) = (&self.input_of(item).name, item.document.text("kind").unwrap_or_default());
        if let Some(file_kind) = UnjudgedFile::of(file, &item.version, kind) {
            let occurrence = (source, Some(item.document.start()));
            self.unjudged_files.entry(file_kind).or_default().push(occurrence);
        }
    }

    /// Sets aside a text that another program turns into manifests, or that is not a manifest. Objects that its earlier version
    /// held do not count as removed.
    fn set_aside(&mut self, source: usize, file_kind: UnjudgedFile, place: Option<Place>) {
        let file = &mut self.sources[source];
        file.incomplete = true;
        if !file.in_base {
            self.unjudged_files.entry(file_kind).or_default().push((source, place));
        }
    }

    /// Adds one finding for each kind of text that was not judged, at the first text of that kind.
    fn note_unjudged_files(&mut self) {
        for (file_kind, mut places) in std::mem::take(&mut self.unjudged_files) {
            places.dedup_by_key(|(source, _)| *source);
            let files: Vec<_> = places.iter().map(|(source, _)| &*self.sources[*source].input.name).collect();
            let message = file_kind.note(&files);
            if let Some((source, place)) = places.first() {
                self.add_finding(*source, *place, CheckFindingKind::Unjudged(message));
            }
        }
    }

    /// Marks a text as incomplete, and notes what could not be read.
    fn mark_incomplete(&mut self, source: usize, place: Option<Place>, what: CheckFindingKind) {
        self.sources[source].incomplete = true;
        self.add_finding(source, place, what);
    }

    fn add_finding(&mut self, source: usize, place: Option<Place>, what: CheckFindingKind) {
        let text = &self.sources[source];
        let location =
            Location { file: text.input.name.clone(), place, template: None, in_base: text.in_base, source };
        self.checked.findings.push(CheckFinding::plain(location, what));
    }

    /// Notes an object of the base that is missing from the new manifests while a text is incomplete, unless a text that cannot
    /// be read already decides the result.
    pub(super) fn note_missing(&mut self, item: &ManifestItem) {
        let is_unread = |finding: &CheckFinding| {
            matches!(finding.what, CheckFindingKind::Unread(_)) && !finding.location.in_base
        };
        if item.kind() == Kind::Other || self.checked.findings.iter().any(is_unread) {
            return;
        }
        let message = format!(
            "{} is missing from the new manifests, but a file that may hold it could not be read completely, so it is unknown whether it was removed",
            item.named().subject
        );
        self.note_not_judged(item, CheckFindingKind::Unread(message));
    }

    /// Notes objects that occur twice: patches for a kustomization, or a mistake. Other objects are judged beside the
    /// last occurrence, as in a cluster.
    fn note_duplicates(&mut self, items: &[ManifestItem]) {
        let mut latest = BTreeMap::new();
        for item in items {
            let Some((kind, id)) = item.key() else { continue };
            let place = item.document.start();
            let Some((source, earlier)) = latest.insert((kind, id), (item.source, place)) else { continue };
            let (name, line, subject) =
                (&self.sources[source].input.name, earlier.line, item.named().subject);
            let message = format!(
                "{subject} is also in {name} line {line}; to judge a kustomization, judge its output: kubectl kustomize DIR | gatera check -"
            );
            self.checked.findings.push(CheckFinding::plain(
                self.sources[item.source].location(item, place),
                CheckFindingKind::Unjudged(message),
            ));
        }
    }

    /// Judges each object as if it were created beside all others.
    pub(super) fn judge_as_created(&mut self, items: &[ManifestItem]) {
        let mut facts = self.options.rulebook.facts(&self.options.settings.adoption);
        for item in items {
            item.put_into(&mut facts);
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, self.options.now, self.options.settings);
        for item in items {
            self.judge(item, None, &item.created(), &view, None);
        }
    }

    /// Judges an object by the rules, and notes the result. `was`: its earlier version.
    pub(super) fn judge(
        &mut self,
        item: &ManifestItem,
        was: Option<&YamlDocument>,
        review: &Review,
        view: &View<'_>,
        extra_note: Option<(Place, CheckFindingKind)>,
    ) {
        let decision = self.options.rulebook.evaluate(review, view);
        let source = &self.sources[item.source];
        let is_selected = |judged: &Judged| {
            let (rule, rules) = (judged.finding.rule, self.options.rules);
            rules.is_empty() || rules.contains(&rule) || rule == UNREADABLE
        };
        let finding_of = |judged: Judged| {
            let place = item.document.find_since(&judged.finding.field, was);
            let excerpt =
                source.lines.quoted(place, item.kind(), &judged.finding).filter(|_| !source.in_base);
            let waived = source.waivers.waives(judged.finding.rule, place, &item.document);
            let what = CheckFindingKind::Finding { judged: Box::new(judged), waived };
            CheckFinding { excerpt, ..source.finding_about(item, place, what) }
        };
        let mut findings: Vec<_> = decision.judged.into_iter().filter(is_selected).map(finding_of).collect();
        let remarks = decision
            .remarks
            .into_iter()
            .map(|message| (item.document.start(), CheckFindingKind::Remark(message)));
        let outdated_version = unjudged::outdated_version(item)
            .map(|(place, message)| (place, CheckFindingKind::Remark(message)));
        let not_judged = unjudged::of(item, review, view, self.options.rulebook.kinds())
            .map(|(place, message)| (place, CheckFindingKind::Unjudged(message)));
        let notes = remarks.chain(outdated_version).chain(not_judged).chain(extra_note);
        findings.extend(notes.map(|(place, what)| source.finding_about(item, place, what)));
        // A finding that is only recorded counts as allowed.
        let is_recorded = |finding: &&CheckFinding| {
            let CheckFindingKind::Finding { judged, .. } = &finding.what else { return false };
            judged.effect == Effect::Recorded
        };
        let worst = findings.iter().filter(|finding| !is_recorded(finding)).map(CheckFinding::level).max();
        self.checked.findings.append(&mut findings);
        self.add_outcome(item, worst, false);
    }

    /// Notes why an object was not judged, or cannot be read.
    pub(super) fn note_not_judged(&mut self, item: &ManifestItem, what: CheckFindingKind) {
        let finding = self.sources[item.source].finding_about(item, item.document.start(), what);
        let worst = finding.level();
        self.checked.findings.push(finding);
        self.add_outcome(item, Some(worst), false);
    }

    /// Notes the result for an object.
    pub(super) fn add_outcome(&mut self, item: &ManifestItem, worst: Option<Level>, unchanged: bool) {
        let location = self.sources[item.source].location(item, item.document.start());
        self.checked.clusters += usize::from(item.is_cluster(&self.options.settings.adoption));
        self.checked.objects.push(Outcome { location, object: item.named(), worst, unchanged });
    }

    /// Returns all results in the order of the texts, with the remarks about comments.
    pub(super) fn into_checked(mut self) -> Checked {
        self.note_unjudged_files();
        let compared = self.sources.iter().any(|source| source.in_base);
        for source in
            (0..self.sources.len()).filter(|source| !self.sources[*source].in_base).collect::<Vec<_>>()
        {
            for (line, message) in self.sources[source].waivers.remarks(self.options.rules, compared) {
                self.add_finding(source, Some(Place { line, column: 1 }), CheckFindingKind::Comment(message));
            }
        }
        let Self { sources, mut checked, .. } = self;
        checked.findings.sort_by_key(|finding| (finding.location.source, finding.location.place));
        if checked.findings.iter().any(|finding| finding.location.in_base) {
            let new = sources.iter().filter(|source| !source.in_base);
            let stand_ins = StandIns::of(new.map(|source| (source.input.name.clone(), source.lines.count())));
            for finding in checked.findings.iter_mut().filter(|finding| finding.location.in_base) {
                let line = finding.location.place.map_or(1, |place| place.line);
                finding.shown_at = stand_ins.of_removed(&finding.location.file, line);
            }
        }
        checked
    }
}

/// Returns the finding for a document that cannot be read. In the base it is only a note, because the change may repair
/// it.
fn unreadable(message: &str, in_base: bool) -> CheckFindingKind {
    if in_base {
        CheckFindingKind::Unjudged(format!("the earlier document was not compared: {message}"))
    } else {
        CheckFindingKind::Unread(message.to_owned())
    }
}

impl SourceFile<'_> {
    /// Returns the finding for a place in this object.
    fn finding_about(&self, item: &ManifestItem, place: Place, what: CheckFindingKind) -> CheckFinding {
        CheckFinding { object: Some(item.named()), ..CheckFinding::plain(self.location(item, place), what) }
    }

    fn location(&self, item: &ManifestItem, place: Place) -> Location {
        let template = item.document.template.clone();
        Location {
            file: self.input.name.clone(),
            place: Some(place),
            template,
            in_base: self.in_base,
            source: item.source,
        }
    }
}
