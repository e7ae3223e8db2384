//! G18: the labels and annotations by which the guard knows a cluster stay as they are.
//!
//! Refuses to remove or change the labels by which a cluster is adopted and its members belong to it, and to remove the mode
//! label from a namespace with a cluster in it. Refuses an unknown mode, and overrides that would have no effect. Annotations
//! that the guard itself writes belong to the guard: on a StatefulSet, a Deployment, their pod templates and new pods they are
//! removed, or restored as they were, with a warning; elsewhere, and through `/status`, they are refused, and so is a pod whose
//! marks the guard did not write. Warns about the label `gatera.dev/cluster` where no server is known, or where an operator
//! drives the cluster.
//!
//! # Why
//!
//! After `kubectl label pod galera-1 app-` the StatefulSet cannot replace the pod, its Services no longer select it, and no
//! rule protects it. The script and the option file that members run are in annotations of the pod: changing them changes
//! code that runs beside the database. A pod that carries `gatera.dev/injected` counts as Synced when it is Ready; the other
//! marks say whether a cluster holds data and what may be removed. A mistake in an override would be noticed only when the
//! override is needed.
//!
//! # Example
//!
//! ```text
//! $ kubectl label pod galera-1 app-
//! [G18] Pod db/galera-1: without the label app it no longer belongs to cluster galera
//! ```
//!
//! # What to do instead
//!
//! * To turn the guard off for a namespace, set its label `gatera.dev/mode` to `off`: nothing is refused, injected,
//!   held at 0 replicas, marked or removed there. With `warn` and `audit` nothing is refused or held at 0, but new pods
//!   are still injected, and the controller works (in `audit` it removes and restarts nothing). In every mode the guard
//!   protects its own annotations on StatefulSets, Deployments and new pods, because it would trust them later. Pods that run
//!   keep what was injected until they are deleted. To turn off one rule, use the settings file.
//! * Write an override as `"G07 until=2026-12-01T10:00:00Z reason=…"`, an hour ahead at most.
//! * To suspend refusals in a namespace for a few minutes, in an emergency: `gatera break-glass db --for 15m --reason '…'`. It
//!   writes `gatera.dev/break-glass` on the namespace, with an end time that the guard enforces. Each command that would have
//!   been refused gets a warning instead, and Events record it. The guard still changes what it changes otherwise: a bootstrap
//!   Deployment that is applied again stays at 0, and members do not create a second cluster by themselves; both need an override
//!   of G04. The guard's annotations stay protected. What you change meanwhile stays changed: labels, the namespace's mode, data.
//! * Leave the guard's annotations out of manifests: `injected`, `script`, `start-script`, `bitnami-script`, `my-cnf`,
//!   `identity`, `data`, `recovery`, `configuration`, `revision`, `keeps`, `bootstrap`, `removing`, and any other that begins
//!   with `gatera.dev/`. You may set `override` on the object, `break-glass` on the namespace, `stopped` on claims, `password`
//!   on Secrets, `rollout` and `recover` on the StatefulSet, and `container`, `profile`, `readiness`, `address`,
//!   `anti-affinity`, `start` and `startup-limit` on its pod template.
//! * A new pod that was injected by another version of gatera is refused for the moment; its controller tries again.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G18 until=2026-12-01T10:00:00Z reason=…"`. There is
//! no exception for the guard's own annotations: a user who may write them may also write an override.

mod corrections;
mod driven;
mod unserved;

pub use corrections::{Correction, corrections};

use std::collections::BTreeSet;

use super::owners;
use crate::inject::{self, Doubt};
use crate::rule::{
    All, Finding, Findings, Operation, Origin, Review, Rule, Verb, Verdict, View, WRITTEN, YieldsTo,
};
use facts::galera::adopt;
use facts::marks::overrides::{InvalidException, Override};
use facts::marks::{self, PREFIX};
use facts::mode::Mode;
use facts::view::{Cluster, MODE_LABEL, is_cluster};
use facts::way_out::{CommandLine, edit, run, say};
use objects::{Kind, Labels, Meta, Object, Pod};

pub(super) const RULE: Rule = Rule {
    id: "G18",
    name: "own-marks",
    judges: &[
        (Kind::StatefulSet, WRITTEN_OR_STATUS, All(check)),
        (Kind::Deployment, WRITTEN_OR_STATUS, All(check)),
        (Kind::ConfigMap, WRITTEN, All(check)),
        (Kind::Secret, WRITTEN, All(check)),
        (Kind::Service, WRITTEN, All(check)),
        (Kind::Budget, WRITTEN, All(check)),
        (Kind::Pod, WRITTEN_OR_STATUS, All(check)),
        (Kind::Claim, &[Verb::Update, Verb::Report], All(check)),
        (Kind::Namespace, WRITTEN_OR_STATUS, All(check)),
    ],
    depends_on_state: true,
    source: include_str!("own_marks.rs"),
};

/// Every write, also through `/status`.
const WRITTEN_OR_STATUS: &[Verb] = &[Verb::Create, Verb::Update, Verb::Report];

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = &review.new else { return Findings::new() };
    let mut found: Findings = useless_override(new.meta(), view).into_iter().collect();
    found.extend(useless_break_glass(review, new.meta(), view));
    found.extend(foreign_marks(review, new, view));
    found.extend(match (&review.old, new) {
        (_, Object::Namespace(new)) => mode_label(&new.metadata, review, view),
        (Some(old), new) => unrecognised(old, new, review, view),
        (None, _) => None,
    });
    if let Object::StatefulSet(new) = new {
        found.extend(unserved::judge(new));
        found.extend(driven::judge(new, view));
    }
    found
}

/// Returns a finding about an override that has no effect. One that has ended is allowed.
fn useless_override(meta: &Meta, view: &View<'_>) -> Option<Finding> {
    let text = meta.mark(marks::OVERRIDE)?;
    let problem = match Override::read(text, view.now) {
        Ok(exception) => {
            let unknown = exception
                .rules
                .iter()
                .find(|id| !view.known_rules.iter().any(|known| known.eq_ignore_ascii_case(id)))?;
            format!("there is no rule {unknown}")
        }
        Err(InvalidException::Ended(_)) => return None,
        Err(problem) => problem.to_string(),
    };
    Some(RULE.deny(
        "metadata.annotations[gatera.dev/override]",
        format!("the override would have no effect: {problem}"),
        "a mistake in an override is noticed only when the override is needed",
        corrected_override(text, view),
    ))
}

/// Returns a finding about a break-glass annotation that has no effect, or that would take effect only later, when it is not
/// expected. On a namespace an unchanged annotation is not judged again; on any other object it never has an effect.
fn useless_break_glass(review: &Review, meta: &Meta, view: &View<'_>) -> Option<Finding> {
    let text = meta.mark(marks::BREAK_GLASS)?;
    let of_namespace = review.kind == Kind::Namespace;
    let before = review.old.as_ref().and_then(|old| old.meta().mark(marks::BREAK_GLASS));
    let problem = match Override::break_glass(text, view.now) {
        _ if !of_namespace => "it counts only on a Namespace".to_owned(),
        // A namespace may be restored with an annotation that has ended.
        Err(InvalidException::Ended(_)) if review.operation == Operation::Create => return None,
        Err(problem) if before != Some(text) => problem.to_string(),
        _ => return None,
    };
    let ns = if of_namespace { &meta.name } else { &meta.namespace };
    let break_glass = CommandLine::new(format!("gatera break-glass {ns} --for 15m --reason"));
    let found = RULE.finding(
        if of_namespace { Verdict::Deny } else { Verdict::Warn },
        format!("{ANNOTATIONS}[{PREFIX}{}]", marks::BREAK_GLASS),
        format!("break-glass would have no effect: {problem}"),
        "an exception with a mistake is noticed only when it is needed, and one that begins later lets the next careless command through",
        run(break_glass.arg("why this is right now")),
    );
    // The mode may be another one when the annotation begins to count.
    Some(Finding { in_every_mode: of_namespace, yields_to: YieldsTo::Nothing, ..found })
}

/// Returns the advice, with the rule that is probably meant.
fn corrected_override(text: &str, view: &View<'_>) -> String {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let known = |word: &str| view.known_rules.iter().copied().find(|id| id.eq_ignore_ascii_case(word));
    let meant = words.find_map(known);
    let hint = if meant.is_none() { ", with your rule instead of G07" } else { "" };
    format!(
        "write gatera.dev/override: \"{} until={} reason=…\"{hint}",
        meant.unwrap_or("G07"),
        view.example_override_end()
    )
}

/// Returns a finding if the mode label is removed from a namespace with a cluster, or names an unknown mode.
fn mode_label(new: &Meta, review: &Review, view: &View<'_>) -> Option<Finding> {
    let has_label = |meta: &Meta| meta.labels.contains_key(MODE_LABEL);
    let removed = review.old.as_ref().map(Object::meta).is_some_and(has_label) && !has_label(new);
    let Some(cluster) = view.clusters_in(&review.name).next().filter(|_| removed) else {
        return unknown_mode(new);
    };
    let says = format!("without the label {MODE_LABEL} cluster {} is only partly guarded", cluster.id.name);
    let why = "scaling and evictions are then judged only while gatera answers, and objects without the cluster's labels not at all";
    let warn =
        CommandLine::new(format!("kubectl label namespace {} --overwrite {MODE_LABEL}=warn", review.name));
    let warn = say("to get warnings instead of refusals while you migrate: ")
        .and(edit(warn, format!("write {MODE_LABEL}: warn")));
    Some(RULE.deny(FIELD, says, why, say("keep the label").or(warn)))
}

const FIELD: &str = "metadata.labels[gatera.dev/mode]";

fn unknown_mode(new: &Meta) -> Option<Finding> {
    let mode = new.labels.get(MODE_LABEL).filter(|mode| Mode::read(mode).is_none())?;
    let known = Mode::ALL.map(Mode::name).join(", ");
    let why = "the guard treats an unknown mode as enforce";
    Some(RULE.deny(FIELD, format!("{mode} is not a mode"), why, format!("choose one of {known}")))
}

/// Returns a finding if an object of a cluster would no longer be recognised.
fn unrecognised(old: &Object, new: &Object, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (before, after, field) = match (old, new) {
        (Object::StatefulSet(old), Object::StatefulSet(new)) => {
            // G03 judges an owner that hands the cluster to another operator.
            let is_lost = is_cluster(old, view.adoption())
                && !is_cluster(new, view.adoption())
                && owners::new_operator(old, new, view).is_none();
            if !is_lost {
                return None;
            }
            let [before, after] = [old, new].map(|it| &it.spec.template.metadata.labels);
            (before, after, "spec.template.metadata.labels")
        }
        _ => {
            let [before, after] = [old, new].map(|it| &it.meta().labels);
            let adopts = |labels| view.adoption().adopts(labels);
            let kept = adopts(after) && !leaves_its_cluster(before, after, review, view);
            if !adopts(before) || kept || matches!(new, Object::Service(_) | Object::Budget(_)) {
                return None;
            }
            (before, after, "metadata.labels")
        }
    };
    let cluster = view
        .clusters_concerned(review)
        .into_iter()
        .next()
        .or_else(|| view.cluster_of(&review.namespace, before))?;
    let mut lost: Vec<_> = before.iter().filter(|(key, value)| after.get(key) != Some(value)).collect();
    let selected = &cluster.workload.spec.selector.match_labels;
    lost.sort_by_key(|(key, _)| !selected.contains_key(key));
    let lost = lost.first();
    let says = match lost {
        Some((key, _)) if after.contains_key(key) => {
            format!("with another value of label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        Some((key, _)) => {
            format!("without the label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        None => format!("without a database server it no longer counts as cluster {}", cluster.id.name),
    };
    let (field, instead) = match lost {
        Some((label, _)) => (
            format!("{field}[{label}]"),
            format!("keep the label {label} as it is, and add a label of your own to select by"),
        ),
        None => ("spec.template.spec.containers".to_owned(), unserved::NAME_IT.to_owned()),
    };
    let why = "an object that is not recognised is not judged, and Services and the StatefulSet no longer select it";
    Some(RULE.deny(field, says, why, instead))
}

/// Returns whether a pod or claim would leave its cluster, although it is still recognised as Galera's.
fn leaves_its_cluster(before: &Labels, after: &Labels, review: &Review, view: &View<'_>) -> bool {
    let member = matches!(review.kind, Kind::Pod | Kind::Claim);
    let orphaned = |cluster: &Cluster| {
        let selector = &cluster.workload.spec.selector;
        review.kind == Kind::Pod && selector.selects(before) && !selector.selects(after)
    };
    member
        && (adopt::instance(before) != adopt::instance(after)
            || view.clusters_concerned(review).into_iter().any(orphaned))
}

/// Returns findings about annotations of the guard that another user writes.
fn foreign_marks(review: &Review, new: &Object, view: &View<'_>) -> Findings {
    match (&review.old, new) {
        (_, Object::StatefulSet(_) | Object::Deployment(_)) => corrected_marks(review, new, view),
        (Some(Object::Pod(old)), Object::Pod(new)) if view.adoption().adopts(&old.metadata.labels) => {
            changed_on_running_pod(old, new)
        }
        (_, Object::Pod(new)) => forged_marks(review, new, view).into_iter().collect(),
        // Assume that existing annotations were written by the guard.
        _ if review.origin == Origin::Audit => Findings::new(),
        (old, new) => {
            let was = |key: &String| old.as_ref().and_then(|old| old.meta().marks.get(key));
            let foreign = new.meta().marks.iter().filter(|(key, _)| marks::is_guards(key));
            let foreign = foreign.filter(|(key, value)| was(key) != Some(value));
            foreign.map(|(key, _)| belongs_to_guard(Verdict::Deny, ANNOTATIONS, key, "")).collect()
        }
    }
}

const ANNOTATIONS: &str = "metadata.annotations";

/// Returns findings about annotations of a StatefulSet, a Deployment and their template: corrected while the object can still be
/// changed, refused afterwards.
fn corrected_marks(review: &Review, new: &Object, view: &View<'_>) -> Findings {
    // A status update is not corrected.
    let reported = !review.subresource.is_empty();
    let corrections = super::corrections(review, view).into_iter().filter(|it| it.written || reported);
    let found = corrections.filter_map(|it| {
        let place = if it.in_template { "spec.template.metadata.annotations" } else { ANNOTATIONS };
        let (verdict, becomes) = match (review.origin, &it.wanted) {
            _ if reported => (Verdict::Deny, ""),
            (Origin::Audit, _) if !it.in_template => return None,
            (Origin::Audit, _) => (Verdict::Warn, " and has no effect in a template"),
            // Another replica of the guard, which had not seen the same claims, may have set it a moment ago.
            (Origin::Validating, wanted) if !review.exists() && is_data(&it.key) && !it.in_template => {
                let hides = wanted.is_some() && new.meta().mark(marks::DATA) == Some("none");
                return hides.then(|| belongs_to_guard(Verdict::Deny, place, &it.key, ""));
            }
            (Origin::Validating, _) => (Verdict::Deny, ""),
            (_, None) if it.in_template => (Verdict::Amend, " and is removed from the pod template"),
            (_, None) => (Verdict::Amend, " and is removed"),
            (_, Some(_)) if review.exists() => (Verdict::Amend, " and is restored as it was"),
            (_, Some(_)) => (Verdict::Amend, ", which sets it itself"),
        };
        Some(belongs_to_guard(verdict, place, &it.key, becomes))
    });
    found.collect()
}

fn is_data(key: &str) -> bool {
    key.strip_prefix(PREFIX) == Some(marks::DATA)
}

/// Returns a finding about forged marks on a pod that starts, or that becomes Galera's: marks must match what was injected.
fn forged_marks(review: &Review, pod: &Pod, view: &View<'_>) -> Option<Finding> {
    let doubt = inject::doubt(pod, view)?;
    let mark = if let Doubt::Forged { mark, .. } = doubt { mark } else { marks::INJECTED };
    let key = format!("{PREFIX}{mark}");
    Some(match (review.origin, doubt) {
        (Origin::Mutating | Origin::Check | Origin::Live, _) if review.old.is_none() => {
            belongs_to_guard(Verdict::Amend, ANNOTATIONS, &key, " and is removed")
        }
        (_, Doubt::OtherVersion) => Finding {
            says: "it was injected by another version of gatera".into(),
            instead: "wait: its controller creates it again, and the running version then injects it".into(),
            ..belongs_to_guard(Verdict::Wait, ANNOTATIONS, &key, "")
        },
        (_, Doubt::Forged { why, .. }) => {
            belongs_to_guard(Verdict::Deny, ANNOTATIONS, &key, &format!(": {why}"))
        }
    })
}

/// Returns findings about changed annotations of a running pod: they count when it starts, and must not change later.
fn changed_on_running_pod(old: &Pod, new: &Pod) -> Findings {
    let keys = old.metadata.marks.keys().chain(new.metadata.marks.keys());
    let fixed = |key: &&String| {
        let name = key.strip_prefix(PREFIX).unwrap_or_default();
        marks::is_guards(key) || matches!(name, marks::CONTAINER | marks::READINESS)
    };
    let changed = |key: &&String| old.metadata.marks.get(key) != new.metadata.marks.get(key);
    let changed: BTreeSet<_> = keys.filter(fixed).filter(changed).collect();
    let found = changed.into_iter().map(|key| {
        let says = format!("{key} of a running pod belongs to the guard");
        let why = "the script and the option file that a member runs come from these annotations, and so does the guard's knowledge of it";
        let instead = "set annotations on the StatefulSet's pod template; they count when a pod starts";
        let yields_to = if marks::is_guards(key) { YieldsTo::Nothing } else { YieldsTo::Exceptions };
        RULE.deny(format!("{ANNOTATIONS}[{key}]"), says, why, instead).yielding_to(yields_to)
    });
    found.collect()
}

fn belongs_to_guard(verdict: Verdict, place: &str, key: &str, becomes: &str) -> Finding {
    let says = format!("{key} belongs to the guard{becomes}");
    let why = "the guard records in these annotations what it has done; trusting one that a user wrote could cost a database";
    let instead = "do not set, change or remove this annotation; leave it out of your manifests";
    // A user who may write the annotation may write an override as well.
    RULE.finding(verdict, format!("{place}[{key}]"), says, why, instead).yielding_to(YieldsTo::Nothing)
}
