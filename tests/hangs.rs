//! Causes of an installation that hangs: a state transfer that does not end, a bootstrap node without a majority, and a pod that
//! Kubernetes cannot start. Each cause is reported, with a way out that the guard allows.

use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::condition;
use facts::view::{Facts, Freshness, Id, View, World};
use gatera::rulebook;
use jiff::Timestamp;
use objects::{Kind, Object};
use serde_json::{Value, json};

use crate::published_events::deletion;
use crate::scene::{self, BOOTSTRAP, NAMESPACE, STATEFUL_SET, Scene, bootstrap_pod};

/// Puts this pod into the facts, with a server that has been running since `since`, was restarted this many times and is in this
/// state. It is Ready only if the state is SYNCED.
fn put_pod(facts: &mut Facts, mut pod: Value, since: &str, restarts: u64, state: &str) -> Value {
    pod["status"] = json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": if state == "SYNCED" { "True" } else { "False" } }],
        "containerStatuses": [{ "name": "mariadb", "started": state == "SYNCED", "restartCount": restarts,
            "state": { "running": { "startedAt": since } } }],
    });
    let read = Object::read(Kind::Pod, &pod.to_string()).unwrap();
    let (id, uid) = (Id::of(read.meta()), read.meta().uid.clone());
    facts.put(read);
    let start = "start of 2026-12-01T09:29:50Z: empty, safe_to_bootstrap unknown";
    let message = format!("Startup probe failed: the server is {state}; {start}\n");
    facts.add_report(&id, &uid, scene::now(), &message);
    pod
}

/// Returns an installation with this data mark. Its bootstrap node has this start, number of restarts and state, and its first
/// member has been copying data since `joins_since`.
fn installation(data: &str, bootstrap: (&str, u64, &str), joins_since: &str) -> World {
    let members = vec!["starting".into(), "absent".into(), "absent".into()];
    let scene =
        Scene { members, data: data.into(), claims: false, bootstrap: "running".into(), ..Scene::default() };
    let mut facts = scene.facts(&Settings::default());
    let (_, member) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
    put_pod(&mut facts, member, joins_since, 0, "JOINING");
    let (since, restarts, state) = bootstrap;
    put_pod(&mut facts, bootstrap_pod("6d5f7"), since, restarts, state);
    World::build(facts, Freshness::Current)
}

fn diagnoses(world: &World, now: Timestamp) -> Vec<String> {
    let settings = Settings::default();
    let view = View::new(world, now, &settings);
    world.clusters().flat_map(|it| condition::diagnoses(it, &view)).map(|it| it.to_string()).collect()
}

/// Returns the refusal of a request to delete this object, or `None` if it is allowed.
fn refusal(world: &World, kind: (&str, &str, &str), name: &str, uid: &str) -> Option<String> {
    refusal_of(world, kind, &json!({ "metadata": { "name": name, "namespace": NAMESPACE, "uid": uid } }))
}

fn refusal_of(world: &World, kind: (&str, &str, &str), object: &Value) -> Option<String> {
    let body = deletion(kind.0, kind.1, kind.2, object).to_string();
    let review = review::read(body.as_bytes(), Origin::Validating, rulebook().kinds()).unwrap().review;
    let settings = Settings::default();
    let decision = rulebook().evaluate(&review, &View::new(world, scene::now(), &settings));
    (!decision.allowed()).then(|| report::refusal(&review.subject(), &decision, &Pages::Program))
}

const POD: (&str, &str, &str) = ("pods", "Pod", "");
const DEPLOYMENT: (&str, &str, &str) = ("deployments", "Deployment", "apps");

#[test]
fn a_bootstrap_node_without_a_majority_is_reported_and_may_be_replaced() {
    let founder = format!("{BOOTSTRAP}-6d5f7");
    let world = installation("none", ("2026-12-01T09:20:00Z", 1, "CONNECTED"), "2026-12-01T09:29:00Z");
    let way_out = format!(
        "kubectl -n db delete pod {founder}: no member has data yet, so its Deployment makes a new bootstrap node, which members join; \
         rows that were written into this one are lost with it"
    );
    assert_eq!(diagnoses(&world, scene::now())[0], format!("CUT-OFF {founder}: {way_out}"));
    assert_eq!(refusal(&world, POD, &founder, "6d5f7"), None, "the printed way out is refused");
    let words = refusal(&world, DEPLOYMENT, BOOTSTRAP, "").unwrap();
    let command = way_out.split("; ").next().unwrap();
    assert!(words.contains("[G05]") && words.contains(command), "{words}");
    for (what, world) in [
        (
            "it may be starting",
            installation("none", ("2026-12-01T09:29:40Z", 1, "CONNECTED"), "2026-12-01T09:29:00Z"),
        ),
        ("it serves", installation("none", ("2026-12-01T09:20:00Z", 1, "SYNCED"), "2026-12-01T09:29:00Z")),
        (
            "there is data",
            installation("present", ("2026-12-01T09:20:00Z", 1, "CONNECTED"), "2026-12-01T09:29:00Z"),
        ),
    ] {
        let words = refusal(&world, POD, &founder, "6d5f7")
            .unwrap_or_else(|| panic!("{what}, but its deletion is allowed"));
        assert!(words.contains("[G05]") && !words.contains(command), "{what}: {words}");
        assert!(
            diagnoses(&world, scene::now())
                .iter()
                .all(|it| !it.contains(&founder) || it.contains("TRANSFER")),
            "{what}, but {founder} is reported"
        );
    }
}

#[test]
fn a_state_transfer_that_may_never_end_is_reported() {
    let begun = "2026-12-01T09:21:00Z";
    let joiner = format!("{STATEFUL_SET}-0");
    let way_out = |why: &str| {
        format!(
            "TRANSFER {joiner}: kubectl -n db logs {joiner} --tail=20 shows whether data still arrives ({why}); if not: \
             kubectl -n db delete pod {joiner} restarts the copy"
        )
    };
    let usual = format!(
        "TRANSFER {joiner}: wait: a copy takes time, and no other member may leave until it is complete"
    );
    let healthy = installation("none", ("2026-12-01T09:00:00Z", 0, "SYNCED"), begun);
    let later = |minutes| scene::now() + jiff::SignedDuration::from_mins(minutes);
    assert_eq!(diagnoses(&healthy, later(50))[0], usual);
    assert_eq!(diagnoses(&healthy, later(60))[0], way_out("this copy has lasted 1h 9m"));
    let again = installation("none", ("2026-12-01T09:25:00Z", 1, "SYNCED"), begun);
    let why = format!("the server of {BOOTSTRAP}-6d5f7 was started again after this copy began");
    assert_eq!(diagnoses(&again, scene::now())[0], way_out(&why));
    assert_eq!(refusal(&again, POD, &joiner, "pod-0"), None, "the printed way out is refused");
    let words = refusal(&again, POD, &format!("{BOOTSTRAP}-6d5f7"), "6d5f7").unwrap();
    assert!(words.contains(&why), "{words}");
    let before = installation("none", ("2026-12-01T09:20:00Z", 1, "SYNCED"), begun);
    assert_eq!(
        diagnoses(&before, scene::now())[0],
        usual,
        "a restart before the copy began is reported as its cause"
    );
}

/// Of two joiners, neither has to wait for the other, because the member that is Ready is the donor for both.
#[test]
fn either_joiner_whose_state_transfer_may_never_end_may_be_deleted() {
    let scene =
        Scene { members: ["ready", "starting", "starting"].map(str::to_owned).to_vec(), ..Scene::default() };
    for (begun, words) in [("2026-12-01T08:00:00Z", None), ("2026-12-01T09:20:00Z", Some("is not Ready yet"))]
    {
        let mut facts = scene.facts(&Settings::default());
        let joiners = [1, 2].map(|ordinal| {
            let (_, joiner) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
            put_pod(&mut facts, joiner, begun, 0, "JOINING")
        });
        let world = World::build(facts, Freshness::Current);
        for joiner in &joiners {
            let refused = refusal_of(&world, POD, joiner);
            let says = words.is_none_or(|words| refused.as_ref().is_some_and(|it| it.contains(words)));
            assert!(says && refused.is_some() == words.is_some(), "copying since {begun}: {refused:?}");
        }
    }
}

/// If no node accepts a member's pod, or its image cannot be pulled, the message of Kubernetes is printed, not the log of a
/// server that never ran.
#[test]
fn the_reason_why_kubernetes_cannot_start_a_pod_is_printed() {
    let printed = |node: bool, status: Value| {
        let mut scene =
            Scene { members: vec!["ready".into(), "ready".into(), "pending".into()], ..Scene::default() };
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-2"));
        if !node {
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
        }
        pod["status"] = status;
        scene.also.push(pod);
        diagnoses(&scene.world(&Settings::default()), scene::now())
    };
    let way_out = |condition: &str, says: &str| {
        let name = format!("{STATEFUL_SET}-2");
        [format!(
            "{condition} {name}: Kubernetes says: {says}; kubectl -n db describe pod {name} shows its requests and Events"
        )]
    };
    let says = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules";
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says });
    let unscheduled = json!({ "phase": "Pending", "conditions": [condition] });
    assert_eq!(printed(false, unscheduled), way_out("UNSCHEDULED", says));
    let says = "Back-off pulling image \"busybox:1.37\"";
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": says } });
    let unpulled =
        json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "init", "state": waiting }] });
    assert_eq!(printed(true, unpulled), way_out("HELD-UP", says));
}
