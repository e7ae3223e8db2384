//! Claims of a deleted StatefulSet of which no member runs: they keep the data until it is created again.

use std::collections::BTreeSet;

use super::facts::tail;
use super::index::By;
use super::{Facts, Id, View, World};
use crate::galera::adopt;
use crate::marks;
use objects::{Claim, Labels};

impl<'a> View<'a> {
    /// Returns the claims that the deleted StatefulSet of the instance in these pod labels left behind.
    pub fn left_over_claims(&self, namespace: &str, labels: &Labels) -> Vec<&'a str> {
        let instance = adopt::instance(labels);
        instance.map(|instance| self.world.left_over(namespace, instance)).unwrap_or_default()
    }

    /// Returns the claims of members that were stopped in order and whose StatefulSet is gone: they keep the data until it
    /// is created again.
    pub fn waiting_claims(&self, namespace: &'a str) -> impl Iterator<Item = &'a Claim> {
        let used = |claim: &Claim| self.clusters_of_claim(namespace, &claim.metadata.name).next().is_some();
        let claims =
            self.claims_in(namespace).filter(|claim| claim.bound() && !claim.metadata.is_terminating());
        claims.filter(|claim| claim.metadata.mark(marks::STOPPED).is_some()).filter(move |claim| !used(claim))
    }

    /// Returns all claims of the deleted StatefulSet that this claim belongs to.
    pub fn left_over_claims_with(&self, namespace: &str, claim: &str) -> Option<Vec<&'a str>> {
        let instance = self.world.instance_of(&Id::new(namespace, claim))?;
        let claims = self.world.left_over(namespace, instance);
        claims.contains(&claim).then_some(claims)
    }
}

impl World {
    /// Returns the claims of a cluster whose StatefulSet is gone: data without an owner.
    fn left_over(&self, namespace: &str, instance: &str) -> Vec<&str> {
        if self.cluster_of_instance(namespace, instance).is_some() {
            return Vec::new();
        }
        let Facts { index, pods, claims, .. } = &self.facts;
        let labelled = index.names(By::ClaimOfInstance, namespace, instance);
        let members = self.facts.found(pods, By::PodOfInstance, namespace, instance).filter(|it| it.server);
        let named = members.flat_map(|pod| index.names(By::ClaimOfTail, namespace, tail(&pod.name)));
        let is_left = |claim: &&str| {
            let id = Id::new(namespace, claim);
            claims.get(&id).is_some_and(|it| it.bound()) && self.instance_of(&id) == Some(instance)
        };
        let found: BTreeSet<_> = labelled.chain(named).filter(is_left).collect();
        found.into_iter().collect()
    }

    /// Returns the instance of a claim. A claim without a label for it is assigned by the member whose name it ends with:
    /// claims get the labels of the StatefulSet's selector, which may be fewer than those of its pods.
    fn instance_of(&self, claim: &Id) -> Option<&str> {
        let known: &Claim = self.facts.claims.get(claim)?;
        let labels = &known.metadata.labels;
        let labelled = adopt::instance(labels).filter(|_| self.facts.adoption().adopts(labels));
        labelled.or_else(|| {
            let names = claim.name.match_indices('-').map(|(at, _)| &claim.name[at + 1..]);
            let mut pods = names.filter_map(|name| self.facts.pods.get(&Id::new(&claim.namespace, name)));
            pods.find(|pod| pod.server)?.instance.as_deref()
        })
    }
}
