//! The facts that are kept of a pod: of the object of a running pod, only a small part matters.
//!
//! Must not know: which cluster the pod belongs to. Besides facts from the pod's object, a [`PodFact`] keeps what its
//! server reported through a probe or its termination message.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{TEMPLATE_LABEL, orphans, room};
use crate::galera::adopt::READER_LABEL;
use crate::galera::runs::Runs;
use crate::galera::start::EntryPoint;
use crate::galera::start_report::{JoinPhase, REFUSED as START_REFUSED, StartReport};
use crate::galera::{adopt, server};
use crate::marks;
use crate::revision::Revision;
use objects::{Container, ContainerStatus, Fingerprint, Handler, Labels, Pod, Volume, Workload};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub struct PodFact {
    pub name: String,
    /// The uid, which differs after the pod was re-created.
    pub uid: String,
    /// Kind and name of its controller; for a member of a deleted StatefulSet, that StatefulSet.
    pub owner: Option<(String, String)>,
    /// The StatefulSet that was deleted and left the pod running, as the pod shows it.
    pub orphan_of: Option<Arc<Workload>>,
    /// The cluster that the pod's labels name.
    pub instance: Option<String>,
    /// Fingerprints of the pod's labels with their values, of which nothing else is needed.
    pub(super) labels: Box<[Fingerprint]>,
    pub node: String,
    /// The pod is Ready and not being deleted.
    pub ready: bool,
    /// Waiting does not make the pod Ready.
    pub stuck: bool,
    /// The image of its server, or of a container before it, cannot be pulled: the server's configuration is not the
    /// cause of the failure.
    pub lacks_an_image: bool,
    pub terminating: bool,
    /// The pod carries a valid mark of injection: only then does Ready mean Synced.
    pub verified: bool,
    /// The pod carries a mark of injection, with any value.
    pub injected: bool,
    /// The pod has a database server.
    pub server: bool,
    /// The image of its server.
    pub image: String,
    /// The pod has an arbitrator, and is Ready.
    pub votes: bool,
    /// The server's container runs, as far as the kubelet reports.
    pub running: bool,
    /// The server's container runs, or has run.
    pub has_run: bool,
    /// The pod only reads the data of a member, whose own pod does not run.
    pub reads: Option<Reads>,
    /// The grace period for termination, in seconds.
    pub grace: i64,
    /// The pod has the label of a bootstrap node.
    pub bootstrap: bool,
    /// The option file that the guard wrote for its server, in a mark on the pod.
    pub my_cnf: Option<String>,
    /// The identity of its cluster, as written on the pod.
    pub identity: Option<String>,
    /// The step script starts the pod's server, or the server has the guard's probes, so it can report its cluster's
    /// identity.
    pub reports_identity: bool,
    /// The step script starts the pod's server.
    pub step: bool,
    /// The pod's server knows its position after a crash, because the step script or the image recovers it.
    pub recovers: bool,
    /// The number of restarts of the server's container.
    pub restarts: i64,
    /// The time since which the pod is not Ready, or no node takes it.
    pub unready_since: Option<Timestamp>,
    /// Kubernetes' reason why nothing runs in the pod.
    pub held_up_by: Option<Box<str>>,
    /// The time since which the server's container runs.
    pub running_since: Option<Timestamp>,
    /// The snapshots of ConfigMaps that its server read when it started, if it was given any.
    pub revision: Option<Revision>,
    /// The template that it was created from, by the StatefulSet controller's name for it.
    pub template: String,
    /// An annotation asks the guard to leave its cluster address unchanged.
    pub keeps_address: bool,
    /// The report of its server's start, while the server has not joined.
    pub start_report: Option<Box<StartReport>>,
    /// The phase that a probe last reported of a server that has joined and is not Ready.
    pub seen: Option<JoinPhase>,
    /// The time of the last start of the server's container, while its startup probe has not succeeded.
    pub starting_since: Option<Timestamp>,
}

/// The member whose data a pod reads. The pod's report is not a proof, but a user who could forge it may create pods with
/// the member's claim, and so could also change the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    pub member: String,
    /// The uid of that member's pod: the position is true as long as that pod has not run.
    pub uid: String,
    /// The claims that its server mounts.
    pub claims: Vec<String>,
}

impl Reads {
    /// Returns the member whose data this pod reads. A reader pod has no controller that re-creates it, is owned by the
    /// member's pod, and has a server that the step script starts.
    fn of(pod: &Pod, step_server: Option<&Container>) -> Option<Self> {
        let member = pod.metadata.labels.get(READER_LABEL).filter(|_| pod.metadata.controller().is_none())?;
        let owner =
            pod.metadata.owner_references.iter().find(|it| it.kind == "Pod" && *it.name == **member)?;
        let server = step_server?;
        let mounts = |volume: &&Volume| server.volume_mounts.iter().any(|it| it.name == volume.name);
        let claims =
            pod.spec.volumes.iter().filter(mounts).filter_map(|it| it.persistent_volume_claim.as_ref());
        let claims = claims.map(|it| it.claim_name.clone()).collect();
        Some(Self { member: (**member).to_owned(), uid: owner.uid.clone(), claims })
    }
}

/// The number of characters that are kept of a Kubernetes message.
pub(super) const LONGEST_MESSAGE: usize = 300;
/// The largest number of seconds from the first failed probe until the pod is not Ready any more.
const PROBES_FAIL_WITHIN: i64 = 30;
/// The time after which a member that is not Ready, and shows no sign of progress, counts as hanging.
pub const HANGS_AFTER: SignedDuration = SignedDuration::from_mins(10);

impl PodFact {
    /// Returns the Deployment that creates it: the name of its `ReplicaSet` is the Deployment's with a hash at the end.
    pub fn deployment(&self) -> Option<&str> {
        let (kind, set) = self.owner.as_ref()?;
        (kind == "ReplicaSet").then(|| set.rsplit_once('-').map_or(&**set, |(name, _)| name))
    }

    /// Returns whether a Service with this selector leads to it. An empty selector leads to no pod.
    pub fn is_selected_by(&self, selector: &Labels) -> bool {
        !selector.is_empty()
            && selector.iter().all(|(key, value)| self.labels.contains(&fingerprint(key, value)))
    }

    /// Returns the phase of a server that is not Ready: as a probe last reported it, or else as the start report says.
    pub fn phase(&self) -> Option<JoinPhase> {
        self.seen.or_else(|| self.start_report.as_deref()?.phase())
    }

    /// Returns why its server ended at its last start, if the cause is an option that it does not accept.
    pub fn ended(&self) -> Option<&str> {
        self.start_report.as_deref()?.ended()
    }

    /// Returns whether the pod has not been Ready for [`HANGS_AFTER`], and does not report a state transfer.
    pub fn is_late(&self, now: Timestamp) -> bool {
        // A container that was restarted counts from its restart.
        let since =
            self.unready_since.map(|unready| self.running_since.map_or(unready, |since| unready.max(since)));
        let is_long = since.is_some_and(|since| now.duration_since(since) >= HANGS_AFTER);
        !self.ready && !self.terminating && is_long && self.phase() != Some(JoinPhase::Receives)
    }

    /// Returns whether the pod is late, and waiting does not make it Ready: no node takes it, or its own probe reported
    /// what its server waits for. A server without a report may copy, or catch up, for hours.
    pub fn hangs(&self, now: Timestamp) -> bool {
        self.is_late(now) && (self.node.is_empty() || self.phase().is_some())
    }

    /// Stores a start report that came in an Event and not with the pod. A report counts only in the run in which it was
    /// made: an older one is out of date. Once that run has ended, only the termination message counts, which is
    /// emptied when the server joins. Of several reports of one start the last counts: reports arrive in order.
    pub fn take_report(&mut self, report: StartReport) {
        let (StartReport::Started(start), Some(began), true) = (&report, self.starting_since, self.running)
        else {
            return;
        };
        let supersedes = |known: &StartReport| match known {
            StartReport::Started(known) => known.at <= start.at,
            // The server refused in an earlier run, and runs again now.
            StartReport::Refused(_) => true,
        };
        // Kubelets write times in whole seconds.
        let of_this_run = start.at.as_second() >= began.as_second();
        if !self.ready && of_this_run && self.start_report.as_deref().is_none_or(supersedes) {
            self.start_report = Some(Box::new(report));
        }
    }

    /// Stores the phase that a readiness probe observed at this time; `None`: a state without a name. Reports arrive in
    /// order, and one of an earlier run of the server, or of the time before it was last Ready, is out of date.
    pub fn take_phase(&mut self, phase: Option<JoinPhase>, at: Timestamp) {
        let of_this_run = self.running_since.is_some_and(|since| since.as_second() <= at.as_second());
        // Kubernetes reports a pod as not Ready only after several failed probes.
        let of_this_outage =
            self.unready_since.is_none_or(|since| since.as_second() <= at.as_second() + PROBES_FAIL_WITHIN);
        if self.running && !self.ready && self.starting_since.is_none() && of_this_run && of_this_outage {
            self.seen = phase;
        }
    }

    /// Returns the approximate size of the facts in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let Self { name, uid, owner, instance, node, image, my_cnf, identity, template, .. } = self;
        let owner = owner.as_ref().map_or(0, |(kind, name)| kind.len() + name.len());
        let marks = [instance, my_cnf, identity].into_iter().flatten().map(String::len).sum::<usize>();
        let snapshots =
            self.revision.iter().flat_map(Revision::snapshots).map(|name| name.len()).sum::<usize>();
        let claims = self.reads.iter().flat_map(|it| &it.claims).map(String::len).sum::<usize>();
        let texts = [name, uid, node, image, template].map(String::len).into_iter().sum::<usize>();
        let left = self.orphan_of.as_ref().map_or(0, room::weight);
        size_of::<Self>() + size_of_val(&*self.labels) + texts + owner + marks + snapshots + claims + left
    }

    /// Returns what the server reported: its phase, and its start.
    pub fn reports(&self) -> (Option<JoinPhase>, Option<&StartReport>) {
        (self.seen, self.start_report.as_deref())
    }

    /// Returns these facts with the reports of the pod's earlier version, as far as they are still true.
    pub(super) fn with_reports_of(self, before: &Self) -> Self {
        let same_run = self.uid == before.uid
            && self.running_since == before.running_since
            && self.starting_since == before.starting_since;
        if self.ready || !same_run {
            return self;
        }
        Self {
            seen: before.seen,
            start_report: before.start_report.clone().or_else(|| self.start_report.clone()),
            ..self
        }
    }

    /// Returns what is kept of this pod.
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let server = server::in_pod(meta, &pod.spec);
        let status = server.and_then(|server| pod.container_status(&server.name));
        let entry_point = server.map(EntryPoint::of);
        let step = entry_point == Some(EntryPoint::Step);
        let reads = Reads::of(pod, server.filter(|_| step));
        let orphan_of = orphans::shown_by(pod).map(Arc::new);
        Self {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            owner: meta
                .controller()
                .map(|owner| (owner.kind.clone(), owner.name.clone()))
                .or_else(|| Some(("StatefulSet".to_owned(), orphan_of.as_ref()?.metadata.name.clone()))),
            orphan_of,
            instance: adopt::instance(&meta.labels).map(str::to_owned),
            labels: meta.labels.iter().map(|(key, value)| fingerprint(key, value)).collect(),
            node: pod.spec.node_name.clone(),
            ready: pod.ready(),
            stuck: pod.stuck(),
            lacks_an_image: server.is_some_and(|server| pod.lacks_an_image(&server.name)),
            terminating: meta.is_terminating(),
            verified: meta.mark(marks::INJECTED).is_some_and(|mark| !mark.ends_with(marks::UNPROVEN)),
            injected: meta.mark(marks::INJECTED).is_some(),
            server: server.is_some(),
            image: server.map_or(String::new(), |server| server.image.clone()),
            votes: pod.ready() && pod.spec.containers.iter().any(|it| Runs::of(it) == Runs::Arbitrator),
            running: status.is_some_and(ContainerStatus::runs),
            has_run: server.is_some_and(|server| pod.has_run(&server.name)),
            grace: pod.spec.grace(),
            bootstrap: adopt::is_bootstrap(&meta.labels),
            my_cnf: meta.mark(marks::MY_CNF).map(str::to_owned),
            identity: meta.mark(marks::IDENTITY).map(str::to_owned),
            reports_identity: step || server.is_some_and(has_our_probe),
            step,
            recovers: entry_point.is_some_and(EntryPoint::recovers),
            restarts: status.map_or(0, |status| status.restart_count),
            unready_since: pod.unready_since().and_then(|since| since.parse().ok()),
            held_up_by: pod
                .held_up_by()
                .map(|cause| cause.chars().take(LONGEST_MESSAGE).collect::<String>().into()),
            running_since: status.and_then(|status| status.running_since()?.parse().ok()),
            revision: meta.mark(marks::REVISION).and_then(Revision::read),
            template: meta.labels.get(TEMPLATE_LABEL).cloned().unwrap_or_default(),
            keeps_address: meta.mark(marks::ADDRESS) == Some("keep"),
            start_report: server.and_then(|server| start_report(pod, server, reads.is_some())).map(Box::new),
            reads,
            seen: None,
            starting_since: status.and_then(|status| status.starting_since()?.parse().ok()),
        }
    }
}

/// Hashes a label with its value. An `=` separates them, because keys contain none.
fn fingerprint(key: &str, value: &str) -> Fingerprint {
    Fingerprint::of(&format!("{key}={value}"))
}

/// Returns the report in the termination message of the server's container. Only the guard's probes empty that message after
/// a join; without them it may be out of date, unless the server does not join at all.
fn start_report(pod: &Pod, server: &Container, reads: bool) -> Option<StartReport> {
    let status = pod.container_status(&server.name)?;
    let words = status.termination_message()?;
    // If a server writes no termination message, Kubernetes fills in the end of its log, where the step script may have
    // reported this start, too: by now that report is old.
    let is_ours =
        ["start of ", "Startup probe failed: ", START_REFUSED].iter().any(|start| words.starts_with(start));
    let mut report = StartReport::read(words).filter(|_| is_ours && words.trim_end().lines().count() == 1)?;
    // What the server did in its last run is out of date when it runs again.
    if status.runs() {
        report = report.without_phase();
    }
    Some(report).filter(|report| reads || has_our_probe(server) || matches!(report, StartReport::Refused(_)))
}

fn has_our_probe(server: &Container) -> bool {
    let is_ours =
        |probe: &Handler| probe.exec.command.iter().any(|it| it.look().ends_with("/wait-for-sync.sh"));
    [&server.startup_probe, &server.readiness_probe].into_iter().flatten().any(is_ours)
}
