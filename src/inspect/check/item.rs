//! An object in a manifest, as a request would contain it.
//!
//! Owns: the conversion of a YAML document into a request. Must not know: rules, other objects.

use serde_json::Value;

use super::CheckOptions;
use crate::manifest::{Place, YamlDocument};
use crate::stored::{self, complete};
use facts::galera::adopt::Adoption;
use facts::review::{self, Origin, Review};
use facts::view::{self, Facts, Id};
use objects::{Kind, Object, Unreadable};

use super::NamedObject;

/// An object in a manifest; `source` is the index of the manifest in the session.
#[derive(Debug)]
pub(super) struct ManifestItem {
    pub(super) source: usize,
    pub(super) document: YamlDocument,
    kind: Kind,
    pub(super) id: Id,
    pub(super) version: String,
    has_name: bool,
    object: Result<Object, Unreadable>,
}

/// A document that is not an object.
pub(super) enum NotAnObject {
    /// It does not look like a manifest, such as values of a chart or settings of a tool: its place and its apiVersion.
    NotAManifest(Place, String),
    /// It looks like a manifest but has no kind: its place, and the message.
    WithoutKind(Place, &'static str),
    /// It has no apiVersion, so its kind is unknown: its place, and the message.
    WithoutApiVersion(Place, &'static str),
}

/// Reads the object in a document. An object that names no namespace gets the namespace of the options.
pub(super) fn of(
    source: usize,
    document: YamlDocument,
    options: &CheckOptions<'_>,
) -> Result<ManifestItem, NotAnObject> {
    let mut json = document.json();
    let text = |json: &Value, pointer: &str| {
        json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (version, kind) = (text(&json, "/apiVersion"), text(&json, "/kind"));
    if kind.is_empty() || version.is_empty() {
        let (place, has) = (document.start(), |key: &str| json.get(key).is_some());
        return Err(if kind.is_empty() && has("metadata") && (has("apiVersion") || has("spec")) {
            NotAnObject::WithoutKind(place, "it has no kind, so it was not judged, and kubectl rejects it")
        } else if !kind.is_empty() && (has("metadata") || has("spec")) {
            let message = "it has no apiVersion, so it cannot be judged, and kubectl rejects it";
            NotAnObject::WithoutApiVersion(place, message)
        } else {
            NotAnObject::NotAManifest(place, version)
        });
    }
    let kind = options.rulebook.kinds().named(version.split_once('/').map_or("", |(group, _)| group), &kind);
    let namespace = match (kind, text(&json, "/metadata/namespace")) {
        // As in a request, the namespace of a Namespace is its own name.
        (Kind::Namespace, _) => text(&json, "/metadata/name"),
        (kind, _) if kind.is_cluster_wide() => String::new(),
        (_, own) if own.is_empty() => options.namespace.to_owned(),
        (_, own) => own,
    };
    complete(&mut json, kind, &namespace);
    let name = text(&json, "/metadata/name");
    let has_name = !name.is_empty();
    let name = if has_name { name } else { text(&json, "/metadata/generateName") };
    let object = stored::read(kind, json);
    Ok(ManifestItem { source, document, kind, id: Id { namespace, name }, version, has_name, object })
}

impl ManifestItem {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the object as it would be stored.
    pub(super) fn json(&self) -> Value {
        let mut json = self.document.json();
        let namespace = if self.kind.is_cluster_wide() { "" } else { &self.id.namespace };
        complete(&mut json, self.kind, namespace);
        json
    }

    /// Returns the object; `None`: it cannot be read.
    pub(super) fn object(&self) -> Option<&Object> {
        self.object.as_ref().ok()
    }

    /// Returns whether the object is the StatefulSet of a Galera cluster.
    pub(super) fn is_cluster(&self, adoption: &Adoption) -> bool {
        matches!(self.object(), Some(Object::StatefulSet(set)) if view::is_cluster(set, adoption))
    }

    /// Returns the key by which the same object is found in another text; `None`: it cannot be paired.
    pub(super) fn key(&self) -> Option<(Kind, &Id)> {
        (self.has_name && self.kind != Kind::Other).then_some((self.kind, &self.id))
    }

    /// Returns whether the object can be judged without looking up its namespace.
    pub(super) fn stands_alone(&self) -> bool {
        // It is not known whether an unknown kind has a namespace.
        self.kind.is_cluster_wide() || self.kind == Kind::Other
    }

    pub(super) fn named(&self) -> NamedObject {
        let subject = review::subject(self.kind, &self.id.namespace, &self.id.name);
        NamedObject { kind: self.kind, id: self.id.clone(), subject }
    }

    pub(super) fn created(&self) -> Review {
        Review::as_created(Origin::Check, self.kind, &self.id.namespace, &self.id.name, self.object.clone())
    }

    /// Adds the object to the facts.
    pub(super) fn put_into(&self, facts: &mut Facts) {
        if let Some(object) = self.object() {
            facts.put(object.clone());
        }
    }
}
