//! Orphans: members that run while their StatefulSet is gone, as `kubectl delete --cascade=orphan` leaves them.
//!
//! They are still the cluster. What tells them from strangers is a claim of that cluster that is named after them.

use super::{Facts, Id, PodFact, View};
use crate::object::ordinal;

impl<'a> View<'a> {
    /// The members of a namespace that no StatefulSet looks after.
    pub fn orphans(&self, namespace: &str) -> impl Iterator<Item = &'a PodFact> {
        let facts = &self.world.facts;
        let namespace = namespace.to_owned();
        let alone = {
            let namespace = namespace.clone();
            move |pod: &PodFact| match &pod.owner {
                None => true,
                Some((kind, name)) => {
                    kind == "StatefulSet" && !facts.stateful_sets.contains_key(&Id::new(&namespace, name))
                }
            }
        };
        let left_over = &self.world.left_over;
        let of_a_cluster = {
            let namespace = namespace.clone();
            move |pod: &PodFact| {
                let key = pod.instance.clone().map(|instance| (namespace.clone(), instance));
                let claims = key.and_then(|key| left_over.get(&key)).into_iter().flatten();
                claims.into_iter().any(|claim| is_named_after(claim, &pod.name))
            }
        };
        let first = Id::new(&namespace, "");
        facts
            .pods
            .range(first..)
            .take_while(move |(id, _)| id.namespace == namespace)
            .map(|(_, pod)| &**pod)
            .filter(move |pod| pod.server && pod.running && !pod.going && alone(pod) && of_a_cluster(pod))
    }

    /// Those of them that a StatefulSet of this name takes over, or has taken over moments ago, by their ordinals.
    pub fn orphans_for(&self, namespace: &str, stateful_set: &str) -> impl Iterator<Item = i64> {
        self.orphans(namespace).filter_map(move |pod| ordinal(&pod.name, stateful_set))
    }

    /// Those of them that belong to this cluster.
    pub fn orphans_of(&self, namespace: &str, instance: &str) -> Vec<&'a PodFact> {
        self.orphans(namespace).filter(|pod| pod.instance.as_deref() == Some(instance)).collect()
    }

    /// The cluster whose StatefulSet left this claim behind, and all claims it left.
    pub fn left_behind_with(&self, namespace: &str, claim: &str) -> Option<(&'a str, &'a [String])> {
        let mut all = self.world.left_over.iter().filter(|((ns, _), _)| ns == namespace);
        let ((_, instance), claims) = all.find(|(_, claims)| claims.iter().any(|it| it == claim))?;
        Some((instance, claims))
    }
}

/// The cluster of a claim that carries no labels of it, by the member that is there: claims get the labels that the
/// StatefulSet's selector asks for, and that may be fewer than its pods have.
pub(super) fn instance_of<'f>(claim: &Id, facts: &'f Facts) -> Option<&'f str> {
    let names = claim.name.match_indices('-').map(|(at, _)| &claim.name[at + 1..]);
    let mut pods = names.filter_map(|name| facts.pods.get(&Id::new(&claim.namespace, name)));
    pods.find(|pod| pod.server)?.instance.as_deref()
}

/// Claims are called TEMPLATE-POD.
fn is_named_after(claim: &str, pod: &str) -> bool {
    claim.strip_suffix(pod).is_some_and(|template| template.ends_with('-'))
}
