//! How clusters are and what the controller does with them, laid out as one tree each, in the manner of KUDO's
//! `plan status`.
//!
//! Must not know: clients. The JSON is a contract; fields are added, never renamed:
//!
//! ```text
//! { "clusters": [{ "namespace", "name", "state", "says", "id": of the cluster, once that is recorded, or null,
//!                  "members": [{ "name", "says", "ready", "verified", "node": or null,
//!                                "seen": looks, waits or receives, what a probe saw last of one that served before, or null,
//!                                "start": what it reported of a start that has not come to its end, or null:
//!                                         { "says", "at", "id", "seqno", "safeToBootstrap",
//!                                           "doing": looks, waits or receives, as a probe saw it, or null } }],
//!                  "leftClaims": [name],
//!                  "plan": { "status", "steps": [{ "name", "status", "says" }] } }] }
//! ```
//!
//! A status is `COMPLETE`, `IN_PROGRESS`, `PENDING` (something must come first) or `SKIPPED` (nothing to do).

use serde_json::{Value, json};

use crate::galera::identity::Identity;
use crate::galera::start_note::{Doing, Start, StartNote};
use crate::inject;
use crate::plan::bootstrap::{self, Stage};
use crate::view::{Cluster, Member, View};

/// One cluster.
#[derive(Debug)]
pub struct Status<'a> {
    cluster: &'a Cluster,
    state: &'static str,
    steps: Vec<Step>,
    /// What somebody should do about it.
    advice: Option<String>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    status: &'static str,
    says: String,
}

const COMPLETE: &str = "COMPLETE";
const IN_PROGRESS: &str = "IN_PROGRESS";
const PENDING: &str = "PENDING";
const SKIPPED: &str = "SKIPPED";

impl<'a> Status<'a> {
    /// Of this cluster.
    pub fn of(cluster: &'a Cluster, view: &View<'a>) -> Self {
        let stage = bootstrap::stage(cluster, view);
        let kept = matches!(stage, Stage::Kept(_));
        let mut steps =
            vec![node(cluster, &stage), members(cluster), removal(stage), membership(cluster, view)];
        if view.left_alone(&cluster.id.namespace) {
            for step in steps.iter_mut().skip(2) {
                (step.status, step.says) = (SKIPPED, "the namespace is in mode off".to_owned());
            }
        }
        // What keeps the bootstrap node says it already.
        let advice = bootstrap::unverified(cluster).filter(|_| !kept);
        Self { cluster, state: view.state(cluster).name(), steps, advice }
    }

    fn plan(&self) -> &'static str {
        let over = |step: &Step| matches!(step.status, COMPLETE | SKIPPED);
        if self.steps.iter().all(over) { COMPLETE } else { IN_PROGRESS }
    }
}

/// The node that founds the cluster.
fn node(cluster: &Cluster, stage: &Stage) -> Step {
    let pods: Vec<_> = cluster.bootstrap.pods.iter().filter(|pod| pod.bootstrap).collect();
    let (status, says) = match (stage, pods.first()) {
        (_, Some(pod)) if pod.ready => (COMPLETE, format!("{} is Ready", pod.name)),
        (_, Some(pod)) if pod.going => (COMPLETE, format!("{} is being deleted", pod.name)),
        (_, Some(pod)) => (IN_PROGRESS, format!("{} is not Ready yet", pod.name)),
        (Stage::Removed, _) => (COMPLETE, "removed".to_owned()),
        _ if cluster.has_data() => (SKIPPED, "the members hold data and need none".to_owned()),
        (Stage::Kept(_), _) => (PENDING, "its pod does not exist".to_owned()),
        _ => (PENDING, "there is none: the first member founds nothing by itself".to_owned()),
    };
    Step { name: "bootstrap node", status, says }
}

fn members(cluster: &Cluster) -> Step {
    let asked = usize::try_from(cluster.workload.replicas()).unwrap_or_default();
    let all = asked > 0 && cluster.ready() >= asked && cluster.leaving.is_empty();
    let status = match (all, cluster.workload.rolls()) {
        (true, false) => COMPLETE,
        (_, true) => IN_PROGRESS,
        _ if asked == 0 => SKIPPED,
        _ => IN_PROGRESS,
    };
    let rolls = if cluster.workload.rolls() { ", a roll-out runs" } else { "" };
    Step { name: "members", status, says: format!("{}{rolls}", cluster.describe()) }
}

fn removal(stage: Stage) -> Step {
    let (status, says) = match stage {
        Stage::Absent => (SKIPPED, "there is none".to_owned()),
        Stage::Removed => (COMPLETE, String::new()),
        Stage::LeftAlone(why) => (SKIPPED, why),
        Stage::Kept(why) => (PENDING, why),
        Stage::Going(what, _) => (IN_PROGRESS, what),
    };
    Step { name: "remove the bootstrap node", status, says }
}

fn membership(cluster: &Cluster, view: &View<'_>) -> Step {
    let outdated = inject::outdated(cluster, view);
    let names: Vec<_> = outdated.iter().map(|(pod, _)| &*pod.name).collect();
    let (status, says) = match &names[..] {
        [] => (COMPLETE, String::new()),
        names => (IN_PROGRESS, format!("the address list is to reach {}", names.join(", "))),
    };
    Step { name: "membership", status, says }
}

/// How one member is, in two words or three.
fn word(member: &Member) -> String {
    match (&member.pod, member.trouble()) {
        (_, Some(trouble)) => trouble.to_owned(),
        (Some(pod), None) if pod.verified => "Synced".to_owned(),
        _ => "Ready, unverified".to_owned(),
    }
}

/// Of a cluster of which nobody is Ready: who has the newest data, if each member reported what it has.
fn newest(cluster: &Cluster) -> Option<String> {
    let known: Vec<_> = cluster
        .starts()
        .filter_map(|(name, note)| Some((name, note.position()?, note.is_compared())))
        .collect();
    if cluster.ready() > 0 || known.len() < cluster.members.len() {
        return None;
    }
    let (_, first, _) = known.first()?;
    if known.iter().any(|(_, position, _)| position.id != first.id) {
        return Some("their histories differ, so two clusters were founded: touch nothing and compare their tables first (gatera explain G04)\n".to_owned());
    }
    let highest = known.iter().map(|(_, position, _)| position.seqno).max()?;
    let have = known.iter().filter(|(_, it, _)| it.seqno == highest);
    // A table that was about to change may be half changed: of two with the same position the other one is better.
    let whole = have.clone().any(|(_, _, compared)| *compared);
    let have: Vec<_> =
        have.filter(|(_, _, compared)| *compared || !whole).map(|(name, _, _)| *name).collect();
    Some(format!(
        "newest data: {} (seqno {highest}), as reported at the start; the way back: gatera explain G04\n",
        have.join(", ")
    ))
}

/// Of a cluster of which nobody is Ready, although servers run: whom they wait for, and how that ends.
fn waits(cluster: &Cluster) -> Option<String> {
    let doing = |member: &&Member| {
        let pod = member.pod.as_ref().filter(|pod| !pod.ready);
        pod.and_then(|pod| pod.start_note.as_ref()?.doing()) == Some(Doing::Waits)
    };
    let (waiting, others): (Vec<_>, Vec<_>) = cluster.members.iter().partition(doing);
    if cluster.ready() > 0 || waiting.is_empty() {
        return None;
    }
    let names = |members: &[&Member]| members.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ");
    let end = match &others[..] {
        [] => "their last views differ, or one of them is cut off: check the network, then".to_owned(),
        others => format!("bring back {}; if that cannot be,", names(others)),
    };
    Some(format!(
        "{} form the cluster again by themselves once every member of their last view is back: {end} start from the newest data (gatera explain G04)\n",
        names(&waiting)
    ))
}

/// Of a cluster of which nobody is Ready, although servers that served still run.
fn without_majority(cluster: &Cluster) -> Option<String> {
    let waits: Vec<_> =
        cluster.lost().filter(|(_, doing)| *doing == Doing::Waits).map(|(name, _)| name).collect();
    (cluster.ready() == 0 && !waits.is_empty()).then(|| {
        format!(
            "{} still run without a majority, and serve again by themselves when they meet the others; if those do not come back: on \
             the one with the highest wsrep_last_committed, and on that one only: SET GLOBAL wsrep_provider_options='pc.bootstrap=1'\n",
            waits.join(", ")
        )
    })
}

/// For a person.
pub fn text(all: &[Status<'_>]) -> String {
    all.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(status: &Status<'_>) -> String {
    let Status { cluster, state, steps, advice } = status;
    let mut text = format!("{}  {state}  {}\n", cluster.id, cluster.describe());
    if let Some(identity) = cluster.identity() {
        text.push_str(&format!("├── Identity {identity}\n"));
    }
    text.push_str("├── Members\n");
    let rows: Vec<_> = cluster.members.iter().map(|it| (it, word(it))).collect();
    let wide = |words: &mut dyn Iterator<Item = usize>| words.max().unwrap_or_default();
    let names = wide(&mut rows.iter().map(|(it, _)| it.name.len()));
    let words = wide(&mut rows.iter().map(|(_, word)| word.len()));
    let lines = rows.iter().map(|(member, word)| {
        let node = member.pod.as_ref().map_or("", |pod| &pod.node);
        format!("{:names$}  {word:words$}  {node}", member.name)
    });
    branches(&mut text, "│   ", &lines.collect::<Vec<_>>());
    let starts: Vec<_> = cluster.starts().map(|(name, note)| format!("{name:names$}  {note}")).collect();
    if !starts.is_empty() {
        text.push_str("├── Where members that have not joined start from, as each reported\n");
        branches(&mut text, "│   ", &starts);
    }
    let lost = cluster.lost().map(|(name, doing)| format!("{name:names$}  {}", doing.says_afterwards()));
    let lost: Vec<_> = lost.collect();
    if !lost.is_empty() {
        text.push_str("├── What a probe saw last of members that served before\n");
        branches(&mut text, "│   ", &lost);
    }
    let left: Vec<_> = cluster.left_claims().map(|claim| claim.name.clone()).collect();
    if !left.is_empty() {
        text.push_str("├── Claims of members that are gone, kept with their data\n");
        branches(&mut text, "│   ", &left);
    }
    text.push_str(&format!("└── Plan deploy (serial) [{}]\n", status.plan()));
    let lines = steps.iter().map(|Step { name, status, says }| match &**says {
        "" => format!("Step {name} [{status}]"),
        says => format!("Step {name} [{status}] ({says})"),
    });
    branches(&mut text, "    ", &lines.collect::<Vec<_>>());
    if let Some(advice) = advice {
        text.push_str(&format!("unverified: {advice}\n"));
    }
    for line in [waits(cluster), without_majority(cluster), newest(cluster)].into_iter().flatten() {
        text.push_str(&line);
    }
    text
}

fn branches(text: &mut String, indent: &str, lines: &[String]) {
    for (index, line) in lines.iter().enumerate() {
        let branch = if index + 1 == lines.len() { "└──" } else { "├──" };
        text.push_str(format!("{indent}{branch} {line}").trim_end());
        text.push('\n');
    }
}

/// For a program.
pub fn json(all: &[Status<'_>]) -> Value {
    json!({ "clusters": all.iter().map(cluster).collect::<Vec<_>>() })
}

fn start(told: &StartNote) -> Value {
    let (at, safe) = match told {
        StartNote::Started(Start { at, safe_to_bootstrap, .. }) => (Some(at.to_string()), *safe_to_bootstrap),
        StartNote::Refused(_) => (None, None),
    };
    let position = told.position();
    json!({
        "says": told.to_string(),
        "at": at,
        "id": position.map(|it| &it.id),
        "seqno": position.map(|it| it.seqno),
        "safeToBootstrap": safe,
        "doing": told.doing().map(Doing::name),
    })
}

fn cluster(status: &Status<'_>) -> Value {
    let Status { cluster, state, steps, .. } = status;
    let member = |it: &Member| {
        let pod = it.pod.as_ref();
        json!({
            "name": it.name,
            "says": word(it),
            "ready": it.ready(),
            "verified": pod.is_some_and(|pod| pod.verified),
            "node": pod.map(|pod| &pod.node).filter(|node| !node.is_empty()),
            "seen": pod.and_then(|pod| pod.seen).map(Doing::name),
            "start": pod.filter(|_| !it.ready()).and_then(|pod| pod.start_note.as_ref()).map(start),
        })
    };
    let step = |Step { name, status, says }: &Step| json!({ "name": name, "status": status, "says": says });
    json!({
        "namespace": cluster.id.namespace,
        "name": cluster.id.name,
        "state": state,
        "says": cluster.describe(),
        "id": cluster.identity().map(Identity::as_str),
        "members": cluster.members.iter().map(member).collect::<Vec<_>>(),
        "leftClaims": cluster.left_claims().map(|claim| &claim.name).collect::<Vec<_>>(),
        "plan": { "status": status.plan(), "steps": steps.iter().map(step).collect::<Vec<_>>() },
    })
}
