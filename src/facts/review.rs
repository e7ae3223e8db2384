//! One proposed change: a user, an operation, and the object that it changes.
//!
//! Owns: the [`Review`], which is made from a request (`request.rs`), or from a file by `gatera check`. Must not know: rules, the
//! view, HTTP. Raw JSON stops here (the one exception is injection, which edits the object as it arrived).

mod request;

use std::any::Any;

use serde::Deserialize;

use crate::galera::adopt::Adoption;
use crate::marks;
use objects::{DeleteOptions, Kind, Object, Unreadable, Workload};

pub use request::{API_VERSION, Incoming, Malformed, read, value_count};

/// Where a request comes from: the API server, `gatera check`, or the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The mutating call; the object may still be changed.
    Mutating,
    /// The validating call; the object is final.
    Validating,
    /// `gatera check` without `--live`: the object is in a file.
    Check,
    /// `gatera check --live`: the findings of both calls about a manifest that the API server has not seen.
    Live,
    /// The audit: the object exists, and is judged as if it were created now.
    Audit,
}

impl Origin {
    /// Returns whether the object is final, as in a validating request.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Validating | Self::Live)
    }

    /// Returns whether each existing object of this kind is judged, too. Otherwise only one object is judged, and a fault of an
    /// existing one is reported for the object that makes the fault matter.
    pub fn judges_each(self, kind: Kind) -> bool {
        match self {
            Self::Mutating | Self::Validating | Self::Live => false,
            Self::Check => true,
            Self::Audit => !matches!(kind, Kind::Pod | Kind::Secret | Kind::Autoscaler | Kind::Namespace),
        }
    }
}

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the verbs of the API")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

#[derive(Clone, Debug)]
pub struct Review {
    /// Where the request comes from.
    pub origin: Origin,
    pub operation: Operation,
    /// The kind that is changed; for a subresource its parent's.
    pub kind: Kind,
    /// `scale`, `eviction`, `status`, or empty.
    pub subresource: String,
    /// The namespace; empty for cluster-wide objects. A Namespace counts as inside itself, so that its mode applies.
    pub namespace: String,
    /// The name. With `generateName` it may be a prefix; for deletecollection it is the name of the old object.
    pub name: String,
    pub user: String,
    /// A dry run: the request must have no effect except the answer.
    pub dry_run: bool,
    /// Options of the deletion, on delete and eviction.
    pub options: DeleteOptions,
    /// The object before; absent on create, unless the request takes over running members: then it is what these run with.
    pub old: Option<Object>,
    /// The request creates a StatefulSet whose members already run, or a ConfigMap that running members have read.
    pub takes_over: bool,
    /// The object after; absent on delete.
    pub new: Option<Object>,
    /// The part that could not be read: a finding, never a silent pass.
    pub unreadable: Option<Unreadable>,
}

/// Both sides of a change of one type.
#[derive(Debug)]
pub struct Change<'a, T> {
    /// The object before, as [`Review::old`].
    pub old: Option<&'a T>,
    /// The object after; absent on delete.
    pub new: Option<&'a T>,
}

impl Review {
    /// Returns the review of an object outside a request, judged as if it were created now.
    pub fn as_created(
        origin: Origin,
        kind: Kind,
        namespace: &str,
        name: &str,
        object: Result<Object, Unreadable>,
    ) -> Self {
        let (new, unreadable) = match object {
            Ok(object) => (Some(object), None),
            Err(problem) => (None, Some(problem)),
        };
        Self {
            origin,
            operation: Operation::Create,
            kind,
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            user: String::new(),
            dry_run: true,
            options: DeleteOptions::default(),
            old: None,
            takes_over: false,
            new,
            unreadable,
        }
    }

    /// Returns whether the object exists already, so that it can be annotated.
    pub fn exists(&self) -> bool {
        self.old.is_some() && !self.takes_over
    }

    /// Returns both sides of the change, as far as they are of this type.
    pub fn change<T: Any>(&self) -> Change<'_, T> {
        let [old, new] = [&self.old, &self.new].map(|object| object.as_ref().and_then(Object::get));
        Change { old, new }
    }

    /// Returns both sides, old before new, if both are of this type.
    pub fn both<T: Any>(&self) -> Option<(&T, &T)> {
        let Change { old, new } = self.change();
        old.zip(new)
    }

    /// Returns the object as every message names it, as in "StatefulSet db/galera".
    pub fn subject(&self) -> String {
        subject(self.kind, &self.namespace, &self.name)
    }

    /// Returns a review of the old object as if it were created now: a fault that it already has is not new when it is updated.
    /// If the update adds the label that adopts the object, the old object gets it as well, because the fault is older than the
    /// label.
    pub fn before(&self, adoption: &Adoption) -> Option<Review> {
        let mut old = self.old.clone()?;
        if let (
            Object::StatefulSet(old) | Object::Deployment(old),
            Some(Object::StatefulSet(new) | Object::Deployment(new)),
        ) = (&mut old, &self.new)
        {
            let [before, after] = [&old.spec.template.metadata.labels, &new.spec.template.metadata.labels];
            if !adoption.adopts(before) && adoption.adopts(after) {
                old.spec.template.metadata.labels = after.clone();
            }
        }
        let is_write = matches!(&*self.subresource, "" | "status");
        (self.operation == Operation::Update && is_write).then(|| Review {
            subresource: self.subresource.clone(),
            user: self.user.clone(),
            dry_run: self.dry_run,
            ..Self::as_created(self.origin, self.kind, &self.namespace, &self.name, Ok(old))
        })
    }

    /// Returns the objects of the request, new before old.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.new.iter().chain(&self.old)
    }
}

/// Returns whether an update of a workload changes nothing that a rule reads. Most updates by programs are like that: they set a
/// label or annotation of their own, or write the same object again. The mark of a recovery that was granted is compared with
/// what the guard knows even if it does not change, so an object with that mark never counts as unchanged.
pub fn changes_nothing(old: &Workload, new: &Workload) -> bool {
    new.metadata.mark(marks::RECOVERY).is_none() && old.is_equivalent_to(new)
}

/// Returns an object as every message names it, as in "StatefulSet db/galera".
pub fn subject(kind: Kind, namespace: &str, name: &str) -> String {
    let named = if kind == Kind::Other { "object" } else { kind.name() };
    if namespace.is_empty() || kind == Kind::Namespace {
        format!("{named} {name}")
    } else {
        format!("{named} {namespace}/{name}")
    }
}
