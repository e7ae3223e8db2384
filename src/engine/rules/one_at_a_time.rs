//! G02: members leave one at a time.
//!
//! Refuses to delete or evict a member while another one is not Ready or was allowed to leave moments ago, while a rollout of the
//! StatefulSet is about to stop the next one, to force a deletion while its server runs, to restart a member whose claim is
//! being deleted before all others are Synced, to restart anybody of a cluster that has lost its identity, to delete one
//! that serves beyond the replicas while another is missing, and to give a member an owner (`metadata.ownerReferences`) with
//! which it would be deleted. A resize (`kubectl patch pod --subresource=resize`) after which the server is restarted in its pod
//! (`resizePolicy`, `RestartContainer`) is judged alike. A member whose server does not run may always be deleted: a crash loop
//! must be curable.
//!
//! # Why
//!
//! A member that is not Ready counts as lost when the majority is counted, and it may be receiving its data from the one
//! that goes. `kubectl delete pod -l app=galera` stops all members at once: none of them knows that it was the last, so
//! none may start first, and the cluster needs a manual bootstrap. A forced deletion frees the name of a pod while its
//! server may still run; its successor opens the same files. A claim that was deleted under a running pod goes as soon
//! as the pod stops, and the member comes back empty.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete pod -l app=galera
//! pod "galera-0" deleted
//! [G02] Pod db/galera-1: galera-0 was allowed to leave 0s ago (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Delete one pod, wait until it is Ready again, then the next: `kubectl rollout restart statefulset NAME` does exactly
//! that. `kubectl drain` needs no help: an eviction that has to wait is answered with 429, and drain tries again. It does
//! need `--delete-emptydir-data`, since gatera adds an emptyDir at `/run/gatera` to every member; nothing of value is in
//! it. If the node of a member is switched off, say so with the taint
//! `node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`; then the control plane removes the pod itself. On a node
//! that still runs, the same taint lets two servers open the same files.
//!
//! # What a member that is not Ready may be
//!
//! `gatera status` and `gatera audit` say which of these it is, and the way out of it. Some of it only members can tell: to their
//! probes, and kubelets keep that as Events, for an hour.
//!
//! | name | what it is | the way out |
//! |---|---|---|
//! | STARTS | it has told nothing yet | wait |
//! | TRANSFER | it receives a copy, of what it missed or of everything | wait; no other member may leave; if its donor restarted, or the copy takes an hour longer than its size needs, `gatera status` prints how to restart it |
//! | LOOKS | it reaches nobody who serves | names and ports; if nobody serves, somebody has to be started first: `gatera recover` |
//! | WAITS | it restored its last view after a crash, and waits for everybody in it | bring back who is away; if that cannot be, `gatera recover` |
//! | CUT-OFF | it served, and reaches too few of its cluster for a majority | it serves again by itself when they meet; if it is certain that no other server runs, `gatera status` tells how it goes on alone |
//! | LEFT | it served, and left its cluster: inconsistent with the others, or it could not write | delete it while others serve: it copies their data |
//! | STALLED | it joins, and nothing comes in: its transfer failed, or its donor is busy with another | delete it: it starts anew |
//! | ELSEWHERE | it is Synced, in another cluster than the one that is recorded | compare their tables; `gatera explain G04` |
//! | FROZEN | clients connect to it, and it does not answer | its log, its disk; delete it while others serve |
//! | DISK-FULL | less than a megabyte is left where its data is | make room, then delete it while others serve |
//! | REFUSED | the step in front of its server did not start it, and says why | what it says |
//! | FAILS | its server falls over again and again | its log; it may be deleted |
//! | NODE-AWAY | the kubelet of its node is not heard | bring the node back; its server may still serve; taint it as out of service only if it is switched off |
//! | LEAVING, MISSING | its pod is being deleted, or is not created | wait; `kubectl describe statefulset` |
//! | BLIND | it may be Ready, but after a crash it would not know its position: no step in front of its server | `gatera explain G19` |
//! | NO-IDENTITY | its cluster was formed after a crash without comparing positions: whoever leaves never joins again | `gatera explain G04` |
//! | TWO-HISTORIES | members hold data of different clusters | compare their tables first |
//!
//! # How to waive it
//!
//! Annotate the pod or its StatefulSet, for an hour at most:
//! `gatera.dev/override: "G02 until=2026-12-01T10:00:00Z reason=…"`; the override of G03 on the StatefulSet releases
//! deletions too, but not evictions.

mod others;
mod strays;

use super::{managed, owners};
use crate::grant;
use crate::rule::{Rule, Verb};
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::quorum::survives;
use facts::galera::server;
use facts::review::{Operation, Review};
use facts::view::condition::Condition;
use facts::view::{Cluster, Member, PodFact, State, View, back_or_out_of_service, transfer};
use objects::{Kind, Object};

pub(super) const RULE: Rule = Rule {
    id: "G02",
    name: "one-at-a-time",
    touches: &[(Kind::Pod, &[Verb::Update, Verb::Delete, Verb::Evict])],
    depends_on_state: true,
    source: include_str!("one_at_a_time.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    if review.operation == Operation::Update {
        return owned(review, view).map_or_else(|| resized(review, view), |found| vec![found]);
    }
    if review.operation != Operation::Delete && review.subresource != "eviction" {
        return Findings::new();
    }
    // The API server shows whom it is asked to delete. The view may be late, and know an earlier pod of that name, or none.
    let shown = match &review.old {
        Some(Object::Pod(pod)) => Some(PodFact::of(pod)),
        _ => None,
    };
    if let Some(found) = strays::left_behind(review, shown.as_ref(), view) {
        return vec![found];
    }
    let Some(leaving) = Leaving::of(review, shown.as_ref(), view) else {
        return strays::judge(review, shown.as_ref(), view).into_iter().collect();
    };
    let found = leaving
        .is_forced()
        .or_else(|| leaving.goes_already().then(Findings::new))
        .or_else(|| leaving.never_comes_back())
        .or_else(|| leaving.loses_its_data())
        .or_else(|| (leaving.nothing_runs() || leaving.is_led()).then(Findings::new))
        .or_else(|| leaving.hangs().then(|| leaving.uncertain()))
        .or_else(|| leaving.is_the_last())
        .or_else(|| leaving.others_are_needed());
    found.unwrap_or_else(|| leaving.uncertain())
}

/// A member that would be deleted with an owner, whatever the others do at that moment.
fn owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    let added = owners::added(review, view)?;
    let seen = view.count(view.cluster_of_pod(&review.namespace, &review.name)?);
    let end = finding(Verdict::Deny, format!("it is a member of a cluster ({seen})"), "", String::new());
    Some(added.finding(&end, review, view))
}

/// The pod stays, and its server is restarted in it: the others have to do without that member meanwhile.
fn resized(review: &Review, view: &View<'_>) -> Findings {
    let Some(Object::Pod(old)) = review.old.as_ref().filter(|_| restarts_its_server(review)) else {
        return Findings::new();
    };
    let shown = PodFact::of(old);
    let Some(leaving) = Leaving::of(review, Some(&shown), view) else { return Findings::new() };
    let found = (leaving.nothing_runs() || leaving.goes_already())
        .then(Findings::new)
        .or_else(|| leaving.never_comes_back())
        .or_else(|| leaving.is_the_last())
        .or_else(|| leaving.others_are_needed());
    let because = |found: Finding| Finding {
        says: format!("the resize restarts its server (resizePolicy), and {}", found.says),
        ..found
    };
    found.unwrap_or_default().into_iter().map(because).collect()
}

/// The server of this pod is restarted by a change of its resources.
pub(super) fn restarts_its_server(review: &Review) -> bool {
    let (Some(Object::Pod(old)), Some(Object::Pod(new))) = (&review.old, &review.new) else { return false };
    let Some(server) = server::in_pod(&old.metadata, &old.spec) else { return false };
    let resized = new.spec.containers.iter().find(|it| it.name == server.name);
    review.subresource == "resize" && resized.is_some_and(|new| server.is_restarted_as(new))
}

/// The cluster of the pod that is to go.
fn cluster_of<'a>(review: &Review, shown: Option<&PodFact>, view: &View<'a>) -> Option<&'a Cluster> {
    match shown.and_then(|pod| pod.owner.as_ref()) {
        Some((kind, owner)) => view.cluster(&review.namespace, owner).filter(|_| kind == "StatefulSet"),
        None => view.cluster_of_pod(&review.namespace, &review.name),
    }
}

/// Less than this is no time to say good-bye and write to disk.
const LEAST_GRACE: i64 = 60;

/// A member that is asked to go.
struct Leaving<'a> {
    review: &'a Review,
    view: &'a View<'a>,
    cluster: &'a Cluster,
    member: &'a Member,
    pod: &'a PodFact,
}

impl<'a> Leaving<'a> {
    fn of(review: &'a Review, shown: Option<&'a PodFact>, view: &'a View<'a>) -> Option<Self> {
        let cluster = cluster_of(review, shown, view)?;
        let member = cluster.member(&review.name)?;
        Some(Self { review, view, cluster, member, pod: shown.or(member.pod.as_deref())? })
    }

    fn others(&self) -> impl Iterator<Item = &Member> {
        self.cluster.members.iter().filter(|member| member.ordinal != self.member.ordinal)
    }

    fn seen(&self) -> String {
        self.view.count(self.cluster)
    }

    /// Asked to go before; once more changes nothing.
    fn goes_already(&self) -> bool {
        self.pod.going
    }

    /// The view is late: it does not know this pod.
    fn is_another(&self) -> bool {
        self.member.pod.as_ref().is_none_or(|known| known.uid != self.pod.uid)
    }

    /// Its container does not run: deleting it costs nothing and may cure it.
    fn nothing_runs(&self) -> bool {
        !self.pod.running
    }

    /// A recovery makes it anew.
    fn is_led(&self) -> bool {
        !self.pod.ready && grant::restarts(self.cluster, &self.member.name, self.view)
    }

    fn is_ready(&self) -> bool {
        self.member.ready() || self.pod.ready
    }

    /// The copy that it receives may never end, and its way out is to begin anew, whatever the others do.
    fn hangs(&self) -> bool {
        let known = !self.is_another() && self.view.state(self.cluster) != State::Unknown;
        known && transfer::hangs(self.cluster, self.member, self.view.now).is_some()
    }

    /// A claim that is being deleted goes with the pod.
    fn loses_its_data(&self) -> Option<Findings> {
        let own = |claim: &&facts::view::ClaimOf| claim.ordinal == self.member.ordinal && claim.going;
        let claim = self.cluster.claims.iter().find(own)?;
        let why = "a claim that was deleted under a running pod goes when the pod stops; the member comes back empty and \
                   copies everything from another";
        let says = format!("its claim {} is being deleted, so its data goes with it", claim.name);
        let reserved = self.view.reservations.besides(self.cluster, &self.member.name);
        let safe = self.view.state(self.cluster) != State::Unknown
            && reserved.is_none()
            && self.others().count() > 0
            && self.others().all(Member::ready);
        let instead = if safe {
            "let the member copy its data back before you touch another".to_owned()
        } else {
            format!(
                "bring all other members to Ready first; {} then returns with a copy of their data",
                self.member.name
            )
        };
        let verdict = if safe { Verdict::Warn } else { Verdict::Deny };
        Some(vec![finding(verdict, format!("{says} ({})", self.seen()), why, instead)])
    }

    /// The grace that is asked for, if it is less than the pod's own.
    fn shorter_grace(&self) -> Option<i64> {
        self.review.options.grace_period_seconds.filter(|grace| *grace < self.pod.grace)
    }

    /// Its grace is cut short: the server may still run when its successor opens the same files.
    fn is_forced(&self) -> Option<Findings> {
        let grace = self.shorter_grace().filter(|grace| *grace < LEAST_GRACE)?;
        if self.nothing_runs() {
            return None;
        }
        if self.view.node_is_gone(&self.pod.node)
            || self.view.node(&self.pod.node).is_some_and(objects::Node::out_of_service)
        {
            return None;
        }
        let says = format!(
            "a grace period of {grace}s instead of its own {}s, while its server runs",
            self.pod.grace
        );
        let why = "a member that is killed does not tell the others that it leaves, and one that is only forgotten still runs: its successor \
                   opens the same files";
        let (again, node) = (self.again(), &self.pod.node);
        let instead = if self.goes_already() {
            let away = self.view.node(node).filter(|it| !it.answers());
            match away {
                Some(_) => format!(
                    "it is being deleted, and goes when node {node} answers again: {}",
                    back_or_out_of_service(node)
                ),
                None => format!(
                    "kubectl -n {} wait --for=delete pod/{} --timeout={}s: it is being deleted, and its server is stopping; if node {node} is \
                     switched off: kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
                    self.review.namespace, self.review.name, self.pod.grace
                ),
            }
        } else if grace == 0 {
            format!(
                "{again}, without --force or --grace-period; if node {node} is switched off: kubectl taint node {node} \
                 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            )
        } else {
            format!("{again}, without --now or --grace-period")
        };
        Some(vec![finding(Verdict::Deny, says, why, instead)])
    }

    /// How it is asked to go once more: as it was.
    fn again(&self) -> String {
        let Review { namespace, name, subresource, .. } = self.review;
        match &**subresource {
            // It waits and tries again by itself.
            "resize" => "repeat the resize".to_owned(),
            "eviction" => {
                format!("kubectl drain {} --ignore-daemonsets --delete-emptydir-data", self.pod.node)
            }
            _ => format!("kubectl -n {namespace} delete pod {name}"),
        }
    }

    /// Nobody would be left, and a member that finds nobody may not start.
    fn is_the_last(&self) -> Option<Findings> {
        let size = i64::try_from(self.cluster.members.len()).unwrap_or(i64::MAX);
        if survives(size, 1, 0) || !self.cluster.has_data() || !self.is_ready() {
            return None;
        }
        let Cluster { id, workload, .. } = self.cluster;
        let says = format!("it is the only member of cluster {} ({})", id.name, self.seen());
        let why = "a member that starts and finds nobody to join gives up after 30 seconds: the cluster would need a \
                   manual bootstrap";
        let replicas = if workload.parallel() { 2 } else { 3 };
        let command = managed::scale(Some(&workload.metadata), &id.namespace, &id.name, replicas);
        let instead = format!("{command}, wait until all are Ready, then restart it");
        Some(vec![finding(Verdict::Deny, says, why, instead)])
    }

    /// Positions without an identity cannot be compared: "IST started with wrong seqno", again and again.
    fn never_comes_back(&self) -> Option<Findings> {
        let lost = self.cluster.has_no_identity() && self.is_ready() && !self.nothing_runs();
        lost.then(|| {
            let says = format!("its cluster has no identity ({}): it would never join again", self.seen());
            let why = "members that formed their cluster after a crash without comparing what they have cannot tell who lacks what: \
                       whoever leaves is lost until the cluster is founded anew";
            let instead = "gatera explain G04, a cluster without an identity (keep the others running, and found the cluster anew from one of them)";
            vec![finding(Verdict::Deny, says, why, instead.to_owned())]
        })
    }

    /// Allowed, with a word where Ready does not prove much.
    fn uncertain(&self) -> Findings {
        let unverified =
            self.cluster.unverified().filter(|member| member.ordinal != self.member.ordinal).count();
        let lasts = Condition::of(self.member, self.view).is_some_and(Condition::lasts);
        let joins = self.member.starting() && !self.is_ready() && self.cluster.has_data() && !lasts;
        let (says, why, instead) = match () {
            () if joins => (
                "it is not Ready yet and may be receiving its data, which then starts over".to_owned(),
                "a transfer that is interrupted begins again from its start",
                "let it finish unless it hangs",
            ),
            () if self.shorter_grace().is_some() => (
                format!("its grace period is cut short, from {}s", self.pod.grace),
                "a donor that is killed before its joiner is done leaves that one with half a database",
                "leave the grace period to the pod",
            ),
            () if unverified > 0 => (
                format!("{unverified} of the others carry no gatera probe, so Ready does not prove Synced"),
                "a probe that only asks for an answer also succeeds on a member that is cut off",
                "look at wsrep_local_state_comment on the others first",
            ),
            () => return Findings::new(),
        };
        vec![finding(Verdict::Warn, says, why, instead.to_owned())]
    }
}

fn finding(verdict: Verdict, says: String, why: &str, instead: String) -> Finding {
    RULE.finding(verdict, "", says, why, instead)
}
