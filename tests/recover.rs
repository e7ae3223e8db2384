//! `gatera recover` without an API server: what it prints in each situation. `reader.rs`: members whose pods do not run;
//! `by_hand.rs`: servers that the step script does not start; `others.rs`: joiners without a donor and members of another
//! cluster; `stop.rs`: `gatera stop` and `gatera start`; `search.rs`, with `model.rs`: the possible courses of a recovery.

mod by_hand;
mod model;
mod others;
mod reader;
mod search;
mod stop;

use facts::marks::recovery::Recovery;
use facts::settings::Settings;
use facts::view::{Freshness, Id, View, World};
use jiff::SignedDuration;
use leader::recovery::{self, RecoveryOptions, RecoveryStep};
use report::recovery as report;
use serde_json::json;

use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

const REFUSED: &str = "refused prepared transactions must be committed or rolled back by hand";
const OTHER: &str = "7a2c1d10-0000-11f1-91b9-7e68ccac15f1";

fn reported_at(id: &str, seqno: u64) -> String {
    format!("reported position {id}:{seqno}, stopped in order, safe_to_bootstrap 0")
}

fn unreachable_node(node: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{node}") },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    })
}

/// Returns what the command prints in this scene if nothing has changed for `unchanged` seconds.
fn printed(scene: &Scene, want: &RecoveryOptions, unchanged: i64) -> String {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let table = report::table(cluster, &view);
    match recovery::next(cluster, &view, want, SignedDuration::from_secs(unchanged)) {
        RecoveryStep::Serves => report::serves(cluster, &view),
        RecoveryStep::Refuse { data_loss, from } => {
            table + &report::refusal(cluster, &data_loss, from.as_deref())
        }
        step @ RecoveryStep::Ask { .. } => table + &report::proposal(cluster, &step),
        RecoveryStep::ByHand(why) => report::by_hand(cluster, why, view.now),
        RecoveryStep::Cannot(why) => why,
        step => report::step_text(&step),
    }
}

/// Returns situations in which a member's step script refused to start the server. If it did so before the command began, the
/// cause may have been removed since.
fn scenes_with_a_refused_start() -> [(&'static str, Scene, RecoveryOptions, i64); 2] {
    let scene = || Scene {
        members: vec![REFUSED.to_owned(), reported_at(ID, 363), reported_at(ID, 360)],
        ..Scene::default()
    };
    [
        (
            "a step script refused to start its server after the command began",
            scene(),
            RecoveryOptions::default(),
            600,
        ),
        (
            "a step script refused to start its server before the command began",
            scene(),
            RecoveryOptions { before: vec!["pod-0".to_owned()], ..RecoveryOptions::default() },
            600,
        ),
    ]
}

#[test]
fn what_recover_prints() {
    let default = RecoveryOptions::default;
    let members = |words: [&str; 3]| Scene { members: words.map(str::to_owned).to_vec(), ..Scene::default() };
    let (old, newest, newer) = (reported_at(ID, 351), reported_at(ID, 363), reported_at(ID, 360));
    let down = || members([&old, &newest, &newer]);
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let granted = |words| Scene {
        stateful_set: json!({ "metadata": { "annotations": { "gatera.dev/recover": asked, "gatera.dev/recovery": asked } } }),
        ..members(words)
    };
    let from = |member: &str, loss: Option<&str>| RecoveryOptions {
        from: Some(member.to_owned()),
        loss: loss.map(str::to_owned),
        ..default()
    };
    let other = reported_at(OTHER, 400);
    let rows = [
        ("members serve", members(["ready", "starting", "ready"]), default(), 0),
        ("0 replicas", Scene { replicas: Some(0), ..members(["absent"; 3]) }, default(), 0),
        (
            "a first install",
            Scene { data: "none".into(), claims: false, ..members(["starting", "absent", "absent"]) },
            default(),
            0,
        ),
        ("a pod is missing", members([&old, "absent", &newer]), default(), 0),
        ("a member has not reported yet", members([&old, "starting", &newer]), default(), 0),
        ("a member does not report for ten minutes", members([&old, &newest, "starting"]), default(), 600),
        ("all have reported their positions", down(), default(), 0),
        ("--from names an older member", down(), from("0", None), 0),
        ("--from names an older member, with the loss", down(), from("0", Some("12 transactions")), 0),
        ("--from names an older member, with another loss", down(), from("0", Some("1 transaction")), 0),
        ("--from names no member", down(), from("7", None), 0),
        ("two histories", members([&other, &newest, &newer]), default(), 0),
        (
            "a member is empty",
            members(["reported empty, safe_to_bootstrap unknown", &newest, &newer]),
            default(),
            0,
        ),
        (
            "a state transfer to a member was interrupted",
            members(["reported a state transfer was not finished, safe_to_bootstrap 0", &newest, &newer]),
            default(),
            0,
        ),
        (
            "requested, and not granted yet",
            Scene {
                stateful_set: json!({ "metadata": { "annotations": { "gatera.dev/recover": asked } } }),
                ..down()
            },
            default(),
            0,
        ),
        ("granted", granted([&*old, &*newest, &*newer]), default(), 0),
        ("granted, and its pod is gone", granted([&*old, "absent", &*newer]), default(), 0),
        ("granted, and its pod is being deleted", granted([&*old, "going", &*newer]), default(), 0),
        ("granted; started, not Ready for 30 seconds", granted([&*old, "gives", &*newer]), default(), 30),
        ("granted; started, not Ready for 90 seconds", granted([&*old, "gives", "absent"]), default(), 90),
        ("a member that served is not Ready for 30 seconds", members([&old, "gives", &newer]), default(), 30),
        ("a member that served is not Ready for 90 seconds", members([&old, "gives", &newer]), default(), 90),
        ("granted, and another member serves", granted(["ready", &*newest, &*newer]), default(), 0),
        ("granted, and it is Ready", granted([&*old, "ready", "absent"]), default(), 0),
        (
            "granted, and it is Ready; another member's node does not answer",
            Scene { also: vec![unreachable_node(0)], ..granted([&*old, "ready", "absent"]) },
            default(),
            0,
        ),
        (
            "all are Ready but one on a node that does not answer",
            Scene { also: vec![unreachable_node(0)], ..granted([&*old, "ready", "ready"]) },
            default(),
            0,
        ),
        (
            "a member's node does not answer",
            Scene { also: vec![unreachable_node(0)], ..down() },
            default(),
            0,
        ),
        ("no node accepts a member's pod", members(["pending", &newest, &newer]), default(), 600),
        ("granted, and all are Ready", granted(["ready"; 3]), default(), 0),
    ];
    let page: String = rows
        .into_iter()
        .chain(scenes_with_a_refused_start())
        .map(|(what, scene, want, unchanged)| {
            format!("{what}\n{}\n\n", printed(&scene, &want, unchanged).trim_end())
        })
        .collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("recover", page);
    });
}

/// If a server leaves no termination message, Kubernetes shows the end of its log instead, which may contain an old report of its
/// step script.
#[test]
fn a_report_inside_the_end_of_a_log_does_not_count() {
    let reported =
        format!("start of 2026-12-01T09:29:00Z: position {ID}:351, stopped in order, safe_to_bootstrap 0");
    for (message, counts) in [
        (format!("{reported}\n"), true),
        (format!("Startup probe failed: the server is DISCONNECTED; {reported}\n"), true),
        (
            format!("gatera: {reported}\n2026-12-01  9:29:01 0 [Note] mariadbd: ready for connections.\n"),
            false,
        ),
        (format!("{reported}\n2026-12-01  9:29:01 0 [Note] mariadbd: ready for connections.\n"), false),
        (format!("gatera: {reported}\n"), false),
    ] {
        let mut scene = Scene {
            members: vec![reported_at(ID, 351), reported_at(ID, 363), reported_at(ID, 360)],
            ..Scene::default()
        };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = json!(message);
        scene.also.push(pod);
        let text = printed(&scene, &RecoveryOptions::default(), 0);
        let unreported = format!("waiting: {STATEFUL_SET}-0 has not reported its position yet");
        assert_eq!(text != unreported, counts, "whether {message:?} counts as a report: {text}");
    }
}

/// A server that joined and then failed had reported its position before it joined. The Event with that report still exists.
#[test]
fn a_report_from_before_the_server_joined_does_not_count() {
    let said = format!(
        "Startup probe failed: the server is DISCONNECTED; start of 2026-12-01T09:25:00Z: position {ID}:351, stopped in order, \
         safe_to_bootstrap 0"
    );
    let run = json!({ "startedAt": "2026-12-01T09:25:00Z" });
    let ended =
        json!({ "exitCode": 137, "startedAt": "2026-12-01T09:25:00Z", "message": "WSREP: Synchronized" });
    let back_off = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    for (what, state, last, counts) in [
        ("it runs, and has not joined", json!({ "running": run }), json!({}), true),
        ("it joined, and crashed a moment ago", json!({ "terminated": ended }), json!({}), false),
        ("it joined, crashed, and is not started again yet", back_off, json!({ "terminated": ended }), false),
    ] {
        let mut scene = Scene {
            members: vec!["starting".to_owned(), reported_at(ID, 363), reported_at(ID, 360)],
            ..Scene::default()
        };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
        pod["spec"]["containers"][0]["startupProbe"] =
            json!({ "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } });
        pod["spec"]["containers"][0]["command"] =
            json!(["sh", "/etc/galera/start-member.sh", "docker-entrypoint.sh"]);
        pod["status"]["containerStatuses"] =
            json!([{ "name": "mariadb", "restartCount": 3, "state": state, "lastState": last }]);
        scene.also.push(pod);
        let settings = Settings::default();
        let mut facts = scene.facts(&settings);
        let id = Id::new(NAMESPACE, &format!("{STATEFUL_SET}-0"));
        facts.add_report(&id, "pod-0", "2026-12-01T09:25:10Z".parse().unwrap(), &said);
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let step = |unchanged, before: &[&str]| {
            let want = RecoveryOptions {
                before: before.iter().map(|&uid| uid.to_owned()).collect(),
                ..RecoveryOptions::default()
            };
            recovery::next(cluster, &view, &want, SignedDuration::from_secs(unchanged))
        };
        let asks = matches!(step(0, &[]), RecoveryStep::Ask { .. });
        assert_eq!(asks, counts, "{what}: whether a recovery is requested: {:?}", step(0, &[]));
        // The kubelet may back off for minutes, so the pod is re-created once.
        let member = format!("{STATEFUL_SET}-0");
        let recreates =
            matches!(step(20, &["pod-0"]), RecoveryStep::Restart { member: again, .. } if again == member);
        assert_eq!(recreates, !counts, "{what}: whether its pod is re-created: {:?}", step(20, &["pod-0"]));
        let refuses = matches!(step(600, &["another-pod"]), RecoveryStep::Refuse { from: Some(_), .. });
        assert_eq!(
            refuses,
            !counts,
            "{what}: whether the command gives up after ten minutes: {:?}",
            step(600, &["another-pod"])
        );
    }
}

/// Kubelets drop Events of a pod that caused many, so the report of a server that was restarted in the same pod may be missing
/// for minutes.
#[test]
fn a_pod_without_a_report_is_recreated_once() {
    for (restarts, before, unchanged, is_recreated) in [
        (1, "pod-0", 60, true),
        (1, "pod-0", 59, false),
        (0, "pod-0", 600, false),
        (1, "another-pod", 600, false),
    ] {
        let mut scene = Scene {
            members: vec!["starting".to_owned(), reported_at(ID, 363), reported_at(ID, 360)],
            ..Scene::default()
        };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(restarts);
        scene.also.push(pod);
        let want = RecoveryOptions { before: vec![before.to_owned()], ..RecoveryOptions::default() };
        let text = printed(&scene, &want, unchanged);
        let again =
            format!("{STATEFUL_SET}-0: re-creating its pod, so that it reports again where its data ends");
        assert_eq!(
            text == again,
            is_recreated,
            "{restarts} restarts, {before} existed before, {unchanged} s without a change: {text}"
        );
    }
}

/// A replica of the guard gives a new pod the right to start the cluster, and grants a recovery, only if its view permits it.
#[test]
fn the_right_to_start_is_given_only_as_far_as_the_view_permits() {
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let marks = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    let down = Scene {
        members: vec![reported_at(ID, 351), "absent".to_owned(), reported_at(ID, 360)],
        stateful_set: json!({ "metadata": { "annotations": marks } }),
        ..Scene::default()
    };
    let (_, mut other) = down.object(&format!("Pod/{STATEFUL_SET}-0"));
    other["metadata"]["annotations"]["gatera.dev/identity"] =
        json!(format!("recovery {ID}:351 until=20261201100000"));
    let with = |members: [&str; 3]| Scene { members: members.map(str::to_owned).to_vec(), ..down.clone() };
    let (old, newer) = (reported_at(ID, 351), reported_at(ID, 360));
    let settings = Settings::default();
    for (what, scene, gets_the_right) in [
        ("as when the request was verified", down.clone(), true),
        ("the view is stale", Scene { view: "stale".into(), ..down.clone() }, false),
        ("another pod has the right already", Scene { also: vec![other.clone()], ..down.clone() }, false),
        ("another member serves", with(["ready", "absent", &newer]), false),
        ("another member has newer data", with([&old, "absent", &reported_at(ID, 364)]), false),
        ("another member has data of another history", with([&old, "absent", &reported_at(OTHER, 3)]), false),
        ("another member has no pod", with([&old, "absent", "absent"]), false),
    ] {
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        assert_eq!(
            engine::grant::recovery_started_by(cluster, &format!("{STATEFUL_SET}-1"), &view).is_some(),
            gets_the_right,
            "{what}: whether a new pod of the requested member gets the right to start"
        );
        assert!(
            engine::grant::recovery_started_by(cluster, &format!("{STATEFUL_SET}-2"), &view).is_none(),
            "{what}: a member that the request does not name gets the right to start"
        );
    }
    let scene = Scene { also: vec![other], ..with([&old, &reported_at(ID, 363), &newer]) };
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let refused = engine::grant::refusal(&Recovery::read(&asked, view.now).unwrap(), cluster, &view);
    let says = format!(
        "{STATEFUL_SET}-0 may still start the cluster, because an earlier recovery allowed it: delete its pod first"
    );
    assert_eq!(refused, Some(says));
}
