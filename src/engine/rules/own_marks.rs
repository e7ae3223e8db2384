//! G18: what the guard knows a cluster by stays as it is.
//!
//! Refuses to take away or change the labels by which a cluster is adopted and its members belong to it, to take the mode
//! label off a namespace with a cluster in it, and overrides that would release nothing. Annotations that the guard itself
//! writes are nobody else's: on a StatefulSet, a Deployment, their pod templates and new pods they are taken out, or put back
//! as they were, with a warning; elsewhere, and by way of `/status`, they are refused, and so is a pod whose marks the guard
//! did not write.
//!
//! # Why
//!
//! `kubectl label pod galera-1 app-` makes the pod a stranger: its StatefulSet cannot replace it, its Services forget it,
//! and nothing about it is judged any more. The script and the option file that members run travel in annotations of the
//! pod: who changes them changes code that runs beside the database. A pod that carries `gatera.dev/injected` counts as
//! Synced when it is Ready; the other marks tell whether a cluster holds data and what may be removed. An override with a mistake in it would be noticed
//! only when it is needed.
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
//! * To have the clusters of a namespace left alone, set its label `gatera.dev/mode` to `off`: nothing is refused, injected,
//!   held at 0 replicas, marked or removed there. With `warn` and `audit` nothing is refused or held at 0, but new pods
//!   are still injected, and the controller works. In every mode the guard's own annotations on StatefulSets, Deployments
//!   and new pods stay its own, or it would believe them later. Pods that run keep what they know until they are deleted. To have one rule left out, use the settings file.
//! * Write an override as `"G07 until=2026-12-01T10:00:00Z reason=…"`, an hour ahead at most.
//! * To have nothing refused in a namespace for some minutes, in an emergency: `gatera break-glass db --for 15m --reason '…'`. It
//!   writes `gatera.dev/break-glass` on the namespace, with an end of which the guard takes care. Every command there is warned
//!   of what it would have been refused for, and Events record it. What the guard amends it amends still: a bootstrap
//!   Deployment that is applied again stays at 0, and members found no second cluster by themselves; both take an override of G04. Its
//!   own annotations stay its own. Whatever is changed meanwhile stays changed: labels, the namespace's mode, data.
//! * Leave the guard's annotations out of manifests: `injected`, `script`, `start-script`, `my-cnf`, `identity`,
//!   `data`, `recovery`, `configuration`, `revision`, `keeps`, `bootstrap`, `removing`, and whatever else begins with `gatera.dev/`. People set
//!   `override` on the object, `break-glass` on the namespace, `stopped` on claims, `rollout` and `recover` on the StatefulSet, and `container`, `profile`,
//!   `readiness`, `address`, `anti-affinity`, `start` and `startup-limit` on its pod template.
//! * A new pod that was injected by another version of gatera is refused for the moment; its controller tries again.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G18 until=2026-12-01T10:00:00Z reason=…"`. What
//! concerns the guard's own annotations cannot be waived: whoever may write them may also write an override.

mod kept;
mod unserved;

pub use kept::{Correction, corrections};

use std::collections::BTreeSet;

use super::owners;
use crate::inject::{self, Doubt};
use crate::rule::{Rule, Verb, WRITTEN};
use crate::verdict::{Finding, Findings, Verdict, YieldsTo};
use facts::galera::adopt;
use facts::marks::overrides::{Invalid, Override};
use facts::marks::{self, PREFIX};
use facts::mode::Mode;
use facts::review::{Operation, Origin, Review};
use facts::view::{Cluster, MODE_LABEL, View, is_cluster};
use objects::{Kind, Labels, Meta, Object, Pod};

pub(super) const RULE: Rule = Rule {
    id: "G18",
    name: "own-marks",
    touches: &[
        (Kind::StatefulSet, REPORTED),
        (Kind::Deployment, REPORTED),
        (Kind::ConfigMap, WRITTEN),
        (Kind::Secret, WRITTEN),
        (Kind::Service, WRITTEN),
        (Kind::Budget, WRITTEN),
        (Kind::Pod, REPORTED),
        (Kind::Claim, &[Verb::Update, Verb::Report]),
        (Kind::Namespace, REPORTED),
    ],
    depends_on_state: true,
    source: include_str!("own_marks.rs"),
    check,
};

/// Written, also by way of `/status`.
const REPORTED: &[Verb] = &[Verb::Create, Verb::Update, Verb::Report];

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = &review.new else { return Findings::new() };
    let mut found: Findings = useless_override(new.meta(), view).into_iter().collect();
    found.extend(useless_break_glass(review, new.meta(), view));
    found.extend(claimed(review, new, view));
    found.extend(match (&review.old, new) {
        (Some(Object::Namespace(old)), Object::Namespace(new)) => {
            mode_label(&old.metadata, &new.metadata, review, view)
        }
        (_, Object::Namespace(new)) => unknown_mode(&new.metadata).into_iter().collect(),
        (Some(old), new) => forgotten(old, new, review, view).into_iter().collect(),
        (None, _) => Findings::new(),
    });
    if let Object::StatefulSet(new) = new {
        found.extend(unserved::judge(new));
    }
    found
}

/// An override with a mistake in it. One that is over is only old.
fn useless_override(meta: &Meta, view: &View<'_>) -> Option<Finding> {
    let text = meta.mark(marks::OVERRIDE)?;
    let problem = match Override::read(text, view.now) {
        Ok(release) => {
            let unknown = release
                .rules
                .iter()
                .find(|id| !view.known_rules.iter().any(|known| known.eq_ignore_ascii_case(id)))?;
            format!("there is no rule {unknown}")
        }
        Err(Invalid::Ended(_)) => return None,
        Err(problem) => problem.to_string(),
    };
    Some(Finding {
        field: "metadata.annotations[gatera.dev/override]".into(),
        says: format!("the override would release nothing: {problem}"),
        instead: as_it_should_be(text, view),
        ..finding("an override that is wrong is noticed only when it is needed")
    })
}

/// A namespace is to be opened in words that open nothing, or at another time than now: what opens by itself later, nobody wants
/// then. What stands there already opens nothing more. Elsewhere it means nothing.
fn useless_break_glass(review: &Review, meta: &Meta, view: &View<'_>) -> Option<Finding> {
    let text = meta.mark(marks::BREAK_GLASS)?;
    let of_namespace = review.kind == Kind::Namespace;
    let before = review.old.as_ref().and_then(|old| old.meta().mark(marks::BREAK_GLASS));
    let problem = match Override::of_all(text, view.now) {
        _ if !of_namespace => "it counts on a Namespace alone".to_owned(),
        // A namespace that is restored opens nothing by what is over.
        Err(Invalid::Ended(_)) if review.operation == Operation::Create => return None,
        Err(problem) if before != Some(text) => problem.to_string(),
        _ => return None,
    };
    Some(Finding {
        verdict: if of_namespace { Verdict::Deny } else { Verdict::Warn },
        // A namespace that is opened later would be open when the mode is another one.
        in_every_mode: of_namespace,
        yields_to: YieldsTo::Nothing,
        field: glass_field(),
        says: format!("this opens nothing: {problem}"),
        instead: format!(
            "gatera break-glass {} --for 15m --reason 'why this is right now'",
            if of_namespace { &meta.name } else { &meta.namespace }
        ),
        ..finding(
            "a way out that does not open is noticed only when it is needed, and one that opens later lets the next careless command through",
        )
    })
}

fn glass_field() -> String {
    format!("{ANNOTATIONS}[{PREFIX}{}]", marks::BREAK_GLASS)
}

/// With the rule that is meant, as far as that can be told.
fn as_it_should_be(text: &str, view: &View<'_>) -> String {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let known = |word: &str| view.known_rules.iter().copied().find(|id| id.eq_ignore_ascii_case(word));
    let meant = words.find_map(known);
    let hint = if meant.is_none() { ", with the rule you mean for G07" } else { "" };
    format!(
        "write gatera.dev/override: \"{} until={} reason=…\"{hint}",
        meant.unwrap_or("G07"),
        view.half_an_hour_from_now()
    )
}

/// The label that makes protection complete is taken off.
fn mode_label(old: &Meta, new: &Meta, review: &Review, view: &View<'_>) -> Findings {
    let (before, after) = (old.labels.get(MODE_LABEL), new.labels.get(MODE_LABEL));
    let guarded = view.clusters_in(&review.name).next();
    match (before, after, guarded) {
        (Some(_), None, Some(cluster)) => vec![Finding {
            field: FIELD.into(),
            says: format!(
                "without the label {MODE_LABEL} cluster {} is guarded only in part",
                cluster.id.name
            ),
            instead: format!(
                "leave the label on; to be told instead of refused while you move in: kubectl label namespace {} --overwrite \
                 {MODE_LABEL}=warn",
                review.name
            ),
            ..finding(
                "scaling and evictions are then judged only while gatera answers, and objects without labels of the cluster not at all",
            )
        }],
        _ => unknown_mode(new).into_iter().collect(),
    }
}

const FIELD: &str = "metadata.labels[gatera.dev/mode]";

fn unknown_mode(new: &Meta) -> Option<Finding> {
    let mode = new.labels.get(MODE_LABEL).filter(|mode| Mode::read(mode).is_none())?;
    let known = Mode::ALL.map(Mode::name).join(", ");
    Some(Finding {
        field: FIELD.into(),
        says: format!("{mode} is not a mode"),
        instead: format!("choose one of {known}"),
        ..finding("a mode that is not understood counts as enforce")
    })
}

/// An object of a cluster would no longer be known as such.
fn forgotten(old: &Object, new: &Object, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (before, after, field) = match (old, new) {
        (Object::StatefulSet(old), Object::StatefulSet(new)) => {
            // An owner by which it is no longer the guard's is for G03 to judge.
            let lost = is_cluster(old, view.adoption())
                && !is_cluster(new, view.adoption())
                && owners::takes_over(old, new, view).is_none();
            let labels = (&old.spec.template.metadata.labels, &new.spec.template.metadata.labels);
            if !lost {
                return None;
            }
            (labels.0, labels.1, "spec.template.metadata.labels")
        }
        _ => {
            let labels = (&old.meta().labels, &new.meta().labels);
            let adopts = |labels| view.adoption().adopts(labels);
            let kept = adopts(labels.1) && !renamed(new, labels.0, labels.1, review, view);
            if !adopts(labels.0) || kept || matches!(new, Object::Service(_) | Object::Budget(_)) {
                return None;
            }
            (labels.0, labels.1, "metadata.labels")
        }
    };
    let cluster =
        view.concerned(review).into_iter().next().or_else(|| view.cluster_of(&review.namespace, before))?;
    let mut lost: Vec<_> = before.iter().filter(|(key, value)| after.get(key) != Some(value)).collect();
    let asked_for = &cluster.workload.spec.selector.match_labels;
    lost.sort_by_key(|(key, _)| !asked_for.contains_key(key));
    let lost = lost.first();
    let says = match lost {
        Some((key, _)) if after.contains_key(key) => {
            format!("with another label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        Some((key, _)) => {
            format!("without the label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        None => format!("without a database server it no longer counts as cluster {}", cluster.id.name),
    };
    let (field, instead) = match lost {
        Some((label, _)) => (
            format!("{field}[{label}]"),
            format!("leave the label {label} as it is, and add a label of your own to select by"),
        ),
        None => ("spec.template.spec.containers".to_owned(), unserved::NAME_IT.to_owned()),
    };
    Some(Finding {
        field,
        says,
        instead,
        ..finding("what is not known as Galera is not judged, and Services and StatefulSet forget it too")
    })
}

/// A pod or claim is still Galera's, but no longer this cluster's: its StatefulSet lets go of it.
fn renamed(new: &Object, before: &Labels, after: &Labels, review: &Review, view: &View<'_>) -> bool {
    let member = matches!(new, Object::Pod(_) | Object::Claim(_));
    let let_go = |cluster: &Cluster| {
        let selector = &cluster.workload.spec.selector;
        matches!(new, Object::Pod(_)) && selector.selects(before) && !selector.selects(after)
    };
    member
        && (adopt::instance(before) != adopt::instance(after)
            || view.concerned(review).into_iter().any(let_go))
}

/// Annotations of the guard's that somebody else writes.
fn claimed(review: &Review, new: &Object, view: &View<'_>) -> Findings {
    match (&review.old, new) {
        (_, Object::StatefulSet(_) | Object::Deployment(_)) => corrected(review, new, view),
        (Some(Object::Pod(old)), Object::Pod(new)) if view.adoption().adopts(&old.metadata.labels) => {
            rewritten(old, new)
        }
        (_, Object::Pod(new)) => doubted(review, new, view).into_iter().collect(),
        // What is there already was written by the guard.
        _ if review.origin == Origin::Audit => Findings::new(),
        (old, new) => {
            let was = |key: &String| old.as_ref().and_then(|old| old.meta().marks.get(key));
            let foreign = new.meta().marks.iter().filter(|(key, _)| marks::is_guards(key));
            let foreign = foreign.filter(|(key, value)| was(key) != Some(value));
            foreign.map(|(key, _)| belief(Verdict::Deny, ANNOTATIONS, key, "")).collect()
        }
    }
}

const ANNOTATIONS: &str = "metadata.annotations";

/// Of a StatefulSet, a Deployment and their template: corrected while the object can still be changed, refused if that
/// was circumvented.
fn corrected(review: &Review, new: &Object, view: &View<'_>) -> Findings {
    // Nothing is put back where only a state is reported.
    let reported = !review.subresource.is_empty();
    let corrections = super::corrections(review, view).into_iter().filter(|it| it.written || reported);
    let found = corrections.filter_map(|it| {
        let place = if it.in_template { "spec.template.metadata.annotations" } else { ANNOTATIONS };
        let (verdict, becomes) = match (review.origin, &it.wanted) {
            _ if reported => (Verdict::Deny, ""),
            (Origin::Audit, _) if !it.in_template => return None,
            (Origin::Audit, _) => (Verdict::Warn, " and means nothing in a template"),
            // Another replica, which had not seen the same claims, may have set it a moment ago.
            (Origin::Validating, wanted) if !review.is_there() && is_data(&it.key) && !it.in_template => {
                let hides = wanted.is_some() && new.meta().mark(marks::DATA) == Some("none");
                return hides.then(|| belief(Verdict::Deny, place, &it.key, ""));
            }
            (Origin::Validating, _) => (Verdict::Deny, ""),
            (_, None) if it.in_template => (Verdict::Amend, " and is taken out of the pod template"),
            (_, None) => (Verdict::Amend, " and is taken out"),
            (_, Some(_)) if review.is_there() => (Verdict::Amend, " and is put back as it was"),
            (_, Some(_)) => (Verdict::Amend, ", which sets it itself"),
        };
        Some(belief(verdict, place, &it.key, becomes))
    });
    found.collect()
}

fn is_data(key: &str) -> bool {
    key.strip_prefix(PREFIX) == Some(marks::DATA)
}

/// Marks on a pod that starts, or that becomes Galera's. They tell what was done to it, so they are compared with that.
fn doubted(review: &Review, pod: &Pod, view: &View<'_>) -> Option<Finding> {
    let doubt = inject::doubt(pod, view)?;
    let mark = if let Doubt::Forged { mark, .. } = doubt { mark } else { marks::INJECTED };
    let key = format!("{PREFIX}{mark}");
    Some(match (review.origin, doubt) {
        (Origin::Mutating | Origin::Check | Origin::Live, _) if review.old.is_none() => {
            belief(Verdict::Amend, ANNOTATIONS, &key, " and is taken out")
        }
        (_, Doubt::OtherVersion) => Finding {
            says: "it was injected by another version of gatera".into(),
            instead: "wait: its controller creates it again, and the version that runs then injects it"
                .into(),
            ..belief(Verdict::Wait, ANNOTATIONS, &key, "")
        },
        (_, Doubt::Forged { why, .. }) => belief(Verdict::Deny, ANNOTATIONS, &key, &format!(": {why}")),
    })
}

/// The annotations of a pod that runs: they count when it starts, and do not change any more.
fn rewritten(old: &Pod, new: &Pod) -> Findings {
    let keys = old.metadata.marks.keys().chain(new.metadata.marks.keys());
    let fixed = |key: &&String| {
        let name = key.strip_prefix(PREFIX).unwrap_or_default();
        marks::is_guards(key) || matches!(name, marks::CONTAINER | marks::READINESS)
    };
    let changed = |key: &&String| old.metadata.marks.get(key) != new.metadata.marks.get(key);
    let changed: BTreeSet<_> = keys.filter(fixed).filter(changed).collect();
    let found = changed.into_iter().map(|key| Finding {
        field: format!("{ANNOTATIONS}[{key}]"),
        yields_to: if marks::is_guards(key) { YieldsTo::Nothing } else { YieldsTo::Exceptions },
        says: format!("{key} of a running pod is the guard's"),
        instead: "set annotations on the StatefulSet's pod template; they count when a pod starts".into(),
        ..finding("the script and the option file that a member runs come from these annotations, and so does what is known of it")
    });
    found.collect()
}

fn belief(verdict: Verdict, place: &str, key: &str, becomes: &str) -> Finding {
    Finding {
        verdict,
        field: format!("{place}[{key}]"),
        // The person who may write the annotation may write an override as well.
        yields_to: YieldsTo::Nothing,
        says: format!("{key} is the guard's{becomes}"),
        instead: "leave it out of what you write".into(),
        ..finding(
            "by these annotations the guard knows what it has done; believing anybody else's could cost a database",
        )
    }
}

fn finding(why: &str) -> Finding {
    RULE.finding(Verdict::Deny, "", "", why, "")
}
