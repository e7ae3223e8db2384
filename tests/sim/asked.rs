//! Which requests the API server sends to the guard, and which it refuses while no replica answers, by the real table of entries.
//!
//! Must not know: rules, answers. The namespace of every story has the mode label, so entries for other namespaces never apply.
//! Data: an endpoint and a request in; out, whether the endpoint is asked, and whether it fails closed.

use engine::exemptions::users;
use engine::webhooks::{ENTRIES, Endpoint, Entry, Only, Selects};
use facts::marks;
use facts::review::Operation;
use facts::settings::Settings;
use objects::{Kind, Labels};
use serde::Deserialize;
use serde_json::Value;

use super::api::Request;

/// Whether this endpoint fails closed for the request: it is refused while no replica answers. `None`: the endpoint is not asked.
pub fn fails_closed(endpoint: Endpoint, request: &Request, settings: &Settings) -> Option<bool> {
    let objects: Vec<&Value> = request.object.iter().chain(&request.old).collect();
    let applies = |entry: &&Entry| {
        let resource = resource(request);
        let verb = verb(request.operation);
        entry.endpoint == endpoint
            && entry.requests.iter().any(|(_, name, verbs)| *name == resource && verbs.contains(&verb))
            && selects(entry.selects, &objects, settings)
            && sent_by(entry.only, request)
    };
    let mut entries = ENTRIES.iter().filter(applies).peekable();
    entries.peek()?;
    Some(entries.any(|entry| entry.fail_closed))
}

fn resource(request: &Request) -> String {
    let plural = request.kind.plural().to_owned();
    if request.subresource.is_empty() { plural } else { format!("{plural}/{}", request.subresource) }
}

pub fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// Whether the selectors of an entry match an object of the request.
fn selects(selects: Selects, objects: &[&Value], settings: &Settings) -> bool {
    let adopts = |labels: &Value| {
        let labels = Labels::deserialize(labels).unwrap_or_default();
        settings.adoption.adopts(&labels)
    };
    match selects {
        Selects::Template => objects.iter().any(|it| adopts(&it["spec"]["template"]["metadata"]["labels"])),
        Selects::Labels => objects.iter().any(|it| adopts(&it["metadata"]["labels"])),
        Selects::LabelledNamespaces | Selects::ModeLabel | Selects::AnyNamespace | Selects::Anywhere => true,
        Selects::LabelsElsewhere | Selects::OtherNamespaces | Selects::NoModeLabel => false,
    }
}

/// Whether there may be something to amend: the match condition `to_amend`, in Rust.
pub fn to_amend(kind: Kind, old: Option<&Value>, new: Option<&Value>) -> bool {
    let (Kind::StatefulSet, Some(old), Some(new)) = (kind, old, new) else { return true };
    let spec = |object: &Value, field: &str| object["spec"][field].clone();
    let fields = ["template", "podManagementPolicy", "serviceName", "selector", "volumeClaimTemplates"];
    own(old) != own(new) || fields.iter().any(|field| spec(old, field) != spec(new, field))
}

/// Whether a write of a workload changes something that a rule reads: the match condition `workload_changed`, in Rust.
pub fn workload_changed(old: Option<&Value>, new: Option<&Value>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let recovery = format!("{}{}", marks::PREFIX, marks::RECOVERY);
    let owners = |object| metadata(Some(object), "ownerReferences");
    old["spec"] != new["spec"]
        || own_in(old, "labels") != own_in(new, "labels")
        || own(old) != own(new)
        || owners(old) != owners(new)
        || own(new).iter().any(|(key, _)| *key == recovery)
}

/// Returns the annotations with the guard's prefix.
fn own(object: &Value) -> Vec<(String, Value)> {
    own_in(object, "annotations")
}

/// Returns the annotations, or the labels, with the guard's prefix.
fn own_in(object: &Value, what: &str) -> Vec<(String, Value)> {
    let all = object["metadata"][what].as_object().cloned();
    all.into_iter().flatten().filter(|(key, _)| key.starts_with(marks::PREFIX)).collect()
}

fn metadata(object: Option<&Value>, what: &str) -> Value {
    object.map(|it| it["metadata"][what].clone()).unwrap_or_default()
}

/// Whether the request comes from a controller, which only completes what was judged before.
fn is_a_controllers(request: &Request) -> bool {
    users::is_exempt(&request.user, Operation::Delete, request.kind)
}

/// Whether the match conditions of an entry send the request.
fn sent_by(only: Only, request: &Request) -> bool {
    let annotations = |object: &Option<Value>| object.as_ref().map(own).unwrap_or_default();
    match only {
        Only::All | Only::Read => true,
        // These entries are for the kinds of packs, which no story has.
        Only::When(..) => false,
        Only::Changed => workload_changed(request.old.as_ref(), request.object.as_ref()),
        Only::ToAmend => to_amend(request.kind, request.old.as_ref(), request.object.as_ref()),
        Only::NotExempt => !users::is_exempt(&request.user, request.operation, request.kind),
        Only::NoPlainMembers => {
            let object = request.object.as_ref().unwrap();
            let member = object["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|it| it["kind"] == "StatefulSet");
            !member || annotations(&request.object).iter().any(|(key, _)| marks::is_guards(key))
        }
        // In a namespace with the mode label, another entry sends every update.
        Only::BreakGlass => {
            request.operation == Operation::Create && !annotations(&request.object).is_empty()
        }
        Only::OwnedOrMarked if request.operation == Operation::Create => {
            !metadata(request.object.as_ref(), "ownerReferences").is_null() && !is_a_controllers(request)
        }
        Only::Marks | Only::OwnedOrMarked => {
            let changed =
                |what| metadata(request.object.as_ref(), what) != metadata(request.old.as_ref(), what);
            changed("labels")
                || annotations(&request.object) != annotations(&request.old)
                || (changed("ownerReferences") || changed("finalizers")) && !is_a_controllers(request)
        }
    }
}
