//! G08: fields of a StatefulSet that cannot be changed in place.
//!
//! The API server refuses such a change anyway, but its message does not help ("Forbidden: updates to statefulset spec for
//! fields other than …"), and `kubectl apply --force` reacts by deleting the StatefulSet with all its pods. The guard
//! answers first, so it can say what works.
//!
//! # Why
//!
//! The names of members and claims are built from `serviceName` and the names of claim templates, members find each other by
//! these names, and the selector finds the pods. Another name means another, empty member.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch statefulset galera -p '{"spec":{"podManagementPolicy":"Parallel"}}'
//! [G08] StatefulSet db/galera: podManagementPolicy OrderedReady -> Parallel cannot be changed in place
//! ```
//!
//! # What to do instead
//!
//! * podManagementPolicy, and everything in a claim template except its name and a smaller size (existing claims stay as they
//!   are): with all members Ready, `kubectl delete statefulset NAME --cascade=orphan`, then apply the new StatefulSet within
//!   minutes. The pods keep running.
//! * more disk: `kubectl patch pvc TEMPLATE-NAME-N` for every claim (the storage class must allow expansion, and no claim
//!   ever shrinks); the template only counts for future members.
//! * selector, serviceName, names of claim templates: only in a new cluster, filled from a backup.
//!
//! # Exceptions
//!
//! None would help: the API server itself refuses the change.

use crate::rule::{All, Finding, Findings, Review, Rule, Verb, View};
use facts::view::is_cluster;
use facts::way_out::{CommandLine, WayOut, run, say};
use objects::{ClaimTemplate, Kind, Quantity, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G08",
    name: "fixed-fields",
    judges: &[(Kind::StatefulSet, &[Verb::Update], All(check))],
    depends_on_state: false,
    source: include_str!("fixed_fields.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Workload>() else { return Findings::new() };
    if !is_cluster(old, view.adoption()) {
        return Findings::new();
    }
    let (before, after) = (&old.spec, &new.spec);
    let mut found = Findings::new();
    let mut add = |field: &str, says: String, instead: WayOut| {
        found.push(finding(format!("spec.{field}"), says, instead));
    };
    let policies = [&before.pod_management_policy, &after.pod_management_policy].map(|it| policy(it));
    if policies[0] != policies[1] {
        let says =
            format!("podManagementPolicy {} -> {} cannot be changed in place", policies[0], policies[1]);
        add("podManagementPolicy", says, orphan(review));
    }
    if before.service_name != after.service_name {
        let says = format!(
            "serviceName {} -> {} would rename every member",
            before.service_name, after.service_name
        );
        add("serviceName", says, new_cluster("serviceName"));
    }
    if before.selector != after.selector {
        add(
            "selector",
            "another selector would no longer find the running members".into(),
            new_cluster("the selector"),
        );
    }
    found.extend(claim_templates(review, old, new));
    found
}

/// Returns the policy in force; `OrderedReady` is the default.
fn policy(written: &str) -> &str {
    if written.is_empty() { "OrderedReady" } else { written }
}

fn claim_templates(review: &Review, old: &Workload, new: &Workload) -> Findings {
    let (before, after) = (&old.spec.volume_claim_templates, &new.spec.volume_claim_templates);
    let names =
        |templates: &[ClaimTemplate]| templates.iter().map(|it| it.metadata.name.clone()).collect::<Vec<_>>();
    let field = |name: &str| format!("spec.volumeClaimTemplates[{name}]");
    if names(before) != names(after) {
        let list = |templates: &[ClaimTemplate]| match &names(templates)[..] {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let says = format!(
            "claim templates {} -> {}: members would not find their claims",
            list(before),
            list(after)
        );
        return vec![finding(
            "spec.volumeClaimTemplates".to_owned(),
            says,
            new_cluster("the names of claim templates"),
        )];
    }
    let found = before.iter().zip(after).flat_map(|(one, other)| {
        let name = &one.metadata.name;
        let of_template = |(says, instead)| finding(field(name), says, instead);
        let changed = changed(one, other);
        let changed = (!changed.is_empty()).then(|| {
            let says =
                format!("{} of claim template {name} cannot be changed in place", changed.join(" and "));
            (says, orphan(review))
        });
        resized(review, one, other).into_iter().chain(changed).map(of_template).collect::<Findings>()
    });
    found.collect()
}

fn size(template: &ClaimTemplate) -> Quantity {
    template.spec.resources.requests.get("storage").cloned().unwrap_or_default()
}

/// Returns what is wrong with another size in a claim template, and the way out.
fn resized(review: &Review, one: &ClaimTemplate, other: &ClaimTemplate) -> Option<(String, WayOut)> {
    let (name, from, to) = (&one.metadata.name, size(one), size(other));
    if from == to {
        return None;
    }
    if to.bytes() < from.bytes() {
        let says =
            format!("storage {from} -> {to} in claim template {name}: a volume cannot be made smaller");
        return Some((says, new_cluster(&from.to_string())));
    }
    let says = format!("storage {from} -> {to} in claim template {name} cannot be changed in place");
    let Review { namespace, name: set, .. } = review;
    let patch = CommandLine::new(format!("kubectl -n {namespace} patch pvc {name}-{set}-0 -p"))
        .arg(format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{to}"}}}}}}}}"#));
    let grow = run(patch).say(", and the same for every member");
    Some((says, grow.or("to change the template too, ").and(orphan(review))))
}

/// Returns the parts of a claim template that differ, except the size.
fn changed(one: &ClaimTemplate, other: &ClaimTemplate) -> Vec<&'static str> {
    let [was, is] = [&one.spec, &other.spec];
    let parts = [
        ("labels", one.metadata.labels != other.metadata.labels),
        ("annotations", one.metadata.annotations != other.metadata.annotations),
        ("storageClassName", was.storage_class_name != is.storage_class_name),
        ("volumeAttributesClassName", was.volume_attributes_class_name != is.volume_attributes_class_name),
        ("accessModes", was.access_modes != is.access_modes),
        ("resources", size(one) == size(other) && was.resources != is.resources),
    ];
    parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn orphan(review: &Review) -> WayOut {
    let Review { namespace, name, .. } = review;
    let delete =
        CommandLine::new(format!("kubectl -n {namespace} delete statefulset {name} --cascade=orphan"));
    say("with all members Ready: ").run(delete).say(", then apply the new StatefulSet (pods keep running)")
}

fn new_cluster(what: &str) -> WayOut {
    say(format!("keep {what}")).or("to change this, set up a new cluster and fill it from a backup")
}

const WHY: &str = "Kubernetes never changes these fields of a StatefulSet in place: the names of pods and claims are built \
    from some of them";

fn finding(field: String, says: String, instead: WayOut) -> Finding {
    RULE.deny(field, says, WHY, instead)
}
