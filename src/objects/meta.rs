//! The metadata of an object: its name, its labels, its owners, and the guard's own annotations.
//!
//! Annotations of other owners are dropped while reading: `last-applied-configuration` repeats the whole object,
//! passwords included, and would double the memory of the view.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};

use super::ByName;
use super::by_name::EntryVisitor;

/// The prefix of every annotation and label of the guard.
pub const PREFIX: &str = "gatera.dev/";

/// Labels of an object or of a pod template.
pub type Labels = ByName<String>;

/// Reads the time of an object; a text that is not a time counts as absent.
fn time<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(input)?;
    Ok(text.and_then(|it| it.parse().ok()))
}

/// Reads `null` as if the field were absent: API servers write a list without items, or no time, as a null.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// A visitor that passes a text to this function without copying it; `None` stands for a null, where that is allowed.
pub(super) struct TextVisitor<T>(pub(super) fn(Option<&str>) -> T);

impl<T> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(Some(text)))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok((self.0)(None))
    }
}

/// The longest name of an object, container or volume, and the longest key of a ConfigMap, that API servers accept.
pub const LONGEST_NAME: usize = 253;
/// The longest name of an environment variable that is read. API servers set no limit, but all names that the guard needs are
/// shorter.
const LONGEST_VARIABLE: usize = 1024;

/// Reads a name. Messages repeat names, and a mutating webhook is called before the API server has validated them: a name that it
/// would never store is not read.
pub(super) fn name<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    within_limit(or_default(input)?, LONGEST_NAME)
}

/// Reads the name of an environment variable.
pub(super) fn variable<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    within_limit(or_default(input)?, LONGEST_VARIABLE)
}

/// Reads a map of names to values.
pub(super) fn by_name<'de, D, T>(input: D) -> Result<ByName<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let named: ByName<T> = or_default(input)?;
    named.keys().try_for_each(|name| within_limit(name, LONGEST_NAME).map(drop))?;
    Ok(named)
}

/// Reads a list into no more memory than it needs, because many lists are kept for a long time.
pub(super) fn list<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut all: Vec<T> = or_default(input)?;
    all.shrink_to_fit();
    Ok(all)
}

fn within_limit<T: AsRef<str>, E: de::Error>(name: T, limit: usize) -> Result<T, E> {
    let bytes = name.as_ref().len();
    if bytes > limit {
        return Err(E::custom(format!("a name has {bytes} bytes; the limit is {limit}")));
    }
    Ok(name)
}

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// The name; empty in a request with `generateName`.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The prefix of a name that the API server will complete.
    #[serde(deserialize_with = "name")]
    pub generate_name: String,
    /// The namespace; empty for cluster-wide objects, and in manifests that leave it to the command line.
    #[serde(deserialize_with = "name")]
    pub namespace: String,
    /// The uid, which changes when the object is deleted and created again under the same name.
    pub uid: String,
    /// The version, which changes with every write; empty in a manifest.
    pub resource_version: String,
    /// The number of changes of the spec.
    pub generation: i64,
    #[serde(deserialize_with = "or_default")]
    pub labels: Labels,
    /// The guard's own annotations, whose keys begin with `gatera.dev/`, and Helm's; no others are kept.
    #[serde(rename = "annotations", deserialize_with = "kept_annotations")]
    pub marks: ByName<String>,
    #[serde(deserialize_with = "list")]
    pub owner_references: Vec<Owner>,
    /// The time of the creation; absent in a manifest.
    #[serde(deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    /// The time of the deletion, which is set once the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Whether the object has the finalizer [`PROTECTION`], so that Kubernetes keeps it until no pod uses it.
    #[serde(rename = "finalizers", deserialize_with = "is_protected")]
    pub protected: bool,
}

impl Meta {
    /// Returns whether the guard's labels and annotations, and the owners, are those of the other object.
    pub(super) fn is_owned_and_marked_as(&self, other: &Self) -> bool {
        let same = |one: &ByName<String>, other: &ByName<String>| {
            let [one, other] = [one, other].map(|it| it.iter().filter(|(key, _)| key.starts_with(PREFIX)));
            one.eq(other)
        };
        same(&self.labels, &other.labels)
            && same(&self.marks, &other.marks)
            && self.owner_references == other.owner_references
    }

    /// Returns whether the object is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns the controller among the owners.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Returns the operator that manages the object as a database. KUDO's Instance does not count: it creates
    /// the object from a user's templates.
    pub fn operator(&self) -> Option<&Owner> {
        self.controller().filter(|owner| !owner.is_of("kudo.dev", "Instance"))
    }

    /// Returns the Helm release that manages the object. A name that Helm would not accept does not count.
    pub fn helm_release(&self) -> Option<&str> {
        let plain = |it: &&str| {
            !it.is_empty()
                && it.len() <= 53
                && it.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        };
        self.marks.get(HELM_RELEASE).map(String::as_str).filter(plain)
    }

    /// Returns one of the guard's own annotations, by its key without `gatera.dev/`.
    pub fn mark(&self, name: &str) -> Option<&str> {
        self.marks.iter().find(|(key, _)| key.strip_prefix(PREFIX) == Some(name)).map(|(_, value)| &**value)
    }
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Group and version of the owner.
    #[serde(deserialize_with = "name")]
    pub api_version: String,
    #[serde(deserialize_with = "name")]
    pub kind: String,
    #[serde(deserialize_with = "name")]
    pub name: String,
    #[serde(deserialize_with = "name")]
    pub uid: String,
    /// Whether this owner is the one that manages the object.
    pub controller: bool,
}

impl Owner {
    /// Returns whether the owner has this group and kind.
    pub fn is_of(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.api_version.split('/').next() == Some(group)
    }
}

/// The owner as messages name it: "MariaDB ours".
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The finalizer that keeps claims while pods use them.
pub const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Reads whether [`PROTECTION`] is set, the only finalizer that matters.
fn is_protected<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    let finalizers: Vec<String> = or_default(input)?;
    Ok(finalizers.iter().any(|it| it == PROTECTION))
}

/// The annotation that Helm writes on everything that it manages.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// Keeps the guard's own annotations, and Helm's, without allocating memory for the others.
fn kept_annotations<'de, D: Deserializer<'de>>(input: D) -> Result<ByName<String>, D::Error> {
    input.deserialize_option(EntryVisitor::with(|key| key.starts_with(PREFIX) || key == HELM_RELEASE))
}
