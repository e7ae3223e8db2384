//! G14: members restart one at a time, with time to leave, and never while another is missing.
//!
//! A change of the pod template (a new image, `kubectl rollout restart`, `rollout undo`) waits until all members are
//! Ready, and is refused while the cluster has lost its identity. Refuses `maxUnavailable` above 1, a grace period of 0, a
//! disruption budget that lets two members go or no longer protects them, an autoscaler on a cluster, whichever of the two comes
//! first, and a command that runs no server in place of the server's while members serve. Warns about `podManagementPolicy: Parallel`,
//! a grace period below 60 s, `stopSignal: SIGKILL`, budgets that block every drain, evict members that are still joining, count two
//! clusters together or are outgrown by a scale, and a StatefulSet that takes over the only member that runs, which its template may restart.
//!
//! # Why
//!
//! A new template restarts every member in turn. If one is missing already, the next one leaves as well, perhaps while it
//! sends its data to the first. Two members that go together can count as two crashes, and three of three minus two is no
//! majority. A member needs time: it waits for whoever copies from it, says good-bye and writes its memory to disk;
//! killed before that it needs a repair, often a full copy. More members do not make writing faster, each applies every
//! write, so an autoscaler only adds copies of the whole database to the load that called it.
//!
//! # Example
//!
//! ```text
//! $ kubectl rollout restart statefulset galera
//! [G14] StatefulSet db/galera: its pod template changes while a member is not Ready (2 of 3 members Synced, galera-1 is not
//! Ready yet, seen now)
//! ```
//!
//! # What to do instead
//!
//! Wait until all members are Ready, then apply the change again. It is allowed where it can be the way out: when the
//! members that are not Ready keep failing (crash loop, image that cannot be pulled) or have found no node, and when no
//! member is Ready at all. Delete such a pod afterwards; a StatefulSet does not replace a pod that never was Ready by
//! itself. A rollout that hangs although its member runs may be taken back at once (`helm rollback`, `kubectl rollout undo`, or what
//! was applied before): the template that Ready members were made from is allowed. Then delete the pod that hangs, or wait: when its
//! probe has said for ten minutes that its server waits, or no node takes it, gatera replaces it. Any other template waits, and so does that one where gatera was started in the middle of
//! the rollout, and never saw it. Then hold the rollout with a `partition` above all ordinals, delete the pod that hangs (it comes
//! back with the old template), and when all members are Ready, undo and set the partition to 0; or use the override. A `partition`
//! above all ordinals and `OnDelete` restart no member and never wait; lowering the partition lets the rollout go on, so that waits.
//!
//! Budget: one per cluster, `maxUnavailable: 1`, which stays right when the cluster grows. The guard answers evictions
//! itself, but only while it runs; the budget is there always, so the last one is kept while a member runs. To replace
//! it, make the new one first. Leave `unhealthyPodEvictionPolicy` out.
//!
//! Grace period: gatera raises it to 600 s when a pod is created. What the template says counts while gatera is down, so
//! write 600 there too. 30 is what the API server writes where nothing is said, and is passed over in silence.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G14 until=2026-12-01T10:00:00Z reason=…"`. For a
//! disruption budget the StatefulSet will do as well, and for its deletion the override of G03 there.

mod budgets;
mod no_server;
mod taken_back;

use super::{managed, member_removal};
use crate::rule::{APPLY_AGAIN, Rule, UNTIL_SEEN, Verb, WRITTEN};
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::server;
use facts::galera::start_report::JoinPhase;
use facts::review::Review;
use facts::view::{Cluster, Freshness, Member, PodFact, State, View, is_cluster};
use objects::{Autoscaler, Kind, Object, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G14",
    name: "rollout-shape",
    touches: &[
        (Kind::StatefulSet, &[Verb::Create, Verb::Update, Verb::Scale]),
        (Kind::Budget, &[Verb::Create, Verb::Update, Verb::Delete]),
        (Kind::Autoscaler, WRITTEN),
    ],
    depends_on_state: true,
    source: include_str!("rollout_shape.rs"),
    check,
};

const TEMPLATE: &str = "spec.template";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let adoption = view.adoption();
    match (&review.old, &review.new) {
        (None, Some(Object::StatefulSet(new))) if is_cluster(new, adoption) => waited_for(review, view)
            .into_iter()
            .chain(budgets::waited_for(review, new, view))
            .chain(shape(new))
            .collect(),
        (Some(Object::StatefulSet(old)), Some(Object::StatefulSet(new)))
            if is_cluster(old, adoption) || is_cluster(new, adoption) =>
        {
            let cluster = view.cluster(&review.namespace, &review.name);
            if let Some(found) = no_server::judge(old, new, cluster, view) {
                return vec![found];
            }
            if !is_cluster(new, adoption) {
                return Findings::new();
            }
            restarted(review, old, new, view)
                .into_iter()
                .chain(waited_for(review, view))
                .chain(shape(new))
                .chain(budgets::outgrown(review, &new.spec.template, old.replicas(), new.replicas(), view))
                .collect()
        }
        (Some(Object::Scale(old)), Some(Object::Scale(new))) => {
            let cluster = view.cluster(&review.namespace, &review.name);
            let template = cluster.map(|it| &it.workload.spec.template);
            let (from, to) = (old.spec.replicas, new.spec.replicas);
            template.into_iter().flat_map(|it| budgets::outgrown(review, it, from, to, view)).collect()
        }
        (_, Some(Object::Autoscaler(new))) => autoscaled(review, new, view).into_iter().collect(),
        (Some(Object::Budget(_)), _) | (_, Some(Object::Budget(_))) => budgets::check(review, view),
        _ => Findings::new(),
    }
}

/// A StatefulSet that takes over pods of another template restarts them, also the only one. Whether theirs is another cannot
/// always be told: annotations of others are not kept.
fn takes_the_only_one(cluster: &Cluster, new: &Workload) -> Option<Finding> {
    let [only] = &cluster.members[..] else { return None };
    let reached = only.ordinal >= new.reaches_from() && new.ordinals().contains(&only.ordinal);
    reached.then(|| {
        warn(
            TEMPLATE,
            format!(
                "it takes over {}, the only member that runs, and restarts it if it was made from another template",
                only.name
            ),
            ONLY,
            format!(
                "if the template is not the same as before, write spec.updateStrategy.rollingUpdate.partition: {}, and scale to 3 members \
                 before that is taken out",
                new.replicas()
            ),
        )
    })
}

/// The update restarts members: may it now?
fn restarted(review: &Review, old: &Workload, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let changed = old.spec.template.fingerprint != new.spec.template.fingerprint;
    let strategy = &new.spec.update_strategy;
    let released = strategy.holds_back() < old.spec.update_strategy.holds_back();
    let cluster = view.cluster(&review.namespace, &review.name);
    let left = cluster.filter(|it| it.left);
    if let Some(only) = left.and_then(|it| takes_the_only_one(it, new)) {
        return Some(only);
    }
    let what = match (changed, released) {
        _ if new.ordinals().is_empty() => return None,
        (true, _) => "its pod template changes",
        (false, true) => "it lets a held rollout go on",
        (false, false) => return None,
    };
    if strategy.on_delete() {
        return Some(warn(
            TEMPLATE,
            "with updateStrategy OnDelete no member gets the new template by itself".into(),
            "members with different templates live together until somebody deletes the pods, or a node fails",
            "delete one pod at a time, the next when all members are Ready".into(),
        ));
    }
    let first = member_removal::first_to_roll(old, new)?;
    // As long as its StatefulSet is away nothing brings a missing member back, so only one that comes by itself is waited for.
    let comes = |it: &Cluster| view.state(it) == State::Unknown || it.members.iter().any(Member::starting);
    // With podManagementPolicy Parallel the controller does not begin with the missing one.
    if left.is_some_and(|it| !comes(it) && (!new.parallel() || it.members.iter().all(Member::ready))) {
        return None;
    }
    match cluster {
        Some(cluster) => let_go_besides(what, cluster, first, view)
            .or_else(|| taken_back::judge(cluster, new, view).filter(|_| changed))
            .or_else(|| may_restart(what, cluster, first, new.parallel(), view)),
        // Not a cluster before this change, so none of its members joined anything.
        None if view.freshness == Freshness::Current => None,
        None => Some(wait(
            Verdict::Unknown,
            format!("{what}, and gatera does not know this cluster yet"),
            UNTIL_SEEN.into(),
        )),
    }
}

/// Another member was allowed to leave moments ago, which the view does not show yet.
fn let_go_besides(what: &str, cluster: &Cluster, first: i64, view: &View<'_>) -> Option<Finding> {
    let first = format!("{}-{first}", cluster.id.name);
    let (other, seconds) = view.reservations.besides(cluster, &first)?;
    let Cluster { id, .. } = cluster;
    Some(wait(
        Verdict::Wait,
        format!("{what}, and {other} was allowed to leave {seconds}s ago ({})", view.count(cluster)),
        format!(
            "kubectl -n {} rollout status statefulset {}, and repeat it when all members are Ready",
            id.namespace, id.name
        ),
    ))
}

fn may_restart(
    what: &str,
    cluster: &Cluster,
    first: i64,
    parallel: bool,
    view: &View<'_>,
) -> Option<Finding> {
    let hopeless = hopeless(cluster, parallel);
    let pods = cluster.members.iter().any(|member| member.pod.is_some());
    match (view.state(cluster), hopeless) {
        _ if cluster.has_no_identity() && cluster.ready() > 0 => Some(deny(
            TEMPLATE,
            format!(
                "{what}, and whoever restarts never joins again: the cluster has no identity ({})",
                view.count(cluster)
            ),
            "members that formed their cluster after a crash without comparing what they have cannot tell who lacks what",
            "gatera explain G04, a cluster without an identity (found it anew from one member first)".into(),
        )),
        (State::Healthy, _) if cluster.members.len() == 1 && cluster.has_data() => {
            Some(only(what, cluster, view))
        }
        (State::Healthy, _) | (State::Down | State::Stopped, None) => None,
        (State::Forming, None) if !pods => None,
        (State::Unknown, _) => {
            let says = format!("{what}, and it is not known whether all members are Ready ({})", view.seen());
            Some(wait(Verdict::Unknown, says, UNTIL_SEEN.into()))
        }
        (_, Some(pod)) => Some(warn(
            TEMPLATE,
            format!("{what}; let through, since {} does not become Ready by waiting", pod.name),
            "a member that keeps failing cannot be cured without a change, and it takes no part in anything meanwhile",
            "afterwards delete that pod, if it is still the old one".into(),
        )),
        (State::Joining | State::Degraded, None) if begins_with_the_missing(cluster, first) => None,
        (State::Joining | State::Transfer | State::Degraded | State::Forming, None) => {
            Some(joins(what, cluster, view))
        }
    }
}

fn joins(what: &str, cluster: &Cluster, view: &View<'_>) -> Finding {
    let says = format!("{what} while a member is not Ready ({})", view.describe(cluster));
    // Nothing creates the missing member as long as its StatefulSet is away.
    let instead = if cluster.left && !cluster.members.iter().any(Member::starting) {
        format!("{APPLY_AGAIN}; change its template when all members are Ready")
    } else {
        let hangs = if taken_back::is_known(cluster, view) {
            "if a rollout hangs, take it back: the template before it is allowed at once"
        } else {
            "a rollout that hangs: gatera explain G14"
        };
        format!("{}, then repeat the command; {hangs}", cluster.wait_command())
    };
    wait(Verdict::Wait, says, instead)
}

const ONLY: &str = "a member that starts and finds nobody to join gives up after 30 seconds: the cluster would need a manual bootstrap";

/// Nobody would be there for it to come back to.
fn only(what: &str, cluster: &Cluster, view: &View<'_>) -> Finding {
    let Cluster { id, .. } = cluster;
    deny(
        TEMPLATE,
        format!("{what}, which restarts the only member of the cluster ({})", view.count(cluster)),
        ONLY,
        format!(
            "{}, wait until all are Ready, then repeat it",
            managed::scale(Some(&cluster.workload.metadata), &id.namespace, &id.name, 3)
        ),
    )
}

/// A member that no waiting makes Ready, if all that are not Ready are like that. Without a node is hopeless only where
/// the controller takes the others no further meanwhile.
fn hopeless(cluster: &Cluster, parallel: bool) -> Option<&PodFact> {
    let stands_still = |pod: &PodFact| !pod.going && (pod.stuck || pod.node.is_empty() && !parallel);
    let pods = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let mut waiting = pods.filter(|pod| !pod.ready);
    let all = cluster.leaving.is_empty() && waiting.clone().all(stands_still);
    waiting.next().filter(|_| all)
}

/// The only member that is missing is the first to restart, and it copies nothing: the controller goes on when that one is Ready.
fn begins_with_the_missing(cluster: &Cluster, first: i64) -> bool {
    let is_missing = |member: &Member| match &member.pod {
        Some(pod) => pod.going || pod.restarts > 0 && !pod.ready && pod.doing() != Some(JoinPhase::Receives),
        None => true,
    };
    let goes_on = |member: &Member| if member.ordinal == first { is_missing(member) } else { member.ready() };
    cluster.leaving.is_empty() && cluster.members.iter().all(goes_on)
}

/// What the StatefulSet breaks by itself.
fn shape(new: &Workload) -> Findings {
    let at_once = new.spec.update_strategy.rolling_update.as_ref().and_then(|it| it.max_unavailable.as_ref());
    let at_once = at_once.filter(|most| most.of(new.replicas()).is_some_and(|most| most > 1)).map(|most| {
        deny(
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            format!("a rollout may stop several members at once (maxUnavailable {most})"),
            "members that leave at the same moment count as crashed, and what is left may be no majority",
            "leave maxUnavailable out, or write 1".into(),
        )
    });
    let parallel = new.parallel().then(|| {
        warn(
            "spec.podManagementPolicy",
            "podManagementPolicy Parallel starts and stops all members at once".into(),
            "after a stop of all at once no member knows that it was the last, so none may start first",
            "prefer OrderedReady; it cannot be changed later".into(),
        )
    });
    at_once.into_iter().chain(parallel).chain(grace(new)).chain(killed(new)).collect()
}

fn grace(new: &Workload) -> Option<Finding> {
    const FIELD: &str = "spec.template.spec.terminationGracePeriodSeconds";
    let why = "a member needs time to help a joiner to the end, leave the others in order and write to disk; killed before, it needs repair";
    let instead = "write 600, or leave it out".to_owned();
    match new.spec.template.spec.termination_grace_period_seconds? {
        ..=0 => {
            Some(deny(FIELD, "a member that stops is killed at once (grace period 0)".into(), why, instead))
        }
        // The API server writes 30 where nothing is said.
        30 | 600.. => None,
        short => {
            let says = format!(
                "{short}s is too short to stop in; gatera raises it to 600s, but only for pods that start while it runs"
            );
            Some(warn(FIELD, says, why, instead))
        }
    }
}

/// By a signal that no server hears.
fn killed(new: &Workload) -> Option<Finding> {
    let server = server::of(&new.spec.template).filter(|it| it.lifecycle.stop_signal == "SIGKILL")?;
    Some(warn(
        &format!("spec.template.spec.containers[{}].lifecycle.stopSignal", server.name),
        "stopSignal SIGKILL kills each member instead of stopping it".into(),
        "a server that is killed leaves the others without a word and writes nothing to disk: it starts as after a crash, every time",
        "leave stopSignal out, or write SIGTERM".into(),
    ))
}

fn autoscaled(review: &Review, new: &Autoscaler, view: &View<'_>) -> Option<Finding> {
    let target = &new.spec.scale_target_ref.name;
    let cluster = view.cluster(&review.namespace, target).filter(|_| new.scales(target))?;
    Some(deny(
        "spec.scaleTargetRef",
        format!("it scales cluster {} by load", cluster.id.name),
        BY_LOAD,
        "scale the proxy in front of it or the application; change the members by hand, in odd numbers"
            .into(),
    ))
}

/// An autoscaler that was there before its StatefulSet.
fn waited_for(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Review { namespace, name, .. } = review;
    let autoscaler =
        view.autoscaler_of(namespace, name).filter(|_| !review.origin.judges_each(Kind::Autoscaler))?;
    let autoscaler = &autoscaler.metadata.name;
    Some(deny(
        "spec.replicas",
        format!("HorizontalPodAutoscaler {autoscaler} scales it by load"),
        BY_LOAD,
        format!(
            "kubectl -n {namespace} delete hpa {autoscaler}, and scale the proxy in front of it or the application instead"
        ),
    ))
}

const BY_LOAD: &str = "every member holds the whole database and applies every write: more of them first copy it all, then write no faster";

fn wait(verdict: Verdict, says: String, instead: String) -> Finding {
    let why = "a new template restarts one member after the other, and the next must not leave while one is missing";
    RULE.finding(verdict, TEMPLATE, says, why, instead)
}

fn warn(field: &str, says: String, why: &str, instead: String) -> Finding {
    RULE.finding(Verdict::Warn, field, says, why, instead)
}

fn deny(field: &str, says: String, why: &str, instead: String) -> Finding {
    RULE.finding(Verdict::Deny, field, says, why, instead)
}
