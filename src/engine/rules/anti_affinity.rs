//! G13: no two members share a node.
//!
//! Refuses to remove or weaken a required `podAntiAffinity` on `kubernetes.io/hostname` that keeps the members apart, to
//! add one to a running cluster while there are fewer nodes than members, and a change of `nodeSelector` or tolerations after
//! which no node accepts the members. Warns where members may share a node because `gatera.dev/anti-affinity: none` says so,
//! where a term does not separate the members, and where a member will find no node. A required term on another label of
//! nodes, such as a zone, keeps them apart as well, and so does a spread of `maxSkew: 1` with `DoNotSchedule`, if every node
//! has the label and it has as many values as there are members.
//!
//! # Why
//!
//! A cluster of three survives the loss of one member. With two of them on one node it does not survive the loss of that
//! node: one member is left, which is no majority and stops answering. The same holds for a drain of that node.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch statefulset galera --type=json -p='[{"op":"remove","path":"/spec/template/spec/affinity"}]'
//! [G13] StatefulSet db/galera: required podAntiAffinity on kubernetes.io/hostname is removed
//! ```
//!
//! # What to do instead
//!
//! Write nothing: gatera adds the required term when a pod is created, if there are as many schedulable nodes as members,
//! and a preferred one if not. `gatera.dev/anti-affinity` in the template's annotations chooses `required`, `preferred`
//! or `none` for one cluster. A term of your own stays as it is, so its `labelSelector` must select the members.
//!
//! Nodes are counted as the pods would be placed: Ready, not cordoned, with the labels of `nodeSelector`, every taint
//! tolerated. A required `nodeAffinity` is not counted, and neither is where volumes are: a member whose volume is local
//! to a node can run only there, however many nodes are free. Look at the volumes before you require anything:
//! `kubectl get pv -o wide`, and `.spec.nodeAffinity` of each.
//!
//! # Exceptions
//!
//! Annotate the StatefulSet, for an hour at most:
//! `gatera.dev/override: "G13 until=2026-12-01T10:00:00Z reason=…"`.

use crate::rule::{All, Change, Finding, Findings, Review, Rule, Verb, Verdict, View, WRITTEN};
use facts::marks;
use facts::view::{Cluster, Freshness, is_cluster};
use facts::way_out::say;
use objects::{Kind, PodSpec, Scale, Template, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G13",
    name: "anti-affinity",
    judges: &[(Kind::StatefulSet, WRITTEN, All(written)), (Kind::StatefulSet, &[Verb::Scale], All(scaled))],
    depends_on_state: true,
    source: include_str!("anti_affinity.rs"),
};

const FIELD: &str = "spec.template.spec.affinity.podAntiAffinity";
const MARK_FIELD: &str = "spec.template.metadata.annotations";

/// How strictly a template keeps the members apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separation {
    /// A member stays Pending rather than share a node.
    Required,
    /// Members are separated while another node is free.
    Preferred,
    /// The template has terms for nodes, but none of them selects its own members. Injection leaves such terms alone.
    Missing,
    /// The template has no term for nodes: injection decides.
    Unspecified,
    /// The annotation asks injection to add no term.
    OptedOut,
}

fn written(review: &Review, view: &View<'_>) -> Findings {
    let (ns, Change { old, new }) = (&review.namespace, review.change::<Workload>());
    let Some(new) = new.filter(|it| is_cluster(it, view.adoption())) else { return Findings::new() };
    let found = in_template(ns, &new.spec.template).into_iter();
    match old {
        Some(old) => {
            let crowded = || crowded(review, old, new, view);
            weakened(ns, old, new, view).or_else(crowded).into_iter().chain(found).collect()
        }
        None => found.chain(too_few_nodes(ns, &new.spec.template, new.replicas(), view)).collect(),
    }
}

fn scaled(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Scale>() else { return Findings::new() };
    let ns = &review.namespace;
    let cluster = view.cluster(ns, &review.name).filter(|_| new.spec.replicas > old.spec.replicas);
    let few = |it: &Cluster| too_few_nodes(ns, &it.workload.spec.template, new.spec.replicas, view);
    cluster.and_then(few).map(growing_needs_nodes).into_iter().collect()
}

fn separation(ns: &str, template: &Template) -> Separation {
    let terms = &template.spec.affinity.pod_anti_affinity;
    let labels = &template.metadata.labels;
    match template.metadata.mark(marks::ANTI_AFFINITY) {
        _ if terms.required.iter().any(|term| term.separates(labels, ns)) => Separation::Required,
        _ if terms.terms().any(|term| term.separates(labels, ns)) => Separation::Preferred,
        _ if terms.terms().any(objects::AffinityTerm::is_per_node) => Separation::Missing,
        Some("required") => Separation::Required,
        Some("preferred") => Separation::Preferred,
        Some("none") => Separation::OptedOut,
        _ => Separation::Unspecified,
    }
}

/// Returns findings about the new template alone.
fn in_template(ns: &str, template: &Template) -> Findings {
    let why =
        "with two members on one node, the loss of that node leaves a cluster of three without a majority";
    let found = match separation(ns, template) {
        Separation::OptedOut => RULE.warn(
            MARK_FIELD,
            "members may share a node (gatera.dev/anti-affinity: none)",
            why,
            "use gatera.dev/anti-affinity: preferred, which leaves no member Pending",
        ),
        Separation::Missing => RULE.warn(
            FIELD,
            "its podAntiAffinity on kubernetes.io/hostname does not select its own members, so it \
             does not separate them",
            why,
            "leave it out (gatera adds the right one), or select the template's labels",
        ),
        Separation::Required | Separation::Preferred | Separation::Unspecified => return Findings::new(),
    };
    vec![found]
}

/// Returns whether two members can share a node: neither the template nor what injection adds keeps them apart.
pub(super) fn may_share_a_node(ns: &str, new: &Workload, view: &View<'_>) -> bool {
    let kept_apart = match separation(ns, &new.spec.template) {
        Separation::Required => true,
        Separation::Preferred | Separation::Missing | Separation::OptedOut => false,
        // When no node is known, as for files, assume that there are enough.
        Separation::Unspecified => {
            let nodes = i64::try_from(view.world.schedulable_nodes()).unwrap_or(i64::MAX);
            nodes == 0 || nodes >= new.replicas()
        }
    };
    !kept_apart && !are_separated_by_domains(ns, new, view)
}

/// Returns whether another node label keeps the members apart: it has at least as many values as there are members.
fn are_separated_by_domains(ns: &str, new: &Workload, view: &View<'_>) -> bool {
    let Template { metadata, spec, .. } = &*new.spec.template;
    let terms =
        spec.affinity.pod_anti_affinity.required.iter().filter(|it| it.applies_to(&metadata.labels, ns));
    let spreads = spec.topology_spread_constraints.iter().filter(|it| it.separates(&metadata.labels));
    let mut keys = terms.map(|it| &it.topology_key).chain(spreads.map(|it| &it.topology_key));
    let enough = |key: &String| {
        let domains = view.world.domains_for(spec, key).and_then(|it| i64::try_from(it).ok());
        domains.is_some_and(|it| it >= new.replicas())
    };
    view.freshness == Freshness::Current && keys.any(enough)
}

/// Returns a finding if what kept the members apart no longer does.
fn weakened(ns: &str, old: &Workload, new: &Workload, view: &View<'_>) -> Option<Finding> {
    if are_separated_by_domains(ns, new, view) {
        return None;
    }
    let (before, after) = (separation(ns, &old.spec.template), separation(ns, &new.spec.template));
    let how = match (before, after) {
        (Separation::Required, Separation::Preferred) => "is only preferred from now on",
        (Separation::Required, Separation::Missing) => "no longer selects its own members",
        (Separation::Required, Separation::Unspecified | Separation::OptedOut) => "is removed",
        _ => return None,
    };
    let stays = match after {
        // A label such as helm.sh/chart changes with every upgrade.
        Separation::Missing => format!(
            "use in its labelSelector only labels that members keep, which are those of spec.selector ({})",
            new.spec.selector.match_labels.keys().map(|key| &**key).collect::<Vec<_>>().join(", ")
        ),
        _ => "keep it".to_owned(),
    };
    Some(RULE.deny(
        FIELD,
        format!("required podAntiAffinity on kubernetes.io/hostname {how}"),
        "from the next restart on two members can share a node, and the loss of that node can \
         leave no majority",
        say(stays).or(
            "replace all of podAntiAffinity by the annotation gatera.dev/anti-affinity: required on the pod template",
        ),
    ))
}

/// Returns a finding if a running cluster newly requires more nodes than there are, or grows beyond them.
fn crowded(review: &Review, old: &Workload, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let ns = &*review.namespace;
    let count = |of: &Workload| nodes_for(&of.spec.template.spec, view);
    let (before, after) = (count(old), count(new));
    if view.freshness == Freshness::Current && after == Some(0) && before.is_some_and(|it| it > 0) {
        return Some(no_node_accepts());
    }
    // Another nodeSelector, or fewer tolerations, can leave fewer nodes.
    let newly = separation(ns, &old.spec.template) != Separation::Required || after < before;
    let grows = new.replicas() > old.replicas();
    let few = too_few_nodes(ns, &new.spec.template, new.replicas(), view).filter(|_| newly || grows)?;
    let cluster = view.cluster(ns, &review.name);
    let runs = cluster.is_some_and(|cluster| cluster.members.iter().any(|member| member.pod.is_some()));
    Some(match (newly, runs) {
        (true, true) => Finding { verdict: Verdict::Deny, ..few },
        (true, false) => few,
        (false, _) => growing_needs_nodes(few),
    })
}

/// Returns the finding for a cluster whose nodeSelector or tolerations now exclude every node.
fn no_node_accepts() -> Finding {
    RULE.deny(
        "spec.template.spec.nodeSelector",
        "no schedulable node accepts its members any more, because of nodeSelector or taints that are not tolerated",
        "the first member that restarts stays Pending, and the rollout hangs there",
        "label nodes or tolerate their taints first",
    )
}

/// Returns the finding for a cluster that grows: only more nodes help.
fn growing_needs_nodes(few: Finding) -> Finding {
    Finding { instead: "add nodes first".into(), ..few }
}

/// Returns a finding if there are fewer nodes than members; `None` if the view is out of date.
fn too_few_nodes(ns: &str, template: &Template, members: i64, view: &View<'_>) -> Option<Finding> {
    let required = separation(ns, template) == Separation::Required && view.freshness == Freshness::Current;
    let nodes = required.then(|| nodes_for(&template.spec, view)).flatten()?;
    (nodes < members).then(|| {
        let schedulable = match nodes {
            0 => "no node is".to_owned(),
            1 => "only 1 node is".to_owned(),
            _ => format!("only {nodes} nodes are"),
        };
        RULE.warn(
            FIELD,
            format!("{members} members each need a node of their own, but {schedulable} schedulable"),
            "a member without a node stays Pending: in a rollout that member has already left, and the rollout hangs with one member missing",
            "add nodes first, or annotate the template with gatera.dev/anti-affinity: preferred \
             instead",
        )
    })
}

fn nodes_for(pod: &PodSpec, view: &View<'_>) -> Option<i64> {
    i64::try_from(view.world.nodes_for(pod)?).ok()
}
