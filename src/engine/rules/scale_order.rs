//! G01: a cluster grows and shrinks in steps that keep its majority.
//!
//! Refuses to scale a Galera StatefulSet to 0, below a majority of its members in one step, down while a member that
//! stays is not Ready or a template is being rolled out, up while there is no cluster to join, and in any direction while the
//! cluster has lost its identity. Judged on every path that leads to `replicas`: create, apply, edit, patch, `kubectl scale`,
//! an autoscaler. Other ordinals (`spec.ordinals.start`) count like members
//! that leave, and so does a StatefulSet that is created again around fewer members than run.
//!
//! # Why
//!
//! Members that leave without a good-bye count against the others: a component lives on only while more than half of
//! it is there. Going from 5 to 1 leaves one member that cannot tell whether the other four died or left, and it
//! stops answering. At 0 nobody is left who knows that he was the last, so nobody may start first: the cluster needs
//! a manual bootstrap, and starting it from the wrong member loses data. A member that is removed while it sends its
//! data to another leaves that other with half a database.
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
//! between steps. Odd numbers of three and more survive the loss of a node; two and four survive no more than one and
//! three do. Where Helm manages the StatefulSet, scale by its value and `helm upgrade`: `kubectl scale` takes the field from Helm.
//!
//! To stop a cluster for a while: `gatera stop NAME -n NS`, and `gatera start` to start it again. By hand, go down one member
//! at a time until only ordinal 0 is left (it then knows that it is the last, and notes `safe_to_bootstrap: 1`), and from there to 0
//! with the override; to start it again, set the number back with the override, and run `gatera recover`. To stop it for good,
//! take a backup first.
//!
//! # How to waive it
//!
//! Annotate the StatefulSet, for an hour at most; `kubectl scale` itself takes no annotation:
//! `kubectl annotate statefulset NAME 'gatera.dev/override=G01 until=2026-12-01T10:00:00Z reason=…'`.

mod ordinals;
mod size;

use ordinals::{renumbered, stranded};
use size::{created, unwise_size};

use super::managed;
use super::member_removal::hold;
use crate::rule::{Rule, UNTIL_SEEN, Verb};
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::quorum::floor_of_one_step;
use facts::review::Review;
use facts::view::{Cluster, Id, Member, State, View, is_cluster};
use objects::{Kind, Meta, Object};

pub(super) const RULE: Rule = Rule {
    id: "G01",
    name: "scale-order",
    touches: &[(Kind::StatefulSet, &[Verb::Create, Verb::Update, Verb::Scale])],
    depends_on_state: true,
    source: include_str!("scale_order.rs"),
    check,
};

const FIELD: &str = "spec.replicas";

fn check(review: &Review, view: &View<'_>) -> Findings {
    match (&review.old, &review.new) {
        (None, Some(Object::StatefulSet(new))) if is_cluster(new, view.adoption()) => {
            let cluster = view.cluster(&review.namespace, &review.name);
            let is_stopped = new.replicas() == 0 && cluster.is_some_and(Cluster::is_stopped);
            if is_stopped { Findings::new() } else { created(new.replicas()) }
        }
        (Some(Object::StatefulSet(old)), Some(Object::StatefulSet(new)))
            if is_cluster(old, view.adoption()) =>
        {
            let cluster = view.cluster(&review.namespace, &review.name);
            let cluster = match cluster.filter(|it| it.left) {
                Some(left) if review.takes_over => {
                    return stranded(new, left).into_iter().collect();
                }
                // It is there, and the view has not seen it yet.
                Some(_) => None,
                None => cluster,
            };
            if let Some(refused) = renumbered(old, new, cluster, view) {
                return vec![refused];
            }
            changed(
                Resize {
                    review,
                    set: Some(&old.metadata),
                    arbitrators: cluster.map_or(0, |it| it.arbitrators),
                    from: old.replicas(),
                    to: new.replicas(),
                    parallel: new.parallel(),
                },
                cluster,
                view,
            )
        }
        (Some(Object::Scale(old)), Some(Object::Scale(new))) => {
            // It may have been made moments ago, around members that run.
            let cluster = view.cluster(&review.namespace, &review.name).filter(|it| !it.left);
            let known = cluster.is_some() || view.members_run(&review.namespace, &review.name);
            let step = Resize {
                review,
                set: cluster.map(|it| &it.workload.metadata),
                arbitrators: cluster.map_or(0, |it| it.arbitrators),
                from: old.spec.replicas,
                to: new.spec.replicas,
                parallel: cluster.is_some_and(|it| it.workload.parallel()),
            };
            if known { changed(step, cluster, view) } else { Findings::new() }
        }
        _ => Findings::new(),
    }
}

/// What would be said of so many members, to whoever asks for them in another way than by replicas.
pub fn resized(review: &Review, cluster: &Cluster, to: i64, view: &View<'_>) -> Findings {
    let (set, from) = (Some(&cluster.workload.metadata), cluster.workload.replicas());
    let (arbitrators, parallel) = (cluster.arbitrators, cluster.workload.parallel());
    changed(Resize { review, set, arbitrators, from, to, parallel }, Some(cluster), view)
}

/// What is said of a size that is chosen for the first time.
pub fn chosen(replicas: i64) -> Findings {
    created(replicas)
}

/// From so many replicas to so many.
#[derive(Clone, Copy)]
struct Resize<'a> {
    review: &'a Review,
    /// The StatefulSet, if it is known.
    set: Option<&'a Meta>,
    /// Arbitrators vote, too.
    arbitrators: i64,
    from: i64,
    to: i64,
    parallel: bool,
}

impl Resize<'_> {
    /// The next step that is right, as a command.
    fn instead(&self, replicas: i64) -> String {
        let Review { namespace, name, .. } = self.review;
        let command = managed::scale(self.set, namespace, name, replicas);
        format!("{command}, wait until all members are Ready, then go on")
    }
}

fn changed(step: Resize<'_>, cluster: Option<&Cluster>, view: &View<'_>) -> Findings {
    let refused = match () {
        () if step.to == step.from => return Findings::new(),
        () if cluster.is_some_and(|it| it.has_no_identity() && it.ready() > 0) => Some(deny(
            format!("{} -> {} replicas: the cluster has no identity", step.from, step.to),
            "members that formed their cluster after a crash without comparing what they have take nobody in: who leaves is lost, and who \
             comes never joins",
            "gatera explain G04, a cluster without an identity (found it anew from one member first)".into(),
        )),
        // What is not there is not kept, nor scaled.
        () if step.to < step.from && cluster.is_some_and(|it| view.state(it) == State::Down) => {
            not_down_now(step, cluster, view)
        }
        () if step.to < step.from => too_far_down(step).or_else(|| not_down_now(step, cluster, view)),
        () => not_up_now(step, cluster, view),
    };
    match refused {
        Some(finding) => vec![finding],
        None => {
            let found = unwise_size(step.to, step.arbitrators).into_iter().chain(claims_go(step, cluster));
            found.chain(uncertain(cluster, view)).collect()
        }
    }
}

/// Steps that no state of the cluster makes safe.
fn too_far_down(step: Resize<'_>) -> Option<Finding> {
    let Resize { from, to, parallel, arbitrators, .. } = step;
    let floor = (floor_of_one_step(from + arbitrators) - arbitrators).max(1);
    if to <= 0 {
        return Some(deny(
            format!("{from} -> {to} replicas stops every member"),
            "after a full stop no member may start by itself: somebody must find the one with the newest data and bootstrap \
             from it, and a wrong choice loses data",
            format!(
                "keep 1 member at least; to stop it in order: gatera stop {} -n {}",
                step.review.name, step.review.namespace
            ),
        ));
    }
    if to < floor {
        return Some(deny(
            format!(
                "{from} -> {to} replicas would leave {to} of {from} members; {floor} is the smallest next step"
            ),
            "members that are told to leave together can vanish together, and what is left is no majority: it stops \
             answering queries",
            step.instead(floor),
        ));
    }
    (parallel && from - to > 1).then(|| {
        deny(
            format!(
                "{from} -> {to} replicas with podManagementPolicy Parallel stops {} members at once",
                from - to
            ),
            "Parallel waits for nobody: members that leave at the same moment count as crashed",
            step.instead(from - 1),
        )
    })
}

/// Down only while everybody who stays is Ready: a member may be receiving its data from the one that goes.
fn not_down_now(step: Resize<'_>, cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
    let why = "the member that leaves may be the one another receives its data from, and a member that is not Ready \
               counts as lost when the majority is counted";
    let asked = format!("{} -> {} replicas", step.from, step.to);
    let Some(cluster) = cluster else {
        let says = format!("{asked}: gatera does not know this cluster yet");
        return Some(finding(Verdict::Unknown, says, why, "repeat the command in a few seconds".into()));
    };
    let refuse = |verdict, says: &str, instead: String| {
        Some(finding(verdict, format!("{asked}: {says} ({})", view.describe(cluster)), why, instead))
    };
    let ready = format!("{}, then repeat the command", cluster.wait_command());
    let stay_ready =
        cluster.members.iter().filter(|member| member.ordinal < cluster.workload.ordinals().start + step.to);
    let goes_on = cluster.rolls() && cluster.has_data();
    match view.state(cluster) {
        State::Healthy | State::Degraded | State::Joining | State::Transfer if goes_on => {
            if !cluster.workload.is_observed() {
                let says = "its controller has not seen the last change yet";
                return refuse(Verdict::Wait, says, "repeat the command in a minute".to_owned());
            }
            refuse(
                Verdict::Wait,
                "a rollout of its template is under way, and goes on with the next member as soon as this one is gone",
                format!(
                    "kubectl -n {} rollout status statefulset {}, and repeat the command when it is done; if it hangs, {}",
                    cluster.id.namespace,
                    cluster.id.name,
                    hold(cluster)
                ),
            )
        }
        State::Healthy => {
            let last = format!("{}-{}", cluster.id.name, cluster.workload.ordinals().start + step.from - 1);
            let (other, seconds) = view.reservations.besides(cluster, &last)?;
            refuse(Verdict::Wait, &format!("{other} was allowed to leave {seconds}s ago"), ready)
        }
        State::Unknown => refuse(
            Verdict::Unknown,
            "it is not known whether the members that stay are Ready",
            UNTIL_SEEN.into(),
        ),
        State::Down | State::Stopped => Some(deny(
            format!("{asked}: no member is Ready, so nothing is left to keep ({})", view.describe(cluster)),
            "its data is on the members' claims, and the one that is scaled away may have the newest",
            format!(
                "{}, which starts the one with the newest data; scale when all are Ready",
                cluster.recover_command()
            ),
        )),
        // What leaves is exactly what is broken: this is the way out, not the way in.
        _ if cluster.leaving.is_empty() && stay_ready.clone().all(Member::ready) => None,
        _ if stay_ready.clone().all(Member::ready) => {
            refuse(Verdict::Wait, "a member is still leaving", ready)
        }
        State::Forming => refuse(Verdict::Wait, "the first installation is not finished", ready),
        State::Joining | State::Transfer => refuse(Verdict::Wait, "a member is starting", ready),
        // A pod that is being deleted comes back by itself.
        State::Degraded
            if stay_ready.clone().any(|member| member.pod.as_ref().is_some_and(|pod| pod.going)) =>
        {
            refuse(Verdict::Wait, "a member that stays is being replaced", ready)
        }
        State::Degraded => {
            let Id { namespace, name: set } = &cluster.id;
            let logs = match stay_ready.clone().find(|member| !member.ready()) {
                Some(Member { name, pod: Some(_), .. }) => {
                    format!(
                        "kubectl -n {namespace} describe pod {name} (why is it not Ready?), then repeat the command"
                    )
                }
                Some(Member { name, pod: None, .. }) => format!(
                    "kubectl -n {namespace} describe statefulset {set} (why does {name} not exist?), then repeat the command"
                ),
                _ => format!("gatera status -n {namespace}, then repeat the command"),
            };
            refuse(Verdict::Deny, "a member that stays is not Ready", logs)
        }
    }
}

/// Up only while there is something to join.
fn not_up_now(step: Resize<'_>, cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
    let cluster = cluster?;
    let asked = format!("{} -> {} replicas", step.from, step.to);
    let first_start = cluster.workload.replicas() == 0;
    match (view.state(cluster), cluster.stopped_members()) {
        (State::Down | State::Stopped, Some(members)) if members == step.to => Some(finding(
            Verdict::Warn,
            format!(
                "{asked}: its members were stopped in order, and none of them starts the cluster by itself"
            ),
            "whoever starts first is copied by all others, and nobody does that on a guess",
            format!("{}, which starts the one with the newest data", cluster.start_command()),
        )),
        (State::Down | State::Stopped, Some(members)) if first_start => Some(deny(
            format!("{asked}: it had {members} members when it was stopped"),
            "a member that is left out may have the newest data, and one that is new is empty",
            format!("{}, which starts it with {members}; scale when all are Ready", cluster.start_command()),
        )),
        (State::Down, _) => Some(deny(
            format!(
                "{asked}: no member is Ready, and there is data on the claims ({})",
                view.describe(cluster)
            ),
            "a member that starts alone finds nobody to join and gives up after 30 seconds; a new cluster must never be \
             founded over existing data",
            format!("{}, which starts the one with the newest data", cluster.recover_command()),
        )),
        (State::Forming, _) if !first_start && !cluster.bootstrap.pods.is_empty() => Some(finding(
            Verdict::Wait,
            format!("{asked}: the first installation is not finished ({})", view.describe(cluster)),
            "every new member copies the whole database from one that has it, and there is only the bootstrap node yet",
            format!(
                "wait until all {} members are Ready, then repeat the command",
                cluster.workload.replicas()
            ),
        )),
        _ if step.parallel && step.to - step.from > 1 && !first_start && cluster.has_data() => Some(deny(
            format!(
                "{asked} with podManagementPolicy Parallel starts {} members at once",
                step.to - step.from
            ),
            "every new member copies the whole database from one of the others, and all would ask at the same moment",
            step.instead(step.from + 1),
        )),
        _ => None,
    }
}

/// Those who leave take their data along.
fn claims_go(step: Resize<'_>, cluster: Option<&Cluster>) -> Option<Finding> {
    let cluster = cluster.filter(|_| step.to < step.from)?;
    let retention = &cluster.workload.spec.persistent_volume_claim_retention_policy;
    let last = cluster.workload.ordinals().start + step.to;
    let leave = cluster.members.iter().filter(|it| it.ordinal >= last).map(|it| &*it.name);
    let leave = leave.collect::<Vec<_>>().join(" and ");
    (retention.when_scaled == "Delete" && !leave.is_empty()).then(|| {
        finding(
            Verdict::Warn,
            format!(
                "{} -> {} replicas deletes the claims of {leave} (whenScaled: Delete)",
                step.from, step.to
            ),
            "what is on a claim goes with it: a member that comes back later copies everything from another",
            "write whenScaled: Retain first to keep them".into(),
        )
    })
}

/// Allowed, but on the word of a probe that cannot see Galera's state, or of an old view.
fn uncertain(cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
    let cluster = cluster?;
    let (says, why, instead) = match (view.state(cluster), cluster.unverified().count()) {
        (State::Unknown, _) => (
            format!("the state of the cluster is not known ({})", view.seen()),
            "what is known of it is old",
            "look at the members before you go on",
        ),
        (_, 0) => return None,
        (_, count) => (
            format!("{count} of its Ready members carry no gatera probe, so Ready does not prove Synced"),
            "a probe that only asks for an answer also succeeds on a member that is cut off or still catching up",
            "restart the members one at a time, so that they get their probes",
        ),
    };
    Some(finding(Verdict::Warn, says, why, instead.into()))
}

fn deny(says: String, why: &str, instead: String) -> Finding {
    finding(Verdict::Deny, says, why, instead)
}

fn finding(verdict: Verdict, says: String, why: &str, instead: String) -> Finding {
    RULE.finding(verdict, FIELD, says, why, instead)
}
