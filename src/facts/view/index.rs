//! Secondary indexes, so that a cluster's objects are looked up and not scanned for.
//!
//! An object is found by its words: the instance, owner, ConfigMaps and so on that it names. Must not know: rules. Names are
//! returned sorted, so no result depends on the order in which objects came.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use super::facts::{Map, tail};
use super::{Facts, Id, PodFact, Reads, configuration};
use crate::galera::adopt;
use crate::revision::Revision;
use objects::{Kind, Labels, Template};

/// The kind of an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// A StatefulSet, by the cluster that its template names.
    SetOfInstance,
    /// A StatefulSet, by a ConfigMap that its template refers to.
    SetThatReads,
    /// A StatefulSet, by a snapshot of a ConfigMap that its annotations name.
    SetWithRollout,
    /// A Deployment, by the cluster that its template names.
    DeploymentOfInstance,
    /// A Deployment, by a ConfigMap that its template refers to.
    DeploymentThatReads,
    /// A pod, by the cluster that its labels name.
    PodOfInstance,
    /// A pod, by the StatefulSet that owns it; by an empty name, if it has no owner.
    PodOfSet,
    /// A pod that reads a member's data, by the StatefulSet of that member.
    ReaderOfSet,
    /// A pod, by the snapshot of a ConfigMap that it was given, and by a ConfigMap of the deleted StatefulSet that it shows.
    PodThatReads,
    /// A claim, by the cluster that its labels name.
    ClaimOfInstance,
    /// A StatefulSet, by a label of its template that names an instance: `key=value`.
    SetOfLabel,
    /// A StatefulSet, by its governing Service.
    SetOfService,
    /// A StatefulSet, by a Secret that its template refers to.
    SetOfSecret,
    /// A Service, by the instance label of its selector: `key=value`, or empty.
    ServiceForLabel,
    /// A disruption budget, by the instance label of its selector: `key=value`, or empty.
    BudgetForLabel,
    /// A claim without the labels of a cluster, by the last two parts of its name, which also end its pod's name.
    ClaimOfTail,
}

/// The index. A clone shares what is not changed.
///
/// An entry is one text, because there are many: the kind of entry, namespace, word and name. Namespace and word follow
/// their lengths, so that one entry cannot be read in two ways.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(OrdSet<Box<str>>);

impl Index {
    /// Adds the entries of an object.
    pub(super) fn put(&mut self, id: &Id, words: &[(By, String)]) {
        self.0.extend(words.iter().map(|(by, word)| entry(*by, id, word)));
    }

    /// Removes the entries of an object.
    pub(super) fn remove(&mut self, id: &Id, words: &[(By, String)]) {
        for (by, word) in words {
            self.0.remove(&*entry(*by, id, word));
        }
    }

    /// Returns the names of the objects with this word, sorted.
    pub(super) fn names<'a>(
        &'a self,
        by: By,
        namespace: &str,
        word: &str,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = entry(by, &Id::new(namespace, ""), word);
        let from = (Bound::Included(&*prefix), Bound::Unbounded);
        self.0.range::<_, str>(from).map_while(move |entry| entry.strip_prefix(&*prefix))
    }
}

fn entry(by: By, id: &Id, word: &str) -> Box<str> {
    let Id { namespace, name } = id;
    format!("{} {}:{namespace}{}:{word}{name}", by as u8, namespace.len(), word.len()).into()
}

/// Returns all labels that name an instance, as `key=value`.
pub(super) fn instance_labels(labels: &Labels) -> impl Iterator<Item = String> {
    adopt::INSTANCE_LABELS.iter().filter_map(|key| Some(format!("{key}={}", labels.get(key)?)))
}

/// Returns the first label in a selector that names an instance; empty: it may select objects of any instance.
pub(super) fn label_asked(selector: &Labels) -> String {
    instance_labels(selector).next().unwrap_or_default()
}

/// The words that an object is found by.
#[derive(Default)]
struct Words(Vec<(By, String)>);

impl Words {
    fn add<W: Into<String>>(&mut self, by: By, words: impl IntoIterator<Item = W>) {
        self.0.extend(words.into_iter().map(|word| (by, word.into())));
    }
}

impl Facts {
    /// Returns the objects of a map that are found by this word, sorted by name.
    pub(super) fn found<'a, 'n, T>(
        &'a self,
        map: &'a Map<T>,
        by: By,
        namespace: &'n str,
        word: &str,
    ) -> impl Iterator<Item = &'a Arc<T>> + use<'a, 'n, T> {
        self.index.names(by, namespace, word).filter_map(|name| map.get(&Id::new(namespace, name)))
    }

    /// Returns the words of this object, as it is known now.
    pub(super) fn words(&self, kind: Kind, id: &Id) -> Vec<(By, String)> {
        let Words(mut words) = self.all_words(kind, id).unwrap_or_default();
        // A template may refer to a ConfigMap twice.
        words.sort_unstable();
        words.dedup();
        words
    }

    fn all_words(&self, kind: Kind, id: &Id) -> Option<Words> {
        let mut words = Words::default();
        match kind {
            Kind::StatefulSet => {
                let stateful_set = self.stateful_set(id)?;
                let Template { metadata, spec, .. } = &*stateful_set.spec.template;
                words.add(By::SetOfInstance, adopt::instance(&metadata.labels));
                words.add(By::SetThatReads, spec.config_maps());
                words.add(By::SetWithRollout, configuration::snapshots_named(&stateful_set.metadata));
                words.add(By::SetOfLabel, instance_labels(&metadata.labels));
                words.add(By::SetOfSecret, spec.secrets());
                words.add(By::SetOfSecret, spec.image_pull_secrets.iter().map(|secret| &*secret.name));
                words.add(By::SetOfService, [&*stateful_set.spec.service_name]);
            }
            Kind::Deployment => {
                let Template { metadata, spec, .. } = &*self.deployments.get(id)?.spec.template;
                words.add(By::DeploymentOfInstance, adopt::instance(&metadata.labels));
                words.add(By::DeploymentThatReads, spec.config_maps());
            }
            Kind::Pod => {
                let pod = self.pods.get(id)?;
                if let Some(Reads { member, .. }) = &pod.reads {
                    words.add(By::ReaderOfSet, member.rsplit_once('-').map(|(set, _)| set));
                    return Some(words);
                }
                words.add(By::PodOfInstance, pod.instance.as_deref());
                match &pod.owner {
                    None => words.add(By::PodOfSet, [""]),
                    Some((kind, name)) => words.add(By::PodOfSet, (kind == "StatefulSet").then_some(name)),
                }
                words.add(By::PodThatReads, pod.revision.iter().flat_map(Revision::snapshots));
                let template_maps =
                    pod.orphan_of.iter().flat_map(|left| left.spec.template.spec.config_maps());
                words.add(By::PodThatReads, template_maps);
            }
            Kind::Claim => {
                let labels = &self.claims.get(id)?.metadata.labels;
                match adopt::instance(labels).filter(|_| self.adoption().adopts(labels)) {
                    Some(instance) => words.add(By::ClaimOfInstance, [instance]),
                    None => words.add(By::ClaimOfTail, [tail(&id.name)]),
                }
            }
            Kind::Service => {
                words.add(By::ServiceForLabel, [label_asked(&self.services.get(id)?.spec.selector)]);
            }
            Kind::Budget => {
                let selector = self.budgets.get(id)?.spec.selector.as_ref();
                let label = selector.map(|selector| label_asked(&selector.match_labels)).unwrap_or_default();
                words.add(By::BudgetForLabel, [label]);
            }
            _ => {}
        }
        Some(words)
    }

    /// Returns the pods that read the data of this StatefulSet's members.
    pub(super) fn readers_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        self.found(&self.pods, By::ReaderOfSet, &set.namespace, &set.name)
    }

    /// Returns the pods that a StatefulSet owns.
    pub(super) fn pods_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        self.found(&self.pods, By::PodOfSet, &set.namespace, &set.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::Settings;
    use crate::view::{Freshness, View, World};
    use objects::Object;

    #[test]
    fn entries_of_different_words_are_not_confused() {
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
        index.remove(&Id::new("db", "a"), &[(By::PodOfSet, "x".to_owned())]);
        assert_eq!(index.names(By::PodOfSet, "db", "x").collect::<Vec<_>>(), ["b"]);
    }

    /// Returns labels, as JSON: each of these keys with one of two values, or missing.
    fn labels() -> impl Strategy<Value = String> {
        let keys = ["gatera.dev/cluster", "instance", "app.kubernetes.io/instance", "app"];
        proptest::collection::vec(proptest::option::of(proptest::sample::select(vec!["galera", "x"])), 4)
            .prop_map(move |values| {
                let entries = keys
                    .iter()
                    .zip(values)
                    .filter_map(|(key, value)| Some(format!(r#""{key}":"{}""#, value?)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
            })
    }

    proptest! {
        /// Objects that a selector selects are found by their instance, from both sides.
        #[test]
        fn nothing_that_is_selected_is_overlooked(selector in labels(), labels in labels()) {
            let containers = r#"[{"name":"mariadb","image":"mariadb:10.11"}]"#;
            let template = format!(r#"{{"metadata":{{"labels":{labels}}},"spec":{{"containers":{containers}}}}}"#);
            let settings = Settings::default();
            let mut facts = Facts::of(&settings.adoption);
            for (kind, spec) in [
                (Kind::StatefulSet, format!(r#"{{"template":{template}}}"#)),
                (Kind::Service, format!(r#"{{"selector":{selector}}}"#)),
                (Kind::Budget, format!(r#"{{"selector":{{"matchLabels":{selector}}}}}"#)),
            ] {
                let object = format!(r#"{{"metadata":{{"name":"a","namespace":"db"}},"spec":{spec}}}"#);
                facts.put(Object::read(kind, &object).unwrap());
            }
            let world = World::build(facts, Freshness::Current);
            let view = View::new(&world, jiff::Timestamp::UNIX_EPOCH, &settings);
            for cluster in world.clusters() {
                let labels = cluster.member_labels();
                let service = view.service("db", "a").unwrap();
                let found = (view.services_for("db", labels).count(), view.clusters_for("db", &service.spec.selector).count());
                prop_assert!(!service.selects(labels) || found == (1, 1), "{found:?}");
                let budget = view.world.facts.budgets.values().next().unwrap();
                let found = (view.budgets_for("db", labels).count(), view.clusters_protected("db", budget).count());
                prop_assert!(!budget.protects(labels) || found == (1, 1), "{found:?}");
            }
        }
    }
}
