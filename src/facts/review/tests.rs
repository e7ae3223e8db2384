//! How a request body is read: as a review, or with an error message that repeats no long text.

use super::*;

fn body(request: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":"{API_VERSION}","kind":"AdmissionReview","request":{{"uid":"u1","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},{request}}}}}"#).into_bytes()
}

#[test]
fn the_uid_survives_whatever_else_is_wrong() {
    for (text, uid) in [
        (r#"{"request":{"uid":"u1","operation":"EXPLODE"}}"#, Some("u1")),
        (
            r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u1","kind":{"group":"","kind":"Pod"},"operation":"CREATE"}}"#,
            Some("u1"),
        ),
        (r#"{"request":{"uid":"u1"#, None),
        ("", None),
        ("[]", None),
        ("null", None),
    ] {
        assert_eq!(
            read(text.as_bytes(), Origin::Validating, &Kinds::default()).unwrap_err().uid.as_deref(),
            uid,
            "{text}"
        );
    }
    let error = read(b"{\"request\":{\"uid\":\"\xff\"}}", Origin::Validating, &Kinds::default()).unwrap_err();
    assert_eq!(error.uid, None);
}

#[test]
fn only_a_uid_and_a_version_that_can_be_are_repeated() {
    let long = "a".repeat(LONGEST_UID);
    for (uid, repeated) in [(long.clone(), true), (format!("{long}a"), false), (String::new(), false)] {
        for text in [
            format!(r#"{{"request":{{"uid":"{uid}"}}}}"#),
            format!(
                r#"{{"apiVersion":"{uid}","kind":"AdmissionReview","request":{{"uid":"{uid}","kind":{{"group":"","kind":"Pod"}},"operation":"CREATE"}}}}"#
            ),
        ] {
            let problem = read(text.as_bytes(), Origin::Validating, &Kinds::default()).unwrap_err();
            assert_eq!(problem.uid, Some(uid.clone()).filter(|_| repeated));
            assert!(problem.api_version.len() <= LONGEST_VERSION && problem.to_string().len() < 200);
        }
    }
}

#[test]
fn names_that_no_object_has_are_not_read() {
    for field in ["name", "namespace", "subResource"] {
        let with =
            |length: usize| body(&format!(r#""operation":"DELETE","{field}":"{}""#, "n".repeat(length)));
        assert!(read(&with(253), Origin::Validating, &Kinds::default()).is_ok(), "{field}");
        let problem = read(&with(100_000), Origin::Validating, &Kinds::default()).unwrap_err();
        assert_eq!(problem.uid.as_deref(), Some("u1"));
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
fn names_come_from_wherever_there_is_one() {
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

/// `kubectl drain --dry-run=server` sends such a request, and an API server shows the dry run nowhere else.
#[test]
fn an_eviction_that_is_only_tried_says_so_in_its_own_options() {
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
