//! G00: an object that cannot be read is refused.
//!
//! Refuses a StatefulSet, a Deployment, a pod or another object of a cluster if one of its fields has a value that Kubernetes
//! does not allow: a string instead of a number, a list instead of a map, a name that no API server stores.
//!
//! An object that is too large for the guard to keep is not refused for that reason:
//!
//! | kind | limit | beyond it |
//! |---|---|---|
//! | custom resource | 128 KiB each, 16 MiB together | requests about it are judged like all others; audits omit it, with a warning |
//! | ConfigMap that a template reads | 512 KiB each; 256 and 2 MiB a namespace, 16 MiB together, equal texts counted once, if the guard has 128 MiB of memory | it is judged when it is written, and when a template that reads it is written; later requests are judged without it, with a warning |
//! | other objects | 128 KiB each; 4 MiB a namespace, if the guard has 128 MiB of memory | only the name is kept; the verdict on destructive requests in that namespace is UNKNOWN, and they are refused |
//!
//! When a template names ConfigMaps that no cluster reads yet, the guard reads them first. If it reads too many at once, the
//! verdict is UNKNOWN and the request is refused; repeat it.
//!
//! # Why
//!
//! The guard cannot judge an object that it cannot read, and to allow it would be a guess: a scale to zero in a form that
//! the guard does not read would stop a database. API servers refuse most of these objects themselves; an object that the API
//! server accepts and the guard cannot read was written for a newer Kubernetes, or shows a bug in the guard.
//!
//! # Example
//!
//! ```text
//! spec:
//!   replicas: three          # refused: expected a whole number, found a string
//! ```
//!
//! # What to do instead
//!
//! The message names the field and what is expected there; `kubectl explain statefulset.spec.replicas` shows its type. If
//! the API server accepts the object without the guard, please report it: the guard should read it, too.
//!
//! # Exceptions
//!
//! No mode and no override applies, because the guard cannot know what it would allow. Only while refusals are suspended
//! (`gatera break-glass`) is the object allowed, with a warning.

use std::collections::BTreeSet;

use super::template;
use crate::rule::{Finding, Page, Review, Verdict, View};
use facts::view::Id;
use facts::way_out::{CommandLine, run, say};
use objects::Unreadable;

/// The id of findings about objects that cannot be read. It is not a rule, so it has no mode and no override.
pub const UNREADABLE: &str = "G00";

/// The page about objects that cannot be read.
pub const PAGE: Page = Page { id: UNREADABLE, name: "unreadable", source: include_str!("unreadable.rs") };

/// Returns the finding for a template that names ConfigMaps which no cluster reads yet, and which could not be read in time.
pub fn unread_config_maps() -> Finding {
    Finding::new(
        UNREADABLE,
        Verdict::Unknown,
        "",
        "gatera could not read the ConfigMaps of its template, because too many other requests are reading ConfigMaps",
        "the options in them decide whether its servers start and stay together",
        "repeat the command in a moment",
    )
}

const WHY_BOUNDED: &str =
    "gatera keeps a limited amount per object and namespace, so that no namespace can exhaust its memory";

/// Returns a warning about a template that is judged without ConfigMaps that are not kept: it names the first, and counts the
/// others.
pub fn unkept_config_maps(review: &Review, view: &View<'_>) -> Option<Finding> {
    let new = template::adopted(review.new.as_ref(), view)?;
    let facts = view.world.facts();
    let names: BTreeSet<_> = new.spec.template.spec.config_maps().collect();
    let mut without = names.into_iter().filter_map(|name| {
        let why = facts.without_room(&Id::new(&review.namespace, name))?;
        view.config_map(&review.namespace, name).is_none().then_some((name, why))
    });
    let (name, why) = without.next()?;
    let others = match without.count() {
        0 => String::new(),
        count => format!(" ({count} more are not judged either)"),
    };
    let ns = &review.namespace;
    Some(Finding::new(
        UNREADABLE,
        Verdict::Warn,
        "spec.template.spec.volumes",
        format!("its ConfigMap {name} {why}{others}"),
        WHY_BOUNDED,
        run(CommandLine::new(format!("kubectl -n {ns} get configmap {name} -o yaml"))).say(" shows it").then(
            "keep option files in a ConfigMap of their own, and large files in another one or in the image",
        ),
    ))
}

/// Returns the finding for an object that cannot be read: allowing it would be a guess.
pub fn unreadable_object(review: &Review) -> Option<Finding> {
    let problem = review.unreadable.as_ref()?;
    let (verdict, why, instead) = match problem {
        Unreadable::Mismatch { kind, .. } => (
            Verdict::Deny,
            "gatera cannot judge an object that it cannot read, and a guess could cost a database",
            say("correct the field")
                .then("`")
                .run(CommandLine::new(format!("kubectl explain {} --recursive", kind.to_lowercase())))
                .say("` lists the types of all fields"),
        ),
        // A request with this object is judged completely; only audits have no room for it.
        Unreadable::NotExamined(_) => (
            Verdict::Warn,
            WHY_BOUNDED,
            say("`").run(CommandLine::new("gatera check FILE")).say("` judges it"),
        ),
    };
    let (field, says) = (problem.field().to_owned(), problem.to_string());
    Some(Finding::new(UNREADABLE, verdict, field, says, why, instead))
}
