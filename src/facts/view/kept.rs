//! Custom resources and whatever else packs look after, as it is read, and which kinds of them the API server offers.
//!
//! Owns: how much of them is kept. Whoever may create a custom resource writes into it what they like, a megabyte and a half at a time, and
//! the guard has little memory: what finds no room here is known to be there, by its name ([`Facts::cannot_read`](super::Facts::cannot_read)),
//! and the audit says that it does not look at it. A request about it is judged by all of it. Must not know: any pack. What they say of
//! each other is for the rules of their pack.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::Id;
use super::facts::Map;
use objects::{Kind, Object, Unreadable};

/// Of one custom resource: a hundred users with their grants, or an operator with several hundred parameters.
const LARGEST: usize = 128 << 10;
/// Of all of them: some thousands as people write them.
const ROOM: usize = 16 << 20;

/// All of them. A clone shares what is not changed.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    objects: OrdMap<Kind, Map<Object>>,
    weight: usize,
    served: Arc<BTreeSet<Kind>>,
    unheard: Arc<BTreeSet<Kind>>,
}

/// About as many bytes as it takes in memory; 0 for everything but custom resources.
fn weight(object: &Object) -> usize {
    if let Object::Custom(it) = object { it.value.weight() } else { 0 }
}

/// It is not larger than any that is kept.
fn fits(object: &Object) -> Result<usize, Unreadable> {
    let weight = weight(object);
    if weight <= LARGEST { Ok(weight) } else { Err(Unreadable::TooMuch("it holds more than 128 KiB")) }
}

/// Reads one that is to be kept: what is too large is dropped at once.
pub fn read(kind: Kind, json: &str) -> Result<Object, Unreadable> {
    let object = Object::read(kind, json)?;
    fits(&object).map(|_| object)
}

impl Kept {
    /// Takes one in, if there is room for it. What was known of it before is forgotten.
    pub(super) fn put(&mut self, id: Id, object: Object) -> Result<(), Unreadable> {
        self.remove(object.kind(), &id);
        let weight = self.weight + fits(&object)?;
        if weight > ROOM {
            return Err(Unreadable::TooMuch("16 MiB of custom resources are kept already"));
        }
        self.weight = weight;
        self.objects.entry(object.kind()).or_default().insert(id, Arc::new(object));
        Ok(())
    }

    /// Forgets one. What found no room before finds it when it is written, or listed again.
    pub(super) fn remove(&mut self, kind: Kind, id: &Id) {
        let known = self.objects.get_mut(&kind).and_then(|objects| objects.remove(id));
        self.weight -= known.map_or(0, |it| weight(&it));
    }

    /// The API server offers this kind, or does not.
    pub fn serves(&mut self, kind: Kind, is_so: bool) {
        let served = Arc::make_mut(&mut self.served);
        if is_so {
            served.insert(kind)
        } else {
            served.remove(&kind)
        };
    }

    /// The kinds that the API server offers.
    pub fn served(&self) -> &BTreeSet<Kind> {
        &self.served
    }

    /// The kinds that are offered, or held.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.served.iter().chain(self.objects.keys()).copied()
    }

    /// The API server lists this kind, or it offers it and does not: then it is not known what there is of it.
    pub fn hears(&mut self, kind: Kind, is_so: bool) {
        let unheard = Arc::make_mut(&mut self.unheard);
        if is_so {
            unheard.remove(&kind)
        } else {
            unheard.insert(kind)
        };
    }

    /// The kinds that the API server offers and does not list.
    pub fn unheard(&self) -> &BTreeSet<Kind> {
        &self.unheard
    }

    /// Those of a kind.
    pub(super) fn of(&self, kind: Kind) -> Option<&Map<Object>> {
        self.objects.get(&kind)
    }

    /// Something is kept in this namespace.
    pub fn any_in(&self, namespace: &str) -> bool {
        self.all().any(|(_, objects)| super::within(objects, namespace).next().is_some())
    }

    /// All, by kind.
    pub fn all(&self) -> impl Iterator<Item = (Kind, &Map<Object>)> {
        self.objects.iter().map(|(kind, objects)| (*kind, objects))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Settings;
    use crate::review::{Operation, Origin, Review};
    use crate::view::{Facts, Freshness, View, World};
    use engine::rules;
    use inspect::audit;

    /// What a request brings is read whole; only what is to be kept is bounded.
    fn rds(name: &str, users: usize, text: &str) -> Object {
        let user = json!({ "name": "app1", "host": "%", "password": text, "privileges": [text, text] });
        let spec = json!({ "password": "Correct-Horse-7", "users": vec![user; users] });
        object(Kind::Rds, name, &spec)
    }

    fn object(kind: Kind, name: &str, spec: &Value) -> Object {
        let json = json!({ "metadata": { "name": name, "namespace": "db" }, "spec": spec });
        Object::read(kind, &json.to_string()).unwrap()
    }

    fn renamed(object: &Object, number: usize) -> Object {
        let Object::Rds(mut it) = object.clone() else { unreachable!("it is one") };
        it.metadata.name = format!("{}-{number}", it.metadata.name);
        Object::Rds(it)
    }

    fn in_view<T>(facts: &Facts, ask: impl FnOnce(&View<'_>) -> T) -> T {
        let settings = Settings::default();
        let world = World::build(facts.clone(), Freshness::Current);
        ask(&View::new(&world, "2026-12-01T09:30:00Z".parse().unwrap(), &settings))
    }

    #[test]
    fn whoever_writes_thousands_of_large_ones_fills_no_memory() {
        let grants = "GRANT SELECT ON shop.* TO 'app1'; ".repeat(3);
        for (object, count, kept) in [
            (rds("megabytes", 100, &grants.repeat(35)), 1000, 0..1),
            (rds("nothing-again-and-again", 20_000, ""), 10, 0..1),
            (rds("one-text", 1, &"x".repeat(500_000)), 10, 0..1),
            (rds("many", 20, &grants), 1000, 700..1000),
        ] {
            let mut facts = Facts::default();
            for number in 0..count {
                facts.put(renamed(&object, number));
            }
            let there = facts.kept.of(Kind::Rds).map_or(0, OrdMap::len);
            assert!(kept.contains(&there) && facts.kept.weight <= ROOM, "{there}: {}", facts.kept.weight);
            assert_eq!(facts.unreadable.len(), count - there, "the others are known to be there");
            for number in 0..count {
                facts.remove(Kind::Rds, &Id::of(renamed(&object, number).meta()));
            }
            assert_eq!((facts.kept.weight, facts.unreadable.len()), (0, 0));
        }
    }

    #[test]
    fn of_what_found_no_room_it_is_known_that_it_is_there() {
        let (large, small) = (rds("it", 4000, "a text"), rds("it", 1, "a text"));
        let mut facts = Facts::default();
        for object in [&small, &large] {
            facts.put(object.clone());
            facts.put(renamed(object, 1));
        }
        let about = Id::new("db", "it");
        assert!(facts.kept.of(Kind::Rds).is_some_and(OrdMap::is_empty), "nothing older is taken for it");
        let deletes = |object: &Object| Review {
            operation: Operation::Delete,
            user: "editor".to_owned(),
            old: Some(object.clone()),
            new: None,
            ..Review::as_created(Origin::Validating, object.kind(), "db", "it", Ok(object.clone()))
        };
        let definition =
            Object::read(Kind::Definition, r#"{"metadata":{"name":"rdss.otc.mcsps.de"}}"#).unwrap();
        let decision = in_view(&facts, |view| rules::evaluate(&deletes(&definition), view));
        assert!(format!("{decision:?}").contains("each that has one (2, "), "{decision:?}");
        let found = in_view(&facts, audit::run);
        let says: Vec<_> = found.objects.iter().map(|it| &*it.decision.judged[0].finding.says).collect();
        assert_eq!(says, ["is not looked at: it holds more than 128 KiB"; 2]);
        assert_eq!(
            (found.refused(), found.warned()),
            (0, 2),
            "a write of it would not be refused for its size"
        );
        // A request is judged by all of it.
        let created = Review::as_created(Origin::Validating, Kind::Rds, "db", "it", Ok(large));
        let decision = in_view(&facts, |view| rules::evaluate(&created, view));
        assert!(format!("{decision:?}").contains("R10"), "{decision:?}");
        facts.put(small);
        assert!(!facts.unreadable.contains_key(&(Kind::Rds, about)), "it is as it was");
    }

    #[test]
    fn a_definition_whose_objects_cannot_be_listed_is_unknown_and_goes_when_that_is_confirmed() {
        for (kind, rule) in [(Kind::Wordpress, "W04"), (Kind::Rds, "R14")] {
            let called = format!("{}.{}", kind.plural(), kind.group());
            let definition = |marks: &str| {
                let json = format!(r#"{{"metadata":{{"name":"{called}","annotations":{{{marks}}}}}}}"#);
                Object::read(Kind::Definition, &json).unwrap()
            };
            let deletes = |definition: Object| Review {
                operation: Operation::Delete,
                user: "editor".to_owned(),
                old: Some(definition.clone()),
                new: None,
                ..Review::as_created(Origin::Validating, Kind::Definition, "", &called, Ok(definition))
            };
            let mut facts = Facts::default();
            let judge = |facts: &Facts, marks: &str| {
                in_view(facts, |view| rules::evaluate(&deletes(definition(marks)), view))
            };
            assert!(judge(&facts, "").allowed(), "there is none");
            facts.kept.hears(kind, false);
            let unknown = judge(&facts, "");
            let words = format!("{unknown:?}");
            assert!(
                !unknown.allowed() && words.contains("cannot be listed") && words.contains(rule),
                "{words}"
            );
            let namespace = Review {
                old: Some(Object::read(Kind::Namespace, r#"{"metadata":{"name":"web"}}"#).unwrap()),
                name: "web".to_owned(),
                kind: Kind::Namespace,
                ..deletes(definition(""))
            };
            let ends = in_view(&facts, |view| rules::evaluate(&namespace, view));
            assert!(ends.allowed(), "a pack keeps no namespace in which nothing of it is known: {ends:?}");
            let confirmed =
                format!(r#""gatera.dev/override":"{rule} until=2026-12-01T09:50:00Z reason=gone""#);
            assert!(judge(&facts, &confirmed).allowed(), "{:?}", judge(&facts, &confirmed));
            facts.kept.hears(kind, true);
            assert!(judge(&facts, "").allowed());
        }
    }

    #[test]
    fn a_name_counts_and_a_plan_that_is_not_known_is_not_guessed() {
        let mut facts = Facts::default();
        facts.put(object(Kind::Wordpress, "blog", &json!({ "sqlrootpassword": "x".repeat(LARGEST) })));
        let second = object(Kind::Wordpress, "shop", &json!({ "sqlrootpassword": "secretRef:a/b" }));
        let second = Review::as_created(Origin::Validating, Kind::Wordpress, "db", "shop", Ok(second));
        let decision = in_view(&facts, |view| rules::evaluate(&second, view));
        assert!(format!("{decision:?}").contains("namespace db has Wordpress blog already"), "{decision:?}");
        let plans = json!({ "plans": { "deploy": {}, "update": {} } });
        facts.put(object(Kind::OperatorVersion, "galera-0.1.0", &plans));
        facts.put(object(
            Kind::OperatorVersion,
            "galera-0.1.0",
            &json!({ "plans": { ("x".repeat(LARGEST)): {} } }),
        ));
        assert_eq!(in_view(&facts, |view| view.kept(Kind::OperatorVersion, "db").count()), 0);
        assert_eq!(in_view(&facts, |view| view.named(Kind::OperatorVersion, "db").count()), 1);
    }
}
