//! The facts from the watches: one map per kind, trimmed to what the rules need, with an index.
//!
//! Owns: which clusters a change touches. A clone shares all facts and costs almost nothing, so a World keeps the facts of
//! its moment while newer ones arrive. Must not know: watches, rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use jiff::Timestamp;

use super::id::Id;
use super::index::{By, Index};
use super::kept::{KeepsDeployment, Kept};
use super::pod_fact::LONGEST_MESSAGE;
use super::room::Room;
use super::templates::Templates;
use super::{PodFact, claim, orphans};
use crate::galera::adopt;
use crate::galera::start_report::{JoinPhase, StartReport};
use crate::marks;
use crate::revision::Contents;
use objects::{
    Autoscaler, Budget, Claim, ConfigMap, KINDS, Kind, Meta, Node, Object, Service, Unreadable, Workload,
};

/// The objects of one kind.
pub(super) type Map<T> = OrdMap<Id, Arc<T>>;

/// One map per kind. Objects are added and removed by [`Facts::put`] and [`Facts::remove`], which keep the index
/// correct.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    adoption: Arc<adopt::Adoption>,
    pub stateful_sets: Map<Workload>,
    pub(super) templates: Templates,
    /// Deleted StatefulSets, as their pods show them.
    pub orphaned_sets: Map<Workload>,
    /// The uid of each StatefulSet that carries the guard's mark although no selector adopts it: it was guarded once.
    pub(super) no_longer_adopted: OrdMap<Id, String>,
    pub deployments: Map<Workload>,
    pub pods: Map<PodFact>,
    pub claims: Map<Claim>,
    pub services: Map<Service>,
    pub config_maps: Map<ConfigMap>,
    /// The contents of the ConfigMaps in `config_maps`.
    pub(super) contents: Map<Contents>,
    pub(super) nodes: OrdMap<String, Arc<Node>>,
    pub(super) namespaces: OrdMap<String, Arc<Meta>>,
    pub budgets: Map<Budget>,
    pub(super) autoscalers: Map<Autoscaler>,
    /// ConfigMaps whose text was requested and has not arrived.
    pub(super) awaited: OrdSet<Id>,
    /// Custom resources, as their packs read them.
    pub kept: Kept,
    /// The last failed attempt to create a pod of each StatefulSet.
    pub(super) not_created: OrdMap<Id, NotCreated>,
    /// Objects whose current version could not be read; the version that was read before stays in its map.
    pub unreadable: OrdMap<(Kind, Id), Unreadable>,
    pub(super) index: Index,
    /// The memory that all this takes.
    pub(super) room: Room,
    /// StatefulSets whose clusters have changed since the last World was built.
    touched: BTreeSet<Id>,
}

/// A failed attempt to create a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotCreated {
    /// The time of the last attempt.
    pub at: Timestamp,
    /// The API server's message, on one line.
    pub why: String,
}

impl Facts {
    /// Returns empty facts with this adoption, which says which pods and templates are Galera's.
    pub fn of(adoption: &adopt::Adoption) -> Self {
        Self { adoption: Arc::new(adoption.clone()), ..Self::default() }
    }

    /// Returns these facts, which from now on also keep the Deployments that one of these functions accepts.
    #[must_use]
    pub fn with_kept_deployments(mut self, keeps: Arc<[KeepsDeployment]>) -> Self {
        self.kept.keeps = keeps;
        self
    }

    /// Returns the adoption rules of pods.
    pub fn adoption(&self) -> &adopt::Adoption {
        &self.adoption
    }

    /// Stores one object, or removes it if it is not adopted any more, because labels can be removed. Returns false for
    /// kinds that the view does not hold.
    pub fn put(&mut self, object: Object) -> bool {
        let (kind, id) = (object.kind(), Id::of(object.meta()));
        match object {
            Object::Pod(pod)
                if self.adoption.adopts(&pod.metadata.labels)
                    || pod.metadata.labels.contains_key(adopt::READER_LABEL) =>
            {
                self.put_pod(&id, PodFact::of(&pod));
            }
            Object::Pod(_) => self.remove(kind, &id),
            object => {
                let weight = self.weight_if_kept(&object);
                if self.has_room(kind, &id, weight) {
                    return self.change(kind, &id, |facts| facts.insert(object));
                }
            }
        }
        true
    }

    /// Stores what is kept of a pod, with its earlier reports as far as they are still true.
    fn put_pod(&mut self, id: &Id, fact: PodFact) {
        let fact = match self.pods.get(id) {
            Some(before) => fact.with_reports_of(before),
            None => fact,
        };
        if self.has_room(Kind::Pod, id, fact.weight()) {
            self.change(Kind::Pod, id, |facts| facts.pods.insert(id.clone(), Arc::new(fact)));
            self.update_orphaned(id);
        }
    }

    /// Updates, after a change of a pod, the deleted StatefulSet that may have left it behind, as the pods show that set.
    fn update_orphaned(&mut self, pod: &Id) {
        let Some((name, _)) = pod.name.rsplit_once('-') else { return };
        let set = Id::new(&pod.namespace, name);
        let left = orphans::orphaned_set(&set, self);
        if left.as_ref() != self.orphaned_sets.get(&set).map(AsRef::as_ref) {
            self.change(Kind::StatefulSet, &set, |facts| match left {
                Some(left) => facts.orphaned_sets.insert(set.clone(), Arc::new(left)),
                None => facts.orphaned_sets.remove(&set),
            });
        }
    }

    /// Returns a StatefulSet; a deleted one is returned as its pods show it.
    pub(super) fn stateful_set(&self, id: &Id) -> Option<&Arc<Workload>> {
        self.stateful_sets.get(id).or_else(|| self.orphaned_sets.get(id))
    }

    pub fn remove(&mut self, kind: Kind, id: &Id) {
        self.unreadable.remove(&(kind, id.clone()));
        self.change(kind, id, |facts| match kind {
            Kind::StatefulSet => {
                facts.stateful_sets.remove(id);
                facts.templates.remove(id);
                facts.no_longer_adopted.remove(id);
                facts.not_created.remove(id);
            }
            Kind::Deployment => {
                facts.deployments.remove(id);
                facts.kept.remove(kind, id);
            }
            Kind::Pod => drop(facts.pods.remove(id)),
            Kind::Claim => drop(facts.claims.remove(id)),
            Kind::Service => drop(facts.services.remove(id)),
            Kind::ConfigMap => {
                facts.contents.remove(id);
                facts.config_maps.remove(id);
            }
            Kind::Budget => drop(facts.budgets.remove(id)),
            Kind::Autoscaler => drop(facts.autoscalers.remove(id)),
            Kind::Node => drop(facts.nodes.remove(&id.name)),
            Kind::Namespace => drop(facts.namespaces.remove(&id.name)),
            kind => facts.kept.remove(kind, id),
        });
        if kind == Kind::Pod {
            self.update_orphaned(id);
        }
    }

    /// Puts an object other than a pod into its map. Returns false for kinds that the view does not hold.
    fn insert(&mut self, object: Object) -> bool {
        let id = Id::of(object.meta());
        let adoption = Arc::clone(&self.adoption);
        let adopted = |workload: &Workload| adoption.adopts(&workload.spec.template.metadata.labels);
        match object {
            Object::StatefulSet(it) if adopted(&it) => {
                self.no_longer_adopted.remove(&id);
                self.templates.record(&id, &it);
                self.stateful_sets.insert(id, Arc::new(*it));
            }
            Object::StatefulSet(it) => {
                self.stateful_sets.remove(&id);
                self.templates.remove(&id);
                match it.metadata.mark(marks::DATA) {
                    Some(_) if !it.metadata.is_terminating() => {
                        self.no_longer_adopted.insert(id, it.metadata.uid)
                    }
                    _ => self.no_longer_adopted.remove(&id),
                };
            }
            Object::Deployment(it) if adopted(&it) => {
                self.kept.remove(Kind::Deployment, &id);
                self.deployments.insert(id, Arc::new(*it));
            }
            Object::Deployment(it) => {
                self.deployments.remove(&id);
                self.kept.remove(Kind::Deployment, &id);
                let object = Object::Deployment(it);
                if self.kept.keeps(&object) {
                    self.put_kept(id, object);
                }
            }
            Object::Claim(it) => drop(self.claims.insert(id, Arc::new(it))),
            Object::Service(it) => drop(self.services.insert(id, Arc::new(it))),
            Object::ConfigMap(it) => {
                self.contents.insert(id.clone(), Arc::new(Contents::of(&it)));
                self.config_maps.insert(id, Arc::new(it));
            }
            Object::Budget(it) => drop(self.budgets.insert(id, Arc::new(it))),
            Object::Autoscaler(it) => drop(self.autoscalers.insert(id, Arc::new(it))),
            Object::Node(it) => drop(self.nodes.insert(id.name, Arc::new(it))),
            Object::Namespace(it) => drop(self.namespaces.insert(id.name, Arc::new(it.metadata))),
            object if self.kept.keeps(&object) => self.put_kept(id, object),
            _ => return false,
        }
        true
    }

    fn put_kept(&mut self, id: Id, object: Object) {
        let kind = object.kind();
        match self.kept.put(id.clone(), object) {
            Ok(()) => drop(self.unreadable.remove(&(kind, id))),
            Err(problem) => self.cannot_read(kind, id, problem),
        }
    }

    /// Records that the object exists and that its current version is unknown. The version that was read before stays,
    /// and the audit says that it is old; custom resources, and texts for which there is no room, are never judged by an
    /// older version.
    pub fn cannot_read(&mut self, kind: Kind, id: Id, problem: Unreadable) {
        if kind.is_optional() {
            self.kept.remove(kind, &id);
        }
        if kind == Kind::ConfigMap && matches!(problem, Unreadable::NotExamined(_)) {
            self.remove(kind, &id);
        }
        self.unreadable.insert((kind, id), problem);
    }

    /// Changes one object, keeps the index correct, and records which clusters that touches.
    fn change<T>(&mut self, kind: Kind, id: &Id, apply: impl FnOnce(&mut Self) -> T) -> T {
        let (before, weight) = (self.words(kind, id), self.weight_of(kind, id));
        self.touch(kind, id, &before);
        let result = apply(self);
        self.room.change(&id.namespace, weight, self.weight_of(kind, id));
        let after = self.words(kind, id);
        if before != after {
            self.index.remove(id, &before);
            self.index.put(id, &after);
        }
        self.touch(kind, id, &after);
        result
    }

    /// Adds the clusters that use this object to the touched ones.
    fn touch(&mut self, kind: Kind, id: &Id, words: &[(By, String)]) {
        let sets = self.sets_using(kind, id, words);
        self.touched.extend(sets);
    }

    /// Returns the StatefulSets whose clusters use this object; for a StatefulSet that is itself, whether or not it exists.
    pub(super) fn sets_using(&self, kind: Kind, id: &Id, words: &[(By, String)]) -> Vec<Id> {
        let sets_of = |by, word: &str| self.index.names(by, &id.namespace, word);
        let mut names: Vec<String> = match kind {
            Kind::StatefulSet => vec![id.name.clone()],
            Kind::Claim => claim::sets_named_by(&id.name).map(str::to_owned).collect(),
            Kind::ConfigMap => {
                // The ConfigMap may show that a Deployment beside a cluster is its bootstrap node.
                let beside = self
                    .found(&self.deployments, By::DeploymentThatReads, &id.namespace, &id.name)
                    .filter_map(|workload| adopt::instance(&workload.spec.template.metadata.labels))
                    .flat_map(|instance| sets_of(By::SetOfInstance, instance));
                sets_of(By::SetThatReads, &id.name).chain(beside).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        for (by, word) in words {
            match by {
                By::PodOfSet | By::ReaderOfSet if !word.is_empty() => names.push(word.clone()),
                By::PodOfInstance | By::DeploymentOfInstance => {
                    names.extend(sets_of(By::SetOfInstance, word).map(str::to_owned));
                }
                _ => {}
            }
        }
        let sets = names.iter().map(|name| Id::new(&id.namespace, name));
        sets.filter(|set| kind == Kind::StatefulSet || self.stateful_set(set).is_some()).collect()
    }

    /// Marks all clusters as changed.
    pub(super) fn touch_all(&mut self) {
        self.touched = self.stateful_sets.keys().chain(self.orphaned_sets.keys()).cloned().collect();
    }

    /// Returns the StatefulSets whose clusters must be built again, each once.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Id> {
        std::mem::take(&mut self.touched)
    }

    pub fn pod(&self, id: &Id) -> Option<&PodFact> {
        self.pods.get(id).map(AsRef::as_ref)
    }

    pub fn pods(&self) -> impl Iterator<Item = &PodFact> {
        self.pods.values().map(AsRef::as_ref)
    }

    /// Returns the kind of this group and name; [`Kind::Other`] if the view does not hold it.
    pub fn kind_named(&self, group: &str, name: &str) -> Kind {
        let is_named = |kind: &Kind| kind.group() == group && kind.name() == name;
        KINDS.iter().copied().chain(self.kept.kinds()).find(is_named).unwrap_or(Kind::Other)
    }

    /// Returns the uid of an object in the view.
    pub fn uid(&self, kind: Kind, id: &Id) -> Option<&str> {
        let uid = match kind {
            Kind::StatefulSet => &self.stateful_sets.get(id)?.metadata.uid,
            Kind::Deployment => &self.deployments.get(id)?.metadata.uid,
            Kind::Pod => &self.pods.get(id)?.uid,
            Kind::Claim => &self.claims.get(id)?.metadata.uid,
            Kind::Service => &self.services.get(id)?.metadata.uid,
            Kind::ConfigMap => &self.config_maps.get(id)?.metadata.uid,
            Kind::Budget => &self.budgets.get(id)?.metadata.uid,
            Kind::Namespace => &self.namespaces.get(&id.name)?.uid,
            kind => &self.kept.of(kind)?.get(id)?.meta().uid,
        };
        Some(uid)
    }

    /// Returns whether a namespace of this name exists.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// Stores the message of a failed probe of this pod's server. Returns false if that changes nothing.
    pub fn add_report(&mut self, pod: &Id, uid: &str, at: Timestamp, message: &str) -> bool {
        let Some(known) = self.pods.get(pod).filter(|pod| pod.uid == uid) else { return false };
        let mut fact = PodFact::clone(known);
        match StartReport::read(message) {
            Some(report) => fact.take_report(report),
            None if message.starts_with("Readiness probe ") => fact.take_phase(JoinPhase::read(message), at),
            None => {}
        }
        let is_new = fact.reports() != known.reports();
        if is_new {
            self.change(Kind::Pod, pod, |facts| facts.pods.insert(pod.clone(), Arc::new(fact)));
        }
        is_new
    }

    /// Stores why a pod of this StatefulSet could not be created. Returns false if that changes nothing.
    pub fn not_created(&mut self, set: Id, uid: &str, at: Timestamp, message: &str) -> bool {
        if self.stateful_sets.get(&set).is_none_or(|known| known.metadata.uid != uid) {
            return false;
        }
        let plain = message.chars().map(|c| if c.is_control() { ' ' } else { c });
        let failure = NotCreated { at, why: plain.take(LONGEST_MESSAGE).collect() };
        self.not_created.insert(set, failure.clone()).as_ref() != Some(&failure)
    }

    /// Returns whether a StatefulSet has fewer pods than it asks for.
    pub fn lacks_a_pod(&self) -> bool {
        let pod_count = |id: &Id| i64::try_from(self.pods_of(id).count()).unwrap_or(i64::MAX);
        self.stateful_sets.iter().any(|(id, set)| pod_count(id) < set.replicas())
    }
}

/// Returns the last two of a name's parts, which hyphens separate; a name with fewer than two hyphens is returned whole.
pub(super) fn tail(name: &str) -> &str {
    name.rmatch_indices('-').nth(1).map_or(name, |(at, _)| &name[at + 1..])
}
