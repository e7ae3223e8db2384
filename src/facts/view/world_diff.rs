//! The difference between the current world and the one of the last look.
//!
//! A World shares everything unchanged with the one before it, so the difference is found without comparing the rest,
//! and the cost follows the change. What is found in one namespace depends on the objects in it, with few exceptions
//! (an address that names a Service of another namespace), which are found when everything is looked at. Must not know:
//! what is looked for, or a clock; the caller counts the time.

use std::collections::BTreeSet;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::facts::Map;
use super::{Freshness, Id, View, World};
use crate::settings::Settings;

/// The namespaces in which something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Everywhere,
    /// Only these namespaces; all other objects are unchanged.
    In(BTreeSet<String>),
}

/// The world, the settings and the freshness at the last look.
#[derive(Debug, Default)]
pub struct WorldDiff {
    seen: Option<(World, Settings, Freshness)>,
    /// The time of the last look at everything.
    everywhere: Duration,
}

impl WorldDiff {
    /// Returns the namespaces in which something may have changed since the last look. Some things change by time
    /// alone, so everything is looked at as often as `at_least_every` requires.
    pub fn changed(&mut self, view: &View<'_>, now: Duration, at_least_every: Duration) -> Changed {
        let seen = (view.world.clone(), view.settings.clone(), view.freshness);
        let before = self.seen.replace(seen);
        let in_time = now.saturating_sub(self.everywhere) < at_least_every;
        let like = |(_, settings, freshness): &(World, Settings, Freshness)| {
            settings == view.settings && *freshness == view.freshness
        };
        let changed = match before.filter(|before| in_time && like(before)) {
            Some((world, ..)) => view.world.changed_since(&world),
            None => Changed::Everywhere,
        };
        if changed == Changed::Everywhere {
            self.everywhere = now;
        }
        changed
    }
}

impl World {
    /// Returns the namespaces in which an object has changed. Nodes concern all namespaces.
    fn changed_since(&self, before: &World) -> Changed {
        let (new, old) = (&self.facts, &before.facts);
        if new.adoption() != old.adoption() || new.nodes.diff(&old.nodes).next().is_some() {
            return Changed::Everywhere;
        }
        let mut places = BTreeSet::new();
        differ(&new.stateful_sets, &old.stateful_sets, &mut places);
        differ(&new.deployments, &old.deployments, &mut places);
        differ(&new.pods, &old.pods, &mut places);
        differ(&new.claims, &old.claims, &mut places);
        differ(&new.services, &old.services, &mut places);
        differ(&new.config_maps, &old.config_maps, &mut places);
        differ(&new.budgets, &old.budgets, &mut places);
        differ(&new.autoscalers, &old.autoscalers, &mut places);
        each(&new.not_created, &old.not_created, |id| places.extend([id.namespace.clone()]));
        each(&new.unreadable, &old.unreadable, |(_, id)| places.extend([id.namespace.clone()]));
        each(&new.namespaces, &old.namespaces, |name| places.extend([name.clone()]));
        Changed::In(places)
    }
}

fn differ<T: Eq>(new: &Map<T>, old: &Map<T>, places: &mut BTreeSet<String>) {
    each(new, old, |id: &Id| {
        if !places.contains(&id.namespace) {
            places.insert(id.namespace.clone());
        }
    });
}

/// Calls `take` for each key whose values differ.
fn each<K: Ord, V: PartialEq>(new: &OrdMap<K, V>, old: &OrdMap<K, V>, mut take: impl FnMut(&K)) {
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
    use crate::view::Facts;
    use jiff::Timestamp;
    use objects::{Kind, Object};

    fn put(facts: &mut Facts, kind: Kind, namespace: &str, name: &str, rest: &str) {
        let meta = format!(
            r#"{{"name":"{name}","namespace":"{namespace}","labels":{{"app":"galera","instance":"x"}}}}"#
        );
        facts.put(Object::read(kind, &format!(r#"{{"metadata":{meta}{rest}}}"#)).unwrap());
    }

    /// Every kind that is held makes its own namespace due, and no other; what comes again as it was makes none.
    #[test]
    fn what_changed_is_looked_at_and_nothing_else() {
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
            last.changed(&View::new(world, Timestamp::UNIX_EPOCH, settings), now, every)
        };
        let only = |names: &[&str]| Changed::In(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(look(&mut facts, &settings, &mut world, 0), Changed::Everywhere, "the first look");
        assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&[]));
        for (kind, namespace, rest) in kinds {
            put(&mut facts, kind, namespace, "it", rest);
            assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&[namespace]), "it came");
            put(&mut facts, kind, namespace, "it", rest);
            assert_eq!(look(&mut facts, &settings, &mut world, 0), only(&[]), "{namespace}: as it was");
            facts.remove(kind, &Id::new(namespace, "it"));
            put(
                &mut facts,
                Kind::Service,
                "other-7",
                "it-as-well",
                &format!(r#","spec":{{"clusterIP":"{namespace}"}}"#),
            );
            assert_eq!(look(&mut facts, &settings, &mut world, 1), only(&["other-7", namespace]), "it went");
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
        assert_eq!(look(&mut facts, &settings, &mut world, 1), Changed::Everywhere, "nodes are everybody's");
        let warns = Settings::read("mode: warn", &crate::settings::Names::default()).unwrap();
        assert_eq!(look(&mut facts, &warns, &mut world, 1), Changed::Everywhere, "other settings");
        assert_eq!(look(&mut facts, &warns, &mut world, 59), only(&[]));
        assert_eq!(look(&mut facts, &warns, &mut world, 1), Changed::Everywhere, "it is time");
        let other = Adoption::from_texts(["app=db"]).unwrap();
        let (mut none, mut same) = (Facts::of(&other), World::empty(&other, Freshness::Current));
        assert_eq!(look(&mut none, &warns, &mut same, 1), Changed::Everywhere, "other labels count");
        assert_eq!(look(&mut facts, &warns, &mut world, 1), Changed::Everywhere);
        world.freshness = Freshness::Loading;
        assert_eq!(look(&mut facts, &warns, &mut world, 1), Changed::Everywhere, "an old view");
    }
}
