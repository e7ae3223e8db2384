//! What becomes of a request that is overheard: a review as a guard is sent it, and two answers beside each other.

use serde_json::json;

use super::*;
use crate::verdict::{Finding, Verdict};

fn passage(path: &str, method: Method, before: Value, body: Value) -> Passage {
    let target = Target::read(path).unwrap();
    Passage { target, method, user: None, body, before: Ok(before), answer: Answer::default() }
}

const SET: &str = "/apis/apps/v1/namespaces/db/statefulsets/galera";

fn set(replicas: i64) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "galera", "namespace": "db" }, "spec": { "replicas": replicas } })
}

fn replicas(object: Option<&Object>) -> Option<i64> {
    match object? {
        Object::StatefulSet(it) => Some(it.replicas()),
        Object::Scale(it) => Some(it.spec.replicas),
        _ => None,
    }
}

#[test]
fn a_path_says_what_is_meant() {
    for (path, expected) in [
        (SET, ["apps", "statefulsets", "db", "galera", ""]),
        ("/apis/apps/v1/namespaces/db/statefulsets", ["apps", "statefulsets", "db", "", ""]),
        ("/api/v1/namespaces/db/pods/a-0/eviction", ["", "pods", "db", "a-0", "eviction"]),
        ("/api/v1/namespaces/db", ["", "namespaces", "db", "db", ""]),
        ("/api/v1/namespaces/db/finalize", ["", "namespaces", "db", "db", "finalize"]),
        ("/api/v1/namespaces", ["", "namespaces", "", "", ""]),
        ("/api/v1/nodes/a", ["", "nodes", "", "a", ""]),
        ("/api/v1/namespaces/db/pods/a/proxy/b/c", ["", "pods", "db", "a", "proxy"]),
    ] {
        let Target { group, plural, namespace, name, subresource } = Target::read(path).unwrap();
        assert_eq!([group, plural, namespace, name, subresource], expected.map(str::to_owned), "{path}");
    }
    for path in ["", "/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/openapi/v3"] {
        assert_eq!(Target::read(path), None, "{path}");
    }
    assert_eq!(Target::read(SET).unwrap().to_string(), "statefulsets db/galera");
}

#[test]
fn each_write_becomes_the_review_that_a_guard_is_sent() {
    let patch = passage(SET, Method::Patch(Patch::Merge), set(3), json!({ "spec": { "replicas": 1 } }));
    let review = patch.review("anna").unwrap();
    assert_eq!(
        (review.operation, review.kind, &*review.user),
        (Operation::Update, Kind::StatefulSet, "anna")
    );
    assert_eq!((replicas(review.old.as_ref()), replicas(review.new.as_ref())), (Some(3), Some(1)));
    assert_eq!((review.subject(), review.dry_run), ("StatefulSet db/galera".to_owned(), true));

    let scale = |replicas: i64| json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "galera" }, "spec": { "replicas": replicas } });
    let scaled = passage(&format!("{SET}/scale"), Method::Replace, scale(3), scale(0));
    let review = scaled.review("anna").unwrap();
    assert_eq!((review.kind, &*review.subresource, scaled.verb()), (Kind::StatefulSet, "scale", "scale"));
    assert_eq!((replicas(review.old.as_ref()), replicas(review.new.as_ref())), (Some(3), Some(0)));

    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a-0" }, "deleteOptions": { "gracePeriodSeconds": 0, "dryRun": ["All"] } });
    let evicted = passage("/api/v1/namespaces/db/pods/a-0/eviction", Method::Create, Value::Null, eviction);
    let review = evicted.review("anna").unwrap();
    assert_eq!(
        (review.operation, review.kind, review.options.grace_period_seconds),
        (Operation::Create, Kind::Pod, Some(0))
    );
    assert_eq!((review.subject(), evicted.verb()), ("Pod db/a-0".to_owned(), "evict"));

    let gone = passage(SET, Method::Delete, set(3), json!({ "propagationPolicy": "Orphan" }));
    let review = gone.review("anna").unwrap();
    assert!(review.operation == Operation::Delete && review.new.is_none() && review.options.orphans());
    assert_eq!(replicas(review.old.as_ref()), Some(3));

    let mut unnamed = set(3);
    unnamed["metadata"] = json!({ "generateName": "galera-" });
    let created = passage("/apis/apps/v1/namespaces/db/statefulsets", Method::Create, Value::Null, unnamed);
    let created = Passage { user: Some("ben".to_owned()), ..created };
    let review = created.review("anna").unwrap();
    assert_eq!((review.operation, &*review.name, &*review.user), (Operation::Create, "galera-", "ben"));
    assert_eq!(review.new.unwrap().meta().namespace, "db", "it is where it will be");

    let applied = passage(SET, Method::Patch(Patch::Apply), Value::Null, set(3));
    assert_eq!((applied.review("").unwrap().operation, applied.verb()), (Operation::Create, "apply"));

    let ns = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "db" } });
    let review = passage("/api/v1/namespaces/db", Method::Delete, ns, Value::Null).review("").unwrap();
    assert_eq!(
        (review.kind, &*review.namespace, &*review.subject()),
        (Kind::Namespace, "db", "Namespace db")
    );

    let odd = passage(
        SET,
        Method::Replace,
        set(3),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": 3 }),
    );
    assert!(odd.review("").unwrap().unreadable.is_some(), "a finding, and no silent pass");
}

#[test]
fn what_cannot_be_judged_is_said() {
    let all = passage("/apis/apps/v1/namespaces/db/statefulsets", Method::Delete, Value::Null, Value::Null);
    let none = passage(SET, Method::Patch(Patch::Merge), Value::Null, json!({}));
    let odd = passage("/api/v1/namespaces/db/configmaps", Method::Create, Value::Null, json!("k8s\u{0}"));
    for (passage, words) in [
        (odd, "neither JSON nor YAML"),
        (all, "a whole collection is not judged"),
        (none, "there is nothing to patch"),
    ] {
        let why = passage.review("").unwrap_err();
        assert!(why.contains(words), "{why}");
        let compared = passage.compared(Err(why), &Pages::Program);
        assert_eq!(compared.likeness, Likeness::Unknown);
    }
}

#[test]
fn who_said_no() {
    let ours = |words: &str| format!("admission webhook \"pods.gatera.dev\" denied the request: {words}");
    let late =
        "Internal error occurred: failed calling webhook \"pods.gatera.dev\": failed to call webhook: EOF";
    let words = "[G02] Pod db/a: b\n  why: c";
    let other = "admission webhook \"policy.example\" denied the request: [G02] no";
    for (code, message, there) in [
        (201, String::new(), There::Allowed),
        (403, ours(words), There::Refused(words.to_owned())),
        (429, ours(words), There::Refused(words.to_owned())),
        (403, ours("gatera is not ready: x"), There::Unanswered("gatera is not ready: x".to_owned())),
        (500, late.to_owned(), There::Unanswered("failed to call webhook: EOF".to_owned())),
        (403, other.to_owned(), There::Other(403, other.to_owned())),
        (422, "it is invalid".to_owned(), There::Other(422, "it is invalid".to_owned())),
    ] {
        assert_eq!(There::of(code, &message), there, "{message}");
    }
}

/// A decision with these findings.
fn decision(found: &[(Verdict, &str)]) -> Decision {
    let mut decision = Decision::default();
    for (verdict, says) in found {
        let [field, says, why, instead] = ["spec", says, "why", "this"].map(str::to_owned);
        decision.add(
            Finding { rule: "G01", verdict: *verdict, field, says, why, instead },
            crate::verdict::Mode::Enforce,
            false,
            None,
        );
    }
    decision
}

#[test]
fn both_answers_are_compared_word_by_word() {
    let here = |found: &[(Verdict, &str)]| decision(found);
    let denied = |says: &str| {
        format!(
            "admission webhook \"x.gatera.dev\" denied the request: [G01] StatefulSet db/galera: {says}\n  why: why\n  do instead: this\n  more: kubectl get configmap rules"
        )
    };
    let warned = "[G01] StatefulSet db/galera: a; this".to_owned();
    let (deny, warn) = ((Verdict::Deny, "a"), (Verdict::Warn, "a"));
    for (found, code, message, warnings, likeness) in [
        (vec![deny], 403, denied("a"), vec![], Likeness::Same),
        (vec![deny], 403, denied("b"), vec![], Likeness::OtherWords),
        (vec![deny], 200, String::new(), vec![], Likeness::Opposite),
        (vec![], 403, denied("a"), vec![], Likeness::Opposite),
        (vec![], 200, String::new(), vec![], Likeness::Same),
        (vec![], 200, String::new(), vec!["unknown field \"x\"".to_owned()], Likeness::Same),
        (vec![warn], 200, String::new(), vec![warned.clone(), warned.clone()], Likeness::Same),
        (vec![warn], 200, String::new(), vec![], Likeness::OtherWords),
        (vec![], 200, String::new(), vec![warned], Likeness::OtherWords),
        (vec![deny], 403, "forbidden: User".to_owned(), vec![], Likeness::Unknown),
    ] {
        let mut passage = passage(SET, Method::Patch(Patch::Merge), set(3), json!({}));
        passage.answer = Answer { code, message, warnings, object: Value::Null };
        let review = passage.review("").unwrap();
        let compared = passage.compared(Ok((&review, &here(&found))), &Pages::Program);
        assert_eq!(compared.likeness, likeness, "{found:?}: {:?}", passage.answer);
    }
}

/// Both are asked one after the other.
#[test]
fn the_time_of_the_answer_is_no_difference() {
    let at = |seconds: &str| {
        format!(
            "x (seen now): kubectl annotate 'gatera.dev/override=G03 until=2026-11-25T01:05:{seconds}Z reason=…', let go {seconds}s ago"
        )
    };
    assert_eq!(comparable(&at("12")), comparable(&at("13")));
    assert_ne!(comparable("3 of 3 members"), comparable("2 of 3 members"));
    let grace = |seconds: &str| comparable(&format!("a grace period of {seconds}s instead"));
    assert_ne!(grace("0"), grace("5"), "that is no time that passes");
    assert_ne!(comparable("until=2026-11-25T01:05:13Z a"), comparable("until=never a"));
}

/// A manifest says less than what is there, and nobody changes what it does not say.
#[test]
fn what_is_replaced_is_filled_in_as_it_was() {
    let mut manifest = set(3);
    manifest["spec"]["template"] = json!({ "spec": { "containers": [{ "name": "db", "image": "i" }] } });
    let mut live = manifest.clone();
    live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    let kept = |live: &Value, manifest: &Value, answered: &Value| {
        replaced(live, manifest, answered)["spec"]["template"] == live["spec"]["template"]
    };
    assert!(!kept(&live, &manifest, &Value::Null), "nobody knows what it said before");
    assert!(kept(&live, &manifest, &live), "the API server says what it becomes");
    live["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": manifest.to_string() });
    assert!(kept(&live, &manifest, &Value::Null));
    assert_eq!(
        replaced(&live, &manifest, &live)["metadata"],
        manifest["metadata"],
        "what it says of itself is what it says"
    );
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    assert!(!kept(&live, &manifest, &Value::Null));
}

#[test]
fn what_was_there_and_may_not_be_read_is_not_taken_for_nothing() {
    let mut gone = passage(SET, Method::Delete, Value::Null, Value::Null);
    gone.before = Err("what was there could not be read: forbidden".to_owned());
    assert_eq!(gone.review("").unwrap_err(), "what was there could not be read: forbidden");
}
