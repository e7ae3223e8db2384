//! Which cluster it is: recorded on the StatefulSet once its members agree, so that no other can be founded in its place.
//!
//! Owns: when members are asked ([`asks`]) and what follows from what they told ([`concluded`]). Must not know: Events.
//! A server tells the id of its cluster when it has joined, through a probe, again and again until it is heard; or that its
//! cluster has none. That is recorded, too: it wants to be led out (`gatera explain G04`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use engine::inject;
use facts::galera::identity::{Answer, Identity};
use facts::marks::recovery::Recovery;
use facts::marks::{FOUNDS, NONE, UNKNOWN};
use facts::view::{Cluster, PodFact, View};

/// API servers forget them after an hour.
const LIFE_OF_AN_EVENT: SignedDuration = SignedDuration::from_hours(1);

/// What pods told, by uid, and when.
pub type Answers = BTreeMap<String, (Timestamp, Answer)>;

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concluded {
    /// The cluster's id; `None`: it has none.
    pub is: Option<Identity>,
    /// It is to be recorded.
    pub new: bool,
    /// Name and uid of the pods that told it, and do not know it yet.
    pub tell: Vec<(String, String)>,
    /// Pods that serve beside those, and what everybody should know of them.
    pub beside: Vec<super::Announcement>,
}

/// Somebody who is Ready may have told an id and waits to be heard, or the record is lost and pods know it. For as long as an
/// Event lives after its server's start, a pod may tell something new: it knows an id, and nobody compared positions; or it is
/// known to have none.
pub fn asks(cluster: &Cluster, view: &View<'_>) -> bool {
    let knows = |pod: &PodFact| pod.identity.as_deref().is_some_and(|it| Identity::read(it).is_some());
    let recent =
        |pod: &PodFact| pod.since.is_some_and(|since| view.now.duration_since(since) < LIFE_OF_AN_EVENT);
    let may_tell =
        |pod: &PodFact| recent(pod) && (knows(pod) && !pod.recovers || pod.identity.as_deref() == Some(NONE));
    let waits =
        |pod: &PodFact| waits_to_be_heard(pod) || cluster.identity().is_none() && knows(pod) || may_tell(pod);
    inject::identity::asked(cluster, view) && proven(cluster, view).any(|pod| pod.tells && waits(pod))
}

/// It tells until it knows an id, or that nobody asks.
fn waits_to_be_heard(pod: &PodFact) -> bool {
    let knows_none = |text: &str| matches!(text, UNKNOWN | FOUNDS) || Recovery::is_right(text);
    pod.identity.as_deref().is_some_and(knows_none)
}

/// Ready, and Ready proves Synced.
pub fn proven<'a>(cluster: &'a Cluster, view: &View<'a>) -> impl Iterator<Item = &'a PodFact> {
    inject::identity::pods(cluster, view).filter(|pod| pod.ready && pod.verified)
}

/// The cluster's id, if it follows. What is recorded stays as long as one pod that serves is in it. Where none is, and all that
/// serve are in the same one, that is it: only a pod that was allowed to found it can have become Ready there. The first time
/// most members have to be in it.
pub fn concluded(cluster: &Cluster, view: &View<'_>, told: &Answers) -> Option<Concluded> {
    use Answer::{HasNone, Is};
    let of = |pod: &PodFact| {
        let known = || match pod.identity.as_deref()? {
            NONE => Some(HasNone),
            id => Identity::read(id).map(Is),
        };
        // What an earlier run of its server told may be over. Kubelets write whole seconds.
        let now = |at: &Timestamp| pod.since.is_some_and(|since| since.as_second() <= at.as_second());
        told.get(&pod.uid).filter(|(at, _)| now(at)).map(|(_, is)| is.clone()).or_else(known)
    };
    let pods: Vec<_> = proven(cluster, view).filter_map(|pod| Some((pod, of(pod)?))).collect();
    let told: BTreeSet<_> = pods.iter().map(|(_, is)| is).collect();
    let recorded = cluster.identity().cloned().map(Is);
    let is = match recorded.filter(|record| told.contains(record)) {
        Some(record) => record,
        None => {
            let [is] = told.iter().collect::<Vec<_>>()[..] else { return None };
            let members = pods.iter().filter(|(pod, _)| cluster.member(&pod.name).is_some()).count();
            if (cluster.identity().is_none() || **is == HasNone) && members <= cluster.members.len() / 2 {
                return None;
            }
            (*is).clone()
        }
    };
    let word = inject::identity::mark(is.id());
    let tell = pods.iter().filter(|(pod, its)| *its == is && pod.identity.as_deref() != Some(word));
    let tell = tell.map(|(pod, _)| (pod.name.clone(), pod.uid.clone())).collect();
    let others = pods.iter().filter(|(_, its)| *its != is);
    let beside = others.filter_map(|(pod, its)| {
        Some(super::Announcement::about(cluster, BESIDE, beside(pod, its.id()?, word)))
    });
    let beside = beside.collect();
    let is = is.id().cloned();
    let new = if is.is_some() { cluster.identity() != is.as_ref() } else { !cluster.has_no_identity() };
    Some(Concluded { is, new, tell, beside })
}

/// Why an Event is written.
const BESIDE: &str = "AnotherCluster";

fn beside(pod: &PodFact, its: &Identity, is: &str) -> String {
    format!(
        "pod {} serves in cluster {its}, and {is} is recorded: what is written to both never comes together; decide which one is right, and \
         compare their tables before anybody goes (gatera explain G04)",
        pod.name
    )
}
