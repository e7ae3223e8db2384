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
        let Audit { objects, judged } = of(rulebook, view, &namespace);
        all.objects.extend(objects);
        all.judged += judged;
    }
    all
}

/// Returns every namespace with an object that may be judged. Services, claims and budgets alone do not count.
fn namespaces(view: &View<'_>) -> BTreeSet<String> {
    let facts = view.world.facts();
    let mut all = BTreeSet::new();
    each_namespace(&facts.stateful_sets, &mut all);
    each_namespace(&facts.orphaned_sets, &mut all);
    each_namespace(&facts.deployments, &mut all);
    each_namespace(&facts.config_maps, &mut all);
    facts.kept.all().for_each(|(_, kept)| each_namespace(kept, &mut all));
    all.extend(facts.unreadable.keys().map(|(_, id)| id.namespace.clone()));
    all
}

fn each_namespace<T>(known: &OrdMap<Id, Arc<T>>, all: &mut BTreeSet<String>) {
    let mut next = known.get_min().map(|(id, _)| id);
    while let Some(id) = next {
        // No name sorts after this one.
        let last = Id::new(&id.namespace, "\u{10ffff}");
        all.insert(id.namespace.clone());
        next = known.range(last..).next().map(|(id, _)| id);
    }
}

/// Judges the objects of a namespace.
fn of(rulebook: &Rulebook, view: &View<'_>, namespace: &str) -> Audit {
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
    each(rulebook, facts, namespace, &mut |kind, id, object| {
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
fn each(rulebook: &Rulebook, facts: &Facts, ns: &str, take: &mut impl FnMut(Kind, &Id, Object)) {
    let judged = |kind| rulebook.rules().iter().any(|rule| rule.check(kind, Verb::Create).is_some());
    let take = &mut |kind, id: &Id, object| {
        if judged(kind) {
            take(kind, id, object);
        }
    };
    let any = |_: &Id| true;
    all(Kind::StatefulSet, ns, &facts.stateful_sets, any, |it| Object::StatefulSet(Box::new(it)), take);
    all(Kind::Deployment, ns, &facts.deployments, any, |it| Object::Deployment(Box::new(it)), take);
    // A snapshot repeats what its ConfigMap holds or held.
    let original = |id: &Id| Digest::of_snapshot(&id.name).is_none();
    all(Kind::ConfigMap, ns, &facts.config_maps, original, Object::ConfigMap, take);
    for (kind, kept) in facts.kept.all() {
        all(kind, ns, kept, any, |it| it, take);
    }
    let is_ours =
        entries_in(&facts.stateful_sets, ns).chain(entries_in(&facts.orphaned_sets, ns)).next().is_some()
            || entries_in(&facts.deployments, ns).next().is_some()
            || facts.kept.any_in(ns);
    if is_ours {
        all(Kind::Service, ns, &facts.services, any, Object::Service, take);
        all(Kind::Claim, ns, &facts.claims, any, Object::Claim, take);
        all(Kind::Budget, ns, &facts.budgets, any, Object::Budget, take);
    }
}

fn all<T: Clone>(
    kind: Kind,
    namespace: &str,
    known: &OrdMap<Id, Arc<T>>,
    ours: impl Fn(&Id) -> bool,
    open: impl Fn(T) -> Object,
    take: &mut impl FnMut(Kind, &Id, Object),
) {
    for (id, it) in entries_in(known, namespace).filter(|(id, _)| ours(id)) {
        take(kind, id, open(T::clone(it)));
    }
}

fn review(kind: Kind, id: &Id, object: Result<Object, Unreadable>) -> Review {
    Review::as_created(Origin::Audit, kind, &id.namespace, &id.name, object)
}

/// The number of objects with a finding, by rule and verdict, whatever the mode.
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

/// The key of a finding that refuses, from one audit to the next. It leaves out the text, which names times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    kind: Kind,
    id: Id,
    rule: &'static str,
    field: String,
}

/// The findings that were published. None is published a second time while it lasts.
#[derive(Debug, Default)]
pub struct Announced(BTreeSet<RefusalKey>);

/// Findings of one rule on one object, at least one of them new.
#[derive(Debug)]
pub struct News<'a> {
    pub object: &'a Audited,
    pub rule: &'static str,
    /// The findings that refuse, worst first.
    pub findings: Vec<&'a Finding>,
}

impl Announced {
    /// Returns up to `most` new findings that refuse, and the number of the others. Those are still new next time.
    pub fn news<'a>(&mut self, audit: &'a Audit, most: usize) -> (Vec<News<'a>>, usize) {
        let mut news = Vec::new();
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
                } else if news.len() < most {
                    stays.extend(keys);
                    news.push(News { object, rule, findings });
                } else {
                    stays.extend(keys.into_iter().filter(|key| self.0.contains(key)));
                    held_back += 1;
                }
            }
        }
        self.0 = stays;
        (news, held_back)
    }
}

fn refusal_key(object: &Audited, finding: &Finding) -> RefusalKey {
    RefusalKey { kind: object.kind, id: object.id.clone(), rule: finding.rule, field: finding.field.clone() }
}
