//! G14: members restart one at a time, with time to leave, and never while another is missing.
//!
//! Refuses a change of the pod template (a new image, `kubectl rollout restart`, `rollout undo`) until all members are
//! Ready, while the cluster has no identity, and if the cluster has only one member. Refuses `maxUnavailable` above 1, a
//! grace period of 0, a disruption budget that allows two evictions at once or no longer protects the members, an
//! autoscaler on a cluster (in either order of creation), and a command that replaces the server while members serve. Warns
//! about `podManagementPolicy: Parallel`, a grace period below 600 s (except 30 s, the default of API servers),
//! `stopSignal: SIGKILL`, a budget that allows no eviction, that allows evictions of members that are still joining, that
//! covers two clusters, or that allows two evictions after a scale, and a StatefulSet that takes over the only running
//! member and may restart it.
//!
//! # Why
//!
//! A new template restarts every member in turn. With `podManagementPolicy: Parallel`, the StatefulSet controller does not
//! wait for a member that is missing already: the next one leaves as well, perhaps while it sends its data to the first.
//! With `OrderedReady` the controller waits, without a limit, and begins the rollout at a moment that you did not choose.
//! Two members that stop together can count as two crashes, and the one left of three is not a majority. A member needs
//! time to stop: it finishes a transfer to a joiner, leaves the cluster and writes its memory to disk; if it is killed
//! before that, it needs a repair, often a full copy. More members do not make writing faster, because each applies every
//! write, so an autoscaler only adds copies of the whole database to the load.
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
//! Wait until all members are Ready, then apply the change again. It is allowed at once where it may be the repair:
//!
//! * **All members that are not Ready keep failing** (crash loop, image that cannot be pulled) or, without `Parallel`, have no
//!   node; or no member is Ready, except during a first installation. A StatefulSet does not by itself replace a pod that is
//!   not Ready. gatera replaces one that keeps failing, if the others are Ready; delete the pod if the old one is still there
//!   after a minute.
//! * **A rollout hangs although the server of its member runs.** You may return to the template of the Ready members at once
//!   (`helm rollback`, `kubectl rollout undo`, or the previous manifest). Then delete the pod that hangs, or wait: if it has not
//!   been Ready for ten minutes, gatera replaces it, provided that its probe reports what its server waits for, or that no node
//!   accepts it.
//!
//! Every other template is refused meanwhile; so is the old one if gatera started in the middle of the rollout and has never seen
//! that template. In that case pause the rollout: set `partition` above all ordinals, and delete the pod that hangs (it restarts
//! with the old template). When all members are Ready, undo the change and set the partition to 0. Or use the override. A
//! `partition` above all ordinals and `OnDelete` restart no member and are never refused for this reason; a lower partition
//! continues the rollout, so it is judged like a new template.
//!
//! Budget: one per cluster, `maxUnavailable: 1`, which stays correct when the cluster grows. The guard answers evictions
//! itself, but only while it runs; the budget also works without it. So the last budget must stay while a member runs: to replace
//! it, create the new one first. Leave `unhealthyPodEvictionPolicy` out.
//!
//! Grace period: gatera raises it to 600 s when a pod is created. The template's value counts while gatera is down, so
//! write 600 there too. 30 is the API server's default, and gives no warning.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G14 until=2026-12-01T10:00:00Z reason=…"`. For a
//! disruption budget an override on the StatefulSet also counts, and for its deletion the override of G03 there.

mod budgets;
mod no_server;
mod taken_back;

use super::{managed, member_removal};
use crate::rule::{
    APPLY_AGAIN, All, Change, Finding, Findings, One, Review, Rule, UNTIL_SEEN, Verb, Verdict, View, WRITTEN,
};
use facts::galera::server;
use facts::galera::start_report::JoinPhase;
use facts::view::{Cluster, Freshness, Member, PodFact, State, is_cluster};
use facts::way_out::{CommandLine, WayOut, page, run, say};
use objects::{Autoscaler, Kind, Scale, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G14",
    name: "rollout-shape",
    judges: &[
        (Kind::StatefulSet, WRITTEN, All(written)),
        (Kind::StatefulSet, &[Verb::Scale], All(scaled)),
        (Kind::Budget, &[Verb::Create, Verb::Update, Verb::Delete], All(budgets::check)),
        (Kind::Autoscaler, WRITTEN, One(autoscaled)),
    ],
    depends_on_state: true,
    source: include_str!("rollout_shape.rs"),
};

const TEMPLATE: &str = "spec.template";

fn written(review: &Review, view: &View<'_>) -> Findings {
    let Change { old, new: Some(new) } = review.change::<Workload>() else { return Findings::new() };
    let is_adopted = is_cluster(new, view.adoption());
    if let Some(old) = old.filter(|old| is_adopted || is_cluster(old, view.adoption())) {
        let serving = view.cluster(&review.namespace, &review.name).filter(|it| it.ready() > 0);
        if let Some(found) = serving.and_then(|it| no_server::judge(old, new, it, view)) {
            return vec![found];
        }
    }
    if !is_adopted {
        return Findings::new();
    }
    let restarted = old.and_then(|old| restart_refused(review, old, new, view));
    let mut found: Findings = restarted.into_iter().chain(scaled_by_autoscaler(review, view)).collect();
    if old.is_none() {
        found.extend(budgets::created_before(review, new, view));
    }
    found.extend(shape(new));
    if let Some(old) = old {
        let labels = &new.spec.template.metadata.labels;
        found.extend(budgets::outgrown(review, labels, old.replicas(), new.replicas(), view));
    }
    found
}

fn scaled(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Scale>() else { return Findings::new() };
    let cluster = view.cluster(&review.namespace, &review.name);
    let labels = cluster.map(Cluster::member_labels);
    let (from, to) = (old.spec.replicas, new.spec.replicas);
    labels.into_iter().flat_map(|it| budgets::outgrown(review, it, from, to, view)).collect()
}

/// Returns a warning if a StatefulSet takes over the only pod, which it restarts if the templates differ. It is not always known
/// whether they differ, because the view does not keep all annotations.
fn takes_over_only_member(cluster: &Cluster, new: &Workload) -> Option<Finding> {
    let [only] = &cluster.members[..] else { return None };
    let reached = only.ordinal >= new.first_updated_ordinal() && new.ordinals().contains(&only.ordinal);
    reached.then(|| {
        RULE.warn(
            TEMPLATE,
            format!(
                "it takes over {}, the only running member, and restarts it if it was created from another template",
                only.name
            ),
            WHY_ONLY_MEMBER,
            format!(
                "if the template differs, write spec.updateStrategy.rollingUpdate.partition: {}, and scale to 3 members before you remove \
                 that",
                new.replicas()
            ),
        )
    })
}

/// Returns a finding if the update restarts members and must not do so now.
fn restart_refused(review: &Review, old: &Workload, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let changed = old.spec.template.fingerprint != new.spec.template.fingerprint;
    let strategy = &new.spec.update_strategy;
    let released = strategy.held_back() < old.spec.update_strategy.held_back();
    let cluster = view.cluster(&review.namespace, &review.name);
    let orphaned = cluster.filter(|it| it.orphaned);
    if let Some(only) = orphaned.and_then(|it| takes_over_only_member(it, new)) {
        return Some(only);
    }
    let what = match (changed, released) {
        _ if new.ordinals().is_empty() => return None,
        (true, _) => "its pod template changes",
        (false, true) => "it continues a paused rollout",
        (false, false) => return None,
    };
    if strategy.on_delete() {
        return Some(RULE.warn(
            TEMPLATE,
            "with updateStrategy OnDelete no member gets the new template by itself",
            "members with different templates run together until you delete the pods, or a node fails",
            "delete one pod at a time, and the next when all members are Ready",
        ));
    }
    let first = member_removal::first_to_roll(old, new)?;
    // Without the StatefulSet nothing creates a missing member, so wait only for one that is starting already.
    let starts = |it: &Cluster| view.state(it) == State::Unknown || it.members.iter().any(Member::starting);
    // With podManagementPolicy Parallel the controller does not begin with the missing one.
    if orphaned.is_some_and(|it| !starts(it) && (!new.parallel() || it.members.iter().all(Member::ready))) {
        return None;
    }
    match cluster {
        Some(cluster) => reserved_besides(what, cluster, first, view)
            .or_else(|| taken_back::judge(cluster, new, view).filter(|_| changed))
            .or_else(|| restart_finding(what, cluster, new, view)),
        // It was not a cluster before this change, so none of its members has joined one.
        None if view.freshness == Freshness::Current => None,
        None => Some(wait(
            Verdict::Unknown,
            format!("{what}, but gatera has not seen this cluster yet"),
            UNTIL_SEEN,
        )),
    }
}

/// Returns a finding if another member was allowed to leave moments ago, which the view does not show yet.
fn reserved_besides(what: &str, cluster: &Cluster, first: i64, view: &View<'_>) -> Option<Finding> {
    let first = format!("{}-{first}", cluster.id.name);
    let (other, seconds) = view.reservations.other_leaving(cluster, &first)?;
    let Cluster { id, .. } = cluster;
    Some(wait(
        Verdict::Wait,
        format!("{what}, but {other} was allowed to leave {seconds}s ago ({})", view.count(cluster)),
        run(CommandLine::new(format!("kubectl -n {} rollout status statefulset {}", id.namespace, id.name)))
            .say(", and repeat the command when all members are Ready"),
    ))
}

fn restart_finding(what: &str, cluster: &Cluster, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let stays_unready = member_that_stays_unready(cluster, new.parallel());
    let has_pods = cluster.members.iter().any(|member| member.pod.is_some());
    match (view.state(cluster), stays_unready) {
        _ if cluster.has_no_identity() && cluster.ready() > 0 => Some(RULE.deny(
            TEMPLATE,
            format!(
                "{what}, but a member that restarts never joins again: the cluster has no identity ({})",
                view.count(cluster)
            ),
            "members that formed their cluster after a crash without comparing their data cannot tell what a member lacks",
            page("G04").say(", a cluster without an identity (create it again from one member first)"),
        )),
        (State::Healthy, _) if cluster.members.len() == 1 && cluster.has_data() => {
            Some(only_member(what, cluster, view))
        }
        (State::Healthy, _) | (State::Down | State::Stopped, None) => None,
        (State::Forming, None) if !has_pods => None,
        (State::Unknown, _) => {
            let says = format!("{what}, but it is not known whether all members are Ready ({})", view.seen());
            Some(wait(Verdict::Unknown, says, UNTIL_SEEN))
        }
        (_, Some(pod)) => Some(RULE.warn(
            TEMPLATE,
            format!("{what}; allowed, because {} does not become Ready by waiting", pod.name),
            "a member that keeps failing needs a change, and is not part of the cluster meanwhile",
            "delete that pod afterwards, if it is still the old one",
        )),
        (State::Joining | State::Degraded, None) if begins_with_the_missing(cluster, new) => None,
        (State::Joining | State::Transfer | State::Degraded | State::Forming, None) => {
            Some(wait_for_member(what, cluster, view))
        }
    }
}

fn wait_for_member(what: &str, cluster: &Cluster, view: &View<'_>) -> Finding {
    let says = format!("{what} while a member is not Ready ({})", view.describe(cluster));
    // Without the StatefulSet nothing creates the missing member.
    let instead = if cluster.orphaned && !cluster.members.iter().any(Member::starting) {
        say(APPLY_AGAIN).then("change its template when all members are Ready")
    } else {
        let hangs = if taken_back::is_known(cluster, view) {
            say("if a rollout hangs, undo it: the previous template is allowed at once")
        } else {
            say("if a rollout hangs: ").page("G14")
        };
        run(cluster.wait_command()).say(", then repeat the command").or(hangs)
    };
    wait(Verdict::Wait, says, instead)
}

const WHY_ONLY_MEMBER: &str = "a member that starts and finds no peer gives up after 30 seconds: the cluster would need a manual bootstrap";

/// Returns the finding for the only member of a cluster: after a restart it would have no peer to join.
fn only_member(what: &str, cluster: &Cluster, view: &View<'_>) -> Finding {
    let Cluster { id, .. } = cluster;
    RULE.deny(
        TEMPLATE,
        format!("{what}, which restarts the only member of the cluster ({})", view.count(cluster)),
        WHY_ONLY_MEMBER,
        managed::scale(Some(&cluster.workload.metadata), &id.namespace, &id.name, 3)
            .say(", wait until all are Ready, then repeat the command"),
    )
}

/// Returns a member that does not become Ready by waiting, if this holds for all that are not Ready. A pod without a node counts
/// only if the controller waits for it before it restarts others.
fn member_that_stays_unready(cluster: &Cluster, parallel: bool) -> Option<&PodFact> {
    let stands_still = |pod: &PodFact| !pod.terminating && (pod.stuck || pod.node.is_empty() && !parallel);
    let pods = cluster.members.iter().filter_map(|member| member.pod.as_deref());
    let mut waiting = pods.filter(|pod| !pod.ready);
    let all = cluster.leaving.is_empty() && waiting.clone().all(stands_still);
    waiting.next().filter(|_| all)
}

/// Returns whether the only missing member is the first to restart, and receives no copy: the controller continues when it is
/// Ready.
fn begins_with_the_missing(cluster: &Cluster, new: &Workload) -> bool {
    let first = new.ordinals().end - 1;
    let is_missing = |member: &Member| match &member.pod {
        Some(pod) => {
            pod.terminating || pod.restarts > 0 && !pod.ready && pod.phase() != Some(JoinPhase::Receives)
        }
        None => true,
    };
    let allows_rollout =
        |member: &Member| if member.ordinal == first { is_missing(member) } else { member.ready() };
    cluster.leaving.is_empty() && cluster.members.iter().all(allows_rollout)
}

/// Returns findings about the new StatefulSet alone.
fn shape(new: &Workload) -> Findings {
    let at_once = new.spec.update_strategy.rolling_update.as_ref().and_then(|it| it.max_unavailable.as_ref());
    let at_once = at_once.filter(|most| most.of(new.replicas()).is_some_and(|most| most > 1)).map(|most| {
        RULE.deny(
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            format!("a rollout may stop several members at once (maxUnavailable {most})"),
            "members that leave at the same moment count as crashed, and the rest may not be a majority",
            "leave maxUnavailable out, or write 1",
        )
    });
    let parallel = new.parallel().then(|| {
        RULE.warn(
            "spec.podManagementPolicy",
            "podManagementPolicy Parallel starts and stops all members at once",
            "if all stop at once, no member records that it stopped last, so none may start first",
            "use OrderedReady; it cannot be changed later",
        )
    });
    at_once.into_iter().chain(parallel).chain(grace_period(new)).chain(stop_signal(new)).collect()
}

fn grace_period(new: &Workload) -> Option<Finding> {
    const FIELD: &str = "spec.template.spec.terminationGracePeriodSeconds";
    let why = "a member needs time to finish a transfer, leave the cluster and write to disk; if it is killed before, it needs a repair";
    let instead = "write 600, or leave it out";
    match new.spec.template.spec.termination_grace_period_seconds? {
        ..=0 => {
            Some(RULE.deny(FIELD, "a member that stops is killed at once (grace period 0)", why, instead))
        }
        // 30 is the API server's default.
        30 | 600.. => None,
        short => {
            let says = format!(
                "{short}s is too short for a stop; gatera raises it to 600s, but only for pods that start while it runs"
            );
            Some(RULE.warn(FIELD, says, why, instead))
        }
    }
}

/// Returns a warning about a stop signal that the server cannot handle.
fn stop_signal(new: &Workload) -> Option<Finding> {
    let server = server::of(&new.spec.template).filter(|it| it.lifecycle.stop_signal == "SIGKILL")?;
    Some(RULE.warn(
        format!("spec.template.spec.containers[{}].lifecycle.stopSignal", server.name),
        "stopSignal SIGKILL kills each member instead of stopping it",
        "a server that is killed does not leave its cluster properly and writes nothing to disk: every stop is then a crash",
        "leave stopSignal out, or write SIGTERM",
    ))
}

fn autoscaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let new = review.change::<Autoscaler>().new?;
    let target = &new.spec.scale_target_ref.name;
    let cluster = view.cluster(&review.namespace, target).filter(|_| new.scales(target))?;
    let says = format!("it scales cluster {} by load", cluster.id.name);
    let instead = say("scale the proxy in front of it or the application")
        .or("change the members by hand, in odd numbers");
    Some(RULE.deny("spec.scaleTargetRef", says, WHY_NOT_BY_LOAD, instead))
}

/// Returns a finding about an autoscaler that was created before its StatefulSet.
fn scaled_by_autoscaler(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Review { namespace, name, .. } = review;
    let autoscaler =
        view.autoscaler_of(namespace, name).filter(|_| !review.origin.judges_each(Kind::Autoscaler))?;
    let autoscaler = &autoscaler.metadata.name;
    let says = format!("HorizontalPodAutoscaler {autoscaler} scales it by load");
    let instead = run(CommandLine::new(format!("kubectl -n {namespace} delete hpa {autoscaler}")))
        .say(", and scale the proxy in front of it or the application instead");
    Some(RULE.deny("spec.replicas", says, WHY_NOT_BY_LOAD, instead))
}

const WHY_NOT_BY_LOAD: &str = "every member holds the whole database and applies every write: new members first copy all of it, then writes are not faster";

fn wait(verdict: Verdict, says: String, instead: impl Into<WayOut>) -> Finding {
    let why = "a new template restarts one member after the other, and the next must not leave while one is missing";
    RULE.finding(verdict, TEMPLATE, says, why, instead)
}
