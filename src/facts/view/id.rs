//! By what an object of a known kind is named.

use objects::Meta;

/// Namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl Id {
    /// Both in one.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Of an object.
    pub fn of(meta: &Meta) -> Self {
        Self::new(&meta.namespace, &meta.name)
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
