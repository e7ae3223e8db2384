//! A request as the API server sends it: an AdmissionReview, read into a review.
//!
//! Owns: the envelope, and the errors about a body that is not an AdmissionReview. Must not know: rules, the view. The envelope
//! is read first, then the objects, so that an answer can name the request even if an object in it cannot be read.

mod body;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Operation, Origin, Review, changes_nothing};
pub use body::value_count;
use body::{Body, ObjectText};
use objects::{DeleteOptions, Kind, Kinds, LONGEST_NAME, Object, Present, Unreadable, Workload};

/// A request as it came: the review, and what the answer must repeat.
#[derive(Debug)]
pub struct Incoming<'a> {
    pub uid: String,
    pub review: Review,
    /// The text of the new object for the patch, without what no rule reads; `None`: there is no object, or the update changes
    /// nothing that a rule reads.
    pub object: Option<Cow<'a, str>>,
}

/// A body that is not a request, with the reason. It is answered with status 400, so that the entry's failurePolicy decides; API
/// servers send no such body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gatera cannot read this AdmissionReview: {0}")]
pub struct Malformed(String);

/// The only version of AdmissionReview; the webhook entries ask for no other.
pub const API_VERSION: &str = "admission.k8s.io/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: GroupKind,
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    operation: Operation,
    #[serde(default)]
    user_info: User,
    dry_run: Option<bool>,
    /// Whether there is an object; [`Body`] has taken out its text.
    object: Option<Present>,
    old_object: Option<Present>,
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
}

impl Request<'_> {
    /// Returns a message if a name is longer than any object's name can be, because messages repeat names completely.
    fn overlong(&self) -> Option<String> {
        let Self { uid, name, namespace, sub_resource, .. } = self;
        let known = [
            ("uid", uid, LONGEST_UID),
            ("name", name, LONGEST_NAME),
            ("namespace", namespace, LONGEST_NAME),
            ("subResource", sub_resource, LONGEST_NAME),
        ];
        let (field, text, most) = known.into_iter().find(|(_, text, most)| text.len() > *most)?;
        Some(format!("request.{field} has {} bytes; the limit is {most}", text.len()))
    }
}

#[derive(Deserialize)]
struct GroupKind {
    group: String,
    kind: String,
}

#[derive(Default, Deserialize)]
struct Resource {
    #[serde(default)]
    group: String,
    resource: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

/// The largest length of a uid, in bytes; the uids of API servers have 36 characters.
const LONGEST_UID: usize = 128;

/// Reads a request body in two stages: the envelope, then the objects in it.
pub fn read<'b>(body: &'b [u8], origin: Origin, kinds: &Kinds) -> Result<Incoming<'b>, Malformed> {
    let malformed = || {
        let problem = serde_json::from_slice::<Envelope<'_>>(body).err();
        Malformed(problem.as_ref().map_or_else(|| NOT_JSON.to_owned(), position_of))
    };
    let parts = Body::read(body).ok_or_else(malformed)?;
    let envelope: Envelope<'_> = serde_json::from_str(&parts.envelope).map_err(|_| malformed())?;
    let request = envelope.request;
    if envelope.kind != "AdmissionReview" || envelope.api_version != API_VERSION {
        return Err(Malformed(format!("it is not of kind AdmissionReview, version {API_VERSION}")));
    }
    if let Some(problem) = request.overlong() {
        return Err(Malformed(problem));
    }
    // A key that is spelled with escapes, such as `\u006fbject`, was not recognised in the first stage.
    if (request.object.is_some(), request.old_object.is_some())
        != (parts.object.is_some(), parts.old.is_some())
    {
        return Err(Malformed(NOT_JSON.to_owned()));
    }
    let sent = kinds.named(&request.kind.group, &request.kind.kind);
    let may_be_same = origin == Origin::Validating
        && request.operation == Operation::Update
        && request.sub_resource.is_empty();
    let (object, [new, old]) = match may_be_same.then(|| unchanged_objects(sent, &parts)).flatten() {
        Some(same) => (None, same.map(|it| Some(Ok(it)))),
        None => {
            let object = parts.object.as_ref().map(ObjectText::text);
            let both = both_objects(sent, object.as_deref(), &parts);
            (object, both)
        }
    };
    let mut unreadable = None;
    let mut readable =
        |read: Option<Result<Object, Unreadable>>| read?.map_err(|error| unreadable = Some(error)).ok();
    let (new, old) = (readable(new), readable(old));
    let kind = if request.sub_resource.is_empty() { sent } else { parent_kind(&request.resource, kinds) };
    let named = |object: &Object| Some(object.meta().name.clone()).filter(|name| !name.is_empty());
    let name = Some(request.name)
        .filter(|name| !name.is_empty())
        .or_else(|| old.iter().chain(&new).find_map(named))
        .or_else(|| new.as_ref().map(|object| object.meta().generate_name.clone()))
        .unwrap_or_default();
    let options = match (&new, request.operation) {
        (Some(Object::Eviction(eviction)), _) => eviction.delete_options.clone(),
        // Options of a write are not judged. Options that cannot be read are the defaults.
        (_, Operation::Delete) => {
            request.options.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
        }
        _ => DeleteOptions::default(),
    };
    let review = Review {
        origin,
        operation: request.operation,
        kind,
        subresource: request.sub_resource,
        namespace: if kind == Kind::Namespace { name.clone() } else { request.namespace },
        name,
        user: request.user_info.username,
        dry_run: request.dry_run.unwrap_or_default() || options.dry_run(),
        options,
        old,
        takes_over: false,
        new,
        unreadable,
    };
    Ok(Incoming { uid: request.uid, review, object })
}

/// Returns both objects without their templates, new before old, if the update changes nothing that a rule reads; `None`: it may
/// change something.
fn unchanged_objects(kind: Kind, parts: &Body<'_>) -> Option<[Object; 2]> {
    let (new, old) = (parts.object.as_ref()?, parts.old.as_ref()?);
    let read = |part: &ObjectText<'_>| Object::read(kind, &part.without_template()).ok();
    if !new.has_spec_of(old) {
        return None;
    }
    let both = [read(new)?, read(old)?];
    let [Some(new), Some(old)] = both.each_ref().map(Object::get::<Workload>) else { return None };
    changes_nothing(old, new).then_some(both)
}

/// Reads both objects, new before old. A template that is the same on both sides is read once.
fn both_objects(kind: Kind, new: Option<&str>, parts: &Body<'_>) -> [Option<Result<Object, Unreadable>>; 2] {
    let new = new.map(|text| Object::read(kind, text));
    let Some(old) = &parts.old else { return [new, None] };
    if let (Some(Ok(Object::StatefulSet(it) | Object::Deployment(it))), Some(part)) = (&new, &parts.object)
        && old.has_template_of(part)
    {
        let old = Object::read(kind, &old.without_template()).map(|mut old| {
            if let Object::StatefulSet(old) | Object::Deployment(old) = &mut old {
                old.spec.template = it.spec.template.clone();
            }
            old
        });
        return [new, Some(old)];
    }
    [new, Some(Object::read(kind, &old.text()))]
}

fn parent_kind(parent: &Resource, kinds: &Kinds) -> Kind {
    match &*parent.resource {
        "statefulsets" => Kind::StatefulSet,
        "deployments" => Kind::Deployment,
        "pods" => Kind::Pod,
        "persistentvolumeclaims" => Kind::Claim,
        "namespaces" => Kind::Namespace,
        plural => match kinds.of_plural(&parent.group, plural) {
            custom @ Kind::Custom(_) => custom,
            _ => Kind::Other,
        },
    }
}

const NOT_JSON: &str = "it is not JSON";

/// Returns where the parser failed and in which way, without any text of the body.
fn position_of(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Data => "a field is missing or of the wrong type",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => NOT_JSON,
    };
    format!("{what} (line {} column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests;
