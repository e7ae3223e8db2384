//! Marks that users and pod templates forge, on a real API server, with and without a running guard.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{INJECTED_MARKS, mark_names, member};
use crate::guarded::{self, Guard, Start, install, program};
use crate::lab::{ControlPlane, User, eventually};
use crate::living_cluster::GALERA;
use crate::scene::STATEFUL_SET;

fn namespace_with_cluster(plane: &ControlPlane, mode: Option<&str>) -> String {
    let labels: Vec<_> = mode.map(|mode| ("gatera.dev/mode", mode)).into_iter().collect();
    let ns = plane.namespace_with_labels("marks", &labels);
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], GALERA).succeeded();
    ns
}

/// Annotations that a user with the `edit` role writes are removed or restored.
#[test]
fn an_editor_cannot_write_the_guards_marks() {
    let (plane, _) = guarded::shared();
    let ns = namespace_with_cluster(plane, Some("enforce"));
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    let set = || plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    let before = eventually("the marks of the guard", || {
        Some(set()).filter(|it| it["metadata"]["annotations"]["gatera.dev/configuration"].is_string())
    });

    let note = "gatera.dev/bootstrap=removing 1 Service/a/b ConfigMap/c/d";
    let output =
        run(&["annotate", "statefulset", STATEFUL_SET, note, "gatera.dev/data=present", "--overwrite"]);
    assert_eq!(output.status, 0, "{output}");
    assert!(output.stderr.contains("gatera.dev/bootstrap belongs to the guard and is removed"), "{output}");
    assert!(
        output.stderr.contains("gatera.dev/data belongs to the guard and is restored as it was"),
        "{output}"
    );
    let template = json!({ "spec": { "template": { "metadata": { "annotations": { "gatera.dev/injected": "0.1.0" } } } } });
    let output = run(&["patch", "statefulset", STATEFUL_SET, "--patch", &template.to_string()]);
    assert!(output.status == 0 && output.stderr.contains("is removed from the pod template"), "{output}");
    let after = set();
    assert_eq!(after["metadata"]["annotations"], before["metadata"]["annotations"]);
    assert_eq!(
        (&after["spec"], &after["metadata"]["generation"]),
        (&before["spec"], &before["metadata"]["generation"])
    );

    // Leaving out an annotation, or repeating its value, causes no warning.
    let mut replaced = before.clone();
    for annotations in [json!({}), before["metadata"]["annotations"].clone()] {
        replaced["metadata"] = json!({ "name": STATEFUL_SET, "namespace": ns, "annotations": annotations });
        let output = plane.kubectl_stdin(User::Editor, &["replace", "--filename=-"], &replaced.to_string());
        assert_eq!((output.status, &*output.stderr), (0, ""), "{output}");
        assert_eq!(set()["metadata"]["annotations"]["gatera.dev/data"], "none");
    }

    eventually("the first member's pod", || {
        (run(&["get", "pod", &format!("{STATEFUL_SET}-0")]).status == 0).then_some(())
    });
    // Through /status, which only users with more rights may write.
    for (what, mark) in [
        (format!("statefulset/{STATEFUL_SET}"), json!({ "gatera.dev/data": "present" })),
        (format!("statefulset/{STATEFUL_SET}"), json!({ "gatera.dev/data": null })),
        ("deployment/galera-instance-bootstrap".to_owned(), json!({ "gatera.dev/removing": "1" })),
        (format!("pod/{STATEFUL_SET}-0"), json!({ "gatera.dev/injected": "9.9.9" })),
    ] {
        let patch = json!({ "metadata": { "annotations": mark } }).to_string();
        let report = ["patch", &what, "--subresource=status", "--type=merge", "--patch", &patch];
        let output = plane.kubectl(User::Admin, &[&["--namespace", &*ns], &report[..]].concat());
        assert!(output.status == 1 && output.stderr.contains("[G18] "), "{what} {mark}: {output}");
    }

    for what in ["configmap/galera-instance-nodeconfig", "service/galera-instance-hs"] {
        let output = run(&["annotate", what, "gatera.dev/removing=1"]);
        assert!(output.status == 1 && output.stderr.contains("[G18] "), "{output}");
        assert!(output.stderr.contains("gatera.dev/removing belongs to the guard"), "{output}");
    }
}

/// A pod with a forged mark of injection is never trusted: while no guard runs, it is refused, but members without the mark
/// start.
#[test]
fn a_forged_pod_does_not_start_while_the_guard_is_down_and_members_do() {
    let plane = ControlPlane::start();
    install(&plane);
    let guard = Guard::start(&plane, &program(), &Start { identity: "gone".into(), ..Start::default() });
    guard.until_registered();
    assert_one_entry_per_request(&plane);

    let ns = namespace_with_cluster(&plane, Some("enforce"));
    assert_only_relevant_updates_are_sent(&plane, &ns);
    let owner = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"))["metadata"]["uid"].clone();
    let create = |name: &str, annotations: Value| {
        let mut pod =
            member(&json!({ "metadata": { "namespace": ns, "name": name, "annotations": annotations } }));
        pod["metadata"]["ownerReferences"][0]["uid"] = owner.clone();
        plane.kubectl_stdin(User::Admin, &["create", "--filename=-"], &pod.to_string())
    };
    let forged = json!({ "gatera.dev/injected": env!("CARGO_PKG_VERSION") });
    let output = create("forged-0", forged.clone());
    assert!(
        output.status == 0 && output.stderr.contains("gatera.dev/injected belongs to the guard"),
        "{output}"
    );
    let pod = plane.get(&ns, "pod/forged-0");
    assert_eq!(mark_names(&pod), INJECTED_MARKS, "the guard did not replace the forged marks");

    drop(guard);
    let output = create("plain-0", json!({ "gatera.dev/readiness": "keep" }));
    assert_eq!(output.status, 0, "{output}");
    let output = create("forged-1", forged);
    assert!(output.status == 1 && output.stderr.contains("new-pods-1.gatera.dev"), "{output}");
}

/// Checks that the API server calls exactly one entry for an object whose labels match several selectors, before or after a
/// change: the first entry that selects it. (The API server decides how often it calls an entry for the deletion of a pod.)
fn assert_one_entry_per_request(plane: &ControlPlane) {
    let ns = plane.namespace("once");
    let mut before = request_counts(plane);
    let run = |arguments: &[&str]| {
        plane.kubectl(User::Admin, &[&["--namespace", &*ns], arguments].concat()).succeeded();
    };
    let create = |kind: &str, name: &str, labels: &Value| {
        let spec = json!({ "containers": [{ "name": "mariadb", "image": "mariadb:10.11" }] });
        let mut object =
            json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "labels": labels } });
        if kind == "Pod" {
            object["spec"] = spec;
        }
        let create = ["--namespace", &ns, "create", "--filename=-"];
        plane.kubectl_stdin(User::Admin, &create, &object.to_string()).succeeded();
    };
    let all = json!({ "app": "galera", "instance": "x", "gatera.dev/cluster": "x", "app.kubernetes.io/name": "mariadb-galera" });
    for (name, labels, row) in [
        ("all", all, Some(0)),
        ("first", json!({ "gatera.dev/cluster": "x" }), Some(0)),
        ("second", json!({ "app": "galera", "instance": "x" }), Some(1)),
        ("third", json!({ "app.kubernetes.io/name": "mariadb-galera" }), Some(2)),
        ("none", json!({ "app": "web" }), None),
    ] {
        let mut step = |what: &str, entries: &[&str], row: Option<usize>, act: &dyn Fn()| {
            act();
            let rows = row
                .into_iter()
                .flat_map(|row| entries.iter().map(move |it| format!("{it}-{row}.gatera.dev")));
            let called_entries = entries_called_since(&mut before, plane);
            assert_eq!(called_entries, rows.collect::<Vec<_>>(), "{name}: {what}");
        };
        for (kind, new, relabelled, ended) in [
            ("Pod", &["new-pods", "pods-inject"][..], "marks", "pods"),
            ("ConfigMap", &["labelled"], "labelled", "labelled"),
        ] {
            step(&format!("a new {kind}"), new, row, &|| create(kind, name, &labels));
            let what = format!("{}/{name}", kind.to_lowercase());
            let label = [
                "label",
                &what,
                "app-",
                "gatera.dev/cluster-",
                "app.kubernetes.io/name=mariadb-galera",
                "a=b",
            ];
            step(&format!("a {kind} with other labels"), &[relabelled], row.or(Some(2)), &|| run(&label));
            step(&format!("the deletion of a {kind}"), &[ended], Some(2), &|| run(&["delete", &what]));
            step(&format!("a {kind} that is created again"), new, row, &|| create(kind, name, &labels));
            let whole = format!("the deletion of a {kind} with its first labels");
            step(&whole, &[ended], row, &|| run(&["delete", &what]));
        }
    }
}

/// Checks that an update of a StatefulSet is sent to the guard only if it changes something that a rule reads, and to the
/// mutating entry only if it touches the guard's annotations, the template, or an immutable field. In the latter two cases the
/// API server would otherwise refuse first, with a message that does not help.
fn assert_only_relevant_updates_are_sent(plane: &ControlPlane, ns: &str) {
    let annotated =
        || plane.get(ns, &format!("statefulset/{STATEFUL_SET}"))["metadata"]["annotations"].clone();
    eventually("the marks of the guard", || annotated()["gatera.dev/configuration"].as_str().map(drop));
    let set =
        |path: &[&str], value: Value| path.iter().rev().fold(value, |inner, key| json!({ *key: inner }));
    let note = |key: &str| set(&["metadata", "annotations", key], json!("x"));
    let template = |what: &str, key: &str| set(&["spec", "template", "metadata", what, key], json!("x"));
    let claims = json!([{ "metadata": { "name": "other" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }]);
    let mut before = request_counts(plane);
    let (never, once, both, first) =
        (&[][..], &["workloads"][..], &["workloads-amend", "workloads"][..], &["workloads-amend"][..]);
    for (patch, rows, words) in [
        (note("example.com/turn"), never, ""),
        (set(&["metadata", "labels", "example.com/turn"], json!("x")), never, ""),
        (set(&["metadata", "labels", "gatera.dev/turn"], json!("x")), once, ""),
        (set(&["spec", "replicas"], json!(4)), once, ""),
        (template("annotations", "example.com/turn"), both, ""),
        (set(&["spec", "minReadySeconds"], json!(1)), once, ""),
        // What is left after the correction changes nothing.
        (note("gatera.dev/data"), first, "gatera.dev/data belongs to the guard"),
        (note("gatera.dev/override"), first, "would have no effect"),
        (set(&["metadata", "annotations"], Value::Null), first, ""),
        (template("annotations", "gatera.dev/injected"), first, "is removed from the pod template"),
        (template("labels", "tier"), both, ""),
        (set(&["spec", "podManagementPolicy"], json!("Parallel")), first, "[G08]"),
        (set(&["spec", "serviceName"], json!("other")), first, "[G08]"),
        (set(&["spec", "selector", "matchLabels", "tier"], json!("x")), first, "[G08]"),
        (set(&["spec", "volumeClaimTemplates"], claims), first, "[G08]"),
    ] {
        let patch = patch.to_string();
        let output = plane.kubectl(
            User::Admin,
            &[
                "--namespace",
                ns,
                "patch",
                "statefulset",
                STATEFUL_SET,
                "--dry-run=server",
                "--type=merge",
                "--patch",
                &patch,
            ],
        );
        assert!(output.stderr.contains(words), "{patch}: {output}");
        let mut called_entries = entries_called_since(&mut before, plane);
        called_entries.retain(|row| row.starts_with("workloads"));
        let rows = rows.iter().map(|row| format!("{row}.gatera.dev"));
        assert_eq!(called_entries, rows.collect::<Vec<_>>(), "{patch}: {output}");
    }
}

/// Returns the entries that the API server has called since the last reading, and updates that reading.
fn entries_called_since(last: &mut BTreeMap<String, u64>, plane: &ControlPlane) -> Vec<String> {
    let before = std::mem::replace(last, request_counts(plane));
    last.iter().filter(|(row, count)| before.get(*row) != Some(count)).map(|(row, _)| row.clone()).collect()
}

/// Returns how often the API server has called each entry.
fn request_counts(plane: &ControlPlane) -> BTreeMap<String, u64> {
    let metrics = plane.kubectl(User::Admin, &["get", "--raw=/metrics"]).succeeded();
    let mut rows = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_request_total{"))
    {
        let name = line.split_once("name=\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0));
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
        *rows.entry(name.expect("the series has the name of a webhook").to_owned()).or_default() +=
            count.expect("the series has a count");
    }
    rows
}
