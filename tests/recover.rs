//! `gatera recover`, without a cluster: what a user reads in each situation; in `reader.rs`, when a pod does not run; and, in
//! `search.rs`, what can happen during a recovery.

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
use leader::recovery::{self, RecoveryStep, Want};
use report::recovery as report;
use serde_json::json;

use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

const REFUSED: &str = "refused there are prepared transactions, and somebody has to decide them";
const OTHER: &str = "7a2c1d10-0000-11f1-91b9-7e68ccac15f1";

fn at(id: &str, seqno: u64) -> String {
    format!("reported position {id}:{seqno}, stopped in order, safe_to_bootstrap 0")
}

fn away(node: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{node}") },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    })
}

/// Returns what a user reads in this scene if nothing has changed for `still` seconds.
fn reads(scene: &Scene, want: &Want, still: i64) -> String {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let table = report::table(cluster, &view);
    match recovery::next(cluster, &view, want, SignedDuration::from_secs(still)) {
        RecoveryStep::Serves => report::serves(cluster, &view),
        RecoveryStep::Refuse { data_loss, from } => {
            table + &report::refusal(cluster, &data_loss, from.as_deref())
        }
        step @ RecoveryStep::Ask { .. } => table + &report::proposal(cluster, &step),
        RecoveryStep::ByHand(why) => report::by_hand(cluster, why, view.now),
        RecoveryStep::Cannot(why) => why,
        step => report::says(&step),
    }
}

/// Returns situations in which a member's step script refused to start the server. If it did so before the recovery, the cause
/// may have been removed since.
fn refused_by_its_step() -> [(&'static str, Scene, Want, i64); 2] {
    let scene = || Scene { members: vec![REFUSED.to_owned(), at(ID, 363), at(ID, 360)], ..Scene::default() };
    [
        ("one was refused by its step, in this run", scene(), Want::default(), 600),
        (
            "one was refused by its step before",
            scene(),
            Want { before: vec!["pod-0".to_owned()], ..Want::default() },
            600,
        ),
    ]
}

#[test]
fn what_a_person_reads() {
    let members = |words: [&str; 3]| Scene { members: words.map(str::to_owned).to_vec(), ..Scene::default() };
    let (old, newest, newer) = (at(ID, 351), at(ID, 363), at(ID, 360));
    let down = || members([&old, &newest, &newer]);
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let granted = |words| Scene {
        stateful_set: json!({ "metadata": { "annotations": { "gatera.dev/recover": asked, "gatera.dev/recovery": asked } } }),
        ..members(words)
    };
    let from = |member: &str, loss: Option<&str>| Want {
        from: Some(member.to_owned()),
        loss: loss.map(str::to_owned),
        ..Want::default()
    };
    let other = at(OTHER, 400);
    let rows = [
        ("it serves", members(["ready", "starting", "ready"]), Want::default(), 0),
        ("0 replicas", Scene { replicas: Some(0), ..members(["absent"; 3]) }, Want::default(), 0),
        (
            "a first install",
            Scene { data: "none".into(), claims: false, ..members(["starting", "absent", "absent"]) },
            Want::default(),
            0,
        ),
        ("a pod is missing", members([&old, "absent", &newer]), Want::default(), 0),
        ("one is yet to tell", members([&old, "starting", &newer]), Want::default(), 0),
        ("one reported nothing for long", members([&old, &newest, "starting"]), Want::default(), 600),
        ("the newest", down(), Want::default(), 0),
        ("an older one by name", down(), from("0", None), 0),
        ("an older one and its price", down(), from("0", Some("12 transactions")), 0),
        ("another price", down(), from("0", Some("1 transaction")), 0),
        ("nobody of that name", down(), from("7", None), 0),
        ("two histories", members([&other, &newest, &newer]), Want::default(), 0),
        (
            "one is empty",
            members(["reported empty, safe_to_bootstrap unknown", &newest, &newer]),
            Want::default(),
            0,
        ),
        (
            "half a copy",
            members(["reported a state transfer was not finished, safe_to_bootstrap 0", &newest, &newer]),
            Want::default(),
            0,
        ),
        (
            "asked for, and nobody looked",
            Scene {
                stateful_set: json!({ "metadata": { "annotations": { "gatera.dev/recover": asked } } }),
                ..down()
            },
            Want::default(),
            0,
        ),
        ("granted", granted([&*old, &*newest, &*newer]), Want::default(), 0),
        ("granted, and its pod has gone", granted([&*old, "absent", &*newer]), Want::default(), 0),
        ("granted, and it leaves", granted([&*old, "going", &*newer]), Want::default(), 0),
        ("granted, and it gives a copy", granted([&*old, "gives", &*newer]), Want::default(), 30),
        (
            "granted, it started, and serves nobody for long",
            granted([&*old, "gives", "absent"]),
            Want::default(),
            90,
        ),
        ("one that served is not Ready", members([&old, "gives", &newer]), Want::default(), 30),
        ("one that served is not Ready for long", members([&old, "gives", &newer]), Want::default(), 90),
        ("granted, and another one serves", granted(["ready", &*newest, &*newer]), Want::default(), 0),
        ("the first is back", granted([&*old, "ready", "absent"]), Want::default(), 0),
        (
            "the first is back, and a node does not answer",
            Scene { also: vec![away(0)], ..granted([&*old, "ready", "absent"]) },
            Want::default(),
            0,
        ),
        (
            "all are back but one on a node that does not answer",
            Scene { also: vec![away(0)], ..granted([&*old, "ready", "ready"]) },
            Want::default(),
            0,
        ),
        (
            "one is on a node that does not answer",
            Scene { also: vec![away(0)], ..down() },
            Want::default(),
            0,
        ),
        ("one cannot be placed", members(["pending", &newest, &newer]), Want::default(), 600),
        ("all are back", granted(["ready"; 3]), Want::default(), 0),
    ];
    let page: String = rows
        .into_iter()
        .chain(refused_by_its_step())
        .map(|(what, scene, want, still)| format!("{what}\n{}\n\n", reads(&scene, &want, still).trim_end()))
        .collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("recover", page);
    });
}

/// If a server leaves no termination message, the end of its log takes its place, where its step script reported a start that
/// is long ago.
#[test]
fn the_end_of_a_log_is_not_where_the_data_ends() {
    let reported =
        format!("start of 2026-12-01T09:29:00Z: position {ID}:351, stopped in order, safe_to_bootstrap 0");
    for (message, believed) in [
        (format!("{reported}\n"), true),
        (format!("Startup probe failed: the server is DISCONNECTED; {reported}\n"), true),
        (
            format!("gatera: {reported}\n2026-12-01  9:29:01 0 [Note] mariadbd: ready for connections.\n"),
            false,
        ),
        (format!("{reported}\n2026-12-01  9:29:01 0 [Note] mariadbd: ready for connections.\n"), false),
        (format!("gatera: {reported}\n"), false),
    ] {
        let mut scene = Scene { members: vec![at(ID, 351), at(ID, 363), at(ID, 360)], ..Scene::default() };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = json!(message);
        scene.also.push(pod);
        let text = reads(&scene, &Want::default(), 0);
        let silent = format!("waiting: {STATEFUL_SET}-0 has not reported its position yet");
        assert_eq!(text == silent, !believed, "{message}: {text}");
    }
}

/// A server that joined and then failed had reported before where its data ended then. The Event with that report still exists.
#[test]
fn what_was_reported_in_a_run_that_is_over_is_not_where_the_data_ends() {
    let said = format!(
        "Startup probe failed: the server is DISCONNECTED; start of 2026-12-01T09:25:00Z: position {ID}:351, stopped in order, \
         safe_to_bootstrap 0"
    );
    let run = json!({ "startedAt": "2026-12-01T09:25:00Z" });
    let ended =
        json!({ "exitCode": 137, "startedAt": "2026-12-01T09:25:00Z", "message": "WSREP: Synchronized" });
    let rests = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    for (what, state, last, believed) in [
        ("it runs, and has not joined", json!({ "running": run }), json!({}), true),
        ("it joined, and fell a moment ago", json!({ "terminated": ended }), json!({}), false),
        (
            "it joined, fell, and is not started again yet",
            rests.clone(),
            json!({ "terminated": ended }),
            false,
        ),
    ] {
        let mut scene =
            Scene { members: vec!["starting".to_owned(), at(ID, 363), at(ID, 360)], ..Scene::default() };
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
        facts.hear(&id, "pod-0", "2026-12-01T09:25:10Z".parse().unwrap(), &said);
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let step = |still, before: &[&str]| {
            let want = Want { before: before.iter().map(|&uid| uid.to_owned()).collect(), ..Want::default() };
            recovery::next(cluster, &view, &want, SignedDuration::from_secs(still))
        };
        let asks = matches!(step(0, &[]), RecoveryStep::Ask { .. });
        assert_eq!(asks, believed, "{what}: {:?}", step(0, &[]));
        // The kubelet may back off for minutes, so the pod is re-created once.
        let member = format!("{STATEFUL_SET}-0");
        let anew =
            matches!(step(20, &["pod-0"]), RecoveryStep::Restart { member: again, .. } if again == member);
        assert_eq!(anew, !believed, "{what}: {:?}", step(20, &["pod-0"]));
        let refuses = matches!(step(600, &["pod-of-before"]), RecoveryStep::Refuse { from: Some(_), .. });
        assert_eq!(refuses, !believed, "{what}: {:?}", step(600, &["pod-of-before"]));
    }
}

/// Kubelets drop Events of a pod that caused many, so the report of a server that was restarted in the same pod may be missing
/// for minutes.
#[test]
fn who_is_not_heard_for_long_is_asked_again_once() {
    for (restarts, before, still, asked) in [
        (1, "pod-0", 60, true),
        (1, "pod-0", 59, false),
        (0, "pod-0", 600, false),
        (1, "a pod of before", 600, false),
    ] {
        let mut scene =
            Scene { members: vec!["starting".to_owned(), at(ID, 363), at(ID, 360)], ..Scene::default() };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(restarts);
        scene.also.push(pod);
        let want = Want { before: vec![before.to_owned()], ..Want::default() };
        let text = reads(&scene, &want, still);
        let again =
            format!("{STATEFUL_SET}-0: re-creating its pod, so that it reports again where its data ends");
        assert_eq!(text == again, asked, "{restarts} {before} {still}: {text}");
    }
}

/// A replica of the guard grants a recovery, and gives the right to it to a new pod, only as far as its view permits.
#[test]
fn nobody_starts_beside_another_or_on_an_old_view() {
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let marks = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    let down = Scene {
        members: vec![at(ID, 351), "absent".to_owned(), at(ID, 360)],
        stateful_set: json!({ "metadata": { "annotations": marks } }),
        ..Scene::default()
    };
    let (_, mut other) = down.object(&format!("Pod/{STATEFUL_SET}-0"));
    other["metadata"]["annotations"]["gatera.dev/identity"] =
        json!(format!("recovery {ID}:351 until=20261201100000"));
    let with = |members: [&str; 3]| Scene { members: members.map(str::to_owned).to_vec(), ..down.clone() };
    let (old, newer) = (at(ID, 351), at(ID, 360));
    let settings = Settings::default();
    for (what, scene, leads) in [
        ("as it was verified", down.clone(), true),
        ("another view is old", Scene { view: "stale".into(), ..down.clone() }, false),
        ("another pod has a right", Scene { also: vec![other.clone()], ..down.clone() }, false),
        ("another one serves", with(["ready", "absent", &newer]), false),
        ("another one has gone on", with([&old, "absent", &at(ID, 364)]), false),
        ("another one has gone on in another history", with([&old, "absent", &at(OTHER, 3)]), false),
        ("another one is away", with([&old, "absent", "absent"]), false),
    ] {
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        assert_eq!(
            engine::grant::leads(cluster, &format!("{STATEFUL_SET}-1"), &view).is_some(),
            leads,
            "{what}"
        );
        assert!(engine::grant::leads(cluster, &format!("{STATEFUL_SET}-2"), &view).is_none(), "{what}");
    }
    let scene = Scene { also: vec![other], ..with([&old, &at(ID, 363), &newer]) };
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let refused = engine::grant::verify(&Recovery::read(&asked, view.now).unwrap(), cluster, &view);
    let says = format!(
        "{STATEFUL_SET}-0 may still start the cluster, because an earlier recovery allowed it: delete its pod first"
    );
    assert_eq!(refused, Some(says));
}
