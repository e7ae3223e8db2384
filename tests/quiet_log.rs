//! The log of a guard without any rights, as after an installation that went wrong: each failure is logged once, as a sentence.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, User, eventually};

/// The number of refused requests after which every watch has failed several times.
const REFUSALS: usize = 150;

#[test]
fn without_rights_each_failure_is_logged_once_as_a_sentence() {
    let plane = ControlPlane::start();
    for object in ["namespace", "serviceaccount"] {
        plane.kubectl(User::Admin, &["create", object, "gatera", "--namespace=gatera"]).succeeded();
    }
    let start = Start { identity: "mute".into(), ..Start::default() };
    let guard = Guard::start(&plane, &guarded::program(), &start);
    eventually("the API server to refuse many requests of the guard", || {
        (plane.forbidden_to_the_guard().len() >= REFUSALS).then_some(())
    });
    let log = guard.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut failures = BTreeSet::new();
    for line in &lines {
        let (level, message) = (line["level"].as_str().unwrap(), line["message"].as_str().unwrap());
        assert!(
            message.contains(' ') && !message.ends_with('.'),
            "not a sentence without a full stop: {message}"
        );
        // The log contains no Debug output of structures, in which a brace follows a name.
        let text = line.to_string();
        assert!(
            !text.contains("Error(") && !text.contains(" {") && !text.contains("Some("),
            "Debug output: {text}"
        );
        if level == "WARN" {
            let error = line["error"].as_str().unwrap();
            assert!(failures.insert(error.to_owned()), "this failure was logged before: {text}\n{log}");
            assert_eq!(line["times"], 1, "the first line of a failure counts it once: {text}");
        }
    }
    let list = |resource: &str| format!("cannot list resource \"{resource}\"");
    for resource in ["statefulsets", "pods", "configmaps"] {
        assert!(
            failures.iter().any(|it| it.contains(&list(resource))),
            "no line says that {resource} cannot be listed: {log}"
        );
    }
    assert!(lines.len() < REFUSALS / 3, "{} lines for {REFUSALS} refusals\n{log}", lines.len());
}
