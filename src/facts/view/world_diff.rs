//! The difference between the current world and the one of the last look.
//!
//! A World shares everything unchanged with the one before it, so the difference is found without comparing the rest,
//! and the cost depends on the size of the change. What callers find in one namespace depends on the objects in it, with
//! few exceptions (an address that names a Service of another namespace), which they find when they look at everything.
//! Must not know: what callers look for, or a clock; the caller counts the time.

use std::collections::BTreeSet;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use objects::Kind;

use super::index::By;
use super::{Facts, Freshness, Id, View, World};
use crate::revision::Digest;
use crate::settings::Settings;

/// Where something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Everywhere,
    /// Only in these places; everything else is unchanged.
    In(Places),
}

/// The namespaces and clusters in which something may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Namespaces in which anything may have changed.
    pub whole: BTreeSet<String>,
    /// Clusters whose pods, claims, snapshots or StatefulSet have changed, but not the specification of the StatefulSet: other
    /// clusters of the namespace rarely depend on these.
    pub clusters: BTreeSet<Id>,
}

impl Places {
    /// Returns all namespaces in which something may have changed.
    pub fn namespaces(mut self) -> BTreeSet<String> {
        self.whole.extend(self.clusters.into_iter().map(|id| id.namespace));
        self.whole
    }

    /// Adds these clusters of a namespace, or the whole namespace if there are none.
    fn add(&mut self, namespace: &str, clusters: impl IntoIterator<Item = Id>) {
        let mut clusters = clusters.into_iter().peekable();
        if clusters.peek().is_none() && !self.whole.contains(namespace) {
            self.whole.insert(namespace.to_owned());
        }
        self.clusters.extend(clusters);
    }
}

/// The world, the settings and the freshness at the last look.
#[derive(Debug, Default)]
pub struct WorldDiff {
    seen: Option<(World, Settings, Freshness)>,
    /// The time of the last look at everything.
    last_everywhere: Duration,
}

impl WorldDiff {
    /// Returns where something may have changed since the last look. What callers find may depend on the time alone, so
    /// [`Changed::Everywhere`] is returned at least once in each `at_least_every`.
    pub fn changed(&mut self, view: &View<'_>, now: Duration, at_least_every: Duration) -> Changed {
        let seen = (view.world.clone(), view.settings.clone(), view.freshness);
        let before = self.seen.replace(seen);
        let is_recent = now.saturating_sub(self.last_everywhere) < at_least_every;
        let has_same_context = |(_, settings, freshness): &(World, Settings, Freshness)| {
            settings == view.settings && *freshness == view.freshness
        };
        let changed = match before.filter(|before| is_recent && has_same_context(before)) {
            Some((world, ..)) => view.world.changed_since(&world),
            None => Changed::Everywhere,
        };
        if changed == Changed::Everywhere {
            self.last_everywhere = now;
        }
        changed
    }
}

impl World {
    /// Returns where an object has changed. Nodes concern all namespaces.
    fn changed_since(&self, before: &World) -> Changed {
        let (new, old) = (&self.facts, &before.facts);
        if new.adoption() != old.adoption() || new.nodes.diff(&old.nodes).next().is_some() {
            return Changed::Everywhere;
        }
        let mut places = Places::default();
        let mut whole = |id: &Id| places.add(&id.namespace, []);
        for_each_change(&new.deployments, &old.deployments, &mut whole);
        for_each_change(&new.services, &old.services, &mut whole);
        for_each_change(&new.budgets, &old.budgets, &mut whole);
        for_each_change(&new.autoscalers, &old.autoscalers, &mut whole);
        for_each_change(&new.not_created, &old.not_created, &mut whole);
        for_each_change(&new.unreadable, &old.unreadable, |(_, id)| places.add(&id.namespace, []));
        for_each_change(&new.namespaces, &old.namespaces, |name| places.add(name, []));
        let sets = |kind, id: &Id| old.sets_of(kind, id).into_iter().chain(new.sets_of(kind, id));
        for_each_change(&new.pods, &old.pods, |id| places.add(&id.namespace, sets(Kind::Pod, id)));
        for_each_change(&new.claims, &old.claims, |id| places.add(&id.namespace, sets(Kind::Claim, id)));
        let is_snapshot = |id: &Id| Digest::of_snapshot(&id.name).is_some();
        for_each_change(&new.config_maps, &old.config_maps, |id| {
            let sets = is_snapshot(id).then(|| sets(Kind::ConfigMap, id));
            places.add(&id.namespace, sets.into_iter().flatten());
        });
        let has_same_spec = |id: &Id| match (new.stateful_sets.get(id), old.stateful_sets.get(id)) {
            (Some(new), Some(old)) => new.spec == old.spec,
            _ => false,
        };
        for_each_change(&new.stateful_sets, &old.stateful_sets, |id| {
            places.add(&id.namespace, has_same_spec(id).then(|| id.clone()));
        });
        places.clusters.retain(|id| !places.whole.contains(&id.namespace));
        Changed::In(places)
    }
}

impl Facts {
    /// Returns the StatefulSets whose clusters use this pod, claim or snapshot of a ConfigMap.
    fn sets_of(&self, kind: Kind, id: &Id) -> Vec<Id> {
        let mut sets = self.sets_using(kind, id, &self.words(kind, id));
        if kind == Kind::ConfigMap {
            let named =
                |by| self.index.names(by, &id.namespace, &id.name).map(|name| Id::new(&id.namespace, name));
            sets.extend(named(By::SetWithRollout));
            sets.extend(named(By::PodThatReads).flat_map(|pod| self.sets_of(Kind::Pod, &pod)));
        }
        sets
    }
}

/// Calls `take` with each key that only one of the maps has, or whose values differ.
fn for_each_change<K: Ord, V: PartialEq>(new: &OrdMap<K, V>, old: &OrdMap<K, V>, mut take: impl FnMut(&K)) {
    for item in old.diff(new) {
        match item {
            DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => {
                take(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::galera::adopt::Adoption;
    use crate::revision::Revision;
    use crate::view::RolloutRecord;
    use jiff::Timestamp;
    use objects::Object;

    fn put(facts: &mut Facts, kind: Kind, namespace: &str, name: &str, rest: &str) {
        let meta = format!(
            r#"{{"name":"{name}","namespace":"{namespace}","labels":{{"app":"galera","instance":"x"}}}}"#
        );
        facts.put(Object::read(kind, &format!(r#"{{"metadata":{meta}{rest}}}"#)).unwrap());
    }

    /// Returns the namespaces in which something changed; `None`: everywhere.
    fn namespaces(changed: Changed) -> Option<BTreeSet<String>> {
        match changed {
            Changed::Everywhere => None,
            Changed::In(places) => Some(places.namespaces()),
        }
    }

    /// A changed object of any kind makes only its own namespace due; one that is put again unchanged makes none due.
    #[test]
    fn only_the_namespace_of_a_change_is_due() {
        let template = r#","spec":{"template":{"metadata":{"labels":{"app":"galera","instance":"x"}}}}"#;
        let kinds = [
            (Kind::StatefulSet, "stateful-set", template),
            (Kind::Deployment, "deployment", template),
            (Kind::Pod, "pod", ""),
            (Kind::Claim, "claim", ""),
            (Kind::Service, "service", ""),
            (Kind::ConfigMap, "config-map", ""),
            (Kind::Budget, "budget", ""),
            (Kind::Autoscaler, "autoscaler", ""),
        ];
        let mut facts = Facts::of(&Adoption::default());
        for place in 0..300 {
            put(&mut facts, Kind::Service, &format!("other-{place}"), "it", "");
        }
        let (settings, every) = (Settings::default(), Duration::from_secs(60));
        let mut world = World::build(facts.clone(), Freshness::Current);
        let (mut last, mut now) = (WorldDiff::default(), Duration::ZERO);
        let mut look = |facts: &mut Facts, settings: &Settings, world: &mut World, later: u64| {
            *world = world.after(facts);
            now += Duration::from_secs(later);
            namespaces(last.changed(&View::new(world, Timestamp::UNIX_EPOCH, settings), now, every))
        };
        let only = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>());
        assert_eq!(look(&mut facts, &settings, &mut world, 0), None, "the first look");
        assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&[]));
        for (kind, namespace, rest) in kinds {
            put(&mut facts, kind, namespace, "it", rest);
            assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&[namespace]), "it appeared");
            put(&mut facts, kind, namespace, "it", rest);
            assert_eq!(look(&mut facts, &settings, &mut world, 0), only(&[]), "{namespace}: unchanged");
            facts.remove(kind, &Id::new(namespace, "it"));
            put(
                &mut facts,
                Kind::Service,
                "other-7",
                "another",
                &format!(r#","spec":{{"clusterIP":"{namespace}"}}"#),
            );
            assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&["other-7", namespace]), "deleted");
        }
        let set = Id::new("stateful-set", "it");
        put(&mut facts, Kind::StatefulSet, "stateful-set", "it", template);
        look(&mut facts, &settings, &mut world, 0);
        assert!(facts.not_created(set, "", Timestamp::UNIX_EPOCH, "forbidden"));
        assert_eq!(
            look(&mut facts, &settings, &mut world, 0),
            only(&["stateful-set"]),
            "a pod could not be created"
        );
        let problem = Object::read(Kind::Service, "1").unwrap_err();
        facts.unreadable.insert((Kind::Service, Id::new("odd", "it")), problem);
        assert_eq!(look(&mut facts, &settings, &mut world, 0), only(&["odd"]), "it cannot be read");
        put(&mut facts, Kind::Namespace, "", "labelled", "");
        assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&["labelled"]));
        put(&mut facts, Kind::Node, "", "node", "");
        assert_eq!(look(&mut facts, &settings, &mut world, 1), None, "nodes concern all namespaces");
        let warns = Settings::read("mode: warn", &crate::settings::KnownNames::default()).unwrap();
        assert_eq!(look(&mut facts, &warns, &mut world, 1), None, "other settings");
        assert_eq!(look(&mut facts, &warns, &mut world, 59), only(&[]));
        assert_eq!(look(&mut facts, &warns, &mut world, 1), None, "the interval is over");
        let other = Adoption::from_texts(["app=db"]).unwrap();
        let (mut none, mut same) = (Facts::of(&other), World::empty(&other, Freshness::Current));
        assert_eq!(look(&mut none, &warns, &mut same, 1), None, "other labels are adopted");
        assert_eq!(look(&mut facts, &warns, &mut world, 1), None);
        world.freshness = Freshness::Loading;
        assert_eq!(look(&mut facts, &warns, &mut world, 1), None, "another freshness");
    }

    /// A change of one cluster's pods, claims, snapshots or marks makes only this cluster due, not its whole namespace.
    #[test]
    fn a_change_of_one_cluster_makes_no_other_due() {
        let labels = |instance: &str| format!(r#""labels":{{"app":"galera","instance":"{instance}"}}"#);
        let set = |name: &str, marks: &str, replicas: u8| {
            let containers = r#"[{"name":"mariadb","image":"mariadb:10.11"}]"#;
            let template =
                format!(r#"{{"metadata":{{{}}},"spec":{{"containers":{containers}}}}}"#, labels(name));
            let meta = format!(r#"{{"name":"{name}","namespace":"db","annotations":{{{marks}}}}}"#);
            format!(r#"{{"metadata":{meta},"spec":{{"replicas":{replicas},"template":{template}}}}}"#)
        };
        let of_instance = |kind, name: &str, rest: &str| {
            let meta = format!(r#"{{"name":"{name}","namespace":"db",{}}}"#, labels("b"));
            Object::read(kind, &format!(r#"{{"metadata":{meta}{rest}}}"#)).unwrap()
        };
        let settings = Settings::default();
        let mut facts = Facts::of(&settings.adoption);
        for name in ["a", "b", "c"] {
            facts.put(Object::read(Kind::StatefulSet, &set(name, "", 3)).unwrap());
        }
        let (mut world, mut last) = (World::build(facts.clone(), Freshness::Current), WorldDiff::default());
        let mut look = |facts: &mut Facts| {
            world = world.after(facts);
            let view = View::new(&world, Timestamp::UNIX_EPOCH, &settings);
            match last.changed(&view, Duration::ZERO, Duration::from_secs(60)) {
                Changed::In(Places { whole, clusters }) => {
                    (whole.len(), clusters.into_iter().map(|id| id.name).collect::<String>())
                }
                Changed::Everywhere => (0, "everywhere".to_owned()),
            }
        };
        let (one, all) = ((0, "b".to_owned()), (1, String::new()));
        assert_eq!(look(&mut facts), (0, "everywhere".to_owned()));
        let digest = "0123456789abcdef0123456789abcdef";
        let snapshot = format!("conf-gatera-{digest}");
        let record = RolloutRecord::settled(Revision::read(&format!("conf={digest}")).unwrap()).text();
        let record = format!(r#""gatera.dev/configuration":{}"#, serde_json::to_string(&record).unwrap());
        facts.put(of_instance(Kind::Pod, "b-0", ""));
        assert_eq!(look(&mut facts), one, "a pod with its labels appeared");
        facts.remove(Kind::Pod, &Id::new("db", "b-0"));
        assert_eq!(look(&mut facts), one, "it is gone");
        facts.put(of_instance(Kind::Claim, "data-b-0", ""));
        assert_eq!(look(&mut facts), one, "a claim appeared");
        facts.put(Object::read(Kind::StatefulSet, &set("b", &record, 3)).unwrap());
        assert_eq!(look(&mut facts), one, "its marks changed");
        facts.put(of_instance(Kind::ConfigMap, &snapshot, ""));
        assert_eq!(look(&mut facts), one, "a snapshot that its record names appeared");
        facts.put(Object::read(Kind::StatefulSet, &set("b", &record, 4)).unwrap());
        assert_eq!(look(&mut facts), all, "its specification changed");
        facts.put(of_instance(Kind::ConfigMap, "conf", ""));
        assert_eq!(look(&mut facts), all, "a ConfigMap that any cluster may read");
        facts.put(of_instance(Kind::Pod, "proxy", r#","spec":{"nodeName":"n"}"#));
        facts.put(of_instance(Kind::Service, "b", ""));
        assert_eq!(look(&mut facts), all, "a Service concerns the whole namespace");
        facts.remove(Kind::StatefulSet, &Id::new("db", "b"));
        assert_eq!(look(&mut facts), all, "a cluster is gone");
    }
}
