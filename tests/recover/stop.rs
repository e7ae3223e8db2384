//! `gatera stop` and `gatera start` without an API server: the output in each situation, and that the guard permits each step.

use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use jiff::SignedDuration;
use leader::recovery::{self, RecoveryOptions};
use leader::stop::{self, StopStep};
use report::stop as report;
use serde_json::json;

use super::{printed, reported_at, unreachable_node};
use crate::cases::asked::{Action, body};
use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

fn members(words: [&str; 3]) -> Scene {
    Scene { members: words.map(str::to_owned).to_vec(), ..Scene::default() }
}

/// Returns the next step of `gatera stop`.
fn next(scene: &Scene) -> StopStep {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    stop::next(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), &view)
}

fn printed_by_stop(scene: &Scene) -> String {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    match stop::next(cluster, &view) {
        StopStep::Stopped => report::stopped(cluster),
        StopStep::Cannot(why) => why,
        step => report::proposal(cluster, &view) + &report::step_text(&step),
    }
}

#[test]
fn what_stop_and_start_print() {
    let asked = json!({ "metadata": { "annotations": { "gatera.dev/recover": "x" } } });
    let stopped =
        || Scene { replicas: Some(0), ended: vec![363, 360, 351], ..members(["absent", "absent", "absent"]) };
    let under_way = |words| Scene { replicas: Some(2), ended: vec![0, 0, 351], ..members(words) };
    let rollout = json!({ "status": { "observedGeneration": 1, "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 1 } });
    let deletes = json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete" } } });
    let (_, mut deleted_claim) =
        members(["ready"; 3]).object(&format!("PersistentVolumeClaim/datadir-{STATEFUL_SET}-1"));
    deleted_claim["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:50Z");
    deleted_claim["apiVersion"] = json!("v1");
    let (_, mut blind) = members(["ready"; 3]).object(&format!("Pod/{STATEFUL_SET}-1"));
    blind["spec"]["containers"][0]["command"] = json!(["docker-entrypoint.sh"]);
    let (_, mut bare_bootstrap) = Scene { bootstrap: "running".into(), ..Scene::default() }
        .object("Pod/galera-instance-bootstrap-6d5f7");
    bare_bootstrap["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let mark = |key: &str, text: &str| json!({ "metadata": { "annotations": { key: text } } });
    let no_identity = mark("gatera.dev/identity", "none");
    let overrides =
        |reason| mark("gatera.dev/override", &format!("G01 until=2026-12-01T10:00:00Z reason={reason}"));
    let (foreign, ours) = (overrides("moving house"), overrides(stop::OVERRIDE_REASON));
    let rows = [
        ("all are Ready", members(["ready"; 3])),
        ("all are Ready, and the stop is recorded", Scene { ended: vec![0; 3], ..members(["ready"; 3]) }),
        ("the last member is being deleted", under_way(["ready", "ready", "going"])),
        ("the last member is gone", under_way(["ready", "ready", "absent"])),
        ("the last member is gone, and another one has failed", under_way(["ready", "stuck", "absent"])),
        ("all are stopped", stopped()),
        ("all are stopped, and the stop is not recorded", Scene { ended: vec![], ..stopped() }),
        ("a member is not Ready", members(["ready", "starting", "ready"])),
        ("no member is Ready", members(["stuck"; 3])),
        ("a rollout is under way", Scene { stateful_set: rollout, ..members(["ready"; 3]) }),
        ("a recovery is under way", Scene { stateful_set: asked, ..members(["ready"; 3]) }),
        (
            "no member ever held data",
            Scene { data: "none".into(), claims: false, ..members(["starting"; 3]) },
        ),
        ("no claims", Scene { claims: false, ..members(["ready"; 3]) }),
        (
            "a member has neither a pod nor a claim",
            Scene { claims: false, ..members(["absent", "ready", "ready"]) },
        ),
        ("claims are deleted with their members", Scene { stateful_set: deletes, ..members(["ready"; 3]) }),
        ("a claim is being deleted", Scene { also: vec![deleted_claim], ..members(["ready"; 3]) }),
        ("a member has no step script", Scene { also: vec![blind], ..members(["ready"; 3]) }),
        ("it has no identity", Scene { stateful_set: no_identity, ..members(["ready"; 3]) }),
        ("another override is set", Scene { stateful_set: foreign, ..members(["ready"; 3]) }),
        (
            "the override of an earlier stop was left",
            Scene { stateful_set: ours, ended: vec![0, 0, 0], ..members(["ready"; 3]) },
        ),
        ("the bootstrap node exists", Scene { bootstrap: "running".into(), ..members(["ready"; 3]) }),
        (
            "the bootstrap node exists, and nothing proves that a member is Synced",
            Scene { bootstrap: "running".into(), ..members(["ready", "unverified", "ready"]) },
        ),
        (
            "the bootstrap node exists, and the mode is audit",
            Scene { bootstrap: "running".into(), mode: Some("audit".into()), ..members(["ready"; 3]) },
        ),
        (
            "the bootstrap node exists, and no Deployment created it",
            Scene { bootstrap: "running".into(), also: vec![bare_bootstrap], ..members(["ready"; 3]) },
        ),
        (
            "the last member is being deleted, and its node does not answer",
            Scene { also: vec![unreachable_node(2)], ..under_way(["ready", "ready", "going"]) },
        ),
        ("the view is stale", Scene { view: "stale".into(), ..members(["ready"; 3]) }),
    ];
    let mut page: String = rows
        .iter()
        .map(|(what, scene)| format!("stop: {what}\n{}\n\n", printed_by_stop(scene).trim_end()))
        .collect();
    let all = RecoveryOptions { all: true, ..RecoveryOptions::default() };
    let reported = |numbers: [u64; 3]| {
        let words = numbers.map(|seqno| reported_at(ID, seqno));
        Scene { ended: vec![363, 360, 351], ..members([&words[0], &words[1], &words[2]]) }
    };
    let rows = [
        ("after a stop", stopped()),
        ("the stop is not recorded", Scene { ended: vec![], ..stopped() }),
        ("the stop was not completed", under_way(["ready", "ready", "absent"])),
        ("the last member is still being deleted", under_way(["ready", "ready", "going"])),
        ("a member that was not stopped has failed", under_way(["ready", "stuck", "absent"])),
        ("all members that were not stopped have failed", under_way(["stuck", "stuck", "absent"])),
        ("all reported, and nothing changed", reported([363, 360, 351])),
        ("a member has newer data than at its stop", reported([363, 370, 351])),
        ("all members have older data than at their stop", reported([300, 300, 300])),
        ("all are Ready again", Scene { ended: vec![363, 360, 351], ..members(["ready"; 3]) }),
        ("it was never stopped", members(["ready"; 3])),
        ("it was never stopped, and a member is not Ready", members(["ready", "starting", "ready"])),
    ];
    page.extend(
        rows.iter().map(|(what, scene)| format!("start: {what}\n{}\n\n", printed(scene, &all, 0).trim_end())),
    );
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".." }, {
        insta::assert_snapshot!("stop", page);
    });
}

/// Returns whether the guard permits this scale request.
fn permits(scene: &Scene, to: i64) -> bool {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let bytes = body(&Action::Scale(to).asked(scene), "editor").to_string().into_bytes();
    rulebook()
        .evaluate(&review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review, &view)
        .allowed()
}

/// In every state of the members, `gatera stop` lets only the last member leave, and only if all others are Ready. The guard
/// permits every scale request of both commands except the one to 0, which needs an override.
#[test]
fn the_guard_permits_the_scale_requests_of_stop_and_start() {
    let states = ["ready", "starting", "stuck", "going", "absent"];
    let (mut left, mut scaled) = (0, 0);
    for number in 0..states.len().pow(3) {
        let state_of = |ordinal: usize| {
            states[number / states.len().pow(u32::try_from(ordinal).unwrap()) % states.len()]
        };
        for (replicas, ended, parallel) in (0..=3).flat_map(|replicas| {
            [vec![], vec![0; 3], vec![0, 360, 351]]
                .into_iter()
                .flat_map(move |ended| [false, true].map(|parallel| (replicas, ended.clone(), parallel)))
        }) {
            let scene = Scene {
                replicas: Some(replicas),
                ended,
                parallel,
                ..members([state_of(0), state_of(1), state_of(2)])
            };
            if let StopStep::Leave { member, to, .. } = next(&scene) {
                let kept = usize::try_from(replicas).unwrap();
                assert_eq!((member, to), (format!("{STATEFUL_SET}-{to}"), replicas - 1), "{scene:?}");
                assert!(
                    scene.members[..kept].iter().all(|it| it == "ready"),
                    "a member that stays is not Ready: {scene:?}"
                );
                assert!(
                    scene.members[kept..].iter().all(|it| it == "absent"),
                    "an earlier member is not gone: {scene:?}"
                );
                assert_eq!(permits(&scene, to), to > 0, "whether a scale to {to} is permitted: {scene:?}");
                left += 1;
            }
            let settings = Settings::default();
            let world = scene.world(&settings);
            let view = View::new(&world, scene::now(), &settings);
            let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
            let want = RecoveryOptions { all: true, ..RecoveryOptions::default() };
            if let recovery::RecoveryStep::Scale { to } =
                recovery::next(cluster, &view, &want, SignedDuration::ZERO)
            {
                assert!(permits(&scene, to), "the guard refuses that start scales to {to}: {scene:?}");
                scaled += 1;
            }
        }
    }
    assert!(left >= 6 && scaled > 20, "too few steps were judged: {left} of stop, {scaled} of start");
}
