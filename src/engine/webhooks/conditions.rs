//! The conditions of webhook entries, in CEL: which of the requests that an entry selects the API server sends.
//!
//! Must not know: which entry has which. An object is null where there is none (`object` at DELETE, `oldObject` at
//! CREATE), and a field that is empty is not there.

use crate::exemptions::users;
use facts::galera::adopt::{Requirement, Selector};
use facts::marks::{self, PREFIX, Whose};

/// CEL: the labels at this place, before or after, are selected by one of these. Keys and values are plain words
/// (`adopt.rs` sees to it), so they need no escaping.
pub(super) fn selected(selectors: &[Selector], place: &str) -> String {
    let by_one = |object: &str| {
        let labels = format!("{object}.{place}");
        let holds = |requirement: &Requirement| {
            let there = format!("'{}' in {labels}", requirement.key);
            match requirement.values.as_slice() {
                [] => there,
                values => {
                    format!("{there} && {labels}['{}'] in ['{}']", requirement.key, values.join("', '"))
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

/// CEL: not a member of a StatefulSet, or one that carries marks of the guard's.
pub(super) fn no_plain_member() -> String {
    let peoples: Vec<_> = marks::of(Whose::Peoples).map(|name| format!("'{PREFIX}{name}'")).collect();
    let (owners, annotations) = ("object.metadata.ownerReferences", "object.metadata.annotations");
    format!(
        "!has({owners}) || !{owners}.exists(owner, owner.kind == 'StatefulSet') || \
         has({annotations}) && {annotations}.exists(key, key.startsWith('{PREFIX}') && !(key in [{}]))",
        peoples.join(", ")
    )
}

/// CEL: labels, the guard's annotations, owners, or a pod's images are not what they were. Everything else changes all the time, and networks and volumes write annotations of theirs while a member starts: it must
/// not wait for a guard that is down. Nor do the control plane's controllers, which own what they make and finish what is going.
pub(super) fn marks_changed() -> String {
    let images = |object: &str| format!("{object}.spec.containers.map(it, it.image)");
    let other_image = format!(
        "(has(object.spec) && has(object.spec.containers) && {} != {})",
        images("object"),
        images("oldObject")
    );
    let (labels, annotations) = (changed("metadata.labels", "{}"), "metadata.annotations");
    let (new, old) = (there("object", annotations, "{}"), there("oldObject", annotations, "{}"));
    let owners = changed("metadata.ownerReferences", "[]");
    let controllers = users::controller_condition();
    format!(
        "{labels} || !{} || !{} || {other_image} || {owners} && !({controllers})",
        kept(&new, &old),
        kept(&old, &new)
    )
}

/// CEL: what is created has owners, or marks or finalizers of what is there change.
pub(super) fn owned_or_marked() -> String {
    let owned = format!("{} != []", there("object", "metadata.ownerReferences", "[]"));
    let bared =
        format!("has(oldObject.metadata.deletionTimestamp) && {}", changed("metadata.finalizers", "[]"));
    let controllers = users::controller_condition();
    format!(
        "request.operation == 'CREATE' ? {owned} && !({controllers}) : {} || {bared} && !({controllers})",
        marks_changed()
    )
}

/// CEL: what opens a namespace is written, and no other row sends that: all changes of namespaces that are guarded as a whole travel anyway.
pub(super) fn glass_changed(mode_label: &str, off: &str) -> String {
    let mark = format!("{PREFIX}{}", marks::BREAK_GLASS);
    let (new, old) =
        (there("object", "metadata.annotations", "{}"), there("oldObject", "metadata.annotations", "{}"));
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
        "'{mark}' in {new} && (request.operation == 'CREATE' || !('{mark}' in {old}) || {old}['{mark}'] != {new}['{mark}']) && !({other_row})"
    )
}

/// CEL: there may be something to amend, or to say before the API server speaks. Of an update of a StatefulSet that is only so
/// if it touches the guard's marks, the template (where marks may be, and of what is wrong there the API server says
/// "Invalid", which `kubectl apply --force` answers by deleting), or what no StatefulSet can change.
pub(super) fn to_amend() -> String {
    let own = "metadata.annotations";
    let (new, old) = (there("object", own, "{}"), there("oldObject", own, "{}"));
    let marks = [kept(&new, &old), kept(&old, &new)];
    let other = marks.iter().map(|kept| format!("!{kept}"));
    let places = [
        ("spec.template", "{}"),
        ("spec.podManagementPolicy", "''"),
        ("spec.serviceName", "''"),
        ("spec.selector", "{}"),
        ("spec.volumeClaimTemplates", "[]"),
    ];
    let other = other.chain(places.map(|(place, nothing)| changed(place, nothing)));
    format!(
        "request.operation != 'UPDATE' || request.kind.kind != 'StatefulSet' || !has(object.spec) || {}",
        other.collect::<Vec<_>>().join(" || ")
    )
}

/// CEL: what stands at this place, or that nothing does.
fn there(object: &str, place: &str, nothing: &str) -> String {
    format!("(has({object}.{place}) ? {object}.{place} : {nothing})")
}

/// CEL: what stands at this place is not what it was.
fn changed(place: &str, nothing: &str) -> String {
    format!("{} != {}", there("object", place, nothing), there("oldObject", place, nothing))
}

/// CEL: of the first annotations, the guard's are among the second, too.
fn kept(some: &str, others: &str) -> String {
    format!("{some}.all(key, !key.startsWith('{PREFIX}') || key in {others} && {others}[key] == {some}[key])")
}
