//! Any content of an Rds is read, and no password is ever shown.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{RDS, Rds};
use engine::rulebook::Rulebook;
use engine::verdict::Decision;
use facts::review::{Operation, Origin, Review};
use facts::settings::Settings;
use facts::view::{Facts, Freshness, View, World};
use objects::Object;

const SECRET: &str = "Zq9-kept-to-itself";

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|it| json!(it)),
        any::<i64>().prop_map(|it| json!(it)),
        any::<f64>().prop_map(|it| json!(it)),
        ".{0,20}".prop_map(|it| json!(it))
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(field(), inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "users",
        "databases",
        "port",
        "volumesize",
        "name",
        "host",
        "privileges",
        "id",
        "status",
        "backuprestoretime",
        "hamode",
    ])
    .prop_map(str::to_owned)
}

/// Returns all text that reading and judging this object can print.
fn printed_about(object: &Value) -> String {
    let text = object.to_string();
    let read = Object::read(RDS, &text);
    assert!(read.is_ok(), "{text}");
    let settings = Settings::default();
    let world = World::build(Facts::of(&settings.adoption), Freshness::Current);
    let view = View::new(&world, "2026-12-01T09:30:00Z".parse().unwrap(), &settings);
    let mut shown = format!("{read:?}");
    let review = Review::as_created(Origin::Validating, RDS, "db", "orders", read);
    shown.push_str(&format!("{:?}", Rulebook::new(&[crate::PACK]).evaluate(&review, &view)));
    shown
}

proptest! {
    #[test]
    fn any_content_is_read(spec in anything(), status in anything(), users in anything()) {
        let json = json!({ "metadata": { "name": "orders" }, "spec": spec, "status": status });
        printed_about(&json);
        printed_about(&json!({ "metadata": { "name": "orders" }, "spec": { "password": SECRET, "users": users } }));
    }

    #[test]
    fn no_password_is_shown(name in ".{0,9}", host in ".{0,9}", short in 0..18_usize) {
        let user = json!({ "name": name, "host": host, "password": SECRET, "privileges": [format!("GRANT ALL ON a.* TO b IDENTIFIED BY '{SECRET}'")] });
        let shown = printed_about(&json!({ "metadata": { "name": "orders" }, "spec": { "password": SECRET, "users": [user] } }));
        prop_assert!(!shown.contains(SECRET), "{}", shown);
        let shown = printed_about(&json!({ "metadata": { "name": "orders" }, "spec": { "password": &SECRET[..short] } }));
        prop_assert!(short < 4 || !shown.contains(&SECRET[..short]), "{}", shown);
    }
}

#[test]
fn a_number_and_its_text_are_the_same() {
    let port =
        |port: Value| serde_json::from_value::<Rds>(json!({ "spec": { "port": port } })).unwrap().spec.port;
    assert!(port(json!(3306)).same_text(&port(json!("3306"))));
    assert!(port(Value::Null).same_text(&port(json!(""))) && !port(json!([])).same_text(&port(json!(""))));
}

/// Judges one write of a whole object.
fn written(user: &str, old: &Value, new: &Value) -> Decision {
    let settings = Settings::default();
    let world = World::build(Facts::of(&settings.adoption), Freshness::Current);
    let view = View::new(&world, "2026-12-01T09:30:00Z".parse().unwrap(), &settings);
    let read = |object: &Value| Object::read(RDS, &object.to_string());
    let review = Review {
        operation: Operation::Update,
        user: user.to_owned(),
        old: read(old).ok(),
        ..Review::as_created(Origin::Validating, RDS, "db", "orders", read(new))
    };
    Rulebook::new(&[crate::PACK]).evaluate(&review, &view)
}

/// Every ten seconds the operator writes the whole object: the cloud's answer, the autopilot's choice, its own progress.
#[test]
fn writes_of_the_operator_are_not_judged() {
    let operator = "system:serviceaccount:otc:rdsoperator";
    let mut now = json!({
        "metadata": { "name": "orders", "namespace": "db" },
        "spec": { "password": "Correct-Horse-7", "volumesize": 40, "flavorref": "rds.mysql.c2.medium", "users": [] },
    });
    let mut by_others = 0;
    for change in [
        json!({}),
        json!({ "status": { "id": "b63din01", "ip": "10.0.0.7", "status": "BUILD" } }),
        json!({ "status": { "status": "ACTIVE" } }),
        json!({ "spec": { "password": "***" } }),
        json!({ "spec": { "volumesize": 50 } }),
        json!({ "spec": { "volumesize": 60, "flavorref": "rds.mysql.c2.large" }, "status": { "autopilot": true } }),
        json!({ "spec": { "backuprestoretime": "2026-12-01T08:00:00Z" } }),
        json!({ "spec": { "backuprestoretime": "" }, "status": { "status": "RESTORING" } }),
        json!({ "status": { "status": "ACTIVE", "reboot": false, "logs": false } }),
        json!({}),
    ] {
        let mut next = now.clone();
        json_patch::merge(&mut next, &change);
        let decision = written(operator, &now, &next);
        assert!(decision.judged.is_empty() && decision.remarks.is_empty(), "{change}: {decision:?}");
        by_others += usize::from(!written("editor", &now, &next).judged.is_empty());
        now = next;
    }
    assert!(by_others >= 5, "another user gets a finding: {by_others}");
}
