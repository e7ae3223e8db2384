//! The audit: what is wrong with existing objects, as metrics, Events and `gatera audit` report it.

use gatera::rulebook;
use std::collections::BTreeMap;
use std::process::Command;

use facts::settings::Settings;
use facts::view::{Freshness, Id, View, World};
use inspect::audit::{self, Audit, PublishedFindings};
use inspect::status::ClusterStatus;
use objects::{Kind, Object};
use serde_json::{Value, json};

use crate::cluster::{STATEFUL_SET, running_cluster};
use crate::guarded;
use crate::lab::{ControlPlane, User, eventually};
use crate::scene::{self, NAMESPACE, Scene};

/// An audit, and what `gatera audit` prints of it.
struct Judged {
    audit: Audit,
    text: String,
    needs_attention: String,
    json: Value,
}

fn judged(scene: &Scene) -> Judged {
    let settings = Settings::default();
    judged_world(&scene.world(&settings), &settings)
}

fn judged_world(world: &World, settings: &Settings) -> Judged {
    let view = View::new(world, scene::now(), settings);
    let (audit, clusters) = (audit::run(rulebook(), &view), ClusterStatus::all(&view));
    let [text, needs_attention] =
        [report::audit::text, report::audit::needing_attention].map(|print| print(&audit, &clusters, false));
    let json = report::audit::json(&audit, &clusters, &[]);
    Judged { audit, text, needs_attention, json }
}

fn with_password() -> Value {
    let env = json!([{ "name": "MARIADB_ROOT_PASSWORD", "value": "hunter2" }, { "name": "MYSQL_PASSWORD", "value": "x" }]);
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": env, "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }], "ports": [{ "containerPort": 4567 }] }] } } } })
}

#[test]
fn a_running_cluster_is_not_a_finding() {
    let bootstraps = ["absent", "held", "running"];
    for bootstrap in bootstraps {
        let Judged { audit, text, needs_attention, .. } =
            judged(&Scene { bootstrap: bootstrap.into(), ..Scene::default() });
        assert_eq!((audit.refused(), audit.warned()), (0, 0), "{text}");
        assert!(
            text.starts_with("db/galera-instance-galera  HEALTHY  3 of 3 members Synced\n1 cluster, "),
            "{text}"
        );
        assert_eq!(needs_attention, "");
    }
}

/// Exactly one command is printed below the headline. Zero replicas are intended, so they are not a finding.
#[test]
fn a_cluster_that_is_down_or_stopped_is_listed_with_the_command_that_starts_it() {
    let absent = || Scene { members: vec!["absent".into(); 3], ..Scene::default() };
    let stopped = Scene { replicas: Some(0), ended: vec![363, 360, 351], ..absent() };
    let mut all = String::new();
    for (what, scene) in [("all pods were deleted", absent()), ("stopped in order", stopped)] {
        let settings = Settings::default();
        let world = scene.world(&settings);
        let Judged { audit, text, json, .. } = judged_world(&world, &settings);
        let statuses = ClusterStatus::all(&View::new(&world, scene::now(), &settings));
        assert_eq!((audit.refused(), audit.warned()), (0, 0), "{text}");
        let way_back = &json["clusters"][0]["wayBack"];
        assert_eq!(*way_back, report::status::json(&statuses, &[])["clusters"][0]["wayBack"]);
        all += &format!("# {what}\n{}\n{text}\n", report::status::text(&statuses, false));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("way-back", all);
    });
}

#[test]
fn a_first_installation_is_not_a_finding() {
    let members = vec!["starting".into(), "absent".into(), "absent".into()];
    let scene = Scene { members, data: "none".into(), bootstrap: "running".into(), ..Scene::default() };
    let Judged { text, needs_attention, .. } = judged(&scene);
    assert!(text.starts_with("db/galera-instance-galera  FORMING  0 of 3 members Synced"), "{text}");
    assert_eq!(needs_attention, text.split_once("1 cluster, ").unwrap().0);
}

#[test]
fn in_audit_mode_findings_are_counted_and_not_printed() {
    let settings = rulebook().settings("modes: {G11: audit}").unwrap();
    let world = Scene { stateful_set: with_password(), ..Scene::default() }.world(&settings);
    let Judged { audit, text, json, .. } = judged_world(&world, &settings);
    assert_eq!(audit.counts(), BTreeMap::from([(("G11", "deny"), 1)]));
    assert_eq!((audit.refused(), audit.warned()), (0, 0));
    assert!(!text.contains("G11"), "{text}");
    assert_eq!(json["findings"][0]["effect"], "recorded");
}

#[test]
fn findings_are_worded_like_refusals() {
    let config = json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } });
    let scene =
        Scene { members: vec!["ready".into(); 4], stateful_set: with_password(), config, ..Scene::default() };
    let Judged { audit, text, needs_attention, json } = judged(&scene);
    let expected = BTreeMap::from([(("G01", "warn"), 1), (("G04", "deny"), 2), (("G11", "deny"), 1)]);
    assert_eq!(audit.counts(), expected, "objects are counted, not findings");
    let (findings, _) = text.split_once("\n\ndb/galera-instance-galera  HEALTHY").unwrap();
    assert_eq!(
        needs_attention,
        format!("{findings}\n"),
        "a HEALTHY cluster is listed as one that needs attention"
    );
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("audit", format!("{text}\n{json:#}"));
    });
}

#[test]
fn an_object_that_is_being_deleted_is_left_alone() {
    let mut stateful_set = with_password();
    stateful_set["metadata"] = json!({ "deletionTimestamp": "2026-12-01T09:29:00Z" });
    assert_eq!(judged(&Scene { stateful_set, ..Scene::default() }).audit.refused(), 0);
}

#[test]
fn an_override_suspends_a_finding_until_it_ends() {
    let mut stateful_set = with_password();
    stateful_set["metadata"] =
        json!({ "annotations": { "gatera.dev/override": "G11 until=2026-12-01T10:00:00Z reason=moving" } });
    let scene = Scene { stateful_set, ..Scene::default() };
    let Judged { audit, text, .. } = judged(&scene);
    assert!(text.contains("StatefulSet db/galera-instance-galera has an override; remove it when you are done: kubectl -n db annotate statefulset galera-instance-galera gatera.dev/override- (G11 until 2026-12-01T10:00:00Z: moving)"), "{text}");
    assert_eq!((audit.refused(), audit.warned()), (0, 1));
    let settings = Settings::default();
    let now = "2026-12-01T10:00:01Z".parse().unwrap();
    let later = audit::run(rulebook(), &View::new(&scene.world(&settings), now, &settings));
    assert_eq!(later.refused(), 1);
}

#[test]
fn an_autoscaler_that_is_older_than_the_guard_is_found() {
    let target = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET });
    let autoscaler = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "by-load", "namespace": NAMESPACE }, "spec": { "scaleTargetRef": target },
    });
    let text = judged(&Scene { also: vec![autoscaler], ..Scene::default() }).text;
    assert!(
        text.contains(
            "[G14] StatefulSet db/galera-instance-galera: HorizontalPodAutoscaler by-load scales it by load"
        ),
        "{text}"
    );
}

#[test]
fn an_unreadable_object_is_a_finding() {
    let mut facts = rulebook().facts(&Settings::default().adoption);
    let problem = Object::read(Kind::StatefulSet, r#"{"spec":{"replicas":"hunter2"}}"#).unwrap_err();
    facts.unreadable.insert((Kind::StatefulSet, Id::new(NAMESPACE, "odd")), problem);
    let text = judged_world(&World::build(facts, Freshness::Current), &Settings::default()).text;
    assert!(text.starts_with("would be refused\n[G00] StatefulSet db/odd: cannot be read as a StatefulSet: spec.replicas: expected a whole number, found a string\n"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_finding_is_reported_once_while_it_lasts() {
    let wrong = judged(&Scene { stateful_set: with_password(), ..Scene::default() }).audit;
    let right = judged(&Scene::default()).audit;
    let mut reported = PublishedFindings::default();
    let (news, held_back) = reported.new_findings(&wrong, 50);
    assert_eq!((news.len(), held_back), (1, 0), "two passwords in one object are reported once");
    assert_eq!(
        report::audit::event_note(&news[0]),
        "G11 would refuse this object as it is: container mariadb has the value of MARIADB_ROOT_PASSWORD in plain text (and 1 more); \
         use valueFrom.secretKeyRef instead of value"
    );
    assert_eq!(reported.new_findings(&wrong, 50).0.len(), 0);
    assert_eq!(reported.new_findings(&right, 50).0.len(), 0);
    assert_eq!(reported.new_findings(&wrong, 50).0.len(), 1, "the finding has come back");
}

#[test]
fn findings_over_the_limit_are_reported_later() {
    let config = json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } });
    let wrong = judged(&Scene { stateful_set: with_password(), config, ..Scene::default() }).audit;
    let mut reported = PublishedFindings::default();
    let mut next = |most| {
        let (news, held_back) = reported.new_findings(&wrong, most);
        (news.iter().map(|news| news.rule).collect::<Vec<_>>(), held_back)
    };
    assert_eq!(next(0), (vec![], 3));
    assert_eq!(next(1), (vec!["G04"], 2));
    assert_eq!(next(1), (vec!["G11"], 1));
    assert_eq!(next(9), (vec!["G04"], 0), "the finding of G04 about the ConfigMap comes last");
    assert_eq!(next(9), (vec![], 0));
}

/// The first line on stderr, which names the settings that apply.
const SETTINGS_NOTE: &str = "gatera: settings: those of the guard (ConfigMap gatera/gatera-settings)\n";

/// Runs `gatera audit` as this user and returns the exit code, stdout and stderr.
fn command(plane: &ControlPlane, user: User, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(guarded::program())
        .arg("audit")
        .args(arguments)
        .env("KUBECONFIG", plane.kubeconfig(user))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A password is written into a cluster while its namespace only warns; then the namespace enforces the rules again.
#[test]
fn a_fault_admitted_in_mode_warn_is_found_reported_and_printed() {
    let (plane, ns) = running_cluster("audit");
    let (_, guard) = guarded::shared();
    let run = |arguments: &[&str]| plane.kubectl(User::Admin, &[&["--namespace", &*ns], arguments].concat());
    let command =
        |user, arguments: &[&str]| command(plane, user, &[&["--namespace", &*ns], arguments].concat());
    let (code, out, err) = command(User::Editor, &[]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with(&format!("{ns}/{STATEFUL_SET}  HEALTHY  3 of 3 members Synced\n1 cluster, ")),
        "{out}"
    );
    let unseen = err.strip_prefix(SETTINGS_NOTE).unwrap_or_else(|| panic!("{err}"));
    assert_eq!(unseen, "gatera: nodes could not be listed; what depends on them is not judged\n");

    run(&["label", "namespace", &ns, "--overwrite", "gatera.dev/mode=warn"]).succeeded();
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"mariadb","env":[{"name":"A_PASSWORD","value":"hunter2"}]}]}}}}"#;
    eventually("mode warn to take effect", || {
        (run(&["patch", "statefulset", STATEFUL_SET, "--patch", patch]).status == 0).then_some(())
    });
    run(&["label", "namespace", &ns, "--overwrite", "gatera.dev/mode=enforce"]).succeeded();
    let events = || {
        let text = run(&["get", "events.events.k8s.io", "--output=json"]).succeeded();
        let all: Value = serde_json::from_str(&text).unwrap();
        let ours = all["items"].as_array().unwrap().iter().filter(|it| it["reason"] == "AuditG11").cloned();
        ours.collect::<Vec<_>>()
    };
    let event = eventually("an Event about the password", || events().pop());
    assert_eq!(event["regarding"]["name"], STATEFUL_SET);
    assert_eq!(event["type"], "Warning");
    assert!(
        event["note"]
            .as_str()
            .unwrap()
            .starts_with("G11 would refuse this object as it is: container mariadb has the value of"),
        "{event}"
    );
    let metrics = guard.get("/metrics").unwrap().1;
    assert!(metrics.contains("gatera_audit_findings{rule=\"G11\",verdict=\"deny\"}"), "{metrics}");
    assert!(metrics.contains("gatera_clusters{state=\"UNKNOWN\"} 0\n"), "{metrics}");
    assert!(metrics.contains("gatera_rollouts{state=\"stopped\"} 0\n"), "{metrics}");
    // The template has changed, so members restart: another test checks how many are Ready.
    for (metric, end) in [("state", ",state=\""), ("members", "} 3\n"), ("members_ready", "} ")] {
        let series = format!("\ngatera_cluster_{metric}{{namespace=\"{ns}\",cluster=\"{STATEFUL_SET}\"{end}");
        assert!(metrics.contains(&series), "{series}\n{metrics}");
    }

    let (code, out, _) = command(User::Editor, &["--output=json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1, "{out}");
    assert_eq!(found["summary"]["refused"], 1, "{out}");
    assert_eq!(found["clusters"][0]["name"], STATEFUL_SET);
    assert!(!out.contains("hunter2"), "{out}");
}

#[test]
fn a_user_without_rights_sees_that_they_are_missing() {
    let (plane, _) = guarded::shared();
    let (code, out, err) = command(plane, User::Editor, &[]);
    assert_eq!((code, &*out), (2, ""));
    assert_eq!(
        err.strip_prefix(SETTINGS_NOTE).unwrap_or_else(|| panic!("{err}")),
        "gatera: listing statefulsets: statefulsets.apps is forbidden: User \"editor\" cannot list resource \"statefulsets\" \
         in API group \"apps\" at the cluster scope; --namespace NS needs rights in one namespace only\n"
    );
    let (code, out, err) = command(plane, User::Admin, &["--namespace=nowhere"]);
    assert_eq!(
        (code, &*out, &*err),
        (2, "", &*format!("{SETTINGS_NOTE}gatera: there is no namespace nowhere\n"))
    );
    let (code, out, _) = command(plane, User::Admin, &[]);
    assert!(code < 2, "{out}");
    assert!(out.contains(" judged: "), "{out}");
}
