//! Claims that a StatefulSet which is gone left behind, where no member runs either: data that waits for its return.

use super::facts::tail;
use super::index::By;
use super::{Facts, Id, View, World};
use crate::galera::adopt;
use crate::marks;
use objects::{Claim, Labels};

impl<'a> View<'a> {
    /// Claims that a StatefulSet which is gone left behind for these labels.
    pub fn left_over_claims(&self, namespace: &str, labels: &Labels) -> Vec<&'a str> {
        let instance = adopt::instance(labels);
        instance.map(|instance| self.world.left_over(namespace, instance)).unwrap_or_default()
    }

    /// Claims of members that were stopped in order and whose StatefulSet is gone: their data waits for its return.
    pub fn waiting_claims(&self, namespace: &'a str) -> impl Iterator<Item = &'a Claim> {
        let used = |claim: &Claim| {
            let mut clusters = self.clusters_in(namespace);
            clusters.any(|cluster| cluster.claims.iter().any(|it| it.name == claim.metadata.name))
        };
        let claims = self.claims_in(namespace).filter(|claim| claim.bound() && !claim.metadata.going());
        claims.filter(|claim| claim.metadata.mark(marks::STOPPED).is_some()).filter(move |claim| !used(claim))
    }

    /// All claims that the StatefulSet left behind that left this one.
    pub fn left_behind_with(&self, namespace: &str, claim: &str) -> Option<Vec<&'a str>> {
        let instance = self.world.instance_of(&Id::new(namespace, claim))?;
        let claims = self.world.left_over(namespace, instance);
        claims.contains(&claim).then_some(claims)
    }
}

impl World {
    /// Claims of a cluster whose StatefulSet is gone: data without an owner.
    fn left_over(&self, namespace: &str, instance: &str) -> Vec<&str> {
        if self.cluster_of_instance(namespace, instance).is_some() {
            return Vec::new();
        }
        let Facts { index, pods, claims, .. } = &self.facts;
        let labelled = index.names(By::ClaimOfInstance, namespace, instance);
        let members = index.names(By::PodOfInstance, namespace, instance);
        let members = members.filter(|pod| pods.get(&Id::new(namespace, pod)).is_some_and(|it| it.server));
        let named = members.flat_map(|pod| index.names(By::ClaimOfTail, namespace, tail(pod)));
        let mut found: Vec<_> = labelled
            .chain(named)
            .filter(|claim| {
                let id = Id::new(namespace, claim);
                claims.get(&id).is_some_and(|it| it.bound()) && self.instance_of(&id) == Some(instance)
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The cluster of a claim. One that carries no labels of it is known by the member that is there: claims get the labels
    /// that the StatefulSet's selector asks for, and that may be fewer than its pods have.
    fn instance_of(&self, claim: &Id) -> Option<&str> {
        let known: &Claim = self.facts.claims.get(claim)?;
        let labels = &known.metadata.labels;
        let labelled = adopt::instance(labels).filter(|_| self.adoption().adopts(labels));
        labelled.or_else(|| {
            let names = claim.name.match_indices('-').map(|(at, _)| &claim.name[at + 1..]);
            let mut pods = names.filter_map(|name| self.facts.pods.get(&Id::new(&claim.namespace, name)));
            pods.find(|pod| pod.server)?.instance.as_deref()
        })
    }
}
