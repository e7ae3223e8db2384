//! Custom resources and whatever else packs look after, as it is read, and which kinds of them the API server offers.
//!
//! Must not know: any pack. What they say of each other is for the rules of their pack.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::Id;
use super::facts::Map;
use crate::object::{Kind, Object};
use crate::packs;

/// All of them. A clone shares what is not changed.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    objects: OrdMap<Kind, Map<Object>>,
    served: Arc<BTreeSet<Kind>>,
}

impl Kept {
    /// Takes one in.
    pub(super) fn put(&mut self, id: Id, object: Object) {
        self.objects.entry(object.kind()).or_default().insert(id, Arc::new(object));
    }

    /// Takes one in if a pack wants it kept, and forgets it if none does any more.
    pub(super) fn renew(&mut self, id: Id, object: Object) {
        if packs::keep(&object) {
            self.put(id, object);
        } else {
            self.remove(object.kind(), &id);
        }
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, kind: Kind, id: &Id) {
        if let Some(objects) = self.objects.get_mut(&kind) {
            objects.remove(id);
        }
    }

    /// The API server offers this kind, or does not.
    pub fn serves(&mut self, kind: Kind, is_so: bool) {
        let served = Arc::make_mut(&mut self.served);
        if is_so {
            served.insert(kind)
        } else {
            served.remove(&kind)
        };
    }

    /// The kinds that the API server offers.
    pub fn served(&self) -> &BTreeSet<Kind> {
        &self.served
    }

    /// Those of a kind.
    pub(super) fn of(&self, kind: Kind) -> Option<&Map<Object>> {
        self.objects.get(&kind)
    }

    /// Something is kept in this namespace.
    pub(crate) fn any_in(&self, namespace: &str) -> bool {
        self.all().any(|(_, objects)| super::within(objects, namespace).next().is_some())
    }

    /// All, by kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Kind, &Map<Object>)> {
        self.objects.iter().map(|(kind, objects)| (*kind, objects))
    }
}
