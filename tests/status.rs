//! What `gatera status` shows about members that wait after a crash: where each starts from, and which has the newest data.

mod looks;
mod probes;

use facts::galera::start_report::{JoinPhase, StartReport};
use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::condition::Condition;
use facts::view::{Facts, Freshness, Id, PodFact, View, World};
use gatera::rulebook;
use inspect::audit;
use inspect::status::ClusterStatus;
use objects::{Kind, Object};
use report::status;
use serde_json::{Value, json};

use crate::published_events::deletion;
use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

const OTHER: &str = "7a2c1d10-0000-11f1-91b9-7e68ccac15f1";

/// Returns the pod of a member that is not Ready, with this termination message of its last run.
fn member(ordinal: u8, words: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{STATEFUL_SET}-{ordinal}"), "namespace": NAMESPACE, "uid": format!("pod-{ordinal}"),
            "labels": { "app": "galera", "galera": "galera", "instance": "galera-instance" },
            "annotations": { "gatera.dev/injected": "0.1.0" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET, "uid": "1", "controller": true }],
        },
        "spec": { "nodeName": format!("node-{ordinal}"), "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "command": ["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"], "startupProbe": { "exec": { "command": ["/etc/gatera/wait-for-sync.sh", "started"] } } }] },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "False" }],
            "containerStatuses": [{
                "name": "mariadb",
                "started": false,
                "state": { "running": { "startedAt": "2026-12-01T09:20:00Z" } },
                "lastState": { "terminated": { "startedAt": "2026-12-01T09:19:00Z", "message": words } },
            }],
        },
    })
}

fn reported(words: &str) -> String {
    format!("start of 2026-12-01T09:19:00Z: {words}\n")
}

fn status_of(members: &[Value]) -> (String, Value) {
    let scene = Scene { also: members.to_vec(), ..Scene::default() };
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let all = ClusterStatus::all(&view);
    (status::text(&all, false), status::json(&all, &[]))
}

#[test]
fn a_waiting_member_shows_where_it_starts_from() {
    let at = |id: &str, seqno: u64, how: &str| {
        reported(&format!("position {id}:{seqno}, {how}, safe_to_bootstrap 0"))
    };
    let crashed = "recovered after a crash";
    let mut text = String::new();
    for (what, members) in [
        ("a power failure, and one member is behind", [at(ID, 363, crashed), at(ID, 363, crashed), at(ID, 146, crashed)]),
        ("in the middle of a DDL", [at(ID, 21, "in a DDL or grastate.dat was lost"), at(ID, 21, crashed), at(ID, 20, crashed)]),
        ("two histories", [at(ID, 363, crashed), at(OTHER, 900, crashed), at(ID, 146, crashed)]),
        (
            "a member is empty, and the step script of another refused to start the server",
            [
                reported("empty, safe_to_bootstrap unknown"),
                "gatera did not start the server: there are prepared transactions: commit or roll them back (XA RECOVER), or have this member copy everything anew\n".into(),
                at(ID, 146, crashed),
            ],
        ),
        ("messages of other programs", ["Killed".into(), "start of never: x".into(), String::new()]),
    ] {
        let members: Vec<_> = (0..).zip(&members).map(|(ordinal, words)| member(ordinal, words)).collect();
        text += &format!("# {what}\n{}\n", status_of(&members).0);
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status-starts", text);
    });
}

#[test]
fn the_json_output_has_the_start_position() {
    let words = reported(&format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0"));
    let (_, json) = status_of(&[member(0, &words)]);
    assert_eq!(
        json["clusters"][0]["members"][0]["start"],
        json!({
            "says": format!("at {ID}:363, recovered after a crash, safe_to_bootstrap 0; reported at 2026-12-01T09:19:00Z"),
            "at": "2026-12-01T09:19:00Z", "id": ID, "seqno": 363, "safeToBootstrap": false, "doing": null,
        })
    );
    assert_eq!(json["clusters"][0]["members"][1]["start"], Value::Null);
}

fn fact(pod: &Value) -> PodFact {
    let Ok(Object::Pod(pod)) = Object::read(Kind::Pod, &pod.to_string()) else { panic!("unreadable: {pod}") };
    PodFact::of(&pod)
}

/// The audit shows it, too, because a user may look there first when a cluster is down.
#[test]
fn the_audit_shows_where_members_start_from() {
    let words = reported(&format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0"));
    let recorded = json!({ "metadata": { "annotations": { "gatera.dev/identity": ID } } });
    let scene = Scene { also: vec![member(0, &words)], stateful_set: recorded, ..Scene::default() };
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let (audit, clusters) = (audit::run(rulebook(), &view), ClusterStatus::all(&view));
    let says = format!(
        "at {ID}:363, recovered after a crash, safe_to_bootstrap 0; reported at 2026-12-01T09:19:00Z"
    );
    let text = report::audit::text(&audit, &clusters, false);
    assert!(text.contains(&format!("\n  {STATEFUL_SET}-0  {says}\n")), "{text}");
    let json = report::audit::json(&audit, &clusters, &[]);
    assert!(text.contains(&format!("is not Ready yet  {ID}\n")), "{text}");
    assert_eq!(json["clusters"][0]["id"], ID);
    assert_eq!(json["clusters"][0]["starts"], json!([{ "name": format!("{STATEFUL_SET}-0"), "says": says }]));
}

/// The last result of a probe is in the Events of its kubelet.
#[test]
fn what_waiting_members_do_is_reported() {
    let startup_report = |doing: &str| {
        let words = format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0");
        let line = format!("the server is {doing}; start of 2026-12-01T09:20:01Z: {words}");
        format!("Startup probe failed: {line}\n")
    };
    let mut text = String::new();
    for (what, doing) in [
        ("one node is away", [Some((false, "CONNECTED")), Some((false, "CONNECTED")), Some((false, "AWAY"))]),
        ("the last pod does not exist", [Some((false, "CONNECTED")), Some((false, "CONNECTED")), None]),
        (
            "a member lost its majority to nodes that do not answer",
            [Some((true, "CONNECTED")), Some((false, "AWAY")), Some((false, "AWAY"))],
        ),
        ("all run, and wait for different last views", [Some((false, "CONNECTED")); 3]),
        (
            "a member receives a state transfer",
            [Some((false, "JOINING")), Some((false, "DISCONNECTED")), None],
        ),
        ("no member has a majority", [Some((true, "CONNECTED")), Some((true, "DISCONNECTED")), None]),
        (
            "two wait for a last view that the third does not know",
            [Some((false, "CONNECTED")), Some((false, "DISCONNECTED")), Some((false, "CONNECTED"))],
        ),
        (
            "a member serves, and two have lost their cluster",
            [Some((true, "SYNCED")), Some((true, "CONNECTED")), Some((true, "DISCONNECTED"))],
        ),
        (
            "a member serves, and two join",
            [Some((false, "DISCONNECTED")), Some((true, "SYNCED")), Some((false, "JOINING"))],
        ),
        (
            "a member is Synced in another cluster, and one does not answer",
            [
                Some((true, "SYNCED")),
                Some((
                    true,
                    "SYNCED, in another cluster: 7a2c1d10-0000-11f1-91b9-7e68ccac15f1, but another is recorded; x",
                )),
                Some((true, "FROZEN")),
            ],
        ),
        (
            "a state transfer stalls, and a disk is full",
            [
                Some((true, "SYNCED")),
                Some((false, "JOINING, and nothing comes in")),
                Some((true, "DISCONNECTED; its disk is full")),
            ],
        ),
    ] {
        let scene = Scene { members: vec!["absent".into(); 3], ..Scene::default() };
        let settings = Settings::default();
        let mut facts = scene.world(&settings).facts().clone();
        for (ordinal, doing) in (0..).zip(doing) {
            let Some((served, doing)) = doing else { continue };
            let mut pod = member(ordinal, "");
            pod["status"]["containerStatuses"][0]["started"] = json!(served);
            if doing == "SYNCED" {
                pod["status"]["conditions"][0]["status"] = json!("True");
            }
            if doing == "AWAY" {
                let node = json!({ "metadata": { "name": pod["spec"]["nodeName"] }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
                facts.put(Object::read(Kind::Node, &node.to_string()).unwrap());
            }
            facts.put(Object::read(Kind::Pod, &pod.to_string()).unwrap());
            let (id, uid) =
                (Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}")), format!("pod-{ordinal}"));
            let mut add_report = |message: &str| facts.add_report(&id, &uid, scene::now(), message);
            add_report(&startup_report("DISCONNECTED"));
            match doing {
                "SYNCED" | "AWAY" => false,
                "FROZEN" => add_report("Readiness probe failed: the server does not answer on its port\n"),
                _ if served => add_report(&format!("Readiness probe failed: the server is {doing}\n")),
                _ => add_report(&startup_report(doing)),
            };
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let all = ClusterStatus::all(&view);
        text += &format!("# {what}\n{}\n", status::text(&all, false));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status-waits", text);
    });
}

/// No member may be chosen by a position from before its last run, because its data has changed since.
#[test]
fn a_report_from_before_the_last_run_does_not_count() {
    let note = |at: &str, seqno: u64| {
        let line =
            format!("start of {at}: position {ID}:{seqno}, recovered after a crash, safe_to_bootstrap 0");
        StartReport::read(&line).unwrap()
    };
    let seqno =
        |fact: &PodFact| fact.start_report.as_deref().and_then(StartReport::position).map(|it| it.seqno);
    let pod = member(0, &reported(&format!("position {ID}:1, recovered after a crash, safe_to_bootstrap 0")));
    for (at, expected) in
        [("2026-12-01T09:19:59Z", 1), ("2026-12-01T09:20:00Z", 7), ("2026-12-01T09:21:00Z", 7)]
    {
        let mut fact = self::fact(&pod);
        fact.take_report(note(at, 7));
        assert_eq!(seqno(&fact), Some(expected), "the position after a report of {at}");
    }
    let mut started = pod.clone();
    started["status"]["containerStatuses"][0]["started"] = json!(true);
    let mut fact = self::fact(&started);
    fact.take_report(note("2026-12-01T09:21:00Z", 7));
    assert_eq!(seqno(&fact), None, "it has joined since");

    // With other probes nothing clears the report that an earlier start left.
    let mut own = pod.clone();
    own["spec"]["containers"][0]["startupProbe"] = Value::Null;
    assert_eq!(seqno(&self::fact(&own)), None, "it has another startup probe");

    // A refusal in an earlier run no longer counts once the next run reports a start.
    let refused = member(0, "gatera did not start the server: a reason\n");
    let mut fact = self::fact(&refused);
    assert!(matches!(fact.start_report.as_deref(), Some(StartReport::Refused(_))));
    fact.take_report(note("2026-12-01T09:21:00Z", 7));
    assert_eq!(seqno(&fact), Some(7), "the report of the next run replaces the refusal");
}

/// One case is a member on a node that does not answer, the others are clusters without an identity.
#[test]
fn conditions_of_a_node_and_of_a_whole_cluster_are_reported() {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-2" },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    });
    let zeros = reported(
        "position unknown: its cluster was formed without an identity (transaction 13), safe_to_bootstrap 0",
    );
    let mut text = String::new();
    for (what, members) in [
        ("a node does not answer", vec![member(2, ""), node]),
        ("a member comes back into a cluster without an identity", vec![member(1, &zeros)]),
    ] {
        text += &format!("# {what}\n{}\n", status_of(&members).0);
    }
    let scene = Scene {
        stateful_set: json!({ "metadata": { "annotations": { "gatera.dev/identity": "none" } } }),
        ..Scene::default()
    };
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let all = ClusterStatus::all(&view);
    text += &format!("# a cluster that is known to have no identity\n{}", status::text(&all, false));
    let json = status::json(&all, &[]);
    assert_eq!(json["clusters"][0]["matters"][0]["condition"], "NO-IDENTITY");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status-whole", text);
    });
}

/// The manual explains the name of every condition.
#[test]
fn every_condition_has_a_row_in_the_manual() {
    let manual = rulebook().rule("G02").unwrap().page().text();
    let names: Vec<_> =
        manual.lines().filter_map(|line| line.trim().strip_prefix("| ")?.split(" |").next()).collect();
    for condition in Condition::all() {
        let found = names.iter().filter(|it| it.split(", ").any(|name| name == condition.name()));
        assert_eq!(found.count(), 1, "rows of G02 that name {}", condition.name());
    }
}

/// The condition BLIND is reported even for a member that serves: after the next crash it would be too late.
#[test]
fn a_member_that_cannot_recover_its_position_is_named() {
    let bare = |ordinal: u8, ready: &str| {
        let mut bare = member(ordinal, "");
        bare["spec"]["containers"][0].as_object_mut().unwrap().remove("command");
        bare["status"]["conditions"][0]["status"] = json!(ready);
        bare
    };
    let (text, _) = status_of(&[bare(1, "True")]);
    let says = "BLIND galera-instance-galera-1: after a crash the server would start without its position: gatera explain G19 ";
    assert!(text.contains(says), "{text}");
    let (text, _) = status_of(&[0, 1, 2].map(|it| bare(it, "False")));
    let by_hand = "rejoin without comparing their data; gatera explain G20, \"Without the step\", starts the cluster from its newest data";
    assert!(text.contains(by_hand), "{text}");
}

/// The data of a claim that is being deleted is lost with its pod, although every member is still Ready.
#[test]
fn a_claim_that_is_being_deleted_is_listed() {
    let name = format!("datadir-{STATEFUL_SET}-1");
    let (_, mut claim) = Scene::default().object(&format!("PersistentVolumeClaim/{name}"));
    claim["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:50Z");
    let (text, json) = status_of(&[claim]);
    let listed = "├── Claims that are deleted as soon as their pods are gone: back up their data first\n";
    assert!(text.contains(&format!("{listed}│   └── {name}\n")), "{text}");
    assert_eq!(json["clusters"][0]["claimsBeingDeleted"], json!([name]));
    let (text, json) = status_of(&[]);
    assert!(
        !text.contains("being deleted") && json["clusters"][0]["claimsBeingDeleted"] == json!([]),
        "{text}"
    );
}

/// The table has a line for each cluster, with what a user has to know first.
#[test]
fn clusters_are_a_table() {
    let settings = Settings::default();
    let absent = || Scene { members: vec!["absent".into(); 3], ..Scene::default() };
    let metadata = json!({ "metadata": { "creationTimestamp": "2026-12-01T07:00:00Z" } });
    let override_text = "G11 until=2026-12-01T10:00:00Z reason=moving";
    let overridden = json!({ "metadata": { "annotations": { "gatera.dev/override": override_text } } });
    let mut text = String::new();
    for (what, scene) in [
        ("all members are Synced", Scene { stateful_set: metadata, ..Scene::default() }),
        ("down", absent()),
        ("stopped", Scene { replicas: Some(0), ended: vec![363, 360, 351], ..absent() }),
        (
            "a member fails",
            Scene {
                members: vec!["ready".into(), "ready".into(), "refused its disk is full".into()],
                ..Scene::default()
            },
        ),
        ("an override counts", Scene { stateful_set: overridden, ..Scene::default() }),
    ] {
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let all = ClusterStatus::all(&view);
        text += &format!("# {what}\n{}", status::table(&all, scene::now(), text.is_empty(), false));
        let coloured = status::table(&all, scene::now(), false, true);
        let state = all[0].state.name();
        assert!(coloured.contains(&format!("m{state}\u{1b}[0m")), "{coloured}");
        let tree = status::text(&all, true);
        assert!(tree.contains(&format!("m{state}\u{1b}[0m")), "{tree}");
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("status-table", text);
    });
    assert_eq!(status::table(&[], scene::now(), true, false), "no Galera cluster\n");
}
