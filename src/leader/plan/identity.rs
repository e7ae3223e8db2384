//! The identity of a cluster: recorded on its StatefulSet once its members agree, so that no other cluster can be
//! founded in its place.
//!
//! Owns: when the reports of members are read ([`must_read_reports`]) and what follows from them ([`conclusion`]). Must not
//! know: Events.
//! A server that has joined reports its cluster's identity through a probe, again and again until the report is read;
//! or it reports that its cluster has none. That is recorded, too: `gatera explain G04` says how to repair such a
//! cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use engine::inject;
use facts::galera::identity::{Identity, IdentityReport};
use facts::marks::recovery::Recovery;
use facts::marks::{FOUNDS, NONE, UNKNOWN};
use facts::view::{Cluster, PodFact, View};

/// The lifetime of an Event: API servers delete Events after an hour.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Reports of pods, by uid, with their time.
pub type PodReports = BTreeMap<String, (Timestamp, IdentityReport)>;

/// What follows from the reports of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// The cluster's identity; `None`: it has none.
    pub identity: Option<Identity>,
    /// Whether it is to be recorded.
    pub is_new: bool,
    /// Name and uid of the pods that reported the identity and are not annotated with it yet.
    pub unannotated: Vec<(String, String)>,
    /// Events about pods that serve another cluster.
    pub events: Vec<super::Announcement>,
}

/// Returns whether the reports of members are to be read. A Ready member may wait until its report is read, or the record
/// may be lost while pods have the identity. Until the Events of its start expire, a pod may also have reported
/// something new: an identity that was never compared, or that its cluster has none.
pub fn must_read_reports(cluster: &Cluster, view: &View<'_>) -> bool {
    let knows_identity =
        |pod: &PodFact| pod.identity.as_deref().is_some_and(|it| Identity::read(it).is_some());
    let started_lately = |pod: &PodFact| {
        pod.running_since.is_some_and(|since| view.now.duration_since(since) < EVENT_LIFETIME)
    };
    let may_report = |pod: &PodFact| {
        started_lately(pod) && (knows_identity(pod) && !pod.recovers || pod.identity.as_deref() == Some(NONE))
    };
    let waits_for_record = |pod: &PodFact| {
        still_reports(pod) || cluster.identity().is_none() && knows_identity(pod) || may_report(pod)
    };
    inject::identity::is_enforced(cluster, view)
        && proven(cluster, view).any(|pod| pod.reports_identity && waits_for_record(pod))
}

/// Returns whether the pod still reports: it does so until its annotation holds an identity, or says that its cluster has
/// none.
fn still_reports(pod: &PodFact) -> bool {
    let is_undecided = |text: &str| matches!(text, UNKNOWN | FOUNDS) || Recovery::is_permission(text);
    pod.identity.as_deref().is_some_and(is_undecided)
}

/// Lists the pods whose readiness proves that they are Synced.
pub fn proven<'a>(cluster: &'a Cluster, view: &View<'a>) -> impl Iterator<Item = &'a PodFact> {
    inject::identity::pods(cluster, view).filter(|pod| pod.ready && pod.verified)
}

/// Returns the cluster's identity, if it follows from the reports. The recorded identity stays as long as one pod that
/// serves reports it. If no pod does, and all that serve report the same identity, that identity counts: only a pod that
/// was allowed to found a cluster can have become Ready with another identity. While no identity is recorded, or if the
/// reports say that there is none, most members must agree.
pub fn conclusion(cluster: &Cluster, view: &View<'_>, reports: &PodReports) -> Option<Conclusion> {
    use IdentityReport::{HasNone, Is};
    let report_of = |pod: &PodFact| {
        let known = || match pod.identity.as_deref()? {
            NONE => Some(HasNone),
            id => Identity::read(id).map(Is),
        };
        // A report of an earlier run of the server may be outdated. Kubelets write whole seconds.
        let is_current =
            |at: &Timestamp| pod.running_since.is_some_and(|since| since.as_second() <= at.as_second());
        reports
            .get(&pod.uid)
            .filter(|(at, _)| is_current(at))
            .map(|(_, report)| report.clone())
            .or_else(known)
    };
    let pods: Vec<_> = proven(cluster, view).filter_map(|pod| Some((pod, report_of(pod)?))).collect();
    let reports: BTreeSet<_> = pods.iter().map(|(_, report)| report).collect();
    let recorded = cluster.identity().cloned().map(Is);
    let concluded = match recorded.filter(|record| reports.contains(record)) {
        Some(record) => record,
        None => {
            let [only] = reports.iter().collect::<Vec<_>>()[..] else { return None };
            let members = pods.iter().filter(|(pod, _)| cluster.member(&pod.name).is_some()).count();
            if (cluster.identity().is_none() || **only == HasNone) && members <= cluster.members.len() / 2 {
                return None;
            }
            (*only).clone()
        }
    };
    let mark = inject::identity::mark_value(concluded.id());
    let unannotated =
        pods.iter().filter(|(pod, reported)| *reported == concluded && pod.identity.as_deref() != Some(mark));
    let unannotated = unannotated.map(|(pod, _)| (pod.name.clone(), pod.uid.clone())).collect();
    let others = pods.iter().filter(|(_, reported)| *reported != concluded);
    let events = others.filter_map(|(pod, reported)| {
        let note = in_another_cluster(pod, reported.id()?, mark);
        Some(super::Announcement { reason: ANOTHER_CLUSTER, note })
    });
    let events = events.collect();
    let identity = concluded.id().cloned();
    let is_new = match &identity {
        Some(identity) => cluster.identity() != Some(identity),
        None => !cluster.has_no_identity(),
    };
    Some(Conclusion { identity, is_new, unannotated, events })
}

/// The Event reason for a pod that serves another cluster than the recorded one.
const ANOTHER_CLUSTER: &str = "AnotherCluster";

/// Returns the text of the Event about this pod.
fn in_another_cluster(pod: &PodFact, reported: &Identity, recorded: &str) -> String {
    format!(
        "pod {} serves cluster {reported}, but {recorded} is recorded: what is written to one never reaches the other; decide which one is right, and compare their tables before you remove a member (gatera explain G04)",
        pod.name
    )
}
