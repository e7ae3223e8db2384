//! By what objects are found besides their own names, so that nobody looks through all of a namespace for them.
//!
//! Must not know: what the words mean; `facts.rs` says what an object is found by. Order decides nothing: names come sorted.

use imbl::OrdSet;

use super::Id;

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
    /// A pod, by the copy of a ConfigMap that it was given.
    PodThatReads,
    /// A claim, by the cluster that its labels name.
    ClaimOfInstance,
    /// A claim, by the last two words of its name: those a pod's name ends with.
    ClaimOfTail,
}

/// Which objects are found by what. A clone shares what is not changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(OrdSet<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    by: By,
    namespace: Box<str>,
    word: Box<str>,
    name: Box<str>,
}

impl Entry {
    fn new(by: By, namespace: &str, word: &str, name: &str) -> Self {
        Self { by, namespace: namespace.into(), word: word.into(), name: name.into() }
    }
}

impl Index {
    /// This object is found by these.
    pub(super) fn put(&mut self, id: &Id, words: &[(By, String)]) {
        self.0.extend(words.iter().map(|(by, word)| Entry::new(*by, &id.namespace, word, &id.name)));
    }

    /// It is not any more.
    pub(super) fn remove(&mut self, id: &Id, words: &[(By, String)]) {
        for (by, word) in words {
            self.0.remove(&Entry::new(*by, &id.namespace, word, &id.name));
        }
    }

    /// The names of those that are found by this word.
    pub(super) fn names<'a>(
        &'a self,
        by: By,
        namespace: &str,
        word: &str,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let first = Entry::new(by, namespace, word, "");
        let (namespace, word) = (first.namespace.clone(), first.word.clone());
        let same = move |it: &&Entry| it.by == by && it.namespace == namespace && it.word == word;
        self.0.range(first..).take_while(same).map(|it| &*it.name)
    }

    /// All of a namespace that are found so: by which word, and their names.
    pub(super) fn all<'a>(
        &'a self,
        by: By,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let first = Entry::new(by, namespace, "", "");
        let namespace = first.namespace.clone();
        let same = move |it: &&Entry| it.by == by && it.namespace == namespace;
        self.0.range(first..).take_while(same).map(|it| (&*it.word, &*it.name))
    }
}
