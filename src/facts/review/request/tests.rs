//! How a request body is read: as a review, or with an error message that repeats no text of the body.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn body(request: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":"{API_VERSION}","kind":"AdmissionReview","request":{{"uid":"u1","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},{request}}}}}"#).into_bytes()
}

#[test]
fn a_body_that_is_not_a_request_is_an_error_that_repeats_none_of_its_text() {
    for text in [
        r#"{"request":{"uid":"u1","operation":"EXPLODE"}}"#,
        r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u1","kind":{"group":"","kind":"Pod"},"operation":"CREATE"}}"#,
        r#"{"request":{"uid":"u1"#,
        "",
        "[]",
        "null",
    ] {
        let problem = read(text.as_bytes(), Origin::Validating, &Kinds::default()).unwrap_err().to_string();
        assert!(!problem.contains("u1") && !problem.contains("v1beta1"), "{text}: {problem}");
    }
    read(b"{\"request\":{\"uid\":\"\xff\"}}", Origin::Validating, &Kinds::default()).unwrap_err();
}

#[test]
fn a_name_that_is_too_long_for_an_object_is_an_error() {
    for field in ["name", "namespace", "subResource"] {
        let with =
            |length: usize| body(&format!(r#""operation":"DELETE","{field}":"{}""#, "n".repeat(length)));
        assert!(read(&with(253), Origin::Validating, &Kinds::default()).is_ok(), "{field}");
        let problem = read(&with(100_000), Origin::Validating, &Kinds::default()).unwrap_err();
        assert!(
            problem.to_string().ends_with(&format!("request.{field} has 100000 bytes; the limit is 253")),
            "{problem}"
        );
    }
}

#[test]
fn an_object_that_cannot_be_read_is_kept_as_a_finding() {
    let bytes = body(r#""operation":"CREATE","object":{"spec":{"replicas":"three"}}"#);
    let incoming = read(&bytes, Origin::Validating, &Kinds::default()).unwrap();
    assert_eq!(incoming.uid, "u1");
    assert!(incoming.review.new.is_none() && incoming.review.unreadable.is_some());
}

#[test]
fn the_name_comes_from_the_object_if_the_request_has_none() {
    for (request, name) in [
        (r#""operation":"DELETE","oldObject":{"metadata":{"name":"a"}},"object":null"#, "a"),
        (r#""operation":"CREATE","object":{"metadata":{"generateName":"a-"}}"#, "a-"),
        (r#""operation":"DELETE""#, ""),
    ] {
        let bytes = body(request);
        assert_eq!(
            read(&bytes, Origin::Validating, &Kinds::default()).unwrap().review.name,
            name,
            "{request}"
        );
    }
}

/// `kubectl drain --dry-run=server` sends an eviction in which only these options say that it is a dry run.
#[test]
fn a_dry_run_of_an_eviction_is_read_from_its_own_options() {
    for (options, tried) in [
        (r#"{"dryRun":["All"]}"#, true),
        (r#"{"dryRun":[]}"#, false),
        (r#"{"dryRun":null}"#, false),
        (r#"{"gracePeriodSeconds":0}"#, false),
    ] {
        let text = format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"AdmissionReview","request":{{"uid":"u1","kind":{{"group":"policy","version":"v1","kind":"Eviction"}},"resource":{{"resource":"pods"}},"subResource":"eviction","operation":"CREATE","dryRun":false,"object":{{"metadata":{{"name":"a-0"}},"deleteOptions":{options}}}}}}}"#
        );
        let review = read(text.as_bytes(), Origin::Validating, &Kinds::default()).unwrap().review;
        assert_eq!((review.dry_run, review.kind), (tried, Kind::Pod), "{options}");
    }
}

/// Generates values with every character that could be mistaken for the end of a value.
fn any_text() -> impl Strategy<Value = Json> {
    prop_oneof![
        r##"[a-z"#\\{}\[\],: é\n]{0,24}"##.prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        Just(Json::Null),
        Just(json!({ "f:spec": { r#"k:{"name":"a"}"#: {} }, "list": [[], {}, "]"] })),
    ]
}

proptest! {
    /// Each object is read like its own text, no matter what surrounds it; the values that no rule reads are left out.
    #[test]
    fn a_body_is_taken_apart_as_a_parser_would(
        texts in proptest::collection::vec(any_text(), 6),
        same in any::<bool>(),
        pretty in any::<bool>(),
    ) {
        let [unread, applied, other, spec, status, mine] = <[Json; 6]>::try_from(texts).expect("six");
        let object = |spec: &Json, unread: &Json| json!({
            "metadata": {
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": unread, "other": other },
                "managedFields": [unread, applied],
                "name": "a",
            },
            "spec": { "managedFields": mine, "template": { "metadata": { "managedFields": spec } } },
            "status": status,
        });
        let (new, old) = (object(&spec, &unread), object(if same { &spec } else { &mine }, &applied));
        let review = json!({ "apiVersion": API_VERSION, "request": {
            "extra": other, "object": new, "uid": "u1", "oldObject": old, "options": null,
        } });
        let text = if pretty { serde_json::to_string_pretty(&review) } else { serde_json::to_string(&review) };
        let text = text.unwrap();
        let parts = Body::read(text.as_bytes()).expect("it is one");
        let light = |object: &Json| {
            let mut light = object.clone();
            light["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!({});
            light["metadata"]["managedFields"] = json!({});
            light
        };
        let read = |text: &str| serde_json::from_str::<Json>(text).unwrap();
        let (object, before) = (parts.object.unwrap(), parts.old.unwrap());
        prop_assert_eq!(read(&object.text()), light(&new));
        prop_assert_eq!(read(&before.text()), light(&old));
        prop_assert_eq!(before.has_template_of(&object), new["spec"] == old["spec"]);
        prop_assert_eq!(before.has_spec_of(&object), new["spec"] == old["spec"]);
        let mut without = light(&old);
        without["spec"]["template"] = json!({});
        prop_assert_eq!(read(&before.without_template()), without);
        let mut envelope = review.clone();
        (envelope["request"]["object"], envelope["request"]["oldObject"]) = (json!({}), json!({}));
        prop_assert_eq!(read(&parts.envelope), envelope);
        // A body that ends too early is not a review, and causes no panic.
        for end in 0..text.len() {
            let cut = text.as_bytes().get(..end).and_then(Body::read);
            prop_assert!(cut.is_none_or(|parts| serde_json::from_str::<Json>(&parts.envelope).is_err()), "{end}");
        }
    }
}

#[test]
fn an_object_under_an_escaped_or_repeated_key_is_an_error() {
    for request in [
        r#""operation":"CREATE","\u006fbject":{"metadata":{"name":"a"}}"#,
        r#""operation":"CREATE","object":{"metadata":{"name":"a"}},"object":{"metadata":{"name":"b"}}"#,
    ] {
        let problem = read(&body(request), Origin::Validating, &Kinds::default()).unwrap_err();
        assert!(problem.to_string().starts_with("gatera cannot read this AdmissionReview: "), "{request}");
    }
}

/// A template that an update does not change is read once, with the same result as if it were read twice.
#[test]
fn an_unchanged_template_is_the_same_on_both_sides() {
    let object = |image: &str, note: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","annotations":{{"gatera.dev/note":"{note}"}}}},"spec":{{"template":{{"spec":{{"containers":[{{"image":"{image}"}}]}}}}}}}}"#
        )
    };
    for (was, same) in [("mariadb:10.11", true), ("mariadb:11.4", false)] {
        let (new, old) = (object("mariadb:10.11", "new"), object(was, "old"));
        let bytes = body(&format!(r#""operation":"UPDATE","object":{new},"oldObject":{old}"#));
        let review = read(&bytes, Origin::Validating, &Kinds::default()).unwrap().review;
        let plain = |text: &str| Object::read(Kind::StatefulSet, text).unwrap();
        let change = review.change::<objects::Workload>();
        assert_eq!((change.new, change.old), (plain(&new).get(), plain(&old).get()));
        assert_eq!(change.new.unwrap().spec == change.old.unwrap().spec, same);
    }
}

/// In a validating call, the templates are not read if the update changes nothing that a rule reads.
#[test]
fn a_template_is_read_only_if_a_rule_needs_it() {
    for (origin, annotation, is_read) in [
        (Origin::Validating, "example.com/note", false),
        (Origin::Validating, "gatera.dev/note", true),
        (Origin::Mutating, "example.com/note", true),
    ] {
        let object = |note: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{{"{annotation}":"{note}"}}}},"spec":{{"replicas":3,"template":{{"spec":{{"containers":[{{"image":"mariadb:10.11"}}]}}}}}}}}"#
            )
        };
        let bytes = body(&format!(
            r#""operation":"UPDATE","object":{},"oldObject":{}"#,
            object("new"),
            object("old")
        ));
        let incoming = read(&bytes, origin, &Kinds::default()).unwrap();
        let change = incoming.review.change::<objects::Workload>();
        for it in [change.new.unwrap(), change.old.unwrap()] {
            assert_eq!((it.replicas(), it.spec.template.spec.containers.len()), (3, is_read.into()));
        }
        assert_eq!(incoming.object.is_some(), is_read, "{annotation}");
    }
}

/// No object of an API server has a field twice.
#[test]
fn an_object_with_a_repeated_field_is_unreadable() {
    for object in [
        r#"{"spec":{"template":{"spec":{}}},"spec":{}}"#,
        r#"{"spec":{},"spec":{"template":{"spec":{}}}}"#,
        r#"{"spec":{"template":{"spec":{}},"template":{}}}"#,
    ] {
        let bytes = body(&format!(r#""operation":"UPDATE","object":{object},"oldObject":{object}"#));
        let review = read(&bytes, Origin::Validating, &Kinds::default()).unwrap().review;
        assert!(review.new.is_none() && review.unreadable.is_some(), "{object}");
    }
}
