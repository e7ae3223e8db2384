//! Packs: rules for other systems on the same engine, a folder each.
//!
//! Owns: [`PACKS`]. A pack brings what its custom resources are read into, its rules, and its rows of webhook entries; the engine learns
//! nothing of it but rows in its tables. What a rule asks beside its review are the objects of the pack's kinds, which the view keeps
//! as they are read ([`View::kept`](crate::view::View::kept)). Where a cluster does not serve a kind, nothing of it is watched or
//! registered; a pack can be switched off in the settings. Must not know: watches.

pub mod kudo;
mod loose;
pub mod rds;
pub mod wordpress;

use crate::object::{Kind, Meta, Object};
use crate::review::Review;
use crate::rules::Rule;
use crate::verdict::{Finding, Verdict};
use crate::view::View;
use crate::webhooks::Entry;

/// Rules for one system.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    /// As the settings call it.
    pub name: &'static str,
    /// What it protects, in one sentence.
    pub protects: &'static str,
    /// The custom resources it reads.
    pub kinds: &'static [Kind],
    /// Its rules, in the order of their ids.
    pub rules: &'static [Rule],
    /// What API servers ask for it; a row that asks about a kind of a pack is registered while that kind is served.
    pub entries: &'static [Entry],
    /// This Deployment is a part of what it protects, so the view keeps it, too.
    pub keeps: fn(&Meta) -> bool,
    /// About as many bytes as a custom resource of its kinds takes in memory.
    pub weighs: fn(&Object) -> usize,
}

/// Every pack, in the order of their rules' ids.
pub const PACKS: &[Pack] = &[kudo::PACK, rds::PACK, wordpress::PACK];

const COUNT: usize = {
    let (mut count, mut at) = (0, 0);
    while at < PACKS.len() {
        count += PACKS[at].rules.len();
        at += 1;
    }
    count
};

/// The rules of all packs.
pub(crate) const RULES: &[Rule] = &{
    let mut all = [crate::rules::GALERA[0]; COUNT];
    let (mut count, mut pack) = (0, 0);
    while pack < PACKS.len() {
        let mut at = 0;
        while at < PACKS[pack].rules.len() {
            all[count] = PACKS[pack].rules[at];
            count += 1;
            at += 1;
        }
        pack += 1;
    }
    all
};

/// The pack of this name.
pub fn named(name: &str) -> Option<&'static Pack> {
    PACKS.iter().find(|pack| pack.name == name)
}

/// The pack whose rule this is; none: Galera's.
pub fn of_rule(rule: &str) -> Option<&'static Pack> {
    PACKS.iter().find(|pack| pack.rules.iter().any(|it| it.id == rule))
}

/// The view keeps it for a pack.
pub(crate) fn keep(object: &Object) -> bool {
    match object {
        Object::Deployment(it) => PACKS.iter().any(|pack| (pack.keeps)(&it.metadata)),
        other => has(other.kind()),
    }
}

/// About as many bytes as a custom resource of a pack takes in memory; 0 of everything else.
pub(crate) fn weight(object: &Object) -> usize {
    PACKS.iter().map(|pack| (pack.weighs)(object)).sum()
}

/// What confirms what this review is about, for half an hour.
pub(crate) fn confirmation(review: &Review, rule: &str, view: &View<'_>) -> String {
    let until = view.half_an_hour_from_now();
    if !review.is_there() {
        return format!(
            "add this annotation to the manifest: gatera.dev/override: \"{rule} until={until} reason=…\""
        );
    }
    // Of a Namespace the namespace is the Namespace itself.
    let place =
        if review.kind.is_cluster_wide() { String::new() } else { format!("-n {} ", review.namespace) };
    let (kind, name) = (review.kind.name().to_ascii_lowercase(), &review.name);
    format!("kubectl {place}annotate {kind} {name} 'gatera.dev/override={rule} until={until} reason=…'")
}

/// Said where it matters what there is of a kind that the API server does not list.
fn unheard(rule: &Rule, kind: Kind, review: &Review, view: &View<'_>) -> Option<Finding> {
    let called = format!("{}.{}", kind.plural(), kind.group());
    let says = format!("{called} cannot be listed, so it is not known whether there are any");
    let why = "the API server offers them and answers with an error: often the conversion webhook of their definition is gone";
    let instead = format!(
        "`kubectl get {called} --all-namespaces` prints the error; if that webhook is gone for good, \
         `kubectl patch customresourcedefinition {called} --type=merge --patch='{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'` \
         lists them without it; to proceed without knowing: {}",
        format_args!("{}, then repeat the command", confirmation(review, rule.id, view))
    );
    view.is_unheard(kind).then(|| rule.finding(Verdict::Unknown, "", says, why, instead))
}

/// This kind is a custom resource of a pack: not every API server offers it.
pub fn has(kind: Kind) -> bool {
    kinds().any(|it| it == kind)
}

/// The custom resources of all packs.
pub fn kinds() -> impl Iterator<Item = Kind> {
    PACKS.iter().flat_map(|pack| pack.kinds).copied()
}
