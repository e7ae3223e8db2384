//! Requests of mariadb-operator about the clusters that it drives. The operator creates and recovers these clusters, restarts
//! their members and recreates their StatefulSets, so its requests about them are not judged.
//!
//! Owns: which of its requests are judged nevertheless, because no correct operation needs them: removing the majority while a
//! member serves, restarting a member that serves (the operator does so when all others are Ready), and deleting data, or a
//! StatefulSet with its pods. To recover, the operator scales to 0, repeatedly if a member does not become Ready: that is judged
//! while some members serve. Once all are Ready it is allowed: a recovery that has begun cannot end otherwise, even if the
//! cluster has healed itself meanwhile.
//!
//! The webhook configurations have no condition for the operator's account, so while no guard answers, its requests are treated
//! like all others.

use facts::galera::driver;
use facts::galera::quorum::floor_of_one_step;
use facts::review::{Change, Operation, Review};
use facts::view::{Freshness, View};
use objects::{Kind, Workload};

/// Returns whether the operator sent this request about a cluster that it drives, and the request need not be judged.
pub(super) fn is_exempt(review: &Review, view: &View<'_>) -> bool {
    view.settings.is_mariadb_operator(&review.user)
        && review.subresource.is_empty()
        && match review.kind {
            Kind::StatefulSet => may_change_stateful_set(review, view),
            Kind::Claim => review.operation != Operation::Delete && drives_all_clusters(review, view),
            Kind::Pod if review.operation == Operation::Delete && may_be_ready(review, view) => false,
            Kind::Namespace => false,
            _ => drives_all_clusters(review, view),
        }
}

fn drives_all_clusters(review: &Review, view: &View<'_>) -> bool {
    let clusters = view.clusters_concerned(review);
    !clusters.is_empty() && clusters.iter().all(|cluster| driver::of(&cluster.workload).is_some())
}

fn may_change_stateful_set(review: &Review, view: &View<'_>) -> bool {
    let Change { old, new } = review.change::<Workload>();
    if [old, new].into_iter().flatten().any(|set| driver::of(set).is_none()) {
        return false;
    }
    let deletes_claims =
        |set: &Workload| set.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete";
    match (old, new) {
        (Some(old), Some(new)) if new.replicas() < old.replicas() => {
            let keeps_majority = new.replicas() >= floor_of_one_step(old.replicas());
            let ready = ready_members(review, view);
            let recovers = new.replicas() == 0 && ready == Some(old.replicas());
            !deletes_claims(new) && (keeps_majority || recovers || ready == Some(0))
        }
        (None, Some(new)) => !deletes_claims(new),
        (Some(_), Some(_)) => true,
        (_, None) => review.options.orphans(),
    }
}

/// Returns whether the pod is Ready, or may be because the view is not current.
fn may_be_ready(review: &Review, view: &View<'_>) -> bool {
    let cluster = view.cluster_of_pod(&review.namespace, &review.name);
    let is_ready = cluster.and_then(|cluster| cluster.pod(&review.name)).is_some_and(|pod| pod.ready);
    is_ready || view.freshness != Freshness::Current
}

/// Returns how many members of the cluster are Ready, if that is known.
fn ready_members(review: &Review, view: &View<'_>) -> Option<i64> {
    let cluster = view.cluster(&review.namespace, &review.name)?;
    i64::try_from(cluster.ready()).ok().filter(|_| view.freshness == Freshness::Current)
}
