//! A template whose rollout hangs is taken back: the changes that the guard allows, its steps, and its messages.

use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use gatera::rulebook;
use serde_json::{Value, json};

use super::situation::{File, Situation};
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene, facts_of};

/// Returns a member of a StatefulSet whose rollout hangs, with the revision of its template and the time since which it is not
/// Ready.
fn pod(scene: &Scene, ordinal: usize, revision: &str, since: &str) -> Value {
    let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(revision);
    pod["metadata"]["annotations"]["gatera.dev/revision"] = json!(File::Old.revision());
    if pod["status"]["conditions"][0]["status"] == "False" {
        pod["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
    }
    pod
}

/// Returns the members that exist, each with the revision of its template.
fn members(scene: &Scene, revisions: &[&str], since: &str) -> Vec<Value> {
    let all = scene.members.iter().zip(revisions).enumerate().filter(|(_, (word, _))| *word != "absent");
    all.map(|(ordinal, (_, revision))| pod(scene, ordinal, revision, since)).collect()
}

/// Returns the stage and the next step after template b was taken back in favour of a.
fn stage(words: &[&'static str], revisions: &[&str], since: &str) -> (String, String) {
    stage_of(words, members(&scene_of(words), revisions, since), None)
}

/// Returns the same if this was the last state that a probe of member 2 saw.
fn stage_with_probe(words: &[&'static str], state: &'static str, since: &str) -> (String, String) {
    let mut pods = members(&scene_of(words), &["a", "a", "b"], since);
    pods[2]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = json!(since);
    stage_of(words, pods, Some(state))
}

fn scene_of(words: &[&str]) -> Scene {
    Scene { members: words.iter().map(|it| (*it).to_owned()).collect(), ..Scene::default() }
}

fn stage_of(words: &[&'static str], pods: Vec<Value>, probe: Option<&'static str>) -> (String, String) {
    let it = Situation {
        set: json!({ "status": { "currentRevision": "a", "updateRevision": "a" } }),
        members: words.iter().map(|word| (*word, Some(File::Old))).collect(),
        also: pods,
        probe,
        ..Situation::recorded()
    };
    it.stage()
}

#[test]
fn a_member_that_hangs_with_a_template_that_was_taken_back_is_replaced_after_ten_minutes() {
    let now = "; to replace it now: kubectl -n db delete pod galera-2";
    let waits = "galera-2 was created from an earlier template and is not Ready: after 10 minutes without progress it is replaced";
    let (says, does) = stage(&["ready", "ready", "starting"], &["a", "a", "b"], "2026-12-01T09:25:00Z");
    assert_eq!((says, &*does), (format!("{waits}{now}"), ""));
    // Without output of a probe it is not known whether the member copies or catches up.
    let (says, does) = stage(&["ready", "ready", "starting"], &["a", "a", "b"], "2026-12-01T08:00:00Z");
    assert_eq!((says, &*does), (format!("{waits}{now}"), ""));
    let (says, does) = stage_with_probe(&["ready", "ready", "gives"], "CONNECTED", "2026-12-01T09:00:00Z");
    let replaced = "galera-2 does not become Ready with an earlier template and is replaced";
    assert_eq!((&*says, &*does), (replaced, "evict galera-2 after 30s"));
    let (says, does) = stage_with_probe(&["ready", "ready", "gives"], "CONNECTED", "2026-12-01T09:25:00Z");
    assert_eq!((says, &*does), (format!("{waits}{now}"), ""));
    let (says, does) = stage_with_probe(&["ready", "ready", "gives"], "JOINING", "2026-12-01T08:00:00Z");
    assert_eq!(
        (&*says, &*does),
        (
            "galera-2 was created from an earlier template and receives a state transfer: the guard waits for it",
            ""
        )
    );
    // Another member is Ready, but nothing proves that it serves.
    let (says, does) =
        stage_with_probe(&["ready", "unverified", "gives"], "CONNECTED", "2026-12-01T09:00:00Z");
    assert_eq!((says, &*does), (format!("{waits}{now}"), ""));
    // The rollout hangs at its second member. Deleting that one is refused until galera-2, the first one, has been replaced, so
    // no command is printed.
    let (says, _) = stage(&["ready", "starting", "ready"], &["a", "b", "b"], "2026-12-01T09:25:00Z");
    assert!(says.ends_with("after 10 minutes without progress it is replaced"), "{says}");
    // Another member is not Ready, so no member leaves.
    let (_, does) = stage(&["ready", "starting", "starting"], &["a", "a", "b"], "2026-12-01T09:00:00Z");
    assert_eq!(does, "", "galera-2 is replaced although galera-1 is not Ready");
}

/// Members with higher ordinals may have been removed before: their pods are created once this member is Ready.
#[test]
fn missing_members_with_higher_ordinals_do_not_delay_the_replacement() {
    let words = ["ready", "ready", "stuck", "absent", "absent"];
    assert_eq!(stage(&words, &["a", "a", "b"], "2026-12-01T09:00:00Z").1, "evict galera-2 after 30s");
    let missing_below = ["ready", "absent", "stuck"];
    assert_eq!(
        stage(&missing_below, &["a", "a", "b"], "2026-12-01T09:00:00Z").1,
        "",
        "galera-1 would be created first"
    );
}

/// Returns a StatefulSet with this template, as its controller has seen it.
fn set(scene: &Scene, template: &str, current: &str, update: &str) -> Value {
    let mut set = scene.stateful_set();
    set["spec"]["template"]["metadata"]["annotations"] = json!({ "version": template });
    set["status"] = json!({ "currentRevision": current, "updateRevision": update });
    set
}

/// Returns the refusal of a change to this template, or the warning where it is allowed. `a_was_seen`: the guard saw template a
/// before b.
fn answer_to_change(scene: &Scene, revisions: &[&str], to: &str, a_was_seen: bool) -> String {
    let (before, now, settings) = (set(scene, "a", "a", "a"), set(scene, "b", "a", "b"), Settings::default());
    let objects = scene.objects().into_iter().map(|(_, object)| object);
    let also = members(scene, revisions, "2026-12-01T09:28:00Z");
    let all: Vec<_> =
        a_was_seen.then_some(before).into_iter().chain(objects).chain(also).chain([now.clone()]).collect();
    let world = World::build(facts_of(&all, &settings), Freshness::Current);
    let view = View::new(&world, scene::now(), &settings);
    let mut new = now.clone();
    new["spec"]["template"]["metadata"]["annotations"] = json!({ "version": to });
    let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "StatefulSet" },
        "resource": { "group": "apps", "version": "v1", "resource": "statefulsets" }, "operation": "UPDATE",
        "namespace": NAMESPACE, "name": STATEFUL_SET, "userInfo": { "username": "alice" }, "object": new, "oldObject": now,
    } });
    let review =
        review::read(body.to_string().as_bytes(), Origin::Validating, rulebook().kinds()).unwrap().review;
    let decision = rulebook().evaluate(&review, &view);
    if decision.allowed() {
        let says = decision.judged.iter().map(|it| format!("{}; {}", it.finding.says, it.finding.instead));
        return says.collect();
    }
    report::refusal(&review.subject(), &decision, &Pages::Program)
}

#[test]
fn the_previous_template_is_allowed_while_a_member_hangs_with_the_new_one() {
    let hangs =
        Scene { members: ["ready", "ready", "starting"].map(str::to_owned).into(), ..Scene::default() };
    let revisions = ["a", "a", "b"];
    assert_eq!(
        answer_to_change(&hangs, &revisions, "a", true),
        format!(
            "its pod template changes back to that of the Ready members; allowed, although {STATEFUL_SET}-2 is not Ready (2 of 3 \
             members Synced, seen now); kubectl -n db delete pod {STATEFUL_SET}-2; or wait: gatera replaces it when it has made no progress \
             for 10 minutes"
        )
    );
    // Any other template has to wait, and the answer names the allowed one.
    let other = answer_to_change(&hangs, &revisions, "c", true);
    assert!(other.contains("[G14]") && other.contains("the previous template is allowed at once"), "{other}");
    // A guard that was started later does not know template a.
    let unknown = answer_to_change(&hangs, &revisions, "a", false);
    assert!(
        unknown.contains("[G14]") && unknown.contains("if a rollout hangs: gatera explain G14"),
        "{unknown}"
    );
    // The rollout hangs at its second member: galera-2, the first one, runs the new template, and goes back when the second is
    // Ready.
    let half =
        Scene { members: ["ready", "starting", "ready"].map(str::to_owned).into(), ..Scene::default() };
    let goes_back = answer_to_change(&half, &["a", "b", "b"], "a", true);
    let replaced = format!(
        "; gatera replaces {STATEFUL_SET}-1 when it has made no progress for 10 minutes, then the others, one at a time"
    );
    assert!(
        goes_back.starts_with("its pod template changes back to ") && goes_back.ends_with(&replaced),
        "{goes_back}"
    );
    // With Parallel galera-2 would go back at once, while galera-1 is away.
    let half = Scene { parallel: true, ..half };
    let parallel = answer_to_change(&half, &["a", "b", "b"], "a", true);
    assert!(parallel.contains("[G14]"), "{parallel}");
    let parallel = Scene { parallel: true, ..hangs };
    assert!(
        answer_to_change(&parallel, &revisions, "a", true).starts_with("its pod template changes back to ")
    );
}
