//! Which cluster it is: recorded on the StatefulSet once its members agree, so that no other can be founded in its place.
//!
//! Owns: when members are asked ([`asks`]) and what follows from what they told ([`concluded`]). Must not know: Events.
//! A server tells the id of its cluster when it has joined, through its startup probe. Zeros are told by nobody.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::galera::identity::Identity;
use crate::marks::FOUNDS;
use crate::view::{Cluster, PodFact, State, View};

/// So long kubelets' Events last, and nobody needs to look for older ones.
const EVENTS_LAST: SignedDuration = SignedDuration::from_hours(1);

/// What the pods of a cluster told, by uid.
pub type Told = BTreeMap<String, Identity>;

/// Somebody may have told an id that is not recorded.
pub fn asks(cluster: &Cluster, view: &View<'_>) -> bool {
    let recent = |pod: &&PodFact| {
        let since = pod.since.map(|since| view.now.duration_since(since));
        pod.verified && pod.ready && since.is_some_and(|since| since <= EVENTS_LAST)
    };
    let tells = |pod: &PodFact| match pod.identity.as_deref() {
        Some(FOUNDS) => true,
        Some(_) => cluster.identity().is_none() && cluster.state() == State::Healthy,
        None => false,
    };
    cluster.pods().filter(recent).any(tells)
}

/// The cluster's id, if it follows from what its pods told: that of the one that was allowed to found it, or, where none is
/// recorded, the one that most members are in and none is not.
pub fn concluded(cluster: &Cluster, told: &Told) -> Option<Identity> {
    let ready = |pod: &&PodFact| pod.ready && pod.verified;
    let of = |pod: &PodFact| {
        let known = || Identity::read(pod.identity.as_deref()?);
        told.get(&pod.uid).cloned().or_else(known)
    };
    if let Some(founded) = agreed(founders(cluster).filter(ready).filter_map(of)).0 {
        return Some(founded);
    }
    let members = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let (id, count) = agreed(members.filter(ready).filter_map(of));
    id.filter(|_| cluster.identity().is_none() && count > cluster.members.len() / 2)
}

/// Pods that were allowed to found the cluster anew.
pub fn founders(cluster: &Cluster) -> impl Iterator<Item = &PodFact> {
    cluster.pods().filter(|pod| pod.identity.as_deref() == Some(FOUNDS))
}

/// The one id that all of them name, and how many do.
fn agreed(ids: impl Iterator<Item = Identity>) -> (Option<Identity>, usize) {
    let ids: Vec<_> = ids.collect();
    let first = ids.first().filter(|first| ids.iter().all(|id| id == *first));
    (first.cloned(), ids.len())
}
