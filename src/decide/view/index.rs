//! By what objects are found besides their own names, so that what a cluster is made of is looked up and not searched for.
//!
//! Must not know: what the words mean; `facts.rs` says what an object is found by. Order decides nothing: names come sorted.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use super::{Facts, Id, PodFact};

/// By what an object is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// A StatefulSet, by the cluster that its template names.
    SetOfInstance,
    /// A StatefulSet, by a ConfigMap that its template refers to.
    SetThatReads,
    /// A StatefulSet, by a copy of a ConfigMap that its marks name.
    SetThatNotes,
    /// A Deployment, by the cluster that its template names.
    DeploymentOfInstance,
    /// A Deployment, by a ConfigMap that its template refers to.
    DeploymentThatReads,
    /// A pod, by the cluster that its labels name.
    PodOfInstance,
    /// A pod, by the StatefulSet that owns it; by an empty name, if nobody does.
    PodOfSet,
    /// A pod that reads what a member has, by the StatefulSet of that member.
    ReaderOfSet,
    /// A pod, by the copy of a ConfigMap that it was given.
    PodThatReads,
    /// A claim, by the cluster that its labels name.
    ClaimOfInstance,
    /// A StatefulSet, by a label of its template that names an instance: `key=value`.
    SetOfLabel,
    /// A StatefulSet, by its governing Service.
    SetOfService,
    /// A StatefulSet, by a Secret that its template refers to.
    SetOfSecret,
    /// A claim without such labels, by the last two words of its name: those a pod's name ends with.
    ClaimOfTail,
}

/// Which objects are found by what. A clone shares what is not changed.
///
/// An entry is one text, because there are many: by what, and namespace, word and name, of which the first two tell their
/// lengths, so that no word can look like two.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(OrdSet<Box<str>>);

impl Index {
    /// This object is found by these.
    pub(super) fn put(&mut self, id: &Id, words: &[(By, String)]) {
        self.0.extend(words.iter().map(|(by, word)| entry(*by, id, word)));
    }

    /// It is not any more.
    pub(super) fn remove(&mut self, id: &Id, words: &[(By, String)]) {
        for (by, word) in words {
            self.0.remove(&*entry(*by, id, word));
        }
    }

    /// The names of those that are found by this word, sorted.
    pub(super) fn names<'a>(
        &'a self,
        by: By,
        namespace: &str,
        word: &str,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        self.after(entry(by, &Id::new(namespace, ""), word))
    }

    /// All of a namespace that are found so: by which word, and their names.
    pub(super) fn all<'a>(
        &'a self,
        by: By,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let entries = self.after(first_part(by, namespace).into());
        entries.filter_map(|entry| {
            let (length, rest) = entry.split_once(':')?;
            rest.split_at_checked(length.parse().ok()?)
        })
    }

    /// The rest of every entry that begins so.
    fn after(&self, begin: Box<str>) -> impl Iterator<Item = &str> + use<'_> {
        let from = (Bound::Included(&*begin), Bound::Unbounded);
        self.0.range::<_, str>(from).map_while(move |entry| entry.strip_prefix(&*begin))
    }
}

fn first_part(by: By, namespace: &str) -> String {
    format!("{} {}:{namespace}", by as u8, namespace.len())
}

fn entry(by: By, id: &Id, word: &str) -> Box<str> {
    let Id { namespace, name } = id;
    format!("{}{}:{word}{name}", first_part(by, namespace), word.len()).into()
}

impl Facts {
    /// The pods that read what its members have.
    pub(super) fn readers_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        let names = self.index.names(By::ReaderOfSet, &set.namespace, &set.name);
        names.filter_map(|name| self.pods.get(&Id::new(&set.namespace, name)))
    }

    /// The pods that a StatefulSet owns.
    pub(super) fn pods_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        let names = self.index.names(By::PodOfSet, &set.namespace, &set.name);
        names.filter_map(|name| self.pods.get(&Id::new(&set.namespace, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_looks_like_another() {
        let mut index = Index::default();
        for (namespace, word, name) in [
            ("db", "x", "b"),
            ("db", "x", "a"),
            ("db", "", "x1:xa"),
            ("db", "xa", "c"),
            ("d", "bx", "a"),
            ("db1", "x", "z"),
        ] {
            index.put(&Id::new(namespace, name), &[(By::PodOfSet, word.to_owned())]);
        }
        index.put(&Id::new("db", "z"), &[(By::PodOfInstance, "x".to_owned())]);
        let names = |word: &str| index.names(By::PodOfSet, "db", word).collect::<Vec<_>>();
        assert_eq!((names("x"), names(""), names("xa")), (vec!["a", "b"], vec!["x1:xa"], vec!["c"]));
        let mut all: Vec<_> = index.all(By::PodOfSet, "db").collect();
        all.sort_unstable();
        assert_eq!(all, [("", "x1:xa"), ("x", "a"), ("x", "b"), ("xa", "c")]);
        index.remove(&Id::new("db", "a"), &[(By::PodOfSet, "x".to_owned())]);
        assert_eq!(index.names(By::PodOfSet, "db", "x").collect::<Vec<_>>(), ["b"]);
    }
}
