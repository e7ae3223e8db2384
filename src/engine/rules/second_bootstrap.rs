//! G04: a cluster that has data is never created a second time.
//!
//! Refuses a bootstrap pod, a scale-up of a bootstrap Deployment, and any switch that makes a member create a new
//! cluster (`gcomm://` without hosts, `--wsrep-new-cluster`, `MARIADB_GALERA_CLUSTER_BOOTSTRAP`) once a member holds
//! data, or while another bootstrap pod exists; and a second member beside a single one that creates its cluster at every
//! start. A bootstrap Deployment that is applied again is not refused: it is kept at 0 replicas, with a warning, so that
//! `kubectl apply`, `helm upgrade` and GitOps can be repeated.
//!
//! # Why
//!
//! A server that starts with an empty `gcomm://` creates a new, empty cluster with an identity of its own. Members that
//! join it discard their data, because it belongs to another cluster, and copy the empty one. Measured: delete
//! the pods of a running cluster, apply the original manifests again "to fix it", and two and a half minutes later
//! every pod is 1/1 Running, Galera says Synced, and every table is lost.
//!
//! # Example
//!
//! ```text
//! $ kubectl scale deployment galera-bootstrap --replicas=1
//! [G04] Deployment db/galera-bootstrap: it would bootstrap, but cluster galera already has data (3 of 3 members Synced, seen
//! now)
//! ```
//!
//! # What to do instead
//!
//! Remove the bootstrap objects from your manifests; the members find each other. Argo CD sees a difference as long as the
//! objects are there: make it ignore `/spec/replicas` of the bootstrap Deployment (`ignoreDifferences`), or its self-heal
//! never ends.
//!
//! If no member is Ready, the data is still on the claims. `gatera recover CLUSTER -n NAMESPACE` finds the member with the
//! newest data and starts from there (`gatera explain G20`); you can run it again after any interruption. If the server starts
//! without gatera's step script, create no pod, and follow `gatera explain G20`, "Without the step". By hand,
//! never from an empty node:
//!
//! 1. Find N, the member with the newest data. `gatera status` shows the position of each waiting member at its last start,
//!    and which is the newest. If it shows none, read `uuid` and `seqno` from `grastate.dat` in the data directory of each
//!    (`kubectl exec`, or a pod of your own that mounts the claim); after a crash, when every `seqno` is -1,
//!    `mariadbd --wsrep-recover` prints them. The highest is N; after an orderly stop it has `safe_to_bootstrap: 1`. A `uuid`
//!    of zeros means an unfinished state transfer (then `sst_in_progress` is beside it: never N) or a crash during a DDL:
//!    such a member is N only if no other has its position. If members differ in `uuid` otherwise, two clusters were created:
//!    change nothing and compare their tables first. Galera refuses to start from N until you set `safe_to_bootstrap` in its
//!    `grastate.dat` to 1.
//! 2. Set `wsrep_cluster_address = gcomm://` in the members' ConfigMap, then `spec.ordinals.start: N` and `replicas: 1`
//!    on the StatefulSet; delete the remaining pods, so that N reads the address and the others stop, and wait
//!    until N is Ready. It keeps its data, and creates the cluster with it.
//! 3. Set the address back (no member restarts), then `start: 0` and the old number of replicas: the others copy its data.
//!
//! If Helm manages these objects, change its values and run `helm upgrade` in both steps, or the next upgrade of Helm 4 fails
//! with a conflict (`--force-conflicts` takes the fields back). Step 2 needs the override (`"G01,G02,G04 until=…"`) on the
//! ConfigMap and on the StatefulSet. Bitnami's chart has `galera.bootstrap.forceBootstrap: true` with `bootstrapFromNode: N`
//! instead of the address.
//!
//! # A cluster without an identity
//!
//! Members that crashed together and were started without their positions (without the step script) form their cluster again
//! with an identity of zeros: `wsrep_cluster_state_uuid` and `uuid` in `grastate.dat` are 00000000-…. It serves, but no member
//! can join it any more ("IST started with wrong seqno"): each member that leaves is lost. Do not restart any member. Their
//! data may differ (`CHECKSUM TABLE` of each): decide which one is right. Then create the cluster again from a member N that
//! serves, by steps 2 and 3 above, in this order: stop all clients that write; set the address, `start: N`, `replicas: 1`; wait
//! until the others are gone, so that N is the last, and sets `safe_to_bootstrap: 1` by itself (if it does not, another member
//! has newer rows: never set it by hand here); only then delete N. It keeps its data and gets a new identity; the others copy
//! everything. During the restart of N no member serves. The override is `"G01,G02,G04 until=…"` on the StatefulSet, and
//! `"G04 until=…"` on the ConfigMap; if the address is in the pod template (Bitnami's `forceBootstrap`), add G14.
//!
//! # Starts that the webhook cannot see
//!
//! If the webhook cannot see the address (in a Secret, or in a template that changed while the guard was down), the step script
//! does not start the server: the pod's termination message begins with "gatera did not start the server". To allow it, put the
//! override on the StatefulSet and delete that pod: the new one may create a cluster.
//!
//! # A member in another cluster
//!
//! A member that is Synced in a cluster other than the recorded one (a stray) is not Ready, and no client reaches it. It may
//! hold rows that the others lack, and they may hold rows that it lacks: first compare their tables (with
//! `kubectl exec … mariadb-dump` of each). Then:
//!
//! - If the recorded cluster is right: keep the dump of the stray, annotate its claim with `"G07 until=…"` and its pod with
//!   `"G02 until=…"` (`gatera.dev/override`), delete the claim, then the pod. The new pod is empty; it joins and copies
//!   everything. If no member of the recorded cluster serves, do this for every stray first, because two clusters that reach
//!   each other damage both; then `gatera recover CLUSTER -n NAMESPACE`. It cannot know what an emptied member had, and prints
//!   how to accept that: `--from MEMBER --accept-loss unknown`.
//! - If the stray is right (the cluster was created again while the guard was down): put the override of G04 on the
//!   StatefulSet, and delete the stray's pod: the new pod may be in that cluster, so it becomes Ready. When no serving member
//!   is in the old cluster, the new one is recorded.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G04 until=2026-12-01T10:00:00Z reason=…"`; a bootstrap
//! Deployment also in its pod template, because its pod is judged too. With the override a bootstrap node does start, and
//! the members that join it lose their data.

mod configuration;

use crate::inject::identity::SECOND_BOOTSTRAP;
use crate::rule::{Change, Finding, One, Origin, Review, Rule, Verb, Verdict, View, WRITTEN};
use crate::verdict::{Decision, Judged};
use facts::galera::address;
use facts::galera::adopt::INSTANCE_LABELS;
use facts::view::{Cluster, Freshness, is_cluster};
use facts::way_out::{CommandLine, WayOut, run, say};
use objects::{Kind, Labels, Meta, Pod, PodSpec, Scale, Workload};

pub(super) const RULE: Rule = Rule {
    id: SECOND_BOOTSTRAP,
    name: "second-bootstrap",
    judges: &[
        (Kind::Deployment, WRITTEN, One(deployment)),
        (Kind::Deployment, &[Verb::Scale], One(deployment_scaled)),
        (Kind::Pod, &[Verb::Create], One(pod)),
        (Kind::StatefulSet, WRITTEN, One(stateful_set)),
        (Kind::StatefulSet, &[Verb::Scale], One(scaled)),
        (Kind::ConfigMap, WRITTEN, One(configuration::founds)),
    ],
    depends_on_state: true,
    source: include_str!("second_bootstrap.rs"),
};

/// Returns a finding about a bootstrap Deployment that is applied again: kept at 0 with a warning while the object can still be
/// changed, refused afterwards.
fn deployment(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Change { old, new: Some(new) } = review.change::<Workload>() else { return None };
    // The audit looks at existing objects, which start nothing.
    let old = old.or_else(|| (review.origin == Origin::Audit).then_some(new));
    let (ns, template) = (&*review.namespace, &new.spec.template);
    let by = founding_switch(ns, &template.metadata, &template.spec, view)?;
    // A running bootstrap node may be a donor: an edit of its Deployment does not start a second one, and stopping it here
    // would interrupt the joiners. If the edit replaces the pod, its CREATE is judged.
    let runs_already = old.is_some_and(|old| old.replicas() >= new.replicas())
        && view
            .cluster_of(ns, &template.metadata.labels)
            .is_some_and(|cluster| !cluster.bootstrap.pods.is_empty());
    if new.replicas() == 0 || runs_already {
        return None;
    }
    let fact = existing_data(ns, &template.metadata.labels, view)?;
    if review.origin == Origin::Validating {
        return refused(&by, "spec.replicas", Some(fact));
    }
    let (says, instead) =
        (format!("kept at 0 replicas: {}", fact.says), "remove this Deployment from your manifests");
    let kept = finding(&by, Verdict::Amend, "spec.replicas", says, instead);
    Some(kept.amended_by("spec/replicas", 0.into()))
}

fn deployment_scaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let new = review.change::<Scale>().new.filter(|new| new.spec.replicas > 0);
    let cluster = new.and_then(|_| view.bootstrapped_by(&review.namespace, &review.name))?;
    refused("replicas above 0", "spec.replicas", data_of(cluster, view))
}

fn pod(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, pod) = (&review.namespace, review.change::<Pod>().new?);
    let meta = &pod.metadata;
    if meta.controller().is_some_and(|owner| owner.kind == "StatefulSet") {
        return None;
    }
    let by = founding_switch(ns, meta, &pod.spec, view)?;
    let known = existing_data(ns, &meta.labels, view).or_else(|| other_founder(ns, meta, view));
    refused(&by, "spec", known).or_else(|| data_unknown(&by, view))
}

fn stateful_set(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, Change { old, new }) = (&review.namespace, review.change::<Workload>());
    let new = new.filter(|it| is_cluster(it, view.adoption()))?;
    let more = old.filter(|old| new.replicas() > old.replicas());
    more.and_then(|_| each_founds(ns, new, new.replicas(), view))
        .or_else(|| member_switch(ns, new, view))
        .or_else(|| same_name(review, new, view))
        .or_else(|| bootstrap_node_waits(review, new, view))
}

fn scaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<Scale>()?;
    let cluster = view.cluster(&review.namespace, &review.name)?;
    let grows = new.spec.replicas > old.spec.replicas;
    grows.then(|| each_founds(&review.namespace, &cluster.workload, new.spec.replicas, view)).flatten()
}

/// Returns the finding that keeps the replicas of this Deployment at 0, because it would create a second cluster.
pub fn held_at_zero(decision: &Decision) -> Option<&Finding> {
    let holds = |it: &&Judged| {
        it.finding.rule == RULE.id && it.finding.verdict == Verdict::Amend && it.softened.is_none()
    };
    decision.judged.iter().find(holds).map(|it| &it.finding)
}

/// Returns the switch with which this pod creates a cluster, if the pod is adopted.
fn founding_switch(ns: &str, meta: &Meta, spec: &PodSpec, view: &View<'_>) -> Option<String> {
    let adopted = view.adoption().adopts(&meta.labels);
    adopted.then(|| view.founds_new_cluster(ns, meta, spec)).flatten()
}

/// Returns a finding about a switch in the template, with which a member creates a cluster at every restart.
fn member_switch(ns: &str, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let template = &new.spec.template;
    let by = founding_switch(ns, &template.metadata, &template.spec, view)?;
    let cluster = view.cluster(ns, &new.metadata.name);
    let claims = || view.claims_of(ns, new).into_iter().find(|claim| claim.bound);
    let fact = match cluster {
        Some(cluster) => data_of(cluster, view),
        None => claims().map(|claim| ExistingData {
            says: format!("claim {} of this StatefulSet already has a volume", claim.name),
            instead: LEAVE_OUT.into(),
        }),
    };
    member_refused(&by, &format!("spec.template: {by}"), fact, new)
}

/// Returns a finding about several members with such a switch. A single member may create its cluster at every start.
fn each_founds(ns: &str, workload: &Workload, replicas: i64, view: &View<'_>) -> Option<Finding> {
    let template = &workload.spec.template;
    let by = founding_switch(ns, &template.metadata, &template.spec, view).filter(|_| replicas > 1)?;
    let says = format!("each of {replicas} members would create a cluster of its own ({by})");
    let why = "data that is written to two clusters cannot be merged, and each member is Ready";
    Some(RULE.deny("spec.replicas", says, why, replacement_of(&by, workload)))
}

/// Returns a finding about two clusters with the same label: a bootstrap node of one would count as the other's.
fn same_name(review: &Review, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let labels = &new.spec.template.metadata.labels;
    let other = view.cluster_of(&review.namespace, labels).filter(|it| it.id.name != review.name)?;
    let key = INSTANCE_LABELS.into_iter().find(|key| labels.contains_key(key))?;
    let ExistingData { says, .. } = data_of(other, view)?;
    Some(RULE.deny(
        format!("spec.template.metadata.labels[{key}]"),
        format!("{says}, and its label {key} is the same"),
        "bootstrap nodes and claims belong to a cluster by that label; the bootstrap node of the new \
         one reaches the members of the other, and wipes them",
        format!(
            "write {key}: {} in its selector and pod template, instead of {}, and create Services and a PodDisruptionBudget that select it: \
             adding a label is not enough, because the Services of {} would still lead to its members",
            new.metadata.name, labels.get(key).map_or("it", |it| &**it), other.id.name
        ),
    ))
}

/// Returns a finding if a bootstrap node runs while members start again with their data: they would join its empty cluster.
fn bootstrap_node_waits(review: &Review, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let (ns, labels) = (&*review.namespace, &new.spec.template.metadata.labels);
    if review.old.is_some() || review.origin == Origin::Audit || new.replicas() == 0 {
        return None;
    }
    let claim = view.claims_of(ns, new).into_iter().find(|claim| claim.bound)?;
    let (name, by) = view.deployments_of(ns, labels).find_map(|it| {
        let by = founding_switch(ns, &it.spec.template.metadata, &it.spec.template.spec, view)?;
        (it.replicas() > 0).then_some((&it.metadata.name, by))
    })?;
    let says = format!(
        "claim {} of this StatefulSet already has a volume, but Deployment {name} creates an empty cluster",
        claim.name
    );
    let instead = run(CommandLine::new(format!("kubectl -n {ns} delete deployment {name}")))
        .say(", then apply the StatefulSet alone");
    Some(finding(&by, Verdict::Deny, "spec.template.metadata.labels", says, instead))
}

/// Returns the data that a second bootstrap would wipe: on the members, or on claims of a deleted StatefulSet.
fn existing_data(ns: &str, labels: &Labels, view: &View<'_>) -> Option<ExistingData> {
    match view.cluster_of(ns, labels) {
        Some(cluster) => data_of(cluster, view),
        None => {
            let claim = *view.left_over_claims(ns, labels).first()?;
            let says =
                format!("claim {claim} still holds the data of this cluster, whose StatefulSet is gone");
            Some(ExistingData {
                says,
                instead: say("apply the StatefulSet alone: its members use their claims again")
                    .or(say("if they do not start: ")
                        .run(CommandLine::new(format!("gatera recover NAME -n {ns}")))),
            })
        }
    }
}

fn data_of(cluster: &Cluster, view: &View<'_>) -> Option<ExistingData> {
    let says = format!("cluster {} already has data ({})", cluster.id.name, view.describe(cluster));
    let way_back = || {
        run(cluster.recover_command())
            .say(", which starts it from the member with the newest data; the data is still on the claims (by hand: ")
            .page("G04")
            .say(")")
    };
    let instead = if cluster.ready() == 0 { way_back() } else { LEAVE_OUT.into() };
    cluster.has_data().then_some(ExistingData { says, instead })
}

/// Returns another bootstrap pod: a Deployment replaces a deleted pod before it is gone, so for a while there would be two.
fn other_founder(ns: &str, meta: &Meta, view: &View<'_>) -> Option<ExistingData> {
    // In files, the pod itself is in the view.
    let mut pods = view.cluster_of(ns, &meta.labels)?.bootstrap.pods.iter();
    let pod = pods.find(|it| it.name != meta.name)?;
    let says = format!("bootstrap pod {} is still there", pod.name);
    Some(ExistingData { says, instead: "wait until it is gone; one bootstrap node is enough".into() })
}

/// Why a bootstrap is refused: data that it would wipe, or another bootstrap pod; and the advice.
struct ExistingData {
    says: String,
    instead: WayOut,
}

const LEAVE_OUT: &str =
    "remove the bootstrap objects and switches from your manifests; the members find each other";

fn refused(by: &str, field: &str, data: Option<ExistingData>) -> Option<Finding> {
    let ExistingData { says, instead } = data?;
    Some(finding(by, Verdict::Deny, field, format!("it would bootstrap, but {says}"), instead))
}

/// Returns a finding if the view is old: a cluster without data may have some by now.
fn data_unknown(by: &str, view: &View<'_>) -> Option<Finding> {
    let says = format!(
        "it would bootstrap, but it is not known whether its cluster has data by now ({})",
        view.seen()
    );
    let instead =
        "wait: its Deployment tries again by itself; /readyz of gatera (port 8080) says what it waits for";
    (view.freshness != Freshness::Current).then(|| finding(by, Verdict::Unknown, "spec", says, instead))
}

/// Returns the finding for a member with data of its own: it would create another cluster, not an empty one.
fn member_refused(by: &str, field: &str, data: Option<ExistingData>, workload: &Workload) -> Option<Finding> {
    let finding = refused(by, field, data)?;
    let why = format!(
        "every member that starts with it ({by}) creates a cluster of its own, and data that is written to two clusters cannot be merged"
    );
    let instead = if finding.instead == LEAVE_OUT.into() {
        replacement_of(by, workload).into()
    } else {
        finding.instead
    };
    Some(Finding { why, instead, ..finding })
}

/// Returns the advice that replaces this switch.
fn replacement_of(by: &str, workload: &Workload) -> String {
    if by.contains("wsrep_cluster_address") {
        let (name, service) = (&workload.metadata.name, &workload.spec.service_name);
        let service = if service.is_empty() { name } else { service };
        format!("list the members: {}", address::of_members(name, service, workload.ordinals()))
    } else {
        let in_bitnamis_chart = if by.contains("BOOTSTRAP") {
            " (in Bitnami's chart: galera.bootstrap.forceBootstrap=false)"
        } else {
            ""
        };
        format!("remove {by}{in_bitnamis_chart}; the members find each other by their address")
    }
}

fn finding(by: &str, verdict: Verdict, field: &str, says: String, instead: impl Into<WayOut>) -> Finding {
    let why = format!("it would create a new, empty cluster ({by}); members that join it discard their data");
    RULE.finding(verdict, field, says, why, instead)
}
