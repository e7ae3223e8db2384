//! G00: an object that cannot be read is refused.
//!
//! A field of a StatefulSet, a Deployment, a pod or another object of a cluster holds something that Kubernetes does not
//! know there: a text where a number belongs, a list where a map does, a name that no API server stores.
//!
//! What is too large for the guard to keep is not refused for that:
//!
//! | kind | limit | beyond it |
//! |---|---|---|
//! | custom resource | 128 KiB each, 16 MiB together | requests about it are judged as all others; audits leave it out, with a warning |
//! | ConfigMap that a template reads | 512 KiB each, 2 MiB a namespace, 16 MiB together | it is judged when it is written, and when a template that reads it is written; later requests are judged without it, with a warning |
//! | other objects | 128 KiB each; 4 MiB a namespace, if the guard has 128 MiB of memory | only the name is kept; what would destroy something in that namespace is UNKNOWN, and refused |
//!
//! When a template names ConfigMaps that no cluster has read, the guard reads them first. If too many requests do so at once, the verdict
//! is UNKNOWN and the request is refused; repeat it.
//!
//! # Why
//!
//! What cannot be read cannot be judged, and to let it through would be a guess: a scale to zero that is written in a way
//! the guard does not read would stop a database. API servers refuse most of this themselves; what they take and the guard
//! does not know was made for a newer Kubernetes, or is a mistake of the guard's.
//!
//! # Example
//!
//! ```text
//! spec:
//!   replicas: three          # refused: expected a whole number, found a text
//! ```
//!
//! # What to do instead
//!
//! The message names the field and what is expected there; `kubectl explain statefulset.spec.replicas` tells its type. If
//! the API server takes the object without the guard, report it: the guard should read it, too.
//!
//! # How to waive it
//!
//! Not at all: no mode and no override counts, for the guard cannot tell what it would let through. Only where nothing is refused
//! for some minutes (`gatera break-glass`) it is let through, with a warning.

use std::collections::BTreeSet;

use crate::rule::Page;
use crate::verdict::{Finding, Verdict};
use facts::review::Review;
use facts::view::{Id, View};
use objects::{Object, Unreadable};

/// The id under which an object that cannot be read is reported. No rule, so it has no mode and no override.
pub const UNREADABLE: &str = "G00";

/// What is to be known of it.
pub const PAGE: Page = Page { id: UNREADABLE, name: "unreadable", source: include_str!("unreadable.rs") };

/// Its template reads ConfigMaps that no cluster read before, and they could not be read in time.
pub fn busy() -> Finding {
    Finding::new(
        UNREADABLE,
        Verdict::Unknown,
        "",
        "gatera could not read the ConfigMaps of its template, because too many other requests are reading some",
        "what its servers would read decides whether they start and stay together",
        "repeat the command in a moment",
    )
}

const BOUNDED: &str =
    "gatera keeps a limited amount per object and namespace, so that no namespace can exhaust its memory";

/// A template is judged without what found no room: a warning for the first such ConfigMap, which counts the others.
pub fn judged_without(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Some(Object::StatefulSet(new) | Object::Deployment(new)) = &review.new else { return None };
    let template = &new.spec.template;
    if !view.adoption().adopts(&template.metadata.labels) {
        return None;
    }
    let facts = view.world.facts();
    let names: BTreeSet<_> = template.spec.config_maps().collect();
    let mut without = names.into_iter().filter_map(|name| {
        let why = facts.without_room(&Id::new(&review.namespace, name))?;
        view.config_map(&review.namespace, name).is_none().then_some((name, why))
    });
    let (name, why) = without.next()?;
    let others = match without.count() {
        0 => String::new(),
        count => format!(" ({count} more are not looked at either)"),
    };
    let ns = &review.namespace;
    Some(Finding::new(
        UNREADABLE,
        Verdict::Warn,
        "spec.template.spec.volumes",
        format!("its ConfigMap {name} {why}{others}"),
        BOUNDED,
        format!(
            "kubectl -n {ns} get configmap {name} -o yaml shows it; keep option files in a ConfigMap of their own, and what is large in another one or in the image"
        ),
    ))
}

/// An object that cannot be read is refused: allowing it would be a guess.
pub fn found(review: &Review) -> Option<Finding> {
    let problem = review.unreadable.as_ref()?;
    let (verdict, why, instead) = match problem {
        Unreadable::Odd { .. } => (
            Verdict::Deny,
            "what cannot be read cannot be judged, and guessing could cost a database",
            "correct the field; `kubectl explain` names its type",
        ),
        // Whoever writes it is judged by all of it; only who looks at everything at once has no room for it.
        Unreadable::TooMuch(_) => (Verdict::Warn, BOUNDED, "`gatera check FILE` judges it"),
    };
    let (field, says) = (problem.field().to_owned(), problem.to_string());
    Some(Finding::new(UNREADABLE, verdict, field, says, why, instead))
}
