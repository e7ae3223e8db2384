//! What mariadb-operator does with the clusters that it drives is its own business: it founds and recovers them, restarts members,
//! and creates StatefulSets again.
//!
//! Owns: which of its requests are judged nevertheless, because nothing that is right needs them: one that removes the majority
//! while a member serves, one that restarts a member that serves, which it does when all others are Ready, and one that deletes
//! data, or a StatefulSet with its pods. Its recovery scales to 0, again and again if a member does not become Ready: that is
//! judged while others serve. Once all do, it is allowed: a recovery that has begun has no other end, even if the cluster has
//! healed itself meanwhile.
//! The webhook configurations do not know its account, so while no guard answers, its requests wait as those of people.

use facts::galera::driver;
use facts::galera::quorum::floor_of_one_step;
use facts::review::{Change, Operation, Review};
use facts::view::{Freshness, View};
use objects::{Kind, Workload};

/// Returns whether a request is the operator's, about a cluster that it drives, and need not be judged.
pub(super) fn is_exempt(review: &Review, view: &View<'_>) -> bool {
    view.settings.is_mariadb_operator(&review.user)
        && review.subresource.is_empty()
        && match review.kind {
            Kind::StatefulSet => of_a_set(review, view),
            Kind::Claim => review.operation != Operation::Delete && all_driven(review, view),
            Kind::Pod if review.operation == Operation::Delete && may_be_ready(review, view) => false,
            Kind::Namespace => false,
            _ => all_driven(review, view),
        }
}

fn all_driven(review: &Review, view: &View<'_>) -> bool {
    let clusters = view.concerned(review);
    !clusters.is_empty() && clusters.iter().all(|cluster| driver::of(&cluster.workload).is_some())
}

fn of_a_set(review: &Review, view: &View<'_>) -> bool {
    let Change { old, new } = review.change::<Workload>();
    if [old, new].into_iter().flatten().any(|set| driver::of(set).is_none()) {
        return false;
    }
    let deletes_claims =
        |set: &Workload| set.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete";
    match (old, new) {
        (Some(old), Some(new)) if new.replicas() < old.replicas() => {
            let majority = new.replicas() >= floor_of_one_step(old.replicas());
            let ready = ready(review, view);
            let recovers = new.replicas() == 0 && ready == Some(old.replicas());
            !deletes_claims(new) && (majority || recovers || ready == Some(0))
        }
        (None, Some(new)) => !deletes_claims(new),
        (Some(_), Some(_)) => true,
        (_, None) => review.options.orphans(),
    }
}

/// Returns whether the pod may serve.
fn may_be_ready(review: &Review, view: &View<'_>) -> bool {
    let cluster = view.cluster_of_pod(&review.namespace, &review.name);
    let is_ready = cluster.and_then(|cluster| cluster.pod(&review.name)).is_some_and(|pod| pod.ready);
    is_ready || view.freshness != Freshness::Current
}

/// Returns how many members of the cluster are Ready, if that is known.
fn ready(review: &Review, view: &View<'_>) -> Option<i64> {
    let cluster = view.cluster(&review.namespace, &review.name)?;
    i64::try_from(cluster.ready()).ok().filter(|_| view.freshness == Freshness::Current)
}
