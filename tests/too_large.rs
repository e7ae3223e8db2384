//! Objects that are too large for the view: what the rules and the audit report about them.

use facts::galera::adopt::Adoption;
use facts::review::{Operation, Origin, Review};
use facts::settings::Settings;
use facts::view::{Facts, Freshness, Id, View, World};
use gatera::rulebook;
use inspect::audit;
use jiff::Timestamp;
use objects::{ConfigMap, Kind, Object, Unreadable};
use serde_json::{Value, json};

/// The size in bytes above which the view does not keep a custom resource.
const MAX_RESOURCE_BYTES: usize = 128 << 10;

fn rds_kind() -> Kind {
    rulebook().kinds().named("otc.mcsps.de", "Rds")
}

fn rds(name: &str, users: usize, text: &str) -> Object {
    let user = json!({ "name": "app1", "host": "%", "password": text, "privileges": [text, text] });
    let spec = json!({ "password": "Correct-Horse-7", "users": vec![user; users] });
    object(rds_kind(), name, &spec)
}

fn object(kind: Kind, name: &str, spec: &Value) -> Object {
    let json = json!({ "metadata": { "name": name, "namespace": "db" }, "spec": spec });
    Object::read(kind, &json.to_string()).unwrap()
}

fn in_view<T>(facts: &Facts, ask: impl FnOnce(&View<'_>) -> T) -> T {
    let settings = Settings::default();
    let world = World::build(facts.clone(), Freshness::Current);
    ask(&View::new(&world, "2026-12-01T09:30:00Z".parse().unwrap(), &settings))
}

fn config_map(namespace: &str, name: &str, kib: usize) -> ConfigMap {
    let text = "x".repeat(kib << 10);
    let json =
        format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"data":{{"a":"{text}"}}}}"#);
    let Ok(Object::ConfigMap(config_map)) = Object::read(Kind::ConfigMap, &json) else {
        unreachable!("it is a ConfigMap")
    };
    config_map
}

fn service(namespace: &str, name: &str, size: usize) -> Object {
    let label = "x".repeat(size);
    let meta = format!(r#"{{"name":"{name}","namespace":"{namespace}","labels":{{"a":"{label}"}}}}"#);
    Object::read(Kind::Service, &format!(r#"{{"metadata":{meta}}}"#)).unwrap()
}

/// Returns the review of the deletion of this object.
fn deletion(namespace: &str, name: &str, object: Object) -> Review {
    Review {
        operation: Operation::Delete,
        user: "editor".to_owned(),
        old: Some(object.clone()),
        new: None,
        ..Review::as_created(Origin::Validating, object.kind(), namespace, name, Ok(object))
    }
}

#[test]
fn an_object_that_is_too_large_is_known_to_exist() {
    let (large, small) = (rds("it", 4000, "a text"), rds("it", 1, "a text"));
    let mut facts = Facts::default();
    for object in [small.clone(), rds("it-1", 1, "a text"), large.clone(), rds("it-1", 4000, "a text")] {
        facts.put(object);
    }
    let about = Id::new("db", "it");
    assert!(
        in_view(&facts, |view| view.resources(rds_kind(), "db").count() == 0),
        "the older object does not stand in for it"
    );
    let definition = Object::read(Kind::Definition, r#"{"metadata":{"name":"rdss.otc.mcsps.de"}}"#).unwrap();
    let decision = in_view(&facts, |view| rulebook().evaluate(&deletion("db", "it", definition), view));
    assert!(format!("{decision:?}").contains("and their instances in the cloud (2, "), "{decision:?}");
    let found = in_view(&facts, |view| audit::run(rulebook(), view));
    let says: Vec<_> = found.objects.iter().map(|it| &*it.decision.judged[0].finding.says).collect();
    assert_eq!(says, ["is not examined: it is larger than 128 KiB"; 2]);
    assert_eq!((found.refused(), found.warned()), (0, 2), "a write of it would not be refused for its size");
    // A request is judged by the whole object.
    let created = Review::as_created(Origin::Validating, rds_kind(), "db", "it", Ok(large));
    let decision = in_view(&facts, |view| rulebook().evaluate(&created, view));
    assert!(format!("{decision:?}").contains("R10"), "{decision:?}");
    facts.put(small);
    assert!(!facts.unreadable.contains_key(&(rds_kind(), about)), "it fits again");
}

#[test]
fn deleting_a_definition_whose_objects_cannot_be_listed_needs_an_override() {
    let wordpress = rulebook().kinds().named("example.com", "Wordpress");
    for (kind, rule) in [(wordpress, "W04"), (rds_kind(), "R14")] {
        let called = format!("{}.{}", kind.plural(), kind.group());
        let definition = |marks: &str| {
            let json = format!(r#"{{"metadata":{{"name":"{called}","annotations":{{{marks}}}}}}}"#);
            Object::read(Kind::Definition, &json).unwrap()
        };
        let mut facts = Facts::default();
        let judge = |facts: &Facts, marks: &str| {
            in_view(facts, |view| rulebook().evaluate(&deletion("", &called, definition(marks)), view))
        };
        assert!(judge(&facts, "").allowed(), "{rule}: refused, although there are no objects");
        facts.kept.set_listed(kind, false);
        let unknown = judge(&facts, "");
        let words = format!("{unknown:?}");
        assert!(!unknown.allowed() && words.contains("cannot be listed") && words.contains(rule), "{words}");
        let namespace = Object::read(Kind::Namespace, r#"{"metadata":{"name":"web"}}"#).unwrap();
        let decision = in_view(&facts, |view| rulebook().evaluate(&deletion("", "web", namespace), view));
        assert!(
            decision.allowed(),
            "a pack does not keep a namespace without known objects of its kinds: {decision:?}"
        );
        let confirmed = format!(r#""gatera.dev/override":"{rule} until=2026-12-01T09:50:00Z reason=gone""#);
        assert!(judge(&facts, &confirmed).allowed(), "{:?}", judge(&facts, &confirmed));
        facts.kept.set_listed(kind, true);
        assert!(judge(&facts, "").allowed(), "{rule}: refused, although the objects can be listed again");
    }
}

#[test]
fn an_object_that_is_too_large_counts_by_name_and_its_content_is_not_guessed() {
    let wordpress = rulebook().kinds().named("example.com", "Wordpress");
    let version = rulebook().kinds().named("kudo.dev", "OperatorVersion");
    let mut facts = Facts::default();
    facts.put(object(wordpress, "blog", &json!({ "sqlrootpassword": "x".repeat(MAX_RESOURCE_BYTES) })));
    let second = object(wordpress, "shop", &json!({ "sqlrootpassword": "secretRef:a/b" }));
    let second = Review::as_created(Origin::Validating, wordpress, "db", "shop", Ok(second));
    let decision = in_view(&facts, |view| rulebook().evaluate(&second, view));
    assert!(format!("{decision:?}").contains("namespace db already has Wordpress blog"), "{decision:?}");
    let plans = json!({ "plans": { "deploy": {}, "update": {} } });
    facts.put(object(version, "galera-0.1.0", &plans));
    facts.put(object(version, "galera-0.1.0", &json!({ "plans": { ("x".repeat(MAX_RESOURCE_BYTES)): {} } })));
    assert_eq!(in_view(&facts, |view| view.resources(version, "db").count()), 0);
    assert_eq!(in_view(&facts, |view| view.resource_names(version, "db").count()), 1);
}

/// A ConfigMap that is too large is treated neither as empty nor as missing.
#[test]
fn readers_of_a_config_map_that_is_too_large_are_judged_without_it_with_a_finding() {
    let mount = r#""volumeMounts":[{"name":"v","mountPath":"/docker-entrypoint-initdb.d"}]"#;
    let containers = format!(r#"[{{"name":"mariadb","image":"mariadb:10.11",{mount}}}]"#);
    let volumes = r#"[{"name":"v","configMap":{"name":"dump"}}]"#;
    let labels = r#""metadata":{"labels":{"gatera.dev/cluster":"a"}}"#;
    let template = format!(r#"{{{labels},"spec":{{"containers":{containers},"volumes":{volumes}}}}}"#);
    let json = format!(
        r#"{{"metadata":{{"name":"a","namespace":"db"}},"spec":{{"replicas":3,"template":{template}}}}}"#
    );
    let set = Object::read(Kind::StatefulSet, &json).unwrap();
    let mut facts = rulebook().facts(&Adoption::default());
    facts.put(set.clone());
    facts.put(Object::ConfigMap(config_map("db", "dump", 1)));
    let problem = Unreadable::NotExamined("it is larger than 512 KiB");
    facts.cannot_read(Kind::ConfigMap, Id::new("db", "dump"), problem);
    let (world, settings) = (World::build(facts, Freshness::Current), Settings::default());
    let view = View::new(&world, "2026-12-01T09:30:00Z".parse().unwrap(), &settings);
    let says = "ConfigMap dump is not examined: it is larger than 512 KiB";
    let live = view.cluster("db", "a").unwrap().live.as_ref().map_err(ToString::to_string);
    assert_eq!(live, Err(says.to_owned()));
    let review = Review::as_created(Origin::Validating, Kind::StatefulSet, "db", "a", Ok(set));
    let decision = rulebook().evaluate(&review, &view);
    let found: Vec<_> = decision.judged.iter().map(|it| (it.finding.rule, &*it.finding.says)).collect();
    assert!(found.contains(&("G00", &*format!("its {says}"))), "{found:?}");
    let audited = audit::run(rulebook(), &view).objects;
    let config_map = audited.iter().find(|it| it.kind == Kind::ConfigMap).unwrap();
    assert_eq!(config_map.decision.judged[0].finding.says, "is not examined: it is larger than 512 KiB");
}

#[test]
fn nothing_is_deleted_where_a_cluster_may_be_missing_from_the_view() {
    let mut facts = Facts::default().with_memory(1 << 20);
    let deletes = |kind: Kind, namespace: &str, name: &str| {
        let json = format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"1"}}}}"#);
        deletion(namespace, name, Object::read(kind, &json).unwrap())
    };
    for (full, allowed) in [(false, true), (true, false)] {
        if full {
            facts.put(service("db", "large", 200_000));
        }
        let (settings, world) = (Settings::default(), World::build(facts.clone(), Freshness::Current));
        let view = View::new(&world, Timestamp::UNIX_EPOCH, &settings);
        for review in [deletes(Kind::Namespace, "", "db"), deletes(Kind::Claim, "db", "data-galera-0")] {
            let decision = rulebook().evaluate(&review, &view);
            assert_eq!(decision.allowed(), allowed, "an object did not fit: {full}; {decision:?}");
            let says = "part of its namespace did not fit into gatera's memory";
            assert_eq!(format!("{decision:?}").contains(says), full, "{decision:?}");
        }
    }
}
