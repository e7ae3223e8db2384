//! The chart of a Galera cluster, as Helm renders it: what it contains, which values it refuses with which messages, and that
//! the guard finds nothing to change in it. Tests of installed releases are in `live`.

mod bad_values;
mod live;
mod ports;
mod probes;
mod scripts;
mod tls;
mod values;

use std::collections::BTreeMap;

use engine::inject;
use facts::galera::options;
use facts::settings::Settings;
use facts::view::View;
use objects::{Kind, Object};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::guarded::program;
use crate::lab::{self, Output, User};
use crate::scene::{self, NAMESPACE, Scene};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/galera");
const INSTANCE: &str = "galera-instance";
const SCRIPT: &str = include_str!("../src/engine/inject/wait-for-sync.sh");
const STEP: &str = include_str!("../src/engine/inject/start-member.sh");
/// Fixed passwords, so that the snapshot is the same in every run.
const FIXED: [&str; 2] =
    ["--set-string=auth.rootPassword=for-a-test", "--set-string=auth.sstPassword=for-a-test"];

fn helm(arguments: &[&str]) -> Output {
    lab::shared().helm(User::Ci, arguments)
}

fn template(instance: &str, flags: &[&str]) -> Output {
    helm(&[&["template", instance, CHART, "--namespace", NAMESPACE], flags].concat())
}

/// Renders the chart and returns every object by kind and name.
fn rendered(flags: &[&str]) -> BTreeMap<String, Value> {
    objects(&template(INSTANCE, flags).succeeded())
}

fn objects(text: &str) -> BTreeMap<String, Value> {
    let documents = inspect::manifest::read(text).into_iter().map(Result::unwrap).collect::<Vec<_>>();
    let objects = documents.iter().map(inspect::manifest::YamlDocument::json).filter(|it| !it.is_null());
    objects
        .map(|it| {
            (format!("{}/{}", it["kind"].as_str().unwrap(), it["metadata"]["name"].as_str().unwrap()), it)
        })
        .collect()
}

/// Returns the value of one key of the Secret, as a pod receives it.
fn secret(objects: &BTreeMap<String, Value>, key: &str) -> String {
    use base64::Engine as _;
    let text = objects["Secret/galera-instance-secret"]["data"][key].as_str().unwrap();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn helm_lint_passes() {
    let said = helm(&["lint", CHART, "--strict"]).succeeded();
    assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
}

/// The snapshot contains everything except the texts of the scripts, which are separate files.
#[test]
fn the_rendered_chart_is_as_in_its_snapshot() {
    let mut text = template(INSTANCE, &FIXED).succeeded();
    for name in ["wait-for-sync.sh", "start-member.sh", "first.sh", "sst-user.sh", "test.sh"] {
        let script = std::fs::read_to_string(format!("{CHART}/files/{name}")).unwrap();
        for indent in ["    ", "      "] {
            let block: String = script.lines().map(|line| format!("{indent}{line}\n")).collect();
            text = text.replace(&block, &format!("{indent}({name})\n"));
        }
    }
    if lab::is_helm_3() {
        return;
    }
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        snapshot_path => "fixtures",
        filters => vec![("GALERA_FOUND_UNTIL, value: \"[0-9]{10}\"", "GALERA_FOUND_UNTIL, value: \"(in two hours)\"")],
    }, {
        insta::assert_snapshot!("chart-galera", text);
    });
}

/// The notes are what a user reads after the installation.
#[test]
fn the_notes_say_what_comes_next() {
    // Helm 3 contacts the cluster even for a client-side dry run.
    let install = ["install", INSTANCE, CHART, "--namespace", NAMESPACE, "--dry-run=client"];
    let text = lab::shared().helm(User::Admin, &install).succeeded();
    let notes = text.split_once("NOTES:\n").unwrap().1;
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("chart-galera-notes", notes);
    });
}

#[test]
fn the_charts_scripts_are_those_that_are_injected() {
    let objects = rendered(&[]);
    for (name, injected) in [("wait-for-sync.sh", SCRIPT), ("start-member.sh", STEP)] {
        let own = std::fs::read_to_string(format!("{CHART}/files/{name}")).unwrap();
        assert!(
            own == injected,
            "the chart has another {name}: cp src/engine/inject/{name} charts/galera/files/"
        );
        for map in ["node-scripts", "bootstrap"] {
            let text = &objects[&format!("ConfigMap/galera-instance-{map}")]["data"][name];
            assert!(text == injected, "ConfigMap {map} has another {name} than the guard injects");
        }
    }
}

/// MariaDB accepts a cluster name of up to 32 bytes, and two clusters with the same name would join each other.
#[test]
fn every_cluster_has_a_name_of_its_own() {
    let name = |instance: &str| {
        let objects = objects(&template(instance, &[]).succeeded());
        let text = objects[&format!("ConfigMap/{instance}-nodeconfig")]["data"]["galera.cnf"]
            .as_str()
            .unwrap()
            .to_owned();
        options::effective(&text, "wsrep_cluster_name").unwrap().look().to_owned()
    };
    assert_eq!(name("shop"), "db-shop");
    let (one, other) = (name(&format!("{}-a", "x".repeat(40))), name(&format!("{}-b", "x".repeat(40))));
    assert_eq!((one.len(), &one[..24]), (32, "db-xxxxxxxxxxxxxxxxxxxx-"));
    assert_ne!(one, other);
}

/// The guard refuses nothing, warns about nothing and changes nothing, in an installation or in an upgrade.
#[test]
fn the_guards_rules_find_nothing() {
    let path = lab::shared().folder().join("chart-galera.yaml");
    for flags in [
        &[][..],
        &["--set=nodeCount=5"],
        &["--is-upgrade", "--set=nodeCount=5,gcacheSize=1G"],
        &["--set=bootstrap.enabled=false"],
        &["--set=auth.existingSecret=mine,storageClassName=fast"],
        &["--set-string=config=innodb_buffer_pool_size = 1G"],
        &[ports::OTHERS],
        &[tls::OWN],
        &["--is-upgrade", tls::OWN, "--set=tls.acceptPlain=true"],
    ] {
        std::fs::write(&path, template(INSTANCE, flags).succeeded()).unwrap();
        let output = std::process::Command::new(program()).arg("check").arg(&path).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let (count, rest) = said.split_once(' ').unwrap();
        let fine = format!(
            "objects: 0 would be refused, 0 allowed with a warning, {count} fine; 1 Galera cluster\n"
        );
        assert!(output.status.success() && rest == fine, "{flags:?}: {said}");
    }
}

#[test]
fn only_the_number_of_members_changes_the_address() {
    let config = |flags: &[&str]| {
        let objects = rendered(flags);
        let text = objects["ConfigMap/galera-instance-nodeconfig"]["data"]["galera.cnf"]
            .as_str()
            .unwrap()
            .to_owned();
        let checksum = objects["StatefulSet/galera-instance-galera"]["spec"]["template"]["metadata"]["annotations"]["checksum/options"].clone();
        (options::effective(&text, "wsrep_cluster_address").unwrap().look().to_owned(), checksum)
    };
    let (address, checksum) = config(&[]);
    assert_eq!(
        address,
        "gcomm://galera-instance-bootstrap-svc,galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs"
    );
    assert_eq!(
        config(&["--is-upgrade", "--set=bootstrap.enabled=false"]),
        (address.clone(), checksum.clone())
    );
    let (longer, same) = config(&["--is-upgrade", "--set=nodeCount=5"]);
    assert!(longer.starts_with(&address) && longer.ends_with("-galera-4.galera-instance-hs"), "{longer}");
    assert_eq!(same, checksum, "a new address would restart the members");
    let (kept, other) = config(&["--set-string=config=wsrep_cluster_address=gcomm://"]);
    assert_eq!(kept, address, "the value config has changed the address");
    assert_ne!(other, checksum, "other options would not restart the members");
    let (_, none) = config(&["--set=rollout=gatera"]);
    assert_eq!(
        none,
        Value::Null,
        "with rollout=gatera, the guard restarts members, so the template needs no checksum"
    );
}

/// Returns a pod as the controllers create it from the chart's templates.
fn pod_of(owner: &str, template: &Value) -> Value {
    let (kind, name) = owner.split_once('/').unwrap();
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
    pod["metadata"]["name"] = json!(format!("{name}-0"));
    pod["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true }]);
    pod
}

#[test]
fn the_guard_only_adds_to_the_pods_of_the_chart() {
    let objects = rendered(&[]);
    let settings = Settings::default();
    let world = Scene::default().world(&settings);
    // The numbers are the positions of the variable, the mount and the volume that the guard adds.
    for (what, owner, positions) in [
        ("StatefulSet/galera-instance-galera", "StatefulSet/galera-instance-galera", [1, 4, 3]),
        ("Deployment/galera-instance-bootstrap", "ReplicaSet/galera-instance-bootstrap-1", [4, 4, 4]),
    ] {
        let pod = pod_of(owner, &objects[what]["spec"]["template"]);
        let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod.to_string()) else {
            panic!("unreadable: {pod}")
        };
        let mut after = pod.clone();
        let view = View::new(&world, scene::now(), &settings);
        inject::into_pod(&mut after, &read, NAMESPACE, &view);
        let added = json_patch::diff(&pod, &after);
        let added: Vec<_> = added
            .iter()
            .map(|it| match it {
                json_patch::PatchOperation::Add(it) => it.path.to_string(),
                other => panic!("not an addition: {other:?}"),
            })
            .collect();
        let mark = |name: &str| format!("/metadata/annotations/gatera.dev~1{name}");
        let [env, mount, volume] = positions;
        assert_eq!(
            added,
            [
                mark("bitnami-script"),
                mark("identity"),
                mark("injected"),
                mark("my-cnf"),
                mark("script"),
                mark("start-script"),
                format!("/spec/containers/0/env/{env}"),
                format!("/spec/containers/0/volumeMounts/{mount}"),
                format!("/spec/volumes/{volume}"),
            ],
            "{what}"
        );
        // The version alone says that the readiness probe proves Synced.
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(after["metadata"]["annotations"]["gatera.dev/injected"], version, "{what}");
    }
}

/// Checks that both passwords arrive unchanged, from the value through the Secret to what a server and a client read.
fn assert_passwords_arrive(root: &str, sst: &str) {
    let values = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        values.path(),
        json!({ "auth": { "rootPassword": root, "sstPassword": sst } }).to_string(),
    )
    .unwrap();
    let objects = rendered(&["--values", values.path().to_str().unwrap()]);
    assert_eq!(secret(&objects, "root-password"), root);
    let auth = options::effective(&secret(&objects, "sst.cnf"), "wsrep_sst_auth").unwrap().look().to_owned();
    // The script of the state transfer splits at the first colon.
    assert_eq!(auth.split_once(':').unwrap(), ("sst", sst));
}

#[test]
fn a_password_of_every_printable_character_arrives() {
    let all: String = (' '..='~').collect();
    assert_passwords_arrive(&all, &all);
    assert_passwords_arrive(&format!(" {all} "), &format!(" :\"{}\\ ", &all[..90]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 16, ..ProptestConfig::default() })]
    #[test]
    fn any_password_arrives(root in "[ -~]{1,40}", sst in "[\\\\\"'#;: n]{1,24}") {
        assert_passwords_arrive(&root, &sst);
    }
}

#[test]
fn every_release_generates_passwords_of_its_own() {
    let (one, other) = (rendered(&[]), rendered(&[]));
    let auth = |objects| {
        options::effective(&secret(objects, "sst.cnf"), "wsrep_sst_auth").unwrap().look().to_owned()
    };
    assert_eq!((secret(&one, "root-password").len(), auth(&one).len()), (24, 28));
    assert_ne!(secret(&one, "root-password"), secret(&other, "root-password"));
    assert_ne!(auth(&one), auth(&other));
    let own = rendered(&["--set=auth.existingSecret=mine"]);
    assert!(!own.keys().any(|name| name.starts_with("Secret/")));
    let member = &own["StatefulSet/galera-instance-galera"]["spec"]["template"]["spec"];
    assert_eq!(member["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"], "mine");
    assert_eq!(member["volumes"][0]["projected"]["sources"][1]["secret"]["name"], "mine");
}
