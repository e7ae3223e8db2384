//! The rulebook: one table, one function that asks it.
//!
//! Owns: [`RULES`] and [`evaluate`], the only door between a review and a decision. The webhook, `gatera check` and
//! the background audit all go through it, so the same change gets the same words everywhere. Must not know: HTTP,
//! clients, files, output formats.
//!
//! *The change is judged, not the state.* What an object broke before, in the same place, is a warning when it is
//! edited: everything can be improved step by step, and nothing gets worse. Creation is judged whole.

mod anti_affinity;
mod bootstrap_needed;
mod cluster_address;
mod departure;
mod fixed_fields;
mod image;
mod managed;
mod member_data;
mod newly_read;
mod one_at_a_time;
mod own_marks;
pub(crate) mod owners;
mod password_drift;
mod plain_password;
mod probes;
mod recovery;
mod references;
mod restarts;
mod rollout_shape;
pub(crate) mod scale_order;
mod second_bootstrap;
mod services;
mod settings;
mod start;
mod template;
mod unreadable;
mod waived;
mod whole_stop;

pub use departure::{Departure, departure, refuse_unreserved};
pub use own_marks::{Correction, corrections};
pub(crate) use plain_password::is_secret;
pub use recovery::{Turn, turn};
pub use second_bootstrap::held_at_zero;
pub use waived::{mend, open_until, take_off};

use waived::Waived;

use std::cell::LazyCell;
use std::collections::HashMap;

use crate::object::{Kind, Object};
use crate::packs;
use crate::passing::exempt;
use crate::passing::unread;
use crate::review::{Operation, Review};
use crate::verdict::{Decision, Finding, Findings, Mode, Verdict, YieldsTo};
use crate::view::{MODE_LABEL, NEVER_GUARDED, View, is_cluster};

/// One rule. Its module's documentation is the manual page that `gatera explain` prints.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Stable once published.
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it looks at, and at which of the things that can be done to it; it is asked about nothing else.
    pub touches: &'static [(Kind, &'static [Verb])],
    pub(crate) source: &'static str,
    pub(crate) check: fn(&Review, &View<'_>) -> Findings,
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
pub(crate) const UNTIL_SEEN: &str = "repeat the command in a minute; /readyz of gatera (port 8080) says what it waits for, or what found no room";

/// What to do where members run without a StatefulSet.
pub(crate) const APPLY_AGAIN: &str = "apply the StatefulSet again as it was, which takes its pods back";

/// Every write of the object itself.
pub(crate) const WRITTEN: &[Verb] = &[Verb::Create, Verb::Update];

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
    fn of(review: &Review) -> Option<Self> {
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

/// Every rule, in the order of their ids: Galera's, and those of the packs.
pub const RULES: &[Rule] = &{
    let mut all = [scale_order::RULE; GALERA.len() + packs::RULES.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < GALERA.len() { GALERA[at] } else { packs::RULES[at - GALERA.len()] };
        at += 1;
    }
    all
};

/// Galera's.
pub const GALERA: &[Rule] = &[
    scale_order::RULE,
    one_at_a_time::RULE,
    whole_stop::RULE,
    second_bootstrap::RULE,
    bootstrap_needed::RULE,
    cluster_address::RULE,
    member_data::RULE,
    fixed_fields::RULE,
    settings::RULE,
    references::RULE,
    plain_password::RULE,
    password_drift::RULE,
    anti_affinity::RULE,
    rollout_shape::RULE,
    probes::RULE,
    services::RULE,
    image::RULE,
    own_marks::RULE,
    start::RULE,
    recovery::RULE,
];

/// The rule by which nobody founds a cluster a second time; the gate at the pod asks for its override and mode.
pub const SECOND_BOOTSTRAP: &str = second_bootstrap::RULE.id;
pub use unreadable::UNREADABLE;

/// The rule of this id, in any case.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id.eq_ignore_ascii_case(id))
}

/// The rule of this id or name, in any case.
pub fn named(name: &str) -> Option<&'static Rule> {
    find(name).or_else(|| RULES.iter().find(|rule| rule.name.eq_ignore_ascii_case(name)))
}

/// What `gatera explain` prints of an id: a rule, or [`UNREADABLE`].
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    source: &'static str,
}

/// Every page, in the order of their ids.
pub fn pages() -> impl Iterator<Item = Page> {
    let of_rules = RULES.iter().map(|Rule { id, name, source, .. }| Page { id, name, source });
    [unreadable::PAGE].into_iter().chain(of_rules)
}

/// The page of this id or name, in any case.
pub fn page(name: &str) -> Option<Page> {
    pages().find(|it| it.id.eq_ignore_ascii_case(name) || it.name.eq_ignore_ascii_case(name))
}

/// The page that a guard's words begin with, as each of its refusals and warnings does: `[G07] …`.
pub fn said_by(words: &str) -> Option<Page> {
    let (id, _) = words.strip_prefix('[')?.split_once("] ")?;
    pages().find(|page| page.id == id)
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
    pub(crate) fn finding(
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

/// Judges one change. Pure: the same review and view give the same decision.
pub fn evaluate(review: &Review, view: &View<'_>) -> Decision {
    let (view, mut decision) = (&view.of_namespace(&review.namespace), Decision::default());
    if exempt::passes(&review.user, review.operation, review.kind) {
        return decision;
    }
    if unread::is(review) {
        return decision;
    }
    if let Some(finding) = unreadable::found(review) {
        let glass = waived::glass(review, view, &mut decision);
        decision.add(finding, Mode::Enforce, false, glass.as_ref());
        return decision;
    }
    if let_through(review, view) {
        return decision;
    }
    if view.busy {
        let (glass, mode) =
            (waived::glass(review, view, &mut decision), view.mode(UNREADABLE, &review.namespace));
        decision.add(unreadable::busy(), mode, false, glass.as_ref());
        if !decision.allowed() {
            return decision;
        }
    }
    let waived = Waived::of(review, view, &mut decision);
    // A StatefulSet that takes members over is a change of what they run.
    let taken_over = view.taken_over(review);
    let review = taken_over.as_ref().unwrap_or(review);
    let Some(verb) = Verb::of(review) else { return decision };
    let mode = view.mode(unreadable::UNREADABLE, &review.namespace);
    if let Some(finding) = unreadable::judged_without(review, view).filter(|_| mode != Mode::Off) {
        decision.add(finding, mode, false, None);
    }
    // Most objects break no rule: then nobody asks what was there before.
    let before = LazyCell::new(|| review.before(view.adoption()));
    for rule in RULES.iter().filter(|rule| rule.looks_at(review.kind, verb)) {
        let mode = view.mode(rule.id, &review.namespace);
        let off = mode == Mode::Off;
        if off && review.kind != Kind::Namespace {
            continue;
        }
        let mut findings = (rule.check)(review, view);
        if off {
            findings.retain(|it| it.in_every_mode);
        }
        if findings.is_empty() {
            continue;
        }
        let before = before.as_ref().map_or_else(Vec::new, |before| (rule.check)(before, view));
        // By their places: a hostile file has a hundred thousand.
        let mut at = HashMap::<_, Vec<_>>::new();
        for old in &before {
            at.entry(&*old.field).or_default().push(old);
        }
        let release = waived.by(rule.id, review);
        for finding in findings {
            let there: &[&Finding] = at.get(&*finding.field).map_or(&[], |there| there);
            // A warning that was due before is no news: whoever reads it at every edit stops reading.
            if finding.verdict == Verdict::Warn && there.iter().any(|old| old.says == finding.says) {
                continue;
            }
            let existed = finding.yields_to != YieldsTo::Nothing
                && there.iter().any(|old| old.verdict >= finding.verdict);
            let release = release.filter(|it| match finding.yields_to {
                // What is amended is not refused: break-glass does not start a bootstrap node that a program applies again and again.
                YieldsTo::Exceptions => finding.verdict != Verdict::Amend || !it.is_of_all(),
                YieldsTo::BreakGlass => it.is_of_all(),
                YieldsTo::Nothing => false,
            });
            let mode = if finding.in_every_mode { Mode::Enforce } else { mode };
            decision.add(finding, mode, existed, release);
        }
    }
    if decision.allowed() {
        decision.remarks.extend(half_guarded(review, view));
        decision.remarks.extend(restarts::told(review, view));
    }
    decision.sort();
    decision
}

/// A cluster that is created where only what carries labels is guarded.
fn half_guarded(review: &Review, view: &View<'_>) -> Option<String> {
    let Some(Object::StatefulSet(new)) =
        review.new.as_ref().filter(|_| review.operation == Operation::Create)
    else {
        return None;
    };
    let half = review.origin.is_final()
        && is_cluster(new, view.adoption())
        && view.namespace_is_unlabelled(&review.namespace);
    let ns = &review.namespace;
    half.then(|| format!("in namespace {ns} scaling is guarded only while gatera answers, and objects without labels of the cluster not at all; kubectl label namespace {ns} {MODE_LABEL}=enforce makes protection complete"))
}

/// What is never held up, whatever the rules say: the control plane's own namespaces, the guard's own writes (but not the
/// members that it evicts), and everything that is already on its way out. A pod that is going may still be forced, so its
/// DELETE is judged; a claim that is going holds its data for as long as a pod uses it, so what is written to it is judged.
fn let_through(review: &Review, view: &View<'_>) -> bool {
    let again = review.operation == Operation::Delete && review.kind != Kind::Pod;
    let written = review.operation == Operation::Update && review.kind != Kind::Claim;
    let going = (written || again) && review.objects().any(|object| object.meta().going());
    going
        || view.settings.is_own(&review.user) && review.subresource != "eviction"
        || NEVER_GUARDED.contains(&&*review.namespace)
        || view.namespace_going(&review.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_in_order() {
        assert!(RULES.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn words_of_every_rule_are_known_by_their_beginning() {
        for page in pages() {
            assert_eq!(said_by(&format!("[{}] Pod a/b: c", page.id)).map(|it| it.id), Some(page.id));
        }
        for words in ["[G99] x", "G07 x", "[G07", "[g07] x", "[G07]x", ""] {
            assert!(said_by(words).is_none(), "{words}");
        }
    }

    #[test]
    fn every_manual_page_says_what_why_and_what_instead() {
        for rule in RULES {
            let manual = rule.manual();
            assert!(manual.starts_with(&format!("{}: ", rule.id)), "{}", rule.id);
            for heading in ["# Why", "# Example", "# What to do instead", "# How to waive it"] {
                assert!(manual.contains(heading), "{} has no {heading:?}", rule.id);
            }
        }
    }
}
