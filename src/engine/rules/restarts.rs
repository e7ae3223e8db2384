//! The remark about what a change of a ConfigMap does to the members that read it.
//!
//! Owns: the text. Must not know: when members restart (`plan/rollout.rs`). Not a rule: it refuses nothing. G09 judges options
//! that must not differ between members, not even during a rollout.

use crate::rule::{Operation, Review, View, and_more};
use facts::galera::options::is_dynamic;
use facts::revision::{self, Contents, UnknownRevision};
use facts::view::{Cluster, RolloutRequest};
use objects::ConfigMap;

/// Returns the effect of a change of a ConfigMap; `None`: it restarts no member, as expected.
pub fn remark(review: &Review, view: &View<'_>) -> Option<String> {
    let (old, new) = review.both::<ConfigMap>()?;
    if review.operation != Operation::Update || old.data == new.data {
        return None;
    }
    let ns = &*review.namespace;
    // Files hold no record of a rollout. Assume for them that the guard rolls out changes in the cluster.
    let guarded = |it: &&Cluster| (it.rollout.is_some() || view.from_files) && it.has_data();
    let mut readers = view.readers_of(ns, &new.metadata.name).filter(guarded);
    readers.find_map(|cluster| effect_on(cluster, old, new, view))
}

fn effect_on(cluster: &Cluster, old: &ConfigMap, new: &ConfigMap, view: &View<'_>) -> Option<String> {
    let name = &new.metadata.name;
    let (spec, server) = cluster.server()?;
    let keys = revision::sources(spec, server).remove(name)?;
    let cluster_name = &cluster.id.name;
    let after = match Contents::of(new).digest(name, &keys) {
        Ok(after) => after,
        // This change is part of the steps in `gatera explain G04`.
        Err(UnknownRevision::Founds(_)) => return None,
        Err(unknown) => {
            return Some(format!("{unknown}, so gatera restarts no member of {cluster_name} for it"));
        }
    };
    // The members run with this content already, or the change does not affect it.
    let applied = cluster.rollout.as_ref().and_then(|record| record.good.get(name));
    if after.as_ref() == applied {
        return None;
    }
    let differ = revision::differences(old, new, &keys);
    if differ.is_empty() {
        return None;
    }
    if let Some(why) = no_restart(cluster, view) {
        return Some(format!(
            "members of {cluster_name} read this when they restart, but gatera restarts none: {why}"
        ));
    }
    let (dynamic, fixed): (Vec<_>, Vec<_>) = differ.iter().partition(|key| is_dynamic(key));
    let list = |keys: &[&String]| {
        let shown = keys.iter().take(MOST_OPTIONS).map(|key| key.as_str()).collect::<Vec<_>>().join(", ");
        shown + &and_more(keys.len().saturating_sub(MOST_OPTIONS))
    };
    let members = cluster.members.len();
    let begin = match members {
        1 => format!("{cluster_name} has one member, which gatera does not restart"),
        members => format!("this change restarts {members} members of {cluster_name}, one at a time"),
    };
    Some(match (&fixed[..], &dynamic[..]) {
        (fixed, []) => format!("{begin}: {}", list(fixed)),
        ([], dynamic) => format!("{begin}: {}, which could be set at run time (SET GLOBAL)", list(dynamic)),
        (fixed, dynamic) => {
            format!("{begin}: {}; {} could be set at run time (SET GLOBAL)", list(fixed), list(dynamic))
        }
    })
}

/// The largest number of options that the remark names; it counts the others.
const MOST_OPTIONS: usize = 3;

/// Returns why no member is restarted.
fn no_restart(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    if let Some(mode) = view.read_only_mode(&cluster.id.namespace) {
        return Some(format!("the namespace is in mode {}", mode.name()));
    }
    if RolloutRequest::of(&cluster.workload.metadata) == Some(RolloutRequest::Paused) {
        return Some("gatera.dev/rollout is paused".to_owned());
    }
    let on_delete = cluster.workload.spec.update_strategy.on_delete();
    on_delete.then(|| "its updateStrategy is OnDelete".to_owned())
}
