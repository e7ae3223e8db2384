//! The warnings for a user who changes a ConfigMap, before the change takes effect.

use engine::verdict::Decision;
use facts::review::{self, Origin, Review};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use serde_json::{Value, json};

use super::situation::{File, Situation};
use crate::scene::{self, STATEFUL_SET};

/// Returns the review of an operation on this ConfigMap, and the decision about it.
fn judged(situation: &Situation, operation: &str, old: &Value, new: Option<&Value>) -> (Review, Decision) {
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": operation, "namespace": scene::NAMESPACE, "name": old["metadata"]["name"],
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "userInfo": { "username": "editor" }, "oldObject": old, "object": new,
        },
    });
    let body = body.to_string();
    let review = review::read(body.as_bytes(), Origin::Validating, rulebook().kinds()).unwrap().review;
    let (world, settings) = (situation.world(), Settings::default());
    let decision = rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings));
    (review, decision)
}

/// Returns the warnings about a change of the option file from the old text to this one.
fn warnings(situation: &Situation, text: &str) -> Vec<String> {
    let map = |text: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "galera-instance-nodeconfig", "namespace": scene::NAMESPACE }, "data": { "galera.cnf": text } })
    };
    let (review, decision) = judged(situation, "UPDATE", &map(File::Old.text()), Some(&map(text)));
    report::warnings(&review.subject(), &decision)
}

#[test]
fn a_change_of_a_file_is_answered_with_what_restarts_and_why() {
    let reported = |text: &str| warnings(&Situation::recorded(), text).join("\n");
    let restarts = "this change restarts 3 members of galera-instance-galera, one at a time";
    assert_eq!(
        reported(File::New.text()),
        format!("{restarts}: max_connections, which could be set at run time (SET GLOBAL)")
    );
    assert_eq!(
        reported(File::Newer.text()),
        format!("{restarts}: innodb_log_file_size; max_connections could be set at run time (SET GLOBAL)")
    );
    assert_eq!(
        reported("[mysqld]\nmax_connections=1\na=1\nb=1\nc=1\nd=1\n[client]\nport=1\n"),
        format!("{restarts}: [client] port, a, b and 2 more")
    );
    // Neither a change of formatting nor of the address restarts a member.
    assert_eq!(reported("# mine\n[server]\nmax-connections = 1\n"), "", "only the formatting changed");
    let address = reported("[mysqld]\nmax_connections=1\nwsrep_cluster_address=gcomm://a,b\n");
    assert!(address.starts_with("[G06]") && !address.contains("restart"), "{address}");
    let broken = reported("[mysqld]\nmax_connections=1\n[broken\n");
    assert_eq!(broken, "", "a change that is refused restarts no member");
}

#[test]
fn where_no_member_restarts_the_answer_says_so() {
    let when =
        |set: Value| warnings(&Situation { set, ..Situation::recorded() }, File::New.text()).join("\n");
    let none = "members of galera-instance-galera read this when they restart, but gatera restarts none";
    assert_eq!(
        when(json!({ "metadata": { "annotations": { "gatera.dev/rollout": "paused" } } })),
        format!("{none}: gatera.dev/rollout is paused")
    );
    assert_eq!(
        when(json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } })),
        format!("{none}: its updateStrategy is OnDelete")
    );
    let audit = warnings(&Situation { mode: "audit", ..Situation::recorded() }, File::New.text()).join("\n");
    assert_eq!(audit, format!("{none}: the namespace is in mode audit"));
    let one = Situation { members: vec![("ready", Some(File::Old))], ..Situation::recorded() };
    assert_eq!(
        warnings(&one, File::New.text()).join("\n"),
        "galera-instance-galera has one member, which gatera does not restart: max_connections, which could be set at run time (SET GLOBAL)"
    );
    // The guard has not yet recorded the configuration of this cluster.
    assert!(warnings(&Situation::default(), File::New.text()).is_empty());
}

/// Only the guard needs a snapshot, and only the guard can change it, so the advice for other ConfigMaps does not apply.
#[test]
fn the_advice_about_a_snapshot_is_to_keep_it() {
    let mut snapshot = File::Old.snapshot();
    snapshot["metadata"]["namespace"] = json!(scene::NAMESPACE);
    let (_, decision) = judged(&Situation::recorded(), "DELETE", &snapshot, None);
    let finding = &decision.judged[0].finding;
    let says = "it is gatera's snapshot of the configuration with which members of galera-instance-galera start (3 of 3 members Synced, seen now)";
    assert_eq!((finding.rule, &*finding.says), ("G10", says));
    assert_eq!(
        finding.instead.to_string(),
        "keep it: gatera deletes it when no member starts with it any more; or, to remove the whole cluster: gatera explain G03"
    );
}

/// A change that is made while members are stopped applies to all members when they start.
#[test]
fn stopped_members_all_start_with_a_file_that_was_changed_meanwhile() {
    let claim = |ordinal: usize| {
        let stopped = "unknown of=3 since=2026-12-01T09:00:00Z";
        let metadata = json!({ "name": format!("datadir-{STATEFUL_SET}-{ordinal}"), "annotations": { "gatera.dev/stopped": stopped } });
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "status": { "phase": "Bound" } })
    };
    let stopped = Situation {
        live: File::New.text(),
        members: vec![("absent", None); 3],
        set: json!({ "spec": { "replicas": 0 } }),
        also: (0..3).map(claim).collect(),
        ..Situation::recorded()
    };
    let (said, done) = stopped.stage();
    assert_eq!(said, "its members are stopped, and will all start with it");
    assert_eq!(done, "record {\"good\":\"NEW\"} after 0s");
}
