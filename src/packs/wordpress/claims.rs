//! W06: a volume of a WordPress only grows, and does not change otherwise.
//!
//! Refuses another storage class or access mode, and less storage than the volume has (`status.capacity`), for a claim of a WordPress,
//! before the API server does, and says what works. A growth that fails may be undone.
//!
//! # Why
//!
//! The API server refuses these changes, but its message only lists fields. The usual reaction is to delete the claim and create
//! a new one: that deletes the database.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch pvc mysql-pv-claim -p '{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}'
//! [W06] PersistentVolumeClaim web/mysql-pv-claim: 10Gi -> 5Gi: a volume does not shrink
//! ```
//!
//! # What to do instead
//!
//! Keep the claim as it is. For another class or a smaller volume create a new claim, stop both Deployments (0 replicas), copy
//! the files with a pod that mounts both, and change the Deployment to the new claim (with the override of W05).
//!
//! # Exceptions
//!
//! Annotate the claim, for an hour at most: `gatera.dev/override: "W06 until=TIME reason=…"`. The API server still refuses the change.

use super::part;
use engine::rule::{All, Findings, Review, Rule, Verb, View};
use facts::way_out::say;
use objects::{Claim, Kind, Quantity};

pub(super) const RULE: Rule = Rule {
    id: "W06",
    name: "wp-claims",
    judges: &[(Kind::Claim, &[Verb::Update], All(check))],
    depends_on_state: false,
    source: include_str!("claims.rs"),
};

fn check(review: &Review, _: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Claim>() else { return Findings::new() };
    if part(&new.metadata).or(part(&old.metadata)).is_none() {
        return Findings::new();
    }
    let mut found = Findings::new();
    let mut add = |field: &str, says: String| {
        let why =
            "the API server refuses it, and deleting the claim to create a new one deletes the data on it";
        let instead = say("keep it").or(say("to move the data to another claim: ").page(RULE.id));
        found.push(RULE.deny(field, says, why, instead));
    };
    let [was, is] = [old, new].map(|it| &it.spec);
    if was.storage_class_name.is_some() && was.storage_class_name != is.storage_class_name {
        add("spec.storageClassName", "the storage class of a claim cannot change".to_owned());
    }
    if was.access_modes != is.access_modes {
        add("spec.accessModes", "the access modes of a claim cannot change".to_owned());
    }
    let size = |it: &Claim| it.spec.resources.requests.get("storage").cloned();
    // A growth that fails can be undone down to the current capacity, which never shrinks.
    let shrinks = |was: &Quantity, is: &Quantity| {
        let least = old.capacity().and_then(Quantity::bytes);
        is.bytes() < was.bytes() && least.is_none_or(|least| is.bytes().is_some_and(|it| it < least))
    };
    if let (Some(was), Some(is)) = (size(old), size(new))
        && shrinks(&was, &is)
    {
        let there = old.capacity().unwrap_or(&was);
        add("spec.resources.requests.storage", format!("{there} -> {is}: a volume does not shrink"));
    }
    found
}
