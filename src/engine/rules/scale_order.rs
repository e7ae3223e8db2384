//! G01: a cluster grows and shrinks in steps that keep its majority.
//!
//! Refuses to scale a Galera StatefulSet to 0, below a majority of its members in one step, down while a remaining member
//! is not Ready or a template is being rolled out, up while there is no cluster to join, and in any direction while the
//! cluster has lost its identity. Judges every change of `replicas`: create, apply, edit, patch, `kubectl scale`,
//! an autoscaler. A change of the ordinals (`spec.ordinals.start`) counts like a removal of members, and so does a
//! StatefulSet that is created again with fewer members than run.
//!
//! # Why
//!
//! Members that stop without leaving the cluster properly count as crashed: a cluster keeps serving only while more than
//! half of its members are there. Going from 5 to 1 leaves one member that cannot know whether the other four crashed or
//! left, and it stops answering. At 0 no member records that it stopped last, so none may start first: the cluster needs
//! a manual bootstrap, and a bootstrap from the wrong member loses data. A member that is removed while it sends its
//! data to a joiner leaves the joiner with half a database.
//!
//! # Example
//!
//! ```text
//! $ kubectl scale statefulset galera --replicas=1
//! [G01] StatefulSet db/galera: 5 -> 1 replicas would leave 1 of 5 members; 3 is the smallest next step
//! ```
//!
//! # What to do instead
//!
//! Scale down in steps that keep more than half (5 to 3, then 3 to 2), and wait until all members are Ready again
//! between steps. Odd numbers of three and more survive the loss of a node; two and four members survive no more failures
//! than one and three. If Helm manages the StatefulSet, scale with its value and `helm upgrade`: `kubectl scale` takes the
//! field from Helm.
//!
//! To stop a cluster for a while: `gatera stop NAME -n NS`, and `gatera start` to start it again. By hand, go down one member
//! at a time until only ordinal 0 is left (it then records `safe_to_bootstrap: 1` as the last member), and from there to 0
//! with the override. To start it again, set the number back with the override, and run `gatera recover`. Before you stop it
//! permanently, take a backup.
//!
//! # Exceptions
//!
//! Annotate the StatefulSet, for an hour at most; `kubectl scale` itself takes no annotation:
//! `kubectl annotate statefulset NAME 'gatera.dev/override=G01 until=2026-12-01T10:00:00Z reason=…'`.

mod ordinals;
mod size;

use ordinals::{renumbered, stranded};
use size::{claims_deleted, unwise_size};

pub use size::created;

use super::managed;
use super::member_removal::pause_rollout;
use crate::rule::{All, Change, Finding, Findings, Review, Rule, UNTIL_SEEN, Verb, Verdict, View, WRITTEN};
use facts::galera::driver;
use facts::galera::quorum::floor_of_one_step;
use facts::view::condition;
use facts::view::{Cluster, Id, Member, State, is_cluster};
use facts::way_out::{CommandLine, WayOut, page, run, say};
use objects::{Kind, Meta, Scale, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G01",
    name: "scale-order",
    judges: &[(Kind::StatefulSet, WRITTEN, All(written)), (Kind::StatefulSet, &[Verb::Scale], All(scaled))],
    depends_on_state: true,
    source: include_str!("scale_order.rs"),
};

const FIELD: &str = "spec.replicas";

fn written(review: &Review, view: &View<'_>) -> Findings {
    let Change { old, new: Some(new) } = review.change::<Workload>() else { return Findings::new() };
    if !is_cluster(old.unwrap_or(new), view.adoption()) {
        return Findings::new();
    }
    let cluster = view.cluster(&review.namespace, &review.name);
    let Some(old) = old else {
        let is_stopped = new.replicas() == 0 && cluster.is_some_and(Cluster::is_stopped);
        return if is_stopped { Findings::new() } else { created(new.replicas()) };
    };
    let cluster = match cluster.filter(|it| it.orphaned) {
        Some(left) if review.takes_over => return stranded(new, left).into_iter().collect(),
        // The StatefulSet exists, but the view does not show it yet.
        Some(_) => None,
        None => cluster,
    };
    if let Some(refused) = renumbered(old, new, cluster, view) {
        return vec![refused];
    }
    let step = Resize::of(review, cluster, old.replicas(), new.replicas());
    changed(Resize { set: Some(&old.metadata), parallel: new.parallel(), ..step }, view)
}

fn scaled(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Scale>() else { return Findings::new() };
    // The StatefulSet may have been created moments ago, with members that run.
    let cluster = view.cluster(&review.namespace, &review.name).filter(|it| !it.orphaned);
    let step = Resize::of(review, cluster, old.spec.replicas, new.spec.replicas);
    let known = cluster.is_some() || view.members_run(&review.namespace, &review.name);
    let mut findings = if known { changed(step, view) } else { Findings::new() };
    if findings.iter().all(|it| it.verdict == Verdict::Warn) {
        findings.extend(undone_by_helm(step));
    }
    findings
}

/// Returns a warning if Helm manages the size, and does not know of the change.
fn undone_by_helm(step: Resize<'_>) -> Option<Finding> {
    let release = step.set?.helm_release().filter(|_| step.to != step.from && step.to > 0)?;
    Some(finding(
        Verdict::Warn,
        format!("the next upgrade of Helm release {release} undoes this change, or fails with a conflict"),
        "Helm takes the number of replicas from the values of the release, which this command does not change",
        say("scale with Helm: ").and(step.scale(step.to)),
    ))
}

/// Returns findings about a resize that another object than the StatefulSet requests: no way out scales the StatefulSet.
pub fn resized(review: &Review, cluster: &Cluster, to: i64, view: &View<'_>) -> Findings {
    let step = Resize::of(review, Some(cluster), cluster.workload.replicas(), to);
    changed(Resize { is_indirect: true, ..step }, view)
}

/// A change of the number of replicas.
#[derive(Clone, Copy)]
struct Resize<'a> {
    review: &'a Review,
    cluster: Option<&'a Cluster>,
    /// The StatefulSet, if it is known.
    set: Option<&'a Meta>,
    from: i64,
    to: i64,
    parallel: bool,
    /// Whether another object than the StatefulSet names the number.
    is_indirect: bool,
}

impl<'a> Resize<'a> {
    fn of(review: &'a Review, cluster: Option<&'a Cluster>, from: i64, to: i64) -> Self {
        let workload = cluster.map(|it| &*it.workload);
        let parallel = workload.is_some_and(Workload::parallel);
        let set = workload.map(|it| &it.metadata);
        Self { review, cluster, set, from, to, parallel, is_indirect: false }
    }

    /// Returns the requested change, with which every message begins.
    fn change(&self) -> String {
        format!("{} -> {} replicas", self.from, self.to)
    }

    /// Returns the number of arbitrators, which vote too.
    fn arbitrators(&self) -> i64 {
        self.cluster.map_or(0, |it| it.arbitrators)
    }

    /// Returns the advice for the next allowed step, which begins with a command if the StatefulSet is scaled.
    fn instead(&self, replicas: i64) -> WayOut {
        let step = if self.is_indirect { say(format!("go to {replicas}")) } else { self.scale(replicas) };
        step.say(", wait until all members are Ready, then continue")
    }

    fn scale(&self, replicas: i64) -> WayOut {
        let Review { namespace, name, .. } = self.review;
        managed::scale(self.set, namespace, name, replicas)
    }
}

fn changed(step: Resize<'_>, view: &View<'_>) -> Findings {
    let cluster = step.cluster;
    if step.to == step.from {
        return Findings::new();
    }
    let refused = if cluster.is_some_and(|it| it.has_no_identity() && it.ready() > 0) {
        Some(deny(
            format!("{}: the cluster has no identity", step.change()),
            "members that formed their cluster after a crash without comparing their data accept no joiner: a member that leaves is lost, \
             and a new one never joins",
            page("G04").say(", a cluster without an identity (create it again from one member first)"),
        ))
    } else if step.to > step.from {
        cannot_grow_now(step, view)
    } else if cluster.is_some_and(|it| view.state(it) == State::Down) {
        // If no member is Ready, a smaller step does not help.
        cannot_shrink_now(step, view)
    } else {
        too_far_down(step).or_else(|| cannot_shrink_now(step, view))
    };
    match refused {
        Some(finding) => vec![finding],
        None => {
            let warnings = unwise_size(step.to, step.arbitrators()).into_iter().chain(claims_deleted(step));
            warnings.chain(uncertain(cluster, view)).collect()
        }
    }
}

/// Returns a finding about a step that is never safe, in any state of the cluster.
fn too_far_down(step: Resize<'_>) -> Option<Finding> {
    let (Resize { from, to, parallel, .. }, change, arbitrators) = (step, step.change(), step.arbitrators());
    let floor = (floor_of_one_step(from + arbitrators) - arbitrators).max(1);
    if to <= 0 {
        let driven = step.cluster.filter(|it| driver::of(&it.workload).is_some());
        let to_stop = match driven {
            Some(it) => say("its operator may stop the cluster, but only while no member or every member is Ready; to see what a member waits for: ")
                .run(it.status_command()),
            None => say("to stop the cluster in order: ")
                .run(CommandLine::new(format!("gatera stop {} -n {}", step.review.name, step.review.namespace))),
        };
        return Some(deny(
            format!("{change} stops every member"),
            "after a full stop no member may start by itself: you must find the one with the newest data and bootstrap from it, \
             and a wrong choice loses data",
            say("keep at least 1 member").or(to_stop),
        ));
    }
    if to < floor {
        return Some(deny(
            format!("{change} would leave {to} of {from} members; {floor} is the smallest next step"),
            "members that are stopped together can count as crashed together, and the rest is not a majority: it stops \
             answering queries",
            step.instead(floor),
        ));
    }
    (parallel && from - to > 1).then(|| {
        deny(
            format!("{change} with podManagementPolicy Parallel stops {} members at once", from - to),
            "Parallel does not wait between members, and members that leave at the same moment count as crashed",
            step.instead(from - 1),
        )
    })
}

/// Returns a finding if the cluster must not shrink now. All remaining members must be Ready, because the removed one may be a
/// donor.
fn cannot_shrink_now(step: Resize<'_>, view: &View<'_>) -> Option<Finding> {
    let why = "the removed member may be sending its data to another, and a member that is not Ready counts as lost for the majority";
    let change = step.change();
    let Some(cluster) = step.cluster else {
        let says = format!("{change}: gatera has not seen this cluster yet");
        return Some(finding(Verdict::Unknown, says, why, "repeat the command in a few seconds"));
    };
    let refuse = |verdict, says: &str, instead: WayOut| {
        Some(finding(verdict, format!("{change}: {says} ({})", view.describe(cluster)), why, instead))
    };
    let ready = run(cluster.wait_command()).say(", then repeat the command");
    let remaining =
        cluster.members.iter().filter(|member| member.ordinal < cluster.workload.ordinals().start + step.to);
    let rollout_under_way = cluster.rolls() && cluster.has_data();
    let Id { namespace, name } = &cluster.id;
    match view.state(cluster) {
        State::Healthy | State::Degraded | State::Joining | State::Transfer if rollout_under_way => {
            if !cluster.workload.is_observed() {
                let says = "the StatefulSet controller has not seen the last change yet";
                return refuse(Verdict::Wait, says, "repeat the command in a minute".into());
            }
            refuse(
                Verdict::Wait,
                "a rollout of its template is under way, and restarts the next member as soon as this one is removed",
                run(CommandLine::new(format!("kubectl -n {namespace} rollout status statefulset {name}")))
                    .say(", and repeat the command when it is done")
                    .or(say("if it hangs, ").and(pause_rollout(cluster))),
            )
        }
        State::Healthy => {
            let last = format!("{}-{}", cluster.id.name, cluster.workload.ordinals().start + step.from - 1);
            let (leaving, seconds) = view.reservations.other_leaving(cluster, &last)?;
            refuse(Verdict::Wait, &format!("{leaving} was allowed to leave {seconds}s ago"), ready)
        }
        State::Unknown => refuse(
            Verdict::Unknown,
            "it is not known whether the remaining members are Ready",
            UNTIL_SEEN.into(),
        ),
        State::Down | State::Stopped => Some(deny(
            format!("{change}: no member is Ready ({})", view.describe(cluster)),
            "the data is on the members' claims, and the member that is removed may have the newest",
            run(cluster.recover_command())
                .say(", which starts the member with the newest data")
                .then("scale when all are Ready"),
        )),
        // Only members that are not Ready would be removed, so the step is a way out.
        _ if cluster.leaving.is_empty() && remaining.clone().all(Member::ready) => None,
        _ if remaining.clone().all(Member::ready) => {
            refuse(Verdict::Wait, "a member is still leaving", ready)
        }
        State::Forming => refuse(Verdict::Wait, "the first installation is not finished", ready),
        State::Joining | State::Transfer => refuse(Verdict::Wait, "a member is starting", ready),
        // A pod that is being deleted is created again by its controller.
        State::Degraded
            if remaining.clone().any(|member| member.pod.as_ref().is_some_and(|pod| pod.terminating)) =>
        {
            refuse(Verdict::Wait, "a remaining member is being replaced", ready)
        }
        State::Degraded => {
            let not_ready = remaining.clone().find(|it| !it.ready());
            let way_out = not_ready.and_then(|it| condition::way_out_of(it, cluster, view));
            let instead = way_out
                .unwrap_or_else(|| run(cluster.status_command()))
                .then("repeat the command when all remaining members are Ready");
            refuse(Verdict::Deny, "a remaining member is not Ready", instead)
        }
    }
}

/// Returns a finding if the cluster must not grow now: a new member needs a cluster to join.
fn cannot_grow_now(step: Resize<'_>, view: &View<'_>) -> Option<Finding> {
    let cluster = step.cluster?;
    let change = step.change();
    let first_start = cluster.workload.replicas() == 0;
    match (view.state(cluster), cluster.stopped_members()) {
        (State::Down | State::Stopped, Some(members)) if members == step.to => Some(finding(
            Verdict::Warn,
            format!(
                "{change}: its members were stopped in order, but none of them starts the cluster by itself"
            ),
            "all others copy the member that starts first, so it must be the one with the newest data",
            run(cluster.start_command()).say(", which starts the member with the newest data"),
        )),
        (State::Down | State::Stopped, Some(members)) if first_start => Some(deny(
            format!("{change}: it had {members} members when it was stopped"),
            "a member that is left out may have the newest data, and a new one is empty",
            run(cluster.start_command())
                .say(format!(", which starts it with {members}"))
                .then("scale when all are Ready"),
        )),
        (State::Down, _) => Some(deny(
            format!(
                "{change}: no member is Ready, but there is data on the claims ({})",
                view.describe(cluster)
            ),
            "a member that starts alone finds no peer and gives up after 30 seconds; a new cluster must never be created over \
             existing data",
            run(cluster.recover_command()).say(", which starts the member with the newest data"),
        )),
        (State::Forming, _) if !first_start && !cluster.bootstrap.pods.is_empty() => Some(finding(
            Verdict::Wait,
            format!("{change}: the first installation is not finished ({})", view.describe(cluster)),
            "every new member copies the whole database, and only the bootstrap node has it yet",
            format!(
                "wait until all {} members are Ready, then repeat the command",
                cluster.workload.replicas()
            ),
        )),
        _ if step.parallel && step.to - step.from > 1 && !first_start && cluster.has_data() => Some(deny(
            format!(
                "{change} with podManagementPolicy Parallel starts {} members at once",
                step.to - step.from
            ),
            "every new member copies the whole database from one of the others, and all would do so at the same time",
            step.instead(step.from + 1),
        )),
        _ => None,
    }
}

/// Returns a warning for a step that is allowed on weak evidence: a probe that cannot see Galera's state, or an old view.
fn uncertain(cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
    let cluster = cluster?;
    let (says, why, instead) = match (view.state(cluster), cluster.unverified().count()) {
        (State::Unknown, _) => (
            format!("the state of the cluster is not known ({})", view.seen()),
            "gatera's information about it is old",
            "check the members before you continue",
        ),
        (_, 0) => return None,
        (_, count) => (
            format!(
                "{count} of its Ready members have no probe of gatera, so they may be Ready without being Synced"
            ),
            "a probe that only asks whether the server answers also succeeds on a member that is cut off or still catching up",
            "restart the members one at a time, so that they get their probes",
        ),
    };
    Some(finding(Verdict::Warn, says, why, instead))
}

fn deny(says: String, why: &str, instead: impl Into<WayOut>) -> Finding {
    finding(Verdict::Deny, says, why, instead)
}

fn finding(verdict: Verdict, says: String, why: &str, instead: impl Into<WayOut>) -> Finding {
    RULE.finding(verdict, FIELD, says, why, instead)
}
