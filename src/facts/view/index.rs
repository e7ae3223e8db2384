//! Secondary indexes, so that a cluster's objects are looked up and not scanned for.
//!
//! Must not know: what the words mean. The order of entries decides nothing: names are sorted.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use super::facts::tail;
use super::{Facts, Id, PodFact, Reads, configuration};
use crate::galera::adopt;
use crate::revision::Revision;
use objects::{Kind, Labels};

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
    /// A pod, by the StatefulSet that owns it; by an empty name, if none does.
    PodOfSet,
    /// A pod that reads a member's data, by the StatefulSet of that member.
    ReaderOfSet,
    /// A pod, by the snapshot of a ConfigMap that it was given.
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
    /// A claim without such labels, by the last two words of its name, which end a pod's name.
    ClaimOfTail,
}

/// The index. A clone shares what is not changed.
///
/// An entry is one text, because there are many: the kind of entry, namespace, word and name. The first two include
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
        self.after(entry(by, &Id::new(namespace, ""), word))
    }

    /// Returns the rest of every entry with this prefix.
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

/// Returns all labels that name an instance, as `key=value`.
pub(super) fn instance_labels(labels: &Labels) -> impl Iterator<Item = String> {
    adopt::INSTANCE_LABELS.iter().filter_map(|key| Some(format!("{key}={}", labels.get(key)?)))
}

/// Returns the first such label that a selector asks for; empty: what it selects may be of any instance.
pub(super) fn label_asked(selector: &Labels) -> String {
    instance_labels(selector).next().unwrap_or_default()
}

impl Facts {
    /// Returns the words of this object, as it is known now.
    pub(super) fn words(&self, kind: Kind, id: &Id) -> Vec<(By, String)> {
        let instance = |by, labels| adopt::instance(labels).map(|instance| (by, instance.to_owned()));
        let mut words: Vec<_> = match kind {
            Kind::StatefulSet => self.stateful_set(id).map(|it| {
                let template = &it.spec.template;
                let reads = template.spec.config_maps().map(|name| (By::SetThatReads, name.to_owned()));
                let recorded =
                    configuration::snapshots_named(&it.metadata).map(|name| (By::SetWithRollout, name));
                let labels = instance_labels(&template.metadata.labels).map(|label| (By::SetOfLabel, label));
                let pulls = template.spec.image_pull_secrets.iter().map(|it| &*it.name);
                let secrets = template.spec.secrets().chain(pulls);
                let secrets = secrets.map(|name| (By::SetOfSecret, name.to_owned()));
                instance(By::SetOfInstance, &template.metadata.labels)
                    .into_iter()
                    .chain(reads)
                    .chain(recorded)
                    .chain(labels)
                    .chain(secrets)
                    .chain([(By::SetOfService, it.spec.service_name.clone())])
                    .collect()
            }),
            Kind::Deployment => self.deployments.get(id).map(|it| {
                let template = &it.spec.template;
                let reads = template.spec.config_maps();
                let reads = reads.map(|name| (By::DeploymentThatReads, name.to_owned()));
                instance(By::DeploymentOfInstance, &template.metadata.labels)
                    .into_iter()
                    .chain(reads)
                    .collect()
            }),
            Kind::Pod => self.pods.get(id).map(|it| {
                if let Some(Reads { member, .. }) = &it.reads {
                    let set = member.rsplit_once('-').map(|(set, _)| (By::ReaderOfSet, set.to_owned()));
                    return set.into_iter().collect();
                }
                let instance = it.instance.clone().map(|instance| (By::PodOfInstance, instance));
                let owner = match &it.owner {
                    None => Some(String::new()),
                    Some((kind, name)) => (kind == "StatefulSet").then(|| name.clone()),
                };
                let owner = owner.map(|owner| (By::PodOfSet, owner));
                let shown = self.shown.get(id).into_iter().flat_map(|it| it.spec.template.spec.config_maps());
                let copies = it.revision.iter().flat_map(Revision::snapshots);
                let reads = copies.chain(shown.map(str::to_owned));
                let reads = reads.map(|name| (By::PodThatReads, name));
                instance.into_iter().chain(owner).chain(reads).collect()
            }),
            Kind::Claim => self.claims.get(id).map(|it| {
                let labels = &it.metadata.labels;
                let labelled =
                    instance(By::ClaimOfInstance, labels).filter(|_| self.adoption().adopts(labels));
                vec![labelled.unwrap_or_else(|| (By::ClaimOfTail, tail(&id.name).to_owned()))]
            }),
            Kind::Service => {
                self.services.get(id).map(|it| vec![(By::ServiceForLabel, label_asked(&it.spec.selector))])
            }
            Kind::Budget => self.budgets.get(id).map(|it| {
                let asked = it.spec.selector.as_ref().map(|it| label_asked(&it.match_labels));
                vec![(By::BudgetForLabel, asked.unwrap_or_default())]
            }),
            _ => None,
        }
        .unwrap_or_default();
        // A template may refer to a ConfigMap twice.
        words.sort_unstable();
        words.dedup();
        words
    }

    /// Returns the pods that read the data of its members.
    pub(super) fn readers_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        let names = self.index.names(By::ReaderOfSet, &set.namespace, &set.name);
        names.filter_map(|name| self.pods.get(&Id::new(&set.namespace, name)))
    }

    /// Returns the pods that a StatefulSet owns.
    pub(super) fn pods_of(&self, set: &Id) -> impl Iterator<Item = &Arc<PodFact>> {
        let names = self.index.names(By::PodOfSet, &set.namespace, &set.name);
        names.filter_map(|name| self.pods.get(&Id::new(&set.namespace, name)))
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
        index.remove(&Id::new("db", "a"), &[(By::PodOfSet, "x".to_owned())]);
        assert_eq!(index.names(By::PodOfSet, "db", "x").collect::<Vec<_>>(), ["b"]);
    }

    /// Returns labels, as JSON: each of these keys with one of two values, or missing.
    fn labels() -> impl Strategy<Value = String> {
        let keys = ["gatera.dev/cluster", "instance", "app.kubernetes.io/instance", "app"];
        proptest::collection::vec(proptest::option::of(proptest::sample::select(vec!["galera", "x"])), 4)
            .prop_map(move |values| {
                let there = keys
                    .iter()
                    .zip(values)
                    .filter_map(|(key, value)| Some(format!(r#""{key}":"{}""#, value?)));
                format!("{{{}}}", there.collect::<Vec<_>>().join(","))
            })
    }

    proptest! {
        /// What a selector selects is found by its instance, from both sides.
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
                let found = (view.budgets_for("db", labels).count(), view.protected("db", budget).count());
                prop_assert!(!budget.protects(labels) || found == (1, 1), "{found:?}");
            }
        }
    }
}
