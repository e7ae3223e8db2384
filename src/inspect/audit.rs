//! The audit: what would be refused or warned about if it were applied again today, unchanged.
//!
//! Owns: judging the objects of a World one by one, and which findings are new since the last audit. Must not know: clients,
//! formats. Every object that the view holds completely becomes a request, a CREATE, for the same `evaluate` as
//! everything else. Data: World -> requests -> decisions, sorted by namespace and name; `audit/rounds.rs` looks again
//! only where something changed.

mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use engine::rule::Verb;
use engine::rulebook::Rulebook;
use engine::verdict::{Decision, Effect, Finding};
use facts::review::{Origin, Review};
use facts::revision::Digest;
use facts::view::{Facts, Id, View, entries_in};
use objects::{Kind, Object, Unreadable};

pub use rounds::{ClusterReading, IncrementalAudit, Round};

#[derive(Debug, Default)]
pub struct Audit {
    /// The objects with a finding or a remark.
    pub objects: Vec<Audited>,
    /// How many objects were judged.
    pub judged: usize,
}

/// One object with a finding or a remark.
#[derive(Debug)]
pub struct Audited {
    pub kind: Kind,
    pub id: Id,
    /// The uid, which differs after the object was re-created; empty if it is not known.
    pub uid: String,
    /// The object as every message names it, as in "StatefulSet db/galera".
    pub subject: String,
    pub decision: Decision,
}

/// Judges all objects.
pub fn run(rulebook: &Rulebook, view: &View<'_>) -> Audit {
    let mut all = Audit::default();
    for namespace in namespaces(view) {
        let Audit { objects, judged } = audit_namespace(rulebook, view, &namespace);
        all.objects.extend(objects);
        all.judged += judged;
    }
    all
}

/// Returns every namespace with an object that may be judged. Services, claims and budgets alone do not count.
fn namespaces(view: &View<'_>) -> BTreeSet<String> {
    let facts = view.world.facts();
    let mut all = BTreeSet::new();
    add_namespaces(&facts.stateful_sets, &mut all);
    add_namespaces(&facts.orphaned_sets, &mut all);
    add_namespaces(&facts.deployments, &mut all);
    add_namespaces(&facts.config_maps, &mut all);
    facts.kept.all().for_each(|(_, kept)| add_namespaces(kept, &mut all));
    all.extend(facts.unreadable.keys().map(|(_, id)| id.namespace.clone()));
    all
}

fn add_namespaces<T>(known: &OrdMap<Id, Arc<T>>, all: &mut BTreeSet<String>) {
    let mut next = known.get_min().map(|(id, _)| id);
    while let Some(id) = next {
        // No name sorts after this one.
        let last = Id::new(&id.namespace, "\u{10ffff}");
        all.insert(id.namespace.clone());
        next = known.range(last..).next().map(|(id, _)| id);
    }
}

/// Judges the objects of a namespace.
fn audit_namespace(rulebook: &Rulebook, view: &View<'_>, namespace: &str) -> Audit {
    let facts = view.world.facts();
    let mut audit = Audit::default();
    let mut judge = |review: &Review, uid: &str| {
        audit.judged += 1;
        let decision = rulebook.evaluate(review, view);
        if !decision.judged.is_empty() || !decision.remarks.is_empty() {
            let id = Id::new(&review.namespace, &review.name);
            let (kind, subject) = (review.kind, review.subject());
            audit.objects.push(Audited { kind, id, uid: uid.to_owned(), subject, decision });
        }
    };
    for ((kind, id), problem) in facts.unreadable.iter().filter(|((_, id), _)| id.namespace == namespace) {
        judge(&review(*kind, id, Err(problem.clone())), "");
    }
    // One object at a time, so that none is kept longer than needed.
    for_each_object(rulebook, facts, namespace, &mut |kind, id, object| {
        let meta = object.meta();
        if !meta.is_terminating() && !facts.unreadable.contains_key(&(kind, id.clone())) {
            let uid = meta.uid.clone();
            judge(&review(kind, id, Ok(object)), &uid);
        }
    });
    audit.objects.sort_by(|a, b| (&a.id, a.kind).cmp(&(&b.id, b.kind)));
    audit
}

/// Visits every object of a namespace that a rule judges and that the view holds completely. Pods are left out, because the view
/// keeps only a few facts of them. Services, claims and budgets count only in a namespace with objects of a cluster or of a pack.
fn for_each_object(rulebook: &Rulebook, facts: &Facts, ns: &str, visit: &mut impl FnMut(Kind, &Id, Object)) {
    let judged = |kind| rulebook.rules().iter().any(|rule| rule.check(kind, Verb::Create).is_some());
    let visit = &mut |kind, id: &Id, object| {
        if judged(kind) {
            visit(kind, id, object);
        }
    };
    let (sets, deployments) = (entries_in(&facts.stateful_sets, ns), entries_in(&facts.deployments, ns));
    visit_all(Kind::StatefulSet, sets, |it| Object::StatefulSet(Box::new(it)), visit);
    visit_all(Kind::Deployment, deployments, |it| Object::Deployment(Box::new(it)), visit);
    // A snapshot repeats what its ConfigMap holds or held.
    let maps = entries_in(&facts.config_maps, ns).filter(|(id, _)| Digest::of_snapshot(&id.name).is_none());
    visit_all(Kind::ConfigMap, maps, Object::ConfigMap, visit);
    for (kind, kept) in facts.kept.all() {
        visit_all(kind, entries_in(kept, ns), |it| it, visit);
    }
    let is_ours =
        entries_in(&facts.stateful_sets, ns).chain(entries_in(&facts.orphaned_sets, ns)).next().is_some()
            || entries_in(&facts.deployments, ns).next().is_some()
            || facts.kept.any_in(ns);
    if is_ours {
        visit_all(Kind::Service, entries_in(&facts.services, ns), Object::Service, visit);
        visit_all(Kind::Claim, entries_in(&facts.claims, ns), Object::Claim, visit);
        visit_all(Kind::Budget, entries_in(&facts.budgets, ns), Object::Budget, visit);
    }
}

fn visit_all<'a, T: Clone + 'a>(
    kind: Kind,
    entries: impl Iterator<Item = (&'a Id, &'a T)>,
    to_object: impl Fn(T) -> Object,
    visit: &mut impl FnMut(Kind, &Id, Object),
) {
    for (id, it) in entries {
        visit(kind, id, to_object(T::clone(it)));
    }
}

fn review(kind: Kind, id: &Id, object: Result<Object, Unreadable>) -> Review {
    Review::as_created(Origin::Audit, kind, &id.namespace, &id.name, object)
}

/// The number of objects with a finding, by rule and verdict. The modes of the rules make no difference.
pub type Counts = BTreeMap<(&'static str, &'static str), usize>;

impl Audit {
    /// Counts objects by rule and verdict.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for object in &self.objects {
            let found = object.decision.judged.iter().map(|it| (it.finding.rule, it.finding.verdict.name()));
            for key in found.collect::<BTreeSet<_>>() {
                *counts.entry(key).or_default() += 1;
            }
        }
        counts
    }

    /// Counts the objects that would be refused.
    pub fn refused(&self) -> usize {
        self.objects.iter().filter(|it| !it.decision.allowed()).count()
    }

    /// Counts the objects that would be allowed with a warning.
    pub fn warned(&self) -> usize {
        let warned = |it: &&Audited| {
            let Decision { remarks, .. } = &it.decision;
            it.decision.allowed()
                && (it.decision.with(Effect::Warned).next().is_some() || !remarks.is_empty())
        };
        self.objects.iter().filter(warned).count()
    }
}

/// Identifies a finding that refuses, from one audit to the next. The message is not part of it, because it may contain a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    kind: Kind,
    id: Id,
    rule: &'static str,
    field: String,
}

/// The findings that were published. While a finding lasts, it is not published again.
#[derive(Debug, Default)]
pub struct PublishedFindings(BTreeSet<RefusalKey>);

/// Findings of one rule on one object, at least one of them new.
#[derive(Debug)]
pub struct NewFindings<'a> {
    pub object: &'a Audited,
    pub rule: &'static str,
    /// The findings that refuse, worst first.
    pub findings: Vec<&'a Finding>,
}

impl PublishedFindings {
    /// Returns the new findings that refuse, as up to `most` entries for one object and rule each, and the number of the other
    /// entries. Those are still new at the next audit.
    pub fn new_findings<'a>(&mut self, audit: &'a Audit, most: usize) -> (Vec<NewFindings<'a>>, usize) {
        let mut new = Vec::new();
        let mut held_back = 0;
        let mut stays = BTreeSet::new();
        for object in &audit.objects {
            let mut by_rule: BTreeMap<&'static str, Vec<&Finding>> = BTreeMap::new();
            for judged in object.decision.with(Effect::Refused) {
                by_rule.entry(judged.finding.rule).or_default().push(&judged.finding);
            }
            for (rule, findings) in by_rule {
                let keys: Vec<_> = findings.iter().map(|finding| refusal_key(object, finding)).collect();
                let known = keys.iter().all(|key| self.0.contains(key));
                if known {
                    stays.extend(keys);
                } else if new.len() < most {
                    stays.extend(keys);
                    new.push(NewFindings { object, rule, findings });
                } else {
                    stays.extend(keys.into_iter().filter(|key| self.0.contains(key)));
                    held_back += 1;
                }
            }
        }
        self.0 = stays;
        (new, held_back)
    }
}

fn refusal_key(object: &Audited, finding: &Finding) -> RefusalKey {
    RefusalKey { kind: object.kind, id: object.id.clone(), rule: finding.rule, field: finding.field.clone() }
}
