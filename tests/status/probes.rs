//! How long the result of a probe counts, and which of two members is deleted first if neither becomes Ready by waiting.

use super::*;

/// A result no longer counts after a restart of the server, after a newer result, or after a change of readiness; it is kept
/// across a new version of the pod object.
#[test]
fn a_probe_result_counts_until_something_newer_replaces_it() {
    const RUNS: &str = "2026-12-01T09:20:00Z";
    let mut pod = member(0, "");
    pod["status"]["containerStatuses"][0]["started"] = json!(true);
    let read = |pod: &Value| Object::read(Kind::Pod, &pod.to_string()).unwrap();
    let (settings, id) = (Settings::default(), Id::new(NAMESPACE, &format!("{STATEFUL_SET}-0")));
    let mut facts = rulebook().facts(&settings.adoption);
    facts.put(read(&pod));
    let assert_seen = |facts: &mut Facts, uid: &str, at: &str, message: &str, seen: Option<JoinPhase>| {
        facts.add_report(&id, uid, at.parse().unwrap(), message);
        assert_eq!(facts.pod(&id).unwrap().seen, seen, "after {at}, of pod {uid}: {message}");
    };
    assert_seen(
        &mut facts,
        "pod-0",
        "2026-12-01T09:19:59Z",
        "Readiness probe failed: the server is CONNECTED\n",
        None,
    );
    assert_seen(&mut facts, "other", RUNS, "Readiness probe failed: the server is CONNECTED\n", None);
    assert_seen(&mut facts, "pod-0", RUNS, "Startup probe failed: the server is DISCONNECTED\n", None);
    let waits = Some(JoinPhase::Waits);
    assert_seen(&mut facts, "pod-0", RUNS, "Readiness probe failed: the server is CONNECTED\n", waits);
    assert_seen(&mut facts, "pod-0", RUNS, "Liveness probe failed: x\n", waits);
    pod["metadata"]["resourceVersion"] = json!("2");
    facts.put(read(&pod));
    assert_eq!(facts.pod(&id).unwrap().seen, waits, "another version of the same pod");
    assert_seen(&mut facts, "pod-0", RUNS, "Readiness probe failed: the server is JOINED\n", None);
    assert_seen(
        &mut facts,
        "pod-0",
        RUNS,
        "Readiness probe failed: the server is JOINING\n",
        Some(JoinPhase::Receives),
    );
    let frozen = "Readiness probe failed: the server does not answer on its port\n";
    assert_seen(&mut facts, "pod-0", RUNS, frozen, Some(JoinPhase::Freezes));
    let stray = format!(
        "Readiness probe failed: the server is SYNCED, in another cluster: {OTHER}, but {ID} is recorded; x\n"
    );
    assert_seen(&mut facts, "pod-0", RUNS, &stray, Some(JoinPhase::Strays));
    assert_seen(&mut facts, "pod-0", RUNS, "Readiness probe errored and resulted in unknown state: x", None);
    pod["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-12-01T09:21:00Z");
    facts.put(read(&pod));
    assert_seen(
        &mut facts,
        "pod-0",
        "2026-12-01T09:20:29Z",
        "Readiness probe failed: the server is CONNECTED\n",
        None,
    );
    assert_seen(
        &mut facts,
        "pod-0",
        "2026-12-01T09:20:30Z",
        "Readiness probe failed: the server is CONNECTED\n",
        waits,
    );
    pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = json!("2026-12-01T09:25:00Z");
    facts.put(read(&pod));
    assert_eq!(facts.pod(&id).unwrap().seen, None, "it was started again");
}

/// Two members that have left their cluster would otherwise wait for each other endlessly.
#[test]
fn of_two_members_that_do_not_recover_one_is_deleted_first() {
    let scene = Scene { members: vec!["ready".into(), "absent".into(), "absent".into()], ..Scene::default() };
    let settings = Settings::default();
    let mut facts = scene.world(&settings).facts().clone();
    let mut lost = member(2, "");
    for ordinal in [1, 2] {
        lost = member(ordinal, "");
        lost["status"]["containerStatuses"][0]["started"] = json!(true);
        facts.put(Object::read(Kind::Pod, &lost.to_string()).unwrap());
        let (id, uid) = (Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}")), format!("pod-{ordinal}"));
        facts.add_report(&id, &uid, scene::now(), "Readiness probe failed: the server is DISCONNECTED\n");
    }
    let world = World::build(facts, Freshness::Current);
    let view = View::new(&world, scene::now(), &settings);
    let body = deletion("pods", "Pod", "", &lost).to_string();
    let review = review::read(body.as_bytes(), Origin::Validating, rulebook().kinds()).unwrap().review;
    let decision = rulebook().evaluate(&review, &view);
    let words = report::refusal(&review.subject(), &decision, &Pages::Program);
    let says = format!(
        "[G02] Pod {NAMESPACE}/{STATEFUL_SET}-2: {STATEFUL_SET}-1 has left its cluster (1 of 3 members Synced, seen now)"
    );
    let instead = format!(
        "do instead:\n    1. neither becomes Ready by waiting: this one has left its cluster\n    2. with the override of G02 on this \
         pod: kubectl -n {NAMESPACE} delete pod {STATEFUL_SET}-2\n    3. wait until it is Ready, then {STATEFUL_SET}-1"
    );
    assert!(words.starts_with(&says) && words.contains(&instead), "{words}");
}
