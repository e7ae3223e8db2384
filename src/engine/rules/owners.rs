//! Owners that a request adds to an object that a cluster needs, and with which the object would be deleted.
//!
//! Not a rule: each rule that protects an object from deletion uses this when the object is written, and adds what its deletion
//! would mean. Kubernetes deletes an object with owners when none of them is left, and at once if none ever existed. The garbage
//! collector does this, and no rule stops it, so the owner is judged when it is written. An owner that exists today is no safer:
//! it may be deleted later, and no rule judges that. Must not know: what a deletion means.

use std::collections::HashSet;

use crate::exceptions::confirmation;
use crate::exemptions::users;
use crate::verdict::Finding;
use facts::review::{Origin, Review};
use facts::view::{Freshness, Id, View, is_cluster, is_cluster_by_template};
use facts::way_out::say;
use objects::{Kind, Owner, Workload};

/// An owner with which an object would be deleted.
pub struct AddedOwner<'a> {
    owner: &'a Owner,
    /// Whether it is known that this owner does not exist.
    absent: bool,
}

/// Returns the first owner that this request adds and with which the object would be deleted. These are harmless:
///
/// * owners that the control plane's own controllers write: they follow from requests that were judged;
/// * owners that live as long as the cluster: the StatefulSet, and KUDO's Instance, whose deletion is judged. A claim
///   must outlive both;
/// * owners that a service account adds, except on claims, pods and an existing StatefulSet, unless they are known not to exist:
///   operators own the Secrets and ConfigMaps that they create, and their kinds are not watched.
pub fn added<'a>(review: &'a Review, view: &View<'_>) -> Option<AddedOwner<'a>> {
    let new = review.new.as_ref()?.meta();
    // The audit looks at existing objects, which the garbage collector has already checked.
    let adds = review.origin != Origin::Audit && !new.owner_references.is_empty();
    if !adds || users::may_add_owners(&review.user, review.kind) {
        return None;
    }
    let before: HashSet<_> =
        review.old.iter().flat_map(|old| &old.meta().owner_references).map(owner_key).collect();
    let clusters = view.clusters_concerned(review);
    let of_this_cluster = |owner: &Owner| {
        owner.is_of("apps", "StatefulSet")
            && view.cluster(&review.namespace, &owner.name).is_some()
            && clusters.iter().all(|cluster| cluster.id.name == owner.name)
    };
    // A program may apply a manifest that was exported with the owner of another cluster.
    let is_data =
        matches!(review.kind, Kind::Claim | Kind::Pod) || review.kind == Kind::StatefulSet && review.exists();
    let is_program = review.user.starts_with("system:serviceaccount:");
    let mut owners = new.owner_references.iter().filter(|owner| !before.contains(&owner_key(owner)));
    owners.find_map(|owner| {
        let exists = owner_exists(owner, review, view);
        let lasts = match review.kind {
            Kind::Claim | Kind::Namespace => false,
            Kind::StatefulSet => owner.is_of("kudo.dev", "Instance"),
            _ => of_this_cluster(owner) || owner.is_of("kudo.dev", "Instance"),
        };
        let harmless = exists == Some(true) && lasts || exists != Some(false) && is_program && !is_data;
        (!harmless).then_some(AddedOwner { owner, absent: exists == Some(false) })
    })
}

/// Returns the fields by which the garbage collector looks for an owner.
fn owner_key(owner: &Owner) -> [&str; 4] {
    [&owner.api_version, &owner.kind, &owner.name, &owner.uid]
}

/// Returns whether the owner exists where the garbage collector looks for it; `None`: the view does not show that.
fn owner_exists(owner: &Owner, review: &Review, view: &View<'_>) -> Option<bool> {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = view.world.facts().kind_named(group, &owner.kind);
    let namespace = if kind.is_cluster_wide() { "" } else { &review.namespace };
    match view.world.facts().uid(kind, &Id::new(namespace, &owner.name)) {
        Some(uid) => Some(uid == owner.uid && !uid.is_empty()),
        // Of other kinds the view holds only Galera's objects, and those that a cluster reads.
        None if !matches!(kind, Kind::Claim | Kind::Service | Kind::Budget | Kind::Namespace) => None,
        None => (view.freshness == Freshness::Current).then_some(false),
    }
}

/// Returns the owner that hands a cluster to another operator, whose clusters the guard ignores.
pub fn new_operator<'a>(old: &Workload, new: &'a Workload, view: &View<'_>) -> Option<AddedOwner<'a>> {
    let adoption = view.adoption();
    let lost =
        is_cluster(old, adoption) && is_cluster_by_template(new, adoption) && !is_cluster(new, adoption);
    let owner = new.metadata.operator().filter(|owner| lost && old.metadata.operator() != Some(*owner))?;
    Some(AddedOwner { owner, absent: false })
}

const WHY: &str = "the garbage collector of Kubernetes deletes an object when none of its owners exists, and gatera cannot stop it";

impl AddedOwner<'_> {
    /// Returns the finding for this owner, made from the rule's finding for a deletion.
    pub fn finding(&self, deletion: &Finding, review: &Review, view: &View<'_>) -> Finding {
        let Owner { kind, name, .. } = self.owner;
        let says = if self.absent {
            format!("it would be deleted at once, because its new owner {kind} {name} does not exist")
        } else {
            format!(
                "it would be deleted together with its new owner {kind} {name}, or at once if that owner does not exist"
            )
        };
        let how = if review.exists() { "unchanged" } else { "out" };
        let instead = say(format!("leave metadata.ownerReferences {how}"))
            .or("if you are sure: ")
            .and(confirmation(review, deletion.rule, view))
            .say(", then repeat the command");
        Finding {
            // The field names the owner, so an existing fault of another owner does not soften this one.
            field: format!("metadata.ownerReferences[{}]", owner_key(self.owner).join(" ")),
            says: format!("{says}, and {}", deletion.says),
            why: WHY.to_owned(),
            instead,
            ..deletion.clone()
        }
    }
}
