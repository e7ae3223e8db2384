//! Kinds that only a pack reads, mostly custom resources.
//!
//! Owns: how such an object is kept although its type is unknown here. Must not know: any such kind. A pack declares its kinds as
//! constants, and gets its own type back from [`Object::get`](super::Object::get).

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::scalar::{self, Weigh};
use super::unreadable::read_as;
use super::{KindNames, Meta, Unreadable, or_default};

/// The type that objects of a custom kind are read into.
pub trait Custom: Any + Debug + Send + Sync + Weigh {
    /// Returns the metadata that every object has.
    fn meta(&self) -> &Meta;
}

/// An object of a custom kind, with the spec that its pack reads. A spec of a wrong type counts as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, bound(deserialize = "S: Default + DeserializeOwned"))]
pub struct CustomResource<S> {
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "scalar::map")]
    pub spec: S,
}

impl<S: Any + Debug + Hash + Send + Sync> Custom for CustomResource<S> {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Reads the JSON text of one object of the kind with this name.
pub type ReadCustom = fn(&'static str, &str) -> Result<Arc<dyn Custom>, Unreadable>;

/// A kind that only a pack reads.
#[derive(Debug)]
pub struct CustomKind {
    /// The names that API servers, manifests and roles use.
    pub names: KindNames,
    /// Whether its objects are watched and kept while the API server offers the kind. If not, each request is judged by itself.
    pub watched: bool,
    /// Whether its objects are in no namespace.
    pub cluster_wide: bool,
    /// Reads the JSON text of one object.
    pub read: ReadCustom,
}

impl CustomKind {
    /// Reads an object into this type, as a function for the field [`read`](Self::read).
    pub fn read_into<T: Custom + DeserializeOwned>(
        name: &'static str,
        json: &str,
    ) -> Result<Arc<dyn Custom>, Unreadable> {
        Ok(Arc::new(read_as::<T>(name, json)?))
    }

    fn key(&self) -> (&str, &str) {
        (self.names.group, self.names.name)
    }
}

impl PartialEq for CustomKind {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for CustomKind {}

impl Hash for CustomKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Ord for CustomKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for CustomKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An object of a custom kind.
#[derive(Clone, Debug)]
pub struct CustomObject {
    pub kind: &'static CustomKind,
    pub value: Arc<dyn Custom>,
}
