//! What a path of the API means.

use std::fmt;

/// What is written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its API group; empty for the core.
    pub group: String,
    /// As URLs write it: `statefulsets`.
    pub plural: String,
    /// Empty for cluster-wide objects; a Namespace is in itself.
    pub namespace: String,
    /// Empty where something is created.
    pub name: String,
    /// `scale`, `eviction`, or empty.
    pub subresource: String,
}

impl Target {
    /// `/apis/apps/v1/namespaces/db/statefulsets/galera/scale`. `None`: it is no object.
    pub fn read(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let rest: Vec<_> = parts.collect();
        let (namespace, rest) = match &rest[..] {
            // A namespace itself, and its own subresources.
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, &rest[..]),
            ["namespaces", name, rest @ ..] => (*name, rest),
            _ => ("", &rest[..]),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            // What follows the word `proxy` is somebody else's path.
            [plural, name, subresource, ..] => (*plural, *name, *subresource),
            [] => return None,
        };
        let [group, plural, namespace, name, subresource] =
            [group, plural, namespace, name, subresource].map(str::to_owned);
        Some(Self { group, plural, namespace, name, subresource })
    }
}

/// For a message, where its kind is not known.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        let parts =
            [&self.namespace, &self.name, &self.subresource].into_iter().filter(|part| !part.is_empty());
        for (number, part) in parts.enumerate() {
            write!(f, "{}{part}", if number == 0 { ' ' } else { '/' })?;
        }
        Ok(())
    }
}
