//! `gatera doctor` on a control plane of its own, on which one thing after another is broken.

use std::collections::BTreeSet;
use std::time::Duration;

use facts::settings::Settings;
use facts::view::View;
use gatera::command::doctor::rights::{GrantScope, needed};
use gatera::rulebook;
use inspect::doctor::{self, AnswerState, Replica};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::guarded::{self, CHART, Guard, OUTSIDE, Start, install, program};
use crate::lab::{self, ControlPlane, Output, User, eventually};
use crate::scene::{self, Scene};

const GALERA: &str = include_str!("fixtures/galera.yaml");

/// A control plane, and the output of every `gatera doctor` that examined it.
struct Examined {
    plane: ControlPlane,
    page: String,
}

impl Examined {
    fn run(&mut self, what: &str, arguments: &[&str]) -> Output {
        let kubeconfig = self.plane.kubeconfig(User::Admin);
        let output = guarded::ask(&kubeconfig, &[&["doctor"], arguments].concat());
        let said = format!("{}{}", output.stdout, output.stderr);
        self.page.push_str(&format!("# {what}: exit {}\n{said}\n", output.status));
        output
    }

    /// Runs `gatera doctor` until its output contains these words, and records one more run.
    fn until(&mut self, what: &str, words: &str) -> Output {
        let kubeconfig = self.plane.kubeconfig(User::Admin);
        eventually(what, || guarded::ask(&kubeconfig, &["doctor"]).stdout.contains(words).then_some(()));
        self.run(what, &[])
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Admin, arguments)
    }
}

#[test]
fn each_fault_is_reported() {
    let mut it = Examined { plane: ControlPlane::start(), page: String::new() };
    let nothing = it.run("no guard", &[]);
    assert!(
        nothing.status == 1 && nothing.stdout.contains("nothing in this cluster is guarded"),
        "{nothing}"
    );

    install(&it.plane);
    let empty = it.run("a guard that never ran", &[]);
    assert!(
        empty.status == 1 && empty.stdout.contains("is empty, so nothing is sent to the guard"),
        "{empty}"
    );

    let start = Start { identity: "doctor".into(), ..Start::default() };
    let guard = Guard::start(&it.plane, &program(), &start);
    guard.until_registered();
    it.admin(&["create", "namespace", "db"]).succeeded();
    it.plane.kubectl_stdin(User::Admin, &["apply", "--namespace=db", "--filename=-"], GALERA).succeeded();
    let half = it.run("a namespace without the label", &[]);
    assert!(half.status == 0 && half.stdout.contains("namespace db has no label gatera.dev/mode"), "{half}");

    it.admin(&["label", "namespace", "db", "gatera.dev/mode=enforce"]).succeeded();
    it.plane.run_stateful_set("db", "galera-instance-galera");
    crate::living_cluster::until_bootstrap_removed(&it.plane, "db");
    let well = it.run("all is well", &["--namespace=db"]);
    assert!(well.status == 0 && well.stdout.contains("\n0 wrong, "), "{well}");

    let stranger = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "other", "namespace": "default" }, "spec": { "replicas": 0, "serviceName": "other", "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "server", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }] }] } } } });
    it.plane.kubectl_stdin(User::Admin, &["create", "--filename=-"], &stranger.to_string()).succeeded();
    it.until("a server that no selector adopts", "default/other looks like Galera and is not guarded");
    for command in ["audit", "status"] {
        let said = guarded::ask(&it.plane.kubeconfig(User::Admin), &[command]).stdout;
        assert!(
            said.contains("default/other looks like Galera and is not guarded; do: kubectl"),
            "{command}: {said}"
        );
    }
    it.admin(&["delete", "statefulset", "other", "--wait=false"]).succeeded();

    it.admin(&["label", "namespace", "db", "gatera.dev/mode=warn", "--overwrite"]).succeeded();
    let warned = it.until("a namespace where rules only warn", "warned, as the settings say");
    assert!(
        warned.status == 0 && warned.stdout.contains("is in mode warn, so nothing is refused there"),
        "{warned}"
    );
    it.admin(&["label", "namespace", "db", "gatera.dev/mode=enforce", "--overwrite"]).succeeded();

    let until = Timestamp::from_second(Timestamp::now().as_second() + 600).unwrap();
    let mark = format!("gatera.dev/break-glass=until={until} reason=a drill");
    it.admin(&["annotate", "namespace", "db", &mark]).succeeded();
    let open = it.until("break-glass", "refusals are suspended by break-glass until");
    assert_eq!(open.status, 0, "{open}");
    it.admin(&["annotate", "namespace", "db", "gatera.dev/break-glass-"]).succeeded();

    let role = ["get", "clusterrole", "gatera", "--output=json"];
    let before: Value = serde_json::from_str(&it.admin(&role).succeeded()).unwrap();
    let without = r#"[{"op": "replace", "path": "/rules/0/verbs", "value": ["list"]}]"#;
    it.admin(&["patch", "clusterrole", "gatera", "--type=json", "--patch", without]).succeeded();
    let lacks = it.until("a right that is missing", "may not watch pods");
    assert_eq!(lacks.status, 1, "{lacks}");
    it.plane
        .kubectl_stdin(User::Admin, &["replace", "--filename=-"], &{
            let mut before = before;
            before["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            before.to_string()
        })
        .succeeded();

    let settings = r#"{"data": {"settings.yaml": "modes: {G99: warn}"}}"#;
    it.admin(&["patch", "configmap", "gatera-settings", "--namespace=gatera", "--patch", settings])
        .succeeded();
    let unread = it.run("settings with a mistake", &[]);
    assert!(unread.status == 1 && unread.stdout.contains("ConfigMap gatera/gatera-settings: "), "{unread}");
    it.admin(&[
        "patch",
        "configmap",
        "gatera-settings",
        "--namespace=gatera",
        "--patch",
        r#"{"data": {"settings.yaml": "{}"}}"#,
    ])
    .succeeded();

    // From here on, no guard repairs the webhook configurations.
    guard.terminate();
    guard.until_ended(Duration::from_secs(60));
    without_a_guard(&mut it);

    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        snapshot_path => ".",
        filters => vec![
            (r"well   api server  v[0-9.]+", "well   api server  vVERSION"),
            (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:PORT"),
            (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z( \([0-9]+ days\))?", "TIME$1"),
            (r"[0-9]+ days", "DAYS"),
            (r"doctor_[0-9]+", "doctor_PID"),
            (r"bootstrap-[0-9a-f]{8,10}(-[a-z0-9]{5})?", "bootstrap-HASH"),
            (r"no answer: .*", "no answer: …"),
            (r"[0-9]+ of 3 members Synced.*", "N of 3 members Synced …"),
            (r"(is|are) (JOINING|FORMING|DEGRADED|DOWN)", "$1 STATE"),
        ],
    }, { insta::assert_snapshot!("doctor", it.page) });
}

/// Damages the webhook configurations while no guard runs, so that every change stays.
fn without_a_guard(it: &mut Examined) {
    let away = it.until("a guard that is down", "the API server asked it and got no answer");
    assert_eq!(away.status, 1, "{away}");

    let ignore = r#"[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]"#;
    it.admin(&["patch", "validatingwebhookconfiguration", "gatera", "--type=json", "--patch", ignore])
        .succeeded();
    let changed = it.run("an entry that was changed by hand", &[]);
    assert!(
        changed.status == 1
            && changed.stdout.contains("failurePolicy of workloads.gatera.dev is not what the guard writes"),
        "{changed}"
    );

    let bundle = r#"[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]"#;
    it.admin(&["patch", "mutatingwebhookconfiguration", "gatera", "--type=json", "--patch", bundle])
        .succeeded();
    let other = it.run("entries with different CAs", &[]);
    assert!(other.status == 1 && other.stdout.contains("not all entries trust the same CA"), "{other}");

    it.admin(&["delete", "mutatingwebhookconfiguration", "gatera"]).succeeded();
    let gone = it.run("a configuration that is gone", &[]);
    assert!(
        gone.status == 1 && gone.stdout.contains("there is no MutatingWebhookConfiguration gatera"),
        "{gone}"
    );
}

/// A user who may read only one namespace sees which questions were not asked, and never that everything is well.
#[test]
fn a_user_without_rights_sees_that_they_are_missing() {
    let (plane, ns) = crate::cluster::running_cluster("doctor");
    let editor = plane.kubeconfig(User::Editor);
    let output = guarded::ask(&editor, &["doctor", "--namespace", &ns]);
    assert_eq!(output.status, 2, "{output}");
    for words in [
        "?      rights",
        "questions need rights that user editor does not have",
        "clusterrole gatera-reader",
        "well   canary",
        "namespace",
    ] {
        assert!(output.stdout.contains(words), "{words:?} is not in {output}");
    }
    let json = guarded::ask(&editor, &["doctor", "--namespace", &ns, "--output=json"]);
    let reported: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(
        reported["summary"]["notAsked"].as_u64().unwrap() > 0 && reported["summary"]["wrong"] == 0,
        "{reported}"
    );
    let lists = |more: &[&str]| {
        guarded::ask(&editor, &[&["--namespace", &ns, "status", "--output"], more].concat()).stdout
    };
    assert!(lists(&["wide"]).starts_with("NAMESPACE ") && lists(&["wide"]).contains("  HEALTHY  3/3  "));
    assert!(!lists(&["wide", "--no-headers"]).contains("NAMESPACE"));
    assert_eq!(lists(&["name"]), format!("{ns}/galera-instance-galera\n"));
    assert_eq!(lists(&["name", "--selector", "no.example/label"]), "");
    assert!(lists(&["yaml"]).contains("\n- breakGlass: null\n"));
    let nowhere = guarded::ask(&plane.kubeconfig(User::Editor).with_file_name("none"), &["doctor"]);
    assert_eq!(nowhere.status, 2, "{nowhere}");
}

/// The rights that the doctor asks for are those that the chart grants.
#[test]
fn the_rights_that_it_checks_are_those_of_the_chart() {
    let plane = lab::shared();
    let arguments = [
        "template",
        "gatera",
        CHART,
        "--namespace=gatera",
        "--no-hooks",
        OUTSIDE,
        "--show-only=templates/rbac.yaml",
        // Policy reports are optional, so the doctor does not ask for their rights.
        "--set=policyReports.enabled=false",
    ];
    let text = plane.helm(User::Admin, &arguments).succeeded();
    let mut granted = BTreeSet::new();
    for document in text.split("\n---\n") {
        let role: Value = serde_saphyr::from_str(document).unwrap();
        let scope = match role["kind"].as_str() {
            Some("ClusterRole") => GrantScope::Everywhere,
            Some("Role") => GrantScope::Own,
            _ => continue,
        };
        for rule in role["rules"].as_array().unwrap() {
            let all = |field: &str| -> Vec<String> {
                rule[field]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|it| it.as_str().unwrap().to_owned())
                    .collect()
            };
            // The role names several Leases by which replicas coordinate; the doctor asks for the first one only.
            let name = all("resourceNames").first().cloned();
            for group in all("apiGroups") {
                for resource in all("resources") {
                    for verb in all("verbs") {
                        granted.insert(format!("{scope:?} {verb} {group} {resource} {name:?}"));
                    }
                }
            }
        }
    }
    let asked: BTreeSet<_> = needed()
        .map(|(verb, group, resource, name, place)| {
            format!("{place:?} {verb} {group} {resource} {:?}", name.map(str::to_owned))
        })
        .collect();
    assert_eq!(asked, granted, "left: rights that the doctor checks, right: rights that the chart grants");
}

fn replica(says: &str, ready: bool) -> Replica {
    Replica { name: "gatera-1".into(), ready, version: Some("1".into()), says: Ok(says.to_owned()) }
}

#[test]
fn what_a_replica_says_of_itself_is_reported() {
    let well = "[+] view: current\n[+] certificate: valid until 2027-01-01T00:00:00Z\n[+] webhooks: registered\n[+] settings: current\n[+] server: serving\n";
    let state = |replicas: Vec<Replica>| {
        let rows = doctor::replicas(&Ok(replicas), "1");
        (doctor::worst(&rows), rows.into_iter().map(|row| row.says).collect::<Vec<_>>().join("; "))
    };
    assert_eq!(state(vec![replica(well, true)]).0, AnswerState::Well);
    for (line, other) in [
        ("[+] view: current", "[+] view: stale for 42s: a watch is silent"),
        ("[+] webhooks: registered", "[+] webhooks: not registered yet"),
        ("[+] settings: current", "[+] settings: G01 cannot be \"perhaps\""),
        ("[+] server: serving", "[-] server: shutting down"),
        (
            "[+] certificate: valid until 2027-01-01T00:00:00Z",
            "[+] certificate: valid until 2027-01-01T00:00:00Z; there is no Secret gatera-tls",
        ),
    ] {
        let (is, says) = state(vec![replica(&well.replace(line, other), true)]);
        assert_eq!(is, AnswerState::Wrong, "{says}");
        assert_eq!(says, format!("pod gatera-1 says: {}", &other[4..]));
    }
    assert_eq!(state(vec![]).0, AnswerState::Wrong);
    assert_eq!(state(vec![replica(well, false)]).0, AnswerState::Wrong, "no replica is ready");
    assert_eq!(state(vec![replica(well, true), replica(well, false)]).0, AnswerState::Remark);
    let older = Replica { version: Some("0".into()), ..replica(well, true) };
    assert_eq!(
        state(vec![older]),
        (AnswerState::Remark, "pod gatera-1 has version 0, but this gatera has 1".to_owned())
    );
    let begins = well.replace("view: current", "view: still listing the objects of the cluster");
    assert_eq!(state(vec![replica(well, true), replica(&begins, false)]).0, AnswerState::Remark, "a rollout");
    for other in ["", "404 page not found", "ok"] {
        assert_eq!(state(vec![replica(other, true)]).0, AnswerState::NotAsked, "{other}");
    }
    let silent = Replica { says: Err("no answer within 5 s".into()), ..replica(well, true) };
    assert_eq!(state(vec![silent]).0, AnswerState::NotAsked);
}

#[test]
fn an_expiring_ca_is_reported_before_and_after_its_end() {
    let now: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
    let entries = [Ok(Some(vec![json!({ "clientConfig": { "caBundle": "eA==" } })])), Ok(None)];
    let state = |ends: &str| {
        let ends: Timestamp = ends.parse().unwrap();
        doctor::authority(&entries, |_| Ok(vec![ends]), now).unwrap().state
    };
    assert_eq!(state("2027-12-01T09:30:00Z"), AnswerState::Well);
    assert_eq!(state("2026-12-14T09:30:00Z"), AnswerState::Remark);
    assert_eq!(state("2026-12-01T09:30:00Z"), AnswerState::Wrong);
    let unread = doctor::authority(&entries, |_| Err("it is not PEM".into()), now).unwrap();
    assert!(unread.state == AnswerState::Wrong && unread.says.contains("it is not PEM"), "{unread:?}");
}

/// A failed installation can leave a bootstrap node that keeps running.
#[test]
fn a_bootstrap_node_whose_stateful_set_is_not_there_is_named() {
    let settings = Settings::default();
    let rows = |scene: &Scene| {
        doctor::lone_bootstrap_nodes(&View::new(&scene.world(&settings), scene::now(), &settings))
    };
    let alone =
        Scene { exists: false, members: Vec::new(), bootstrap: "running".to_owned(), ..Scene::default() };
    let [row] = &rows(&alone)[..] else {
        panic!("not exactly one bootstrap node without a StatefulSet is named")
    };
    assert_eq!(
        (row.state, &*row.instead.to_string()),
        (
            AnswerState::Remark,
            "if its installation failed: kubectl -n db delete deployment galera-instance-bootstrap, then its Service and ConfigMap",
        )
    );
    let says =
        "Deployment db/galera-instance-bootstrap runs, but there is no StatefulSet whose members join it";
    assert_eq!(row.says, says);
    for held in [Scene { exists: true, ..alone.clone() }, Scene { bootstrap: "held".to_owned(), ..alone }] {
        assert_eq!(rows(&held), [], "{held:?}");
    }
}

/// A milder mode for all rules is reported in one sentence with the command that ends it, not as a list of all ids.
#[test]
fn a_mode_that_refuses_nothing_is_named_with_the_command_that_changes_it() {
    let row = |yaml: &str| {
        let row = doctor::settings(rulebook(), &Ok(Some(rulebook().settings(yaml).unwrap())));
        (row.state, row.says, row.instead.to_string())
    };
    let enforce =
        "when you are ready: helm upgrade gatera charts/gatera -n gatera --reuse-values --set mode=enforce";
    let says = "mode is warn: nothing is refused in any namespace";
    assert_eq!(row("mode: warn"), (AnswerState::Remark, says.to_owned(), enforce.to_owned()));
    let says = "rules that refuse nothing in any namespace: G11, G13";
    let instead = "when you are ready: take them out of `modes` in the guard's settings";
    assert_eq!(
        row("modes: {G11: warn, G13: audit}"),
        (AnswerState::Remark, says.to_owned(), instead.to_owned())
    );
}

/// Up to ten clusters have a row each; more would be hard to read.
#[test]
fn many_clusters_that_are_not_well_share_a_row() {
    let settings = Settings::default();
    let rows = |clusters: usize| {
        let mut scene =
            Scene { members: vec!["ready".into(), "absent".into(), "ready".into()], ..Scene::default() };
        scene.also = (1..clusters)
            .map(|number| {
                let mut other = scene.stateful_set();
                other["metadata"]["name"] = json!(format!("other-{number}"));
                other
            })
            .collect();
        let world = scene.world(&settings);
        let all: Vec<_> = world.clusters().collect();
        let rows = doctor::clusters(rulebook(), &View::new(&world, scene::now(), &settings), &all);
        rows.into_iter().filter(|row| !row.says.contains("would be refused")).collect::<Vec<_>>()
    };
    assert_eq!(rows(10).len(), 10);
    let [row] = &rows(11)[..] else { panic!("11 clusters do not share one row") };
    assert_eq!(row.says, "11 of 11 clusters are not HEALTHY: 1 DEGRADED, 10 DOWN");
    assert_eq!(row.instead.to_string(), "gatera status --output wide");
}
