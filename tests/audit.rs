//! The audit: what is wrong with what is there already, as gauges, Events and a command say it.

use std::collections::BTreeMap;

use gatera::audit::{self, Audit, Told};
use gatera::config::Settings;
use gatera::object::{Kind, Object};
use gatera::report;
use gatera::view::{Facts, Freshness, Id, View, World};
use serde_json::{Value, json};

use crate::scene::{self, NAMESPACE, Scene};

fn judged(scene: &Scene) -> Audit {
    let settings = Settings::default();
    judged_world(&scene.world(&settings))
}

fn judged_world(world: &World) -> Audit {
    audit::run(&View { world, now: scene::now(), settings: &Settings::default() })
}

fn with_password() -> Value {
    let env = json!([{ "name": "MARIADB_ROOT_PASSWORD", "value": "hunter2" }, { "name": "MYSQL_PASSWORD", "value": "x" }]);
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": env, "ports": [{ "containerPort": 4567 }] }] } } } })
}

#[test]
fn a_running_cluster_is_no_finding() {
    let bootstraps = ["absent", "held", "running"];
    for bootstrap in bootstraps {
        let audit = judged(&Scene { bootstrap: bootstrap.into(), ..Scene::default() });
        assert_eq!((audit.refused(), audit.warned()), (0, 0), "{}", report::audit::text(&audit));
        assert!(
            report::audit::text(&audit)
                .starts_with("db/galera-instance-galera  HEALTHY  3 of 3 members Synced\n1 cluster, ")
        );
    }
}

#[test]
fn what_is_wrong_already_is_said_as_it_would_be_refused() {
    let config = json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } });
    let scene =
        Scene { members: vec!["ready".into(); 4], stateful_set: with_password(), config, ..Scene::default() };
    let audit = judged(&scene);
    let expected = BTreeMap::from([(("G01", "warn"), 1), (("G04", "deny"), 2), (("G11", "deny"), 1)]);
    assert_eq!(audit.counts(), expected, "objects are counted, not findings");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        let json = serde_json::to_string_pretty(&report::audit::json(&audit)).unwrap();
        insta::assert_snapshot!("audit", format!("{}\n{json}", report::audit::text(&audit)));
    });
}

#[test]
fn what_is_going_is_left_alone() {
    let mut stateful_set = with_password();
    stateful_set["metadata"] = json!({ "deletionTimestamp": "2026-12-01T09:29:00Z" });
    assert_eq!(judged(&Scene { stateful_set, ..Scene::default() }).refused(), 0);
}

#[test]
fn an_override_counts_and_ends() {
    let mut stateful_set = with_password();
    stateful_set["metadata"] =
        json!({ "annotations": { "gatera.dev/override": "G11 until=2026-12-01T10:00:00Z reason=moving" } });
    let scene = Scene { stateful_set, ..Scene::default() };
    assert_eq!((judged(&scene).refused(), judged(&scene).warned()), (0, 1));
    let settings = Settings::default();
    let now = "2026-12-01T10:00:01Z".parse().unwrap();
    let later = audit::run(&View { world: &scene.world(&settings), now, settings: &settings });
    assert_eq!(later.refused(), 1);
}

#[test]
fn what_cannot_be_read_is_a_finding() {
    let mut facts = Facts::default();
    let problem = Object::read(Kind::StatefulSet, r#"{"spec":{"replicas":"hunter2"}}"#).unwrap_err();
    facts.unreadable.insert((Kind::StatefulSet, Id::new(NAMESPACE, "odd")), problem);
    let audit = judged_world(&World::build(facts, &Settings::default().adoption, Freshness::Current));
    let text = report::audit::text(&audit);
    assert!(text.starts_with("would be refused\n[G00] StatefulSet db/odd: cannot be read as a StatefulSet: invalid type: string"), "{text}");
    assert!(!text.contains("hunter2"));
}

#[test]
fn nothing_is_told_twice_while_it_stays() {
    let wrong = judged(&Scene { stateful_set: with_password(), ..Scene::default() });
    let right = judged(&Scene::default());
    let mut told = Told::default();
    let (news, held_back) = told.news(&wrong, 50);
    assert_eq!((news.len(), held_back), (1, 0), "two passwords of one object are one piece of news");
    assert_eq!(
        report::audit::note(&news[0]),
        "G11 would refuse this object as it is: container mariadb writes out the value of MARIADB_ROOT_PASSWORD (and 1 more); \
         use valueFrom.secretKeyRef instead of value"
    );
    assert_eq!(told.news(&wrong, 50).0.len(), 0);
    assert_eq!(told.news(&right, 50).0.len(), 0);
    assert_eq!(told.news(&wrong, 50).0.len(), 1, "it is back");
}

#[test]
fn what_is_held_back_is_still_news() {
    let config = json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } });
    let wrong = judged(&Scene { stateful_set: with_password(), config, ..Scene::default() });
    let mut told = Told::default();
    let mut next = |most| {
        let (news, held_back) = told.news(&wrong, most);
        (news.iter().map(|news| news.rule).collect::<Vec<_>>(), held_back)
    };
    assert_eq!(next(0), (vec![], 3));
    assert_eq!(next(1), (vec!["G04"], 2));
    assert_eq!(next(1), (vec!["G11"], 1));
    assert_eq!(next(9), (vec!["G04"], 0), "the ConfigMap");
    assert_eq!(next(9), (vec![], 0));
}
