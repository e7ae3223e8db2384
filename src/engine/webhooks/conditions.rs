//! The conditions of webhook entries, in CEL: which of the selected requests the API server sends.
//!
//! Must not know: which entry has which condition. `object` is null at DELETE and `oldObject` at CREATE, and an empty field does
//! not exist.

use crate::exemptions::users;
use facts::galera::adopt::{Requirement, TextSelector};
use facts::marks::{self, OF_PEOPLE, PREFIX};

/// Returns the CEL condition that one of these selectors selects the labels at this path, before or after. `adopt.rs` ensures
/// that keys and values are plain words, so they need no escaping.
pub(super) fn selected(selectors: &[TextSelector], place: &str) -> String {
    let by_one = |object: &str| {
        let labels = format!("{object}.{place}");
        let holds = |requirement: &Requirement| {
            let has_key = format!("'{}' in {labels}", requirement.key);
            match requirement.values.as_slice() {
                [] => has_key,
                values => {
                    format!("{has_key} && {labels}['{}'] in ['{}']", requirement.key, values.join("', '"))
                }
            }
        };
        let selectors = selectors.iter().map(|selector| {
            let all = selector.requirements().iter().map(holds).collect::<Vec<_>>();
            format!("({})", all.join(" && "))
        });
        let any = selectors.collect::<Vec<_>>().join(" || ");
        let around = labels.trim_end_matches(".labels");
        format!("({object} != null && has({around}) && has({labels}) && ({any}))")
    };
    format!("{} || {}", by_one("object"), by_one("oldObject"))
}

/// Returns the CEL condition that the pod does not belong to a StatefulSet, or carries marks of the guard.
pub(super) fn no_plain_member() -> String {
    let of_people = OF_PEOPLE.map(|name| format!("'{PREFIX}{name}'"));
    let (owners, annotations) = ("object.metadata.ownerReferences", "object.metadata.annotations");
    format!(
        "!has({owners}) || !{owners}.exists(owner, owner.kind == 'StatefulSet') || \
         has({annotations}) && {annotations}.exists(key, key.startsWith('{PREFIX}') && !(key in [{}]))",
        of_people.join(", ")
    )
}

/// Returns the CEL condition that labels, the guard's annotations, owners or a pod's images change. Other fields change often,
/// and network and volume plugins write annotations while a member starts, which must not wait for a guard that is down. Neither
/// must the control plane's controllers, which set owners and complete deletions.
pub(super) fn marks_changed() -> String {
    let images = |object: &str| format!("{object}.spec.containers.map(it, it.image)");
    let other_image = format!(
        "(has(object.spec) && has(object.spec.containers) && {} != {})",
        images("object"),
        images("oldObject")
    );
    let (labels, marks) = (changed("metadata.labels", "{}"), marks_differ("metadata.annotations"));
    let owners = changed("metadata.ownerReferences", "[]");
    let controllers = users::controller_condition();
    format!("{labels} || {marks} || {other_image} || {owners} && !({controllers})")
}

/// Returns the CEL condition that a created object has owners, or that the marks or finalizers of an existing one change.
pub(super) fn owned_or_marked() -> String {
    let owned = format!("{} != []", value_or("object", "metadata.ownerReferences", "[]"));
    let finalizers_removed =
        format!("has(oldObject.metadata.deletionTimestamp) && {}", changed("metadata.finalizers", "[]"));
    let controllers = users::controller_condition();
    format!(
        "request.operation == 'CREATE' ? {owned} && !({controllers}) : {} || {finalizers_removed} && !({controllers})",
        marks_changed()
    )
}

/// Returns the CEL condition that the break-glass annotation is written, and no other row sends this request: all changes of
/// fully guarded namespaces are sent anyway.
pub(super) fn break_glass_changed(mode_label: &str, off: &str) -> String {
    let mark = format!("{PREFIX}{}", marks::BREAK_GLASS);
    let (new, old) = (
        value_or("object", "metadata.annotations", "{}"),
        value_or("oldObject", "metadata.annotations", "{}"),
    );
    let labelled = |object: &str| {
        let labels = format!("{object}.metadata.labels");
        format!("has({labels}) && '{mode_label}' in {labels} && {labels}['{mode_label}'] != '{off}'")
    };
    let other_row = format!(
        "request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '') && ({} || {})",
        labelled("object"),
        labelled("oldObject"),
    );
    format!(
        "'{mark}' in {new} && (request.operation == 'CREATE' || !('{mark}' in {old}) || {old}['{mark}'] != {new}['{mark}']) && \
         !({other_row})"
    )
}

/// Returns the CEL condition that the guard may have to amend the object, or to refuse it before the API server does. An update
/// of a StatefulSet is sent if it changes the guard's marks, the template (which may hold marks), or a field that cannot be
/// changed: if the API server answers "Invalid" to an update, `kubectl apply --force` deletes the StatefulSet.
pub(super) fn to_amend() -> String {
    let places = [
        ("spec.template", "{}"),
        ("spec.podManagementPolicy", "''"),
        ("spec.serviceName", "''"),
        ("spec.selector", "{}"),
        ("spec.volumeClaimTemplates", "[]"),
    ];
    format!(
        "request.operation != 'UPDATE' || request.kind.kind != 'StatefulSet' || !has(object.spec) || {} || {}",
        marks_differ("metadata.annotations"),
        places.map(|(place, nothing)| changed(place, nothing)).join(" || ")
    )
}

/// Returns the CEL condition that a write changes something of a workload that a rule reads: the same as
/// [`changes_nothing`](crate::exemptions::changes_nothing) decides, so that other updates wait for nothing.
pub(super) fn workload_changed() -> String {
    let recovery =
        format!("'{PREFIX}{}' in {}", marks::RECOVERY, value_or("object", "metadata.annotations", "{}"));
    let changes = [
        marks_differ("metadata.labels"),
        marks_differ("metadata.annotations"),
        changed("spec", "{}"),
        changed("metadata.ownerReferences", "[]"),
        recovery,
    ];
    format!("request.operation != 'UPDATE' || {}", changes.join(" || "))
}

/// Returns the CEL expression for the value at this path; `nothing` if it is absent.
fn value_or(object: &str, place: &str, nothing: &str) -> String {
    format!("(has({object}.{place}) ? {object}.{place} : {nothing})")
}

/// Returns the CEL condition that the value at this path changes.
fn changed(place: &str, nothing: &str) -> String {
    format!("{} != {}", value_or("object", place, nothing), value_or("oldObject", place, nothing))
}

/// Returns the CEL condition that the guard's annotations, or its labels, at this path change.
fn marks_differ(place: &str) -> String {
    let (new, old) = (value_or("object", place, "{}"), value_or("oldObject", place, "{}"));
    let kept = |marks: &str, others: &str| {
        format!(
            "{marks}.all(key, !key.startsWith('{PREFIX}') || key in {others} && {others}[key] == {marks}[key])"
        )
    };
    format!("!{} || !{}", kept(&new, &old), kept(&old, &new))
}
