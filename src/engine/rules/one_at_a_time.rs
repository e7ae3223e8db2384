//! G02: members leave one at a time.
//!
//! Refuses to delete or evict a member while another one is not Ready or was allowed to leave moments ago, or while a rollout of
//! the StatefulSet is about to stop the next one; to force a deletion while the server runs; to restart a member whose claim is
//! being deleted before all others are Synced; to restart any member of a cluster that has lost its identity; to delete a pod
//! beyond the replicas that still serves while a member is missing; and to give a member an owner (`metadata.ownerReferences`)
//! with which it would be deleted. A resize (`kubectl patch pod --subresource=resize`) that restarts the server in its pod
//! (`resizePolicy`, `RestartContainer`) is judged in the same way. A member whose server does not run may always be deleted,
//! which may end a crash loop.
//!
//! # Why
//!
//! A member that is not Ready counts as lost for the majority, and it may be receiving its data from the member that is
//! deleted. `kubectl delete pod -l app=galera` stops all members at once: no member records that it stopped last, so
//! none may start first, and the cluster needs a manual bootstrap. A forced deletion frees the name of a pod while its
//! server may still run, and its successor opens the same files. A claim that was deleted while a pod uses it is removed when
//! the pod stops, and the member restarts empty.
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
//! Delete one pod, wait until it is Ready again, then delete the next: `kubectl rollout restart statefulset NAME` does
//! exactly that. `kubectl drain` works as it is: an eviction that has to wait is answered with 429, and drain tries again. It
//! needs `--delete-emptydir-data`, because gatera adds an emptyDir at `/run/gatera` to every member, which holds nothing of
//! value. If the node of a member is switched off, add the taint
//! `node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`; then the control plane removes the pod itself. On a node
//! that still runs, the same taint lets two servers open the same files.
//!
//! # Conditions of a member that is not Ready
//!
//! `gatera status` and `gatera audit` show the condition and the way out. Some conditions are known only from the messages of
//! probes, which kubelets keep as Events for an hour.
//!
//! | name | what it is | the way out |
//! |---|---|---|
//! | STARTS | it has reported nothing yet | wait |
//! | TRANSFER | it receives a copy, of what it missed or of everything | wait; no other member may leave; if its donor restarted, or the copy takes an hour longer than its size needs, `gatera status` prints how to restart it |
//! | LOOKS | it reaches no member that serves | check names and ports; if no member serves, start the cluster: `gatera recover` |
//! | WAITS | it restored its last view after a crash, and waits for every member in it | start the missing members; if that is not possible, `gatera recover` |
//! | CUT-OFF | it served, and now reaches too few members for a majority | it serves again by itself when it reaches them; if it is certain that no other server runs, `gatera status` prints how to continue with it alone |
//! | LEFT | it served, and left its cluster: inconsistent with the others, or it could not write | delete it while others serve: it copies their data |
//! | STALLED | it joins, but receives nothing: its transfer failed, or its donor is busy with another member | delete it: it starts again; if only one member serves, bring back the others first, because that one may need its vote |
//! | ELSEWHERE | it is Synced, but in a cluster other than the recorded one | compare their tables; `gatera explain G04` |
//! | FROZEN | clients connect to it, but it does not answer | check its log and its disk; delete it while others serve |
//! | DISK-FULL | its data volume has less than a megabyte left | make room, then delete it while others serve |
//! | REFUSED | the step script did not start the server, and says why | follow its message |
//! | FAILS | its server crashes repeatedly | read its log; you may delete it |
//! | UNSCHEDULED | no node takes its pod | do what the scheduler asks for: another node, less memory, a volume that another node can mount |
//! | HELD-UP | its pod cannot start: an image, a volume or an object is missing | fix what Kubernetes reports |
//! | NODE-AWAY | the kubelet of its node does not report | bring the node back; the server may still serve; taint the node as out of service only if it is switched off |
//! | LEAVING, MISSING | its pod is being deleted, or is not created | wait; `kubectl describe statefulset` |
//! | BLIND | it may be Ready, but after a crash it would not know its position: it starts without the step script | `gatera explain G19` |
//! | NO-IDENTITY | its cluster was formed after a crash without comparing positions: a member that leaves never joins again | `gatera explain G04` |
//! | TWO-HISTORIES | members hold data of different clusters | compare their tables first |
//!
//! # Exceptions
//!
//! Annotate the pod or its StatefulSet, for an hour at most:
//! `gatera.dev/override: "G02 until=2026-12-01T10:00:00Z reason=…"`; the override of G03 on the StatefulSet covers
//! deletions too, but not evictions.

mod others;
mod strays;

use super::{managed, owners};
use crate::grant;
use crate::rule::{All, Finding, Findings, Review, Rule, Verb, Verdict, View};
use facts::galera::quorum::survives;
use facts::galera::server;
use facts::view::condition::Condition;
use facts::view::{
    Cluster, Freshness, Member, PodFact, State, out_of_service_command, transfer, way_out_of_silent_node,
};
use facts::way_out::{CommandLine, WayOut, page, run, say};
use objects::{Kind, Pod};

pub(super) const RULE: Rule = Rule {
    id: "G02",
    name: "one-at-a-time",
    judges: &[
        (Kind::Pod, &[Verb::Update], All(updated)),
        (Kind::Pod, &[Verb::Delete, Verb::Evict], All(removed)),
    ],
    depends_on_state: true,
    source: include_str!("one_at_a_time.rs"),
};

fn updated(review: &Review, view: &View<'_>) -> Findings {
    owned(review, view).map_or_else(|| resized(review, view), |found| vec![found])
}

fn removed(review: &Review, view: &View<'_>) -> Findings {
    // The request shows the pod that is deleted. The view may be late, and hold an earlier pod of that name, or none.
    let shown = review.change::<Pod>().old.map(PodFact::of);
    if let Some(found) = strays::left_behind(review, shown.as_ref(), view) {
        return vec![found];
    }
    let Some(leaving) = LeavingMember::of(review, shown.as_ref(), view) else {
        return strays::judge(review, shown.as_ref(), view).into_iter().collect();
    };
    let found = leaving
        .forced()
        .or_else(|| leaving.is_terminating().then(Findings::new))
        .or_else(|| leaving.never_comes_back())
        .or_else(|| leaving.loses_its_data())
        .or_else(|| (leaving.nothing_runs() || leaving.is_restarted_by_recovery()).then(Findings::new))
        .or_else(|| leaving.hangs().then(|| leaving.uncertain()))
        .or_else(|| leaving.last_member())
        .or_else(|| leaving.others_are_needed());
    found.unwrap_or_else(|| leaving.uncertain())
}

/// Returns a finding if a member gets an owner with which it would be deleted, regardless of the other members.
fn owned(review: &Review, view: &View<'_>) -> Option<Finding> {
    // Without the old pod no owner is known to be added.
    review.old.as_ref()?;
    let added = owners::added(review, view)?;
    let seen = view.count(view.cluster_of_pod(&review.namespace, &review.name)?);
    let end = finding(Verdict::Deny, format!("it is a member of a cluster ({seen})"), "", String::new());
    Some(added.finding(&end, review, view))
}

/// Returns findings about a resize that restarts the server in its pod: the member is missing meanwhile.
fn resized(review: &Review, view: &View<'_>) -> Findings {
    let Some(old) = review.change::<Pod>().old.filter(|_| restarts_its_server(review)) else {
        return Findings::new();
    };
    let shown = PodFact::of(old);
    let Some(leaving) = LeavingMember::of(review, Some(&shown), view) else { return Findings::new() };
    let found = (leaving.nothing_runs() || leaving.is_terminating())
        .then(Findings::new)
        .or_else(|| leaving.never_comes_back())
        .or_else(|| leaving.last_member())
        .or_else(|| leaving.others_are_needed());
    let because = |found: Finding| Finding {
        says: format!("the resize restarts its server (resizePolicy), and {}", found.says),
        ..found
    };
    found.unwrap_or_default().into_iter().map(because).collect()
}

/// Returns whether a change of resources restarts the server of this pod.
pub(super) fn restarts_its_server(review: &Review) -> bool {
    let Some((old, new)) = review.both::<Pod>() else { return false };
    let Some(server) = server::in_pod(&old.metadata, &old.spec) else { return false };
    let resized = new.spec.containers.iter().find(|it| it.name == server.name);
    review.subresource == "resize" && resized.is_some_and(|new| server.restarts_with(new))
}

/// Returns the cluster of the pod that is deleted.
fn cluster_of<'a>(review: &Review, shown: Option<&PodFact>, view: &View<'a>) -> Option<&'a Cluster> {
    match shown.and_then(|pod| pod.owner.as_ref()) {
        Some((kind, owner)) => view.cluster(&review.namespace, owner).filter(|_| kind == "StatefulSet"),
        None => view.cluster_of_pod(&review.namespace, &review.name),
    }
}

/// Returns whether a pod that was stopped or terminating when it was last seen may run again.
fn is_late(shown: Option<&PodFact>, view: &View<'_>) -> bool {
    shown.is_none() && view.freshness != Freshness::Current
}

/// The shortest grace period, in seconds, in which a server can leave its cluster and write to disk.
const LEAST_GRACE: i64 = 60;

/// A member that a request removes.
struct LeavingMember<'a> {
    review: &'a Review,
    view: &'a View<'a>,
    cluster: &'a Cluster,
    member: &'a Member,
    pod: &'a PodFact,
    /// The pod may have changed since: an eviction does not show it, and the view is not current.
    late: bool,
}

impl<'a> LeavingMember<'a> {
    fn of(review: &'a Review, shown: Option<&'a PodFact>, view: &'a View<'a>) -> Option<Self> {
        let cluster = cluster_of(review, shown, view)?;
        let member = cluster.member(&review.name)?;
        let late = is_late(shown, view);
        Some(Self { review, view, cluster, member, pod: shown.or(member.pod.as_deref())?, late })
    }

    fn others(&self) -> impl Iterator<Item = &Member> {
        self.cluster.members.iter().filter(|member| member.ordinal != self.member.ordinal)
    }

    fn seen(&self) -> String {
        self.view.count(self.cluster)
    }

    /// Returns whether the pod is being deleted already.
    fn is_terminating(&self) -> bool {
        self.pod.terminating && !self.late
    }

    /// Returns whether the view does not hold this pod yet.
    fn is_unseen(&self) -> bool {
        self.member.pod.as_ref().is_none_or(|known| known.uid != self.pod.uid)
    }

    /// Returns whether the server does not run: deleting the pod costs nothing and may help.
    fn nothing_runs(&self) -> bool {
        !self.pod.running && !self.late
    }

    /// Returns whether a recovery restarts this pod.
    fn is_restarted_by_recovery(&self) -> bool {
        !self.pod.ready && !self.late && grant::may_recreate(self.cluster, &self.member.name, self.view)
    }

    fn is_ready(&self) -> bool {
        self.member.ready() || self.pod.ready
    }

    /// Returns whether the state transfer that the member receives hangs: the way out is to restart it, regardless of the others.
    fn hangs(&self) -> bool {
        let known = !self.is_unseen() && self.view.state(self.cluster) != State::Unknown;
        known && transfer::way_out_if_hanging(self.cluster, self.member, self.view.now).is_some()
    }

    /// Returns findings if the member's claim is being deleted: it is removed with the pod.
    fn loses_its_data(&self) -> Option<Findings> {
        let own =
            |claim: &&facts::view::MemberClaim| claim.ordinal == self.member.ordinal && claim.terminating;
        let claim = self.cluster.claims.iter().find(own)?;
        let why = "a claim that was deleted while a pod uses it is removed when the pod stops; the member restarts empty and \
                   copies everything from another";
        let says = format!("its claim {} is being deleted, so its data is lost with the pod", claim.name);
        let reserved = self.view.reservations.other_leaving(self.cluster, &self.member.name);
        let safe = self.view.state(self.cluster) != State::Unknown
            && reserved.is_none()
            && self.others().count() > 0
            && self.others().all(Member::ready);
        let instead = if safe {
            "wait until the member has copied its data again before you restart another".into()
        } else {
            format!(
                "make all other members Ready first; {} then restarts with a copy of their data",
                self.member.name
            )
        };
        let verdict = if safe { Verdict::Warn } else { Verdict::Deny };
        Some(vec![finding(verdict, format!("{says} ({})", self.seen()), why, instead)])
    }

    /// Returns the requested grace period, if it is shorter than the pod's own.
    fn shorter_grace(&self) -> Option<i64> {
        self.review.options.grace_period_seconds.filter(|grace| *grace < self.pod.grace)
    }

    /// Returns findings if the grace period is cut short: the server may still run when its successor opens the same files.
    fn forced(&self) -> Option<Findings> {
        let grace = self.shorter_grace().filter(|grace| *grace < LEAST_GRACE)?;
        let node = &self.pod.node;
        if self.nothing_runs()
            || self.view.node_is_gone(node)
            || self.view.node(node).is_some_and(objects::Node::out_of_service)
        {
            return None;
        }
        let says = format!(
            "a grace period of {grace}s instead of its own {}s, while its server runs",
            self.pod.grace
        );
        let why = "a member that is killed cannot leave its cluster properly, and one whose pod is only removed from the API server still \
                   runs: its successor opens the same files";
        let again = self.again();
        let switched_off = say(format!("if node {node} is switched off: ")).run(out_of_service_command(node));
        let instead = if self.is_terminating() {
            let away = self.view.node(node).filter(|it| !it.is_reachable());
            match away {
                Some(_) => {
                    say(format!("it is being deleted, and is removed when node {node} answers again: "))
                        .and(way_out_of_silent_node(node))
                }
                None => {
                    let Review { namespace, name, .. } = self.review;
                    let timeout = format!("--timeout={}s", self.pod.grace);
                    run(CommandLine::new(format!(
                        "kubectl -n {namespace} wait --for=delete pod/{name} {timeout}"
                    )))
                    .say(": it is being deleted, and its server is stopping")
                    .or(switched_off)
                }
            }
        } else if grace == 0 {
            again.say(", without --force or --grace-period").or(switched_off)
        } else {
            again.say(", without --now or --grace-period")
        };
        Some(vec![finding(Verdict::Deny, says, why, instead)])
    }

    /// Returns how to repeat the request.
    fn again(&self) -> WayOut {
        let Review { namespace, name, subresource, .. } = self.review;
        match &**subresource {
            "resize" => say("repeat the resize"),
            "eviction" => {
                let node = &self.pod.node;
                run(CommandLine::new(format!(
                    "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
                )))
            }
            _ => run(CommandLine::new(format!("kubectl -n {namespace} delete pod {name}"))),
        }
    }

    /// Returns findings if no member would be left: a member that finds no peer does not start.
    fn last_member(&self) -> Option<Findings> {
        let size = i64::try_from(self.cluster.members.len()).unwrap_or(i64::MAX);
        if survives(size, 1, 0) || !self.cluster.has_data() || !self.is_ready() {
            return None;
        }
        let Cluster { id, workload, .. } = self.cluster;
        let says = format!("it is the only member of cluster {} ({})", id.name, self.seen());
        let why = "a member that starts and finds no peer gives up after 30 seconds: the cluster would need a manual bootstrap";
        let replicas = if workload.parallel() { 2 } else { 3 };
        let command = managed::scale(Some(&workload.metadata), &id.namespace, &id.name, replicas);
        let instead = command.say(", wait until all are Ready, then restart it");
        Some(vec![finding(Verdict::Deny, says, why, instead)])
    }

    /// Returns findings if the cluster has no identity: positions cannot be compared ("IST started with wrong seqno").
    fn never_comes_back(&self) -> Option<Findings> {
        let lost = self.cluster.has_no_identity() && self.is_ready() && !self.nothing_runs();
        lost.then(|| {
            let says = format!("its cluster has no identity ({}): it would never join again", self.seen());
            let why = "members that formed their cluster after a crash without comparing their data cannot tell what a member lacks: \
                       one that leaves cannot join until the cluster is created again";
            let instead = page("G04").say(", a cluster without an identity (keep the others running, and create the cluster again from one of them)");
            vec![finding(Verdict::Deny, says, why, instead)]
        })
    }

    /// Returns warnings for a removal that is allowed, where Ready does not prove enough.
    fn uncertain(&self) -> Findings {
        let unverified =
            self.cluster.unverified().filter(|member| member.ordinal != self.member.ordinal).count();
        let lasts = Condition::of(self.member, self.view).is_some_and(Condition::lasts);
        let joins = self.member.starting() && !self.is_ready() && self.cluster.has_data() && !lasts;
        let (says, why, instead) = if joins {
            (
                "it is not Ready yet and may be receiving a copy of the data".to_owned(),
                "a state transfer that is interrupted starts again from the beginning",
                "let it finish unless it hangs",
            )
        } else if self.shorter_grace().is_some() {
            (
                format!("the grace period of this request is shorter than the pod's own {}s", self.pod.grace),
                "a donor that is killed before its joiner is done leaves the joiner with half a database",
                "use the pod's own grace period",
            )
        } else if unverified > 0 {
            (
                format!(
                    "{unverified} of the other members have no probe of gatera, so they may be Ready without being Synced"
                ),
                "a probe that only asks whether the server answers also succeeds on a member that is cut off",
                "first check that wsrep_local_state_comment is Synced on the others",
            )
        } else {
            return Findings::new();
        };
        vec![finding(Verdict::Warn, says, why, instead)]
    }
}

fn finding(verdict: Verdict, says: String, why: &str, instead: impl Into<WayOut>) -> Finding {
    RULE.finding(verdict, "", says, why, instead)
}
