//! What the three charts have in common: each value is described, and a chart may have them as dependencies.

mod score;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::derived::described_values;
use crate::lab::{self, Output, User};

const CHARTS: [&str; 3] = ["gatera", "galera", "wordpress"];

fn folder(chart: &str) -> String {
    format!("{}/charts/{chart}", env!("CARGO_MANIFEST_DIR"))
}

fn helm(arguments: &[&str]) -> Output {
    lab::shared().helm(User::Admin, arguments)
}

fn objects(text: &str) -> Vec<Value> {
    inspect::manifest::read(text)
        .into_iter()
        .map(|it| it.unwrap().json())
        .filter(|it| !it.is_null())
        .collect()
}

/// Lists the path of every value in the schema: `a.b`, where `a` is an object with properties of its own.
fn value_paths(schema: &Value, prefix: &str) -> Vec<String> {
    let properties = schema["properties"].as_object().unwrap().iter();
    let below = properties.flat_map(|(name, property)| {
        if property["properties"].is_object() {
            value_paths(property, &format!("{prefix}{name}."))
        } else {
            vec![format!("{prefix}{name}")]
        }
    });
    below.collect()
}

#[test]
fn values_schemas_and_readmes_agree() {
    for chart in CHARTS {
        let file = |name: &str| fs::read_to_string(Path::new(&folder(chart)).join(name)).unwrap();
        let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
        let values: Value = serde_saphyr::from_str(&file("values.yaml")).unwrap();
        let mut described = BTreeSet::new();
        for (name, default, meaning) in described_values(&file("README.md")) {
            let value = values.pointer(&format!("/{}", name.replace('.', "/")));
            let value = value.unwrap_or_else(|| panic!("values.yaml of {chart} has no {name}"));
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let text = if text.is_empty() { "\"\"".to_owned() } else { text };
            assert_eq!(default, text, "the default of {name} in README.md of {chart}");
            assert!(meaning.len() > 4, "{chart}: README.md does not say what {name} is");
            described.insert(name);
        }
        assert_eq!(
            described,
            value_paths(&schema, "").into_iter().collect(),
            "left: README.md of {chart}, right: its schema"
        );
    }
}

/// Returns a folder with a chart that has the three as dependencies, each with a condition.
fn umbrella() -> tempfile::TempDir {
    let folder_of_umbrella = tempfile::tempdir().unwrap();
    let dependencies = CHARTS.map(|chart| {
        let place = folder(chart);
        format!(
            "- {{name: {chart}, version: 0.1.0, repository: \"file://{place}\", condition: {chart}.enabled}}\n"
        )
    });
    let text = format!("apiVersion: v2\nname: all\nversion: 1.0.0\ndependencies:\n{}", dependencies.concat());
    fs::write(folder_of_umbrella.path().join("Chart.yaml"), text).unwrap();
    helm(&["dependency", "update", &folder_of_umbrella.path().display().to_string()]).succeeded();
    folder_of_umbrella
}

#[test]
fn a_chart_may_have_them_as_dependencies() {
    let umbrella = umbrella();
    let rendered = |set: &str| {
        let chart = umbrella.path().display().to_string();
        let text = helm(&["template", "shop", &chart, "--namespace=db", &format!("--set={set}")]).succeeded();
        objects(&text)
    };
    let global = "global.imageRegistry=r.example,global.imagePullSecrets[0]=ours,global.storageClass=fast";
    let all = rendered(&format!("{global},wordpress.backup.enabled=true,wordpress.database.galera=shop"));
    let mut pods = BTreeMap::new();
    for object in &all {
        let name =
            format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let pod = match object["kind"].as_str().unwrap() {
            "Pod" => &object["spec"],
            "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
            "StatefulSet" | "Deployment" => &object["spec"]["template"]["spec"],
            "PersistentVolumeClaim" => {
                assert_eq!(object["spec"]["storageClassName"], "fast", "{name}");
                continue;
            }
            _ => continue,
        };
        for claim in object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
            assert_eq!(claim["spec"]["storageClassName"], "fast", "{name}");
        }
        pods.insert(name, pod);
    }
    assert_eq!(pods.len(), 8, "{:?}", pods.keys());
    for (name, pod) in pods {
        assert_eq!(pod["imagePullSecrets"], serde_json::json!([{ "name": "ours" }]), "{name}");
        let lists = [&pod["initContainers"], &pod["containers"]];
        for container in lists.into_iter().filter_map(Value::as_array).flatten() {
            assert!(container["image"].as_str().unwrap().starts_with("r.example/"), "{name}: {container}");
            // A ResourceQuota may refuse containers without requests.
            assert!(container["resources"]["requests"]["memory"].is_string(), "{name}: {container}");
        }
    }
    let kinds = |set: &str| {
        rendered(set).into_iter().map(|it| it["kind"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let only_galera = kinds("gatera.enabled=false,wordpress.enabled=false");
    assert!(only_galera.contains("StatefulSet") && !only_galera.contains("ValidatingWebhookConfiguration"));
    assert!(!kinds("galera.enabled=false").contains("StatefulSet"));
}
