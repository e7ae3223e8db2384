//! Owners that are added to what a cluster needs: would that delete it?
//!
//! Not a rule: whichever rule keeps an object from being deleted asks this where the object is written, and says what its end
//! would mean. Kubernetes deletes what has owners once none of them is left, and at once where none ever was. The garbage
//! collector does it, which no rule holds up, so the owner is judged when it is written. An owner that is there today is no
//! better than one that is not: anybody may delete it tomorrow, and no rule looks at that. Must not know: what an end means.

use std::collections::HashSet;

use crate::exceptions::confirmation;
use crate::exemptions::users;
use crate::verdict::Finding;
use facts::review::{Origin, Review};
use facts::view::{Freshness, Id, View, is_cluster, is_cluster_by_template};
use objects::{Kind, Owner, Workload};

/// An owner with which an object would be deleted.
pub struct Added<'a> {
    owner: &'a Owner,
    /// It is known that there is no such owner.
    absent: bool,
}

/// The first of the owners that this review adds with which the object would be deleted. These are harmless:
///
/// * whatever the control plane's own controllers write: it follows what was judged before;
/// * what owns the object as long as its cluster lives: the StatefulSet, and KUDO's Instance, whose end is judged. A claim
///   is to outlive both;
/// * what a service account adds to anything but claims, pods and a StatefulSet that is there, unless it is known not to exist:
///   operators own the Secrets and ConfigMaps that they make, and their kinds are not watched.
pub fn added<'a>(review: &'a Review, view: &View<'_>) -> Option<Added<'a>> {
    let new = review.new.as_ref()?.meta();
    // Of what is there already nothing is added, and the garbage collector has looked at it.
    let asked = review.origin != Origin::Audit && !new.owner_references.is_empty();
    if !asked || users::may_own(&review.user, review.kind) {
        return None;
    }
    let before: HashSet<_> =
        review.old.iter().flat_map(|old| &old.meta().owner_references).map(coordinates).collect();
    let clusters = view.concerned(review);
    let of_this_cluster = |owner: &Owner| {
        owner.is_of("apps", "StatefulSet")
            && view.cluster(&review.namespace, &owner.name).is_some()
            && clusters.iter().all(|cluster| cluster.id.name == owner.name)
    };
    // What a program applies may have been exported where something owned it.
    let is_data = matches!(review.kind, Kind::Claim | Kind::Pod)
        || review.kind == Kind::StatefulSet && review.is_there();
    let is_program = review.user.starts_with("system:serviceaccount:");
    let mut owners = new.owner_references.iter().filter(|owner| !before.contains(&coordinates(owner)));
    owners.find_map(|owner| {
        let there = is_there(owner, review, view);
        let lasts = match review.kind {
            Kind::Claim | Kind::Namespace => false,
            Kind::StatefulSet => owner.is_of("kudo.dev", "Instance"),
            _ => of_this_cluster(owner) || owner.is_of("kudo.dev", "Instance"),
        };
        let harmless = there == Some(true) && lasts || there != Some(false) && is_program && !is_data;
        (!harmless).then_some(Added { owner, absent: there == Some(false) })
    })
}

/// By what the garbage collector looks for an owner.
fn coordinates(owner: &Owner) -> [&str; 4] {
    [&owner.api_version, &owner.kind, &owner.name, &owner.uid]
}

/// There is such an owner, where the garbage collector looks for it; `None`: the view does not tell.
fn is_there(owner: &Owner, review: &Review, view: &View<'_>) -> Option<bool> {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = view.world.facts().kind_named(group, &owner.kind);
    let namespace = if kind.is_cluster_wide() { "" } else { &review.namespace };
    match view.world.facts().uid(kind, &Id::new(namespace, &owner.name)) {
        Some(uid) => Some(uid == owner.uid && !uid.is_empty()),
        // Of other kinds the view holds only what is Galera's, or what somebody reads.
        None if !matches!(kind, Kind::Claim | Kind::Service | Kind::Budget | Kind::Namespace) => None,
        None => (view.freshness == Freshness::Current).then_some(false),
    }
}

/// The owner by which a cluster becomes another operator's, which the guard leaves alone.
pub fn takes_over<'a>(old: &Workload, new: &'a Workload, view: &View<'_>) -> Option<Added<'a>> {
    let adoption = view.adoption();
    let lost =
        is_cluster(old, adoption) && is_cluster_by_template(new, adoption) && !is_cluster(new, adoption);
    let owner = new.metadata.operator().filter(|owner| lost && old.metadata.operator() != Some(*owner))?;
    Some(Added { owner, absent: false })
}

const WHY: &str = "Kubernetes deletes an object once none of its owners exists, and its garbage collector is not held up by these rules";

impl Added<'_> {
    /// What is said of it, by what the rule says of the end of the object.
    pub fn finding(&self, end: &Finding, review: &Review, view: &View<'_>) -> Finding {
        let Owner { kind, name, .. } = self.owner;
        let says = if self.absent {
            format!("it would be deleted at once, because its new owner {kind} {name} does not exist")
        } else {
            format!(
                "it would be deleted together with its new owner {kind} {name}, or at once if that does not exist"
            )
        };
        let instead = format!(
            "leave metadata.ownerReferences {}; if you mean it: {}, then repeat the command",
            if review.is_there() { "unchanged" } else { "out" },
            confirmation(review, end.rule, view)
        );
        Finding {
            // An owner that was there before makes no other one milder.
            field: format!("metadata.ownerReferences[{}]", coordinates(self.owner).join(" ")),
            says: format!("{says}, and {}", end.says),
            why: WHY.to_owned(),
            instead,
            ..end.clone()
        }
    }
}
