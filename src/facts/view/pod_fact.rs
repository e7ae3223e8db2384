//! What is kept of a pod: a thousandth of it matters once it runs.
//!
//! Must not know: which cluster it belongs to. Beside what its object says, it remembers what its server told in other ways,
//! by a probe or its last words.

use jiff::{SignedDuration, Timestamp};

use super::{TEMPLATE, what_runs};
use crate::galera::adopt::READER;
use crate::galera::runs::Runs;
use crate::galera::start::EntryPoint;
use crate::galera::start_report::{JoinPhase, REFUSED as START_REFUSED, StartReport};
use crate::galera::{adopt, server};
use crate::marks;
use crate::revision::Revision;
use objects::{Container, Fingerprint, Handler, Labels, Pod, Volume};

/// What is kept of a pod: a thousandth of it matters once it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub struct PodFact {
    /// Its name.
    pub name: String,
    /// Differs when it was re-created.
    pub uid: String,
    /// Kind and name of its controller; of a member that was left behind, the StatefulSet that is gone.
    pub owner: Option<(String, String)>,
    /// Its StatefulSet was deleted and left it running.
    pub left: bool,
    /// The cluster its labels name.
    pub instance: Option<String>,
    /// Whether it has a label with a value: more of them is not asked.
    pub(super) labels: Box<[Fingerprint]>,
    /// Where it runs.
    pub node: String,
    /// Ready and not going.
    pub ready: bool,
    /// Will not become Ready by waiting.
    pub stuck: bool,
    /// The image of its server cannot be had, or one before it: that is no fault of what the server reads.
    pub lacks_an_image: bool,
    /// Being deleted.
    pub going: bool,
    /// Carries the mark of injection: only then does Ready mean Synced.
    pub verified: bool,
    /// Carries the mark of injection, whatever it says.
    pub injected: bool,
    /// A database server is in it.
    pub server: bool,
    /// The image of its server.
    pub image: String,
    /// An arbitrator is in it, and Ready.
    pub votes: bool,
    /// The server's container runs, as far as the kubelet says.
    pub running: bool,
    /// It runs, or has run.
    pub has_run: bool,
    /// It only reads the data of a member, whose own pod does not run.
    pub reads: Option<Reads>,
    /// Seconds between "stop" and "die".
    pub grace: i64,
    /// It calls itself a bootstrap node.
    pub bootstrap: bool,
    /// The option file that the guard gave it.
    pub my_cnf: Option<String>,
    /// What it knows of its cluster's id.
    pub identity: Option<String>,
    /// Its server starts by the step, or has our probes, so it can tell which cluster it is in.
    pub tells: bool,
    /// Its server starts by the step.
    pub step: bool,
    /// Started after a crash, its server knows its position: the step asks for it, or the image does.
    pub recovers: bool,
    /// How often its server's container was started again.
    pub restarts: i64,
    /// Since when it is not Ready, or no node takes it.
    pub unready: Option<Timestamp>,
    /// What Kubernetes says of why nothing runs in it.
    pub held_up_by: Option<Box<str>>,
    /// Since when its server's container runs.
    pub since: Option<Timestamp>,
    /// What its server read of its ConfigMaps when it started, if it was given a copy.
    pub revision: Option<Revision>,
    /// The template that it was made from, by the StatefulSet controller's word for it.
    pub template: String,
    /// Its cluster address is left alone.
    pub keeps_address: bool,
    /// What its server reported of a start that has not come to its end.
    pub start_note: Option<Box<StartReport>>,
    /// What a probe saw last of a server that has joined and is not Ready.
    pub seen: Option<JoinPhase>,
    /// When its server's container began to run the last time, if it has not started well.
    pub began: Option<Timestamp>,
}

/// Whose data a pod reads. What it tells is no proof, but whoever may make a pod with a member's claim may also write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The member.
    pub member: String,
    /// The pod of that member, by uid: what was read is true as long as that one has not run.
    pub uid: String,
    /// The claims that its server has.
    pub claims: Vec<String>,
}

impl Reads {
    /// It says so, nobody makes it anew, it is of that pod, and has the step in front.
    fn of(pod: &Pod, server: Option<&Container>) -> Option<Self> {
        let member = pod.metadata.labels.get(READER).filter(|_| pod.metadata.controller().is_none())?;
        let owner =
            pod.metadata.owner_references.iter().find(|it| it.kind == "Pod" && *it.name == **member)?;
        let server = server.filter(|server| EntryPoint::of(server) == EntryPoint::Step)?;
        let mounts = |volume: &&Volume| server.volume_mounts.iter().any(|it| it.name == volume.name);
        let claims =
            pod.spec.volumes.iter().filter(mounts).filter_map(|it| it.persistent_volume_claim.as_ref());
        let claims = claims.map(|it| it.claim_name.clone()).collect();
        Some(Self { member: (**member).to_owned(), uid: owner.uid.clone(), claims })
    }
}

/// Of what Kubernetes says of a pod, in characters.
const LONGEST_WORDS: usize = 300;
/// So many seconds lie between the first probe that fails and the moment when the pod is not Ready any more.
const A_FEW_PROBES: i64 = 30;
/// A member that is not Ready for so long, without a sign of progress, hangs.
pub const HANGS: SignedDuration = SignedDuration::from_mins(10);

impl PodFact {
    /// The Deployment that makes it: its `ReplicaSet` is named after that, with a hash at the end.
    pub fn deployment(&self) -> Option<&str> {
        let (kind, set) = self.owner.as_ref()?;
        (kind == "ReplicaSet").then(|| set.rsplit_once('-').map_or(&**set, |(name, _)| name))
    }

    /// A Service with this selector leads to it. An empty one leads to no pod.
    pub fn is_selected_by(&self, selector: &Labels) -> bool {
        !selector.is_empty()
            && selector.iter().all(|(key, value)| self.labels.contains(&fingerprint(key, value)))
    }

    /// What its server does as long as it has not joined: as a probe saw it last, or as it reported.
    pub fn doing(&self) -> Option<JoinPhase> {
        self.seen.or_else(|| self.start_note.as_deref()?.doing())
    }

    /// Why its server ended at its last start, where that is an option that it does not take.
    pub fn ended(&self) -> Option<&str> {
        self.start_note.as_deref()?.ended()
    }

    /// It has not been Ready for [`HANGS`], and does not say that it receives a copy.
    pub fn is_late(&self, now: Timestamp) -> bool {
        // A container that started again begins anew.
        let since = self.unready.map(|unready| self.since.map_or(unready, |since| unready.max(since)));
        let lasts = since.is_some_and(|since| now.duration_since(since) >= HANGS);
        !self.ready && !self.going && lasts && self.doing() != Some(JoinPhase::Receives)
    }

    /// It is late, and no waiting makes it Ready: no node takes it, or its own probe said what its server waits for. One of which
    /// nothing is known may copy, or catch up, for hours.
    pub fn hangs(&self, now: Timestamp) -> bool {
        self.is_late(now) && (self.node.is_empty() || self.doing().is_some())
    }

    /// Its server told this, by another way than its pod. It counts in the run in which it was told: what is older was before it
    /// went on. When that run has ended only what it left behind counts, which is emptied when it joins: it may have gone on. Of
    /// one start the last word counts: what is told comes in its order.
    pub fn heard(&mut self, note: StartReport) {
        let (StartReport::Started(start), Some(began), true) = (&note, self.began, self.running) else {
            return;
        };
        let newer = |known: &StartReport| match known {
            StartReport::Started(known) => known.at <= start.at,
            // It refused in an earlier run; this one goes on.
            StartReport::Refused(_) => true,
        };
        // Kubelets write whole seconds.
        let of_this_run = start.at.as_second() >= began.as_second();
        if !self.ready && of_this_run && self.start_note.as_deref().is_none_or(newer) {
            self.start_note = Some(Box::new(note));
        }
    }

    /// A readiness probe saw this, at this time; `None`: something that needs no name. It is told in its order, and what it did in an
    /// earlier run of the server, or before it was Ready the last time, is over.
    pub fn seen(&mut self, doing: Option<JoinPhase>, at: Timestamp) {
        let of_this_run = self.since.is_some_and(|since| since.as_second() <= at.as_second());
        // A pod is not Ready after some probes that failed.
        let lasts = self.unready.is_none_or(|since| since.as_second() <= at.as_second() + A_FEW_PROBES);
        if self.running && !self.ready && self.began.is_none() && of_this_run && lasts {
            self.seen = doing;
        }
    }

    /// About as many bytes as it takes in memory.
    pub(super) fn weight(&self) -> usize {
        let Self { name, uid, owner, instance, node, image, my_cnf, identity, template, .. } = self;
        let owner = owner.as_ref().map_or(0, |(kind, name)| kind.len() + name.len());
        let marks = [instance, my_cnf, identity].into_iter().flatten().map(String::len).sum::<usize>();
        let copies = self.revision.iter().flat_map(Revision::copies).map(|name| name.len()).sum::<usize>();
        let claims = self.reads.iter().flat_map(|it| &it.claims).map(String::len).sum::<usize>();
        let texts = [name, uid, node, image, template].map(String::len).into_iter().sum::<usize>();
        size_of::<Self>() + size_of_val(&*self.labels) + texts + owner + marks + copies + claims
    }

    /// What it told.
    pub fn words(&self) -> (Option<JoinPhase>, Option<&StartReport>) {
        (self.seen, self.start_note.as_deref())
    }

    /// The pod as it was before may have told what it still does.
    pub(super) fn remembering(self, before: &Self) -> Self {
        let same = self.uid == before.uid && self.since == before.since && self.began == before.began;
        if self.ready || !same {
            return self;
        }
        Self {
            seen: before.seen,
            start_note: before.start_note.clone().or_else(|| self.start_note.clone()),
            ..self
        }
    }

    /// Keeps what matters.
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let server = server::in_pod(meta, &pod.spec);
        let reads = Reads::of(pod, server);
        let left_by = what_runs::left_by(pod);
        Self {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            owner: meta
                .controller()
                .map(|owner| (owner.kind.clone(), owner.name.clone()))
                .or_else(|| left_by.map(|set| ("StatefulSet".to_owned(), set.to_owned()))),
            left: left_by.is_some(),
            instance: adopt::instance(&meta.labels).map(str::to_owned),
            labels: meta.labels.iter().map(|(key, value)| fingerprint(key, value)).collect(),
            node: pod.spec.node_name.clone(),
            ready: pod.ready(),
            stuck: pod.stuck(),
            lacks_an_image: server.is_some_and(|server| pod.lacks_an_image(&server.name)),
            going: meta.going(),
            verified: meta.mark(marks::INJECTED).is_some_and(|mark| !mark.ends_with(marks::UNPROVEN)),
            injected: meta.mark(marks::INJECTED).is_some(),
            server: server.is_some(),
            image: server.map_or(String::new(), |server| server.image.clone()),
            votes: pod.ready()
                && !meta.going()
                && pod.spec.containers.iter().any(|it| Runs::of(it) == Runs::Arbitrator),
            running: server.is_some_and(|server| pod.runs(&server.name)),
            has_run: server.is_some_and(|server| pod.has_run(&server.name)),
            grace: pod.spec.grace(),
            bootstrap: adopt::is_bootstrap(&meta.labels),
            my_cnf: meta.mark(marks::MY_CNF).map(str::to_owned),
            identity: meta.mark(marks::IDENTITY).map(str::to_owned),
            tells: server
                .is_some_and(|server| EntryPoint::of(server) == EntryPoint::Step || has_our_probe(server)),
            step: server.is_some_and(|server| EntryPoint::of(server) == EntryPoint::Step),
            recovers: server.is_some_and(|server| EntryPoint::of(server).recovers()),
            restarts: server.map_or(0, |server| pod.restarts(&server.name)),
            unready: pod.unready_since().and_then(|since| since.parse().ok()),
            held_up_by: pod
                .held_up_by()
                .map(|says| says.chars().take(LONGEST_WORDS).collect::<String>().into()),
            since: server.and_then(|server| pod.since(&server.name)?.parse().ok()),
            revision: meta.mark(marks::REVISION).and_then(Revision::read),
            template: meta.labels.get(TEMPLATE).cloned().unwrap_or_default(),
            keeps_address: meta.mark(marks::ADDRESS) == Some("keep"),
            start_note: server.and_then(|server| start_note(pod, server, reads.is_some())).map(Box::new),
            reads,
            seen: None,
            began: server.and_then(|server| pod.began(&server.name)?.parse().ok()),
        }
    }
}

/// Of a label with its value: keys have no `=` in them.
fn fingerprint(key: &str, value: &str) -> Fingerprint {
    Fingerprint::of(&format!("{key}={value}"))
}

/// What its container left behind. Only our probes empty it when joining is over; elsewhere it may be from long ago, but where nobody
/// joins.
fn start_note(pod: &Pod, server: &Container, reads: bool) -> Option<StartReport> {
    let words = pod.last_words(&server.name)?;
    // A server that leaves no words has the end of its log there, where the step told of this start, too: by now it is old.
    let told =
        ["start of ", "Startup probe failed: ", START_REFUSED].iter().any(|begins| words.starts_with(begins));
    let mut note = StartReport::read(words).filter(|_| told && words.trim_end().lines().count() == 1)?;
    // What it did in its last run is over when it runs again.
    if pod.runs(&server.name) {
        note = note.without_doing();
    }
    Some(note).filter(|note| reads || has_our_probe(server) || matches!(note, StartReport::Refused(_)))
}

fn has_our_probe(server: &Container) -> bool {
    let ours = |probe: &Handler| probe.exec.command.iter().any(|it| it.look().ends_with("/wait-for-sync.sh"));
    [&server.startup_probe, &server.readiness_probe].into_iter().flatten().any(ours)
}
