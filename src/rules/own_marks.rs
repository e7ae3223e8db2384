//! G18: what the guard knows a cluster by stays as it is.
//!
//! Refuses to take away or change the labels by which a cluster is adopted and its members belong to it, to change the annotations that the guard itself writes,
//! to take the mode label off a namespace with a cluster in it, and overrides that would release nothing.
//!
//! # Why
//!
//! `kubectl label pod galera-1 app-` makes the pod a stranger: its StatefulSet cannot replace it, its Services forget it,
//! and nothing about it is judged any more. The script and the option file that members run travel in annotations of the
//! pod: who changes them changes code that runs beside the database. An override with a mistake in it would be noticed
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
//! * To have a cluster left alone, set `gatera.dev/mode` of its namespace to `warn`, `audit` or `off`; that says what is
//!   meant. To have one rule left out, use the settings file.
//! * Write an override as `"G07 until=2026-12-01T10:00:00Z reason=…"`, an hour ahead at most.
//! * The annotations `script`, `my-cnf`, `injected`, `data` and `bootstrap` are the guard's; the others may be set on the
//!   StatefulSet's pod template.
//!
//! # How to waive it
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "G18 until=2026-12-01T10:00:00Z reason=…"`.

use super::{Rule, Verb, WRITTEN};
use crate::galera::adopt;
use crate::marks;
use crate::object::{Kind, Labels, Meta, Object};
use crate::overrides::{Invalid, Override};
use crate::review::Review;
use crate::verdict::{Finding, Findings, Mode, Verdict};
use crate::view::{Cluster, MODE_LABEL, View, is_cluster};

pub(super) const RULE: Rule = Rule {
    id: "G18",
    name: "own-marks",
    touches: &[
        (Kind::StatefulSet, WRITTEN),
        (Kind::Deployment, WRITTEN),
        (Kind::ConfigMap, WRITTEN),
        (Kind::Secret, WRITTEN),
        (Kind::Service, WRITTEN),
        (Kind::Budget, WRITTEN),
        (Kind::Pod, WRITTEN),
        (Kind::Claim, &[Verb::Update]),
        (Kind::Namespace, &[Verb::Update]),
    ],
    source: include_str!("own_marks.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = &review.new else { return Findings::new() };
    let mut found: Findings = useless_override(new.meta(), view).into_iter().collect();
    found.extend(match (&review.old, new) {
        (Some(Object::Namespace(old)), Object::Namespace(new)) => {
            mode_label(&old.metadata, &new.metadata, review, view)
        }
        (_, Object::Namespace(new)) => unknown_mode(&new.metadata).into_iter().collect(),
        (Some(old), new) => {
            forgotten(old, new, review, view).into_iter().chain(rewritten(old, new, view)).collect()
        }
        (None, _) => Findings::new(),
    });
    found
}

/// An override with a mistake in it. One that is over is only old.
fn useless_override(meta: &Meta, view: &View<'_>) -> Option<Finding> {
    let problem = match Override::read(meta.mark(marks::OVERRIDE)?, view.now) {
        Ok(release) => {
            let unknown = release.rules.iter().find(|id| super::find(id).is_none())?;
            format!("there is no rule {unknown}")
        }
        Err(Invalid::Ended(_)) => return None,
        Err(problem) => problem.to_string(),
    };
    Some(Finding {
        field: "metadata.annotations[gatera.dev/override]".into(),
        says: format!("the override would release nothing: {problem}"),
        instead: format!(
            "write gatera.dev/override: \"G07 until={} reason=…\", with the rule you mean for G07",
            view.half_an_hour_from_now()
        ),
        ..finding("an override that is wrong is noticed only when it is needed")
    })
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
                "say what is meant: kubectl label namespace {} --overwrite {MODE_LABEL}=off",
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
        says: format!("{mode} is no mode"),
        instead: format!("choose one of {known}"),
        ..finding("a mode that is not understood counts as enforce")
    })
}

/// An object of a cluster would no longer be known as such.
fn forgotten(old: &Object, new: &Object, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (before, after, field) = match (old, new) {
        (Object::StatefulSet(old), Object::StatefulSet(new)) => {
            let lost = is_cluster(old, &view.settings.adoption) && !is_cluster(new, &view.settings.adoption);
            let labels = (&old.spec.template.metadata.labels, &new.spec.template.metadata.labels);
            if !lost {
                return None;
            }
            (labels.0, labels.1, "spec.template.metadata.labels")
        }
        _ => {
            let labels = (&old.meta().labels, &new.meta().labels);
            let adopts = |labels| view.settings.adoption.adopts(labels);
            let kept = adopts(labels.1) && !renamed(new, labels.0, labels.1, review, view);
            if !adopts(labels.0) || kept || matches!(new, Object::Service(_) | Object::Budget(_)) {
                return None;
            }
            (labels.0, labels.1, "metadata.labels")
        }
    };
    let cluster =
        view.concerned(review).into_iter().next().or_else(|| view.cluster_of(&review.namespace, before))?;
    let mut lost: Vec<_> = before.iter().filter(|(key, value)| after.get(*key) != Some(value)).collect();
    let asked_for = &cluster.workload.spec.selector.match_labels;
    lost.sort_by_key(|(key, _)| !asked_for.contains_key(*key));
    let lost = lost.first();
    let says = match lost {
        Some((key, _)) if after.contains_key(*key) => {
            format!("with another label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        Some((key, _)) => {
            format!("without the label {key} it no longer belongs to cluster {}", cluster.id.name)
        }
        None => format!("without a database server it no longer counts as cluster {}", cluster.id.name),
    };
    let label = lost.map_or("app", |(key, _)| &**key);
    Some(Finding {
        field: format!("{field}[{label}]"),
        says,
        instead: format!(
            "keep it; to have everything in the namespace left alone: kubectl label namespace {} --overwrite {MODE_LABEL}=off",
            review.namespace
        ),
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

/// The guard's own annotations on a pod. (The marks of a StatefulSet are put back without a word.)
fn rewritten(old: &Object, new: &Object, view: &View<'_>) -> Findings {
    let (Object::Pod(old), Object::Pod(new)) = (old, new) else { return Findings::new() };
    if !view.settings.adoption.adopts(&old.metadata.labels) {
        return Findings::new();
    }
    let own = [marks::INJECTED, marks::SCRIPT, marks::MY_CNF, marks::CONTAINER, marks::READINESS];
    let changed = own.into_iter().filter(|mark| old.metadata.mark(mark) != new.metadata.mark(mark));
    let found = changed.map(|mark| Finding {
        field: format!("metadata.annotations[gatera.dev/{mark}]"),
        says: format!("gatera.dev/{mark} of a running pod is the guard's"),
        instead: "set annotations on the StatefulSet's pod template; they count when a pod starts".into(),
        ..finding("the script and the option file that a member runs come from these annotations, and so does what is known of it")
    });
    found.collect()
}

fn finding(why: &str) -> Finding {
    Finding {
        rule: RULE.id,
        verdict: Verdict::Deny,
        field: String::new(),
        says: String::new(),
        why: why.to_owned(),
        instead: String::new(),
    }
}
