//! The JSON output of each command conforms to its schema. The schemas are derived from the types: `make pages` writes them.

use facts::settings::{self, Settings};
use facts::view::View;
use gatera::rulebook;
use inspect::audit;
use inspect::doctor::DoctorRow;
use inspect::status::ClusterStatus;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::scene::{self, Scene};

/// Returns the schema of every JSON document, by the command that prints it.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("audit", schema_of::<report::audit::Document<'_>>("audit")),
        ("check", schema_of::<report::check::Document<'_>>("check")),
        ("doctor", schema_of::<report::doctor::Document<'_>>("doctor")),
        ("explain", schema_of::<report::rules::Document<'_>>("explain")),
        ("status", schema_of::<report::status::Document<'_>>("status")),
    ]
}

/// Returns the schema of the document as it is written: a field that may be null is always present.
fn schema_of<T: JsonSchema>(command: &str) -> Schema {
    let mut schema = SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), format!("gatera {command} --output json").into());
    schema
}

pub fn schema(name: &str) -> Value {
    let (_, schema) = schemas().into_iter().find(|(it, _)| *it == name).unwrap();
    schema.to_value()
}

/// Asserts that the schema describes everything in the document, and that all types are as described.
pub fn valid(schema: &Value, document: &Value) {
    let validator = jsonschema::validator_for(&closed(schema)).unwrap();
    let errors: Vec<_> =
        validator.iter_errors(document).map(|it| format!("{}: {it}", it.instance_path())).collect();
    assert!(errors.is_empty(), "the document does not conform to its schema: {errors:#?}\n{document:#}");
}

/// Returns the schema in a form that allows no fields that it does not describe.
fn closed(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut all: serde_json::Map<_, _> =
                fields.iter().map(|(key, value)| (key.clone(), closed(value))).collect();
            if fields.get("type") == Some(&json!("object")) && fields.contains_key("properties") {
                all.insert("additionalProperties".to_owned(), json!(false));
            }
            Value::Object(all)
        }
        Value::Array(items) => items.iter().map(closed).collect(),
        other => other.clone(),
    }
}

#[test]
fn json_output_conforms_to_its_schemas() {
    let settings = Settings::default();
    let scenes = [
        Scene::default(),
        Scene { members: vec!["absent".into(); 3], ..Scene::default() },
        Scene { members: vec!["ready".into(), "starting".into()], also: vec![], ..Scene::default() },
    ];
    let rows = [
        DoctorRow::well("CA", "fine"),
        DoctorRow::remark("view", "odd", "look"),
        DoctorRow::not_asked("view", "no"),
    ];
    for scene in scenes {
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let audit = audit::run(rulebook(), &view);
        let all: Vec<_> =
            world.clusters().map(|it| ClusterStatus::of(it, &view).with_findings(&audit)).collect();
        valid(&schema("status"), &report::status::json(&all, &rows));
        valid(&schema("audit"), &report::audit::json(&audit, &all, &rows));
    }
    valid(&schema("doctor"), &report::doctor::json(&rows));
    let rules: Vec<_> = rulebook().rules().iter().collect();
    valid(&schema("explain"), &report::rules::json(&rules));
}

/// The program accepts exactly those settings that their schema accepts.
#[test]
fn settings_and_their_schema_agree() {
    let schema = settings::schema().to_value();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (yaml, is_accepted) in [
        ("{}", true),
        ("{adopt: [app=db], adoptDefaults: false, mode: warn, modes: {G11: audit}, pages: a/b}", true),
        ("{packs: {wordpress: false}, rds: {operators: ['system:serviceaccount:a:b']}}", true),
        ("{injection: {failurePolicy: Fail}, webhooks: {timeoutSeconds: 5}}", true),
        ("{mode: maybe}", false),
        ("{modes: {G11: maybe}}", false),
        ("{moed: warn}", false),
        ("{adopt: app=db}", false),
        ("{injection: {failurePolicy: Perhaps}}", false),
        ("{webhooks: {timeout: 5}}", false),
    ] {
        let file: Value = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(validator.is_valid(&file), is_accepted, "whether the schema accepts {yaml}");
        assert_eq!(rulebook().settings(yaml).is_ok(), is_accepted, "whether the program accepts {yaml}");
    }
}
