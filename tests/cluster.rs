//! The guard as users see it, with the real kubectl, a real API server and the real program. The whole output of kubectl is
//! compared.

use serde_json::{Value, json};

use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};
use crate::living_cluster::until_bootstrap_removed;

const SEED: &str = include_str!("fixtures/seed.yaml");
const VERBATIM: &str = include_str!("fixtures/seed-verbatim.yaml");
const GALERA: &str = include_str!("fixtures/galera.yaml");
pub const STATEFUL_SET: &str = "galera-instance-galera";

/// Starts the cluster of the seed documents in a namespace that is guarded as a whole. Its three members are Ready and its
/// bootstrap node is removed, as it is in production when mistakes happen.
pub fn running_cluster(prefix: &str) -> (&'static ControlPlane, String) {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels(prefix, &[("gatera.dev/mode", "enforce")]);
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], GALERA).succeeded();
    plane.run_stateful_set(&ns, STATEFUL_SET);
    until_bootstrap_removed(plane, &ns);
    (plane, ns)
}

fn printed(output: &Output, ns: &str) -> String {
    format!("exit {}\n{}{}", output.status, output.stdout, output.stderr).replace(ns, "db")
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        snapshot_path => "fixtures",
        filters => vec![(r"bootstrap-[0-9a-f]{8,10}(-[a-z0-9]{5})?", "bootstrap-HASH")],
    }, { insta::assert_snapshot!(name, text) });
}

#[test]
fn dangerous_commands_are_refused_with_these_messages() {
    let (plane, ns) = running_cluster("words");
    let run = |arguments: &[&str]| {
        let mut all = vec!["--namespace", &*ns];
        all.extend(arguments);
        format!("$ kubectl {}\n{}\n", arguments.join(" "), printed(&plane.kubectl(User::Editor, &all), &ns))
    };
    let apply = |what: &str, manifest: &str| {
        let output = plane.kubectl_stdin(User::Ci, &["--namespace", &ns, "apply", "--filename=-"], manifest);
        format!("$ kubectl apply --filename={what}\n{}\n", printed(&output, &ns))
    };
    let mut text = String::new();
    text.push_str(&run(&["scale", "statefulset", STATEFUL_SET, "--replicas=0"]));
    text.push_str(&run(&["scale", "statefulset", STATEFUL_SET, "--replicas=1"]));
    text.push_str(&run(&["patch", "statefulset", STATEFUL_SET, "--patch={\"spec\":{\"replicas\":1}}"]));
    text.push_str(&run(&["scale", "statefulset", STATEFUL_SET, "--replicas=2", "--dry-run=server"]));
    text.push_str(&apply("galera.yaml", GALERA));
    text.push_str(&apply("galera.yaml", GALERA));
    text.push_str(&run(&[
        "get",
        "deployment",
        "galera-instance-bootstrap",
        "--output=jsonpath={.spec.replicas}{\"\\n\"}",
    ]));
    text.push_str(&run(&["scale", "deployment", "galera-instance-bootstrap", "--replicas=1"]));
    snapshot("kubectl-words", &text);
}

/// The seed documents are repaired where they would not run at all (`seed-verbatim.yaml` says where). Every object with a
/// password in plain text or with an option group that no program reads is refused, and the rest is created.
#[test]
fn the_seed_documents_are_refused_with_the_messages_of_check() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("seed", &[("gatera.dev/mode", "enforce")]);
    let output = plane.kubectl_stdin(User::Ci, &["--namespace", &ns, "apply", "--filename=-"], SEED);
    assert_eq!(output.status, 1);
    let words = printed(&output, &ns);
    snapshot("kubectl-seed", &words);
    // The output of `gatera check` for the same objects has its own snapshot; its sentences are the same.
    let check = include_str!("fixtures/check-seed.snap").replace("default/", "db/");
    let lines = words.lines().filter(|line| !line.starts_with("Warning: "));
    let refused = lines.filter_map(|line| line.find("[G").map(|at| &line[at..])).collect::<Vec<_>>();
    assert!(refused.len() >= 6, "{refused:?}");
    for line in refused {
        assert!(check.contains(line), "check does not say: {line}");
    }
}

/// The seed documents are applied verbatim, with the script under metadata and the image tag latest.
#[test]
fn the_seed_documents_are_refused_as_they_were_published() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("verbatim", &[("gatera.dev/mode", "enforce")]);
    let text = VERBATIM.replace("namespace: default", &format!("namespace: {ns}"));
    // kubectl itself rejects the field that no ConfigMap has, and only warns about it with --validate=warn.
    let strict = plane.kubectl_stdin(User::Ci, &["apply", "--filename=-"], &text);
    assert!(strict.stderr.contains("unknown field \"metadata.wait-for-sync.sh\""), "{strict}");
    let output = plane.kubectl_stdin(User::Ci, &["apply", "--validate=warn", "--filename=-"], &text);
    assert_eq!(output.status, 1);
    snapshot("kubectl-seed-verbatim", &printed(&output, &ns));
}

/// The view holds only ConfigMaps that some workload reads: the guard fetches this one when its first reader is applied.
#[test]
fn a_config_map_is_judged_when_its_first_reader_is_applied() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("newly", &[("gatera.dev/mode", "enforce")]);
    let run = |arguments: &[&str], text: &str| {
        plane.kubectl_stdin(User::Ci, &[&["--namespace", &*ns], arguments].concat(), text)
    };
    let create = ["create", "configmap", "tuning", "--from-literal=tuning.cnf=[mysqld]\nwsrep_on=OFF\n"];
    run(&create, "").succeeded();
    let source = "          - configMap: {name: galera-instance-nodeconfig}\n";
    let text = GALERA.replace(source, &format!("{source}          - configMap: {{name: tuning}}\n"));
    assert_ne!(text, GALERA);
    let refused = run(&["apply", "--filename=-"], &text);
    let words = "its ConfigMap tuning: tuning.cnf line 2 sets wsrep_on = OFF";
    assert!(refused.status == 1 && refused.stderr.contains(words), "{refused}");
    run(&["apply", "--filename=-"], GALERA).succeeded();
}

/// The guard distinguishes a restart from other edits by the whole template, as a real API server writes it in both cases.
#[test]
fn a_restart_waits_for_a_member_that_is_missing_and_nothing_else_does() {
    let (plane, ns) = running_cluster("restart");
    let run = |arguments: &[&str]| {
        plane.kubectl_stdin(User::Editor, &[&["--namespace", &*ns], arguments].concat(), GALERA)
    };
    let restart = r#"{"spec":{"template":{"metadata":{"annotations":{"restarted":"now"}}}}}"#;
    let patch = ["patch", "statefulset", STATEFUL_SET, "--patch", restart, "--dry-run=server"];
    let member = format!("{STATEFUL_SET}-2");
    plane.make_pod_unready(&ns, &member);
    eventually("the guard to see that the member is not Ready", || {
        run(&patch).stderr.contains("[G14] StatefulSet").then_some(())
    });
    let refused = run(&["rollout", "restart", "statefulset", STATEFUL_SET]);
    assert!(
        refused.status == 1 && refused.stderr.contains("galera-2 is not Ready yet"),
        "{}",
        refused.stderr
    );
    for arguments in [
        &["label", "statefulset", STATEFUL_SET, "a=b"][..],
        &["annotate", "statefulset", STATEFUL_SET, "a=b"],
        &["apply", "--filename=-"],
        &["apply", "--server-side", "--force-conflicts", "--filename=-"],
    ] {
        run(arguments).succeeded();
    }
    plane.make_pod_ready(&ns, &member);
    eventually("the guard to see that the member is Ready", || (run(&patch).status == 0).then_some(()));
}

/// `kubectl apply --force` deletes and re-creates an object if the answer is Invalid or Conflict, so a refusal must be neither.
#[test]
fn apply_with_force_does_not_replace_the_object() {
    let (plane, ns) = running_cluster("force");
    let before = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    let with_password = GALERA
        .replace("valueFrom: {secretKeyRef: {name: galera-instance, key: root-password}}", "value: hunter2");
    assert_ne!(with_password, GALERA);
    for arguments in [&["--force"][..], &["--server-side", "--force-conflicts"]] {
        let mut all = vec!["--namespace", &*ns, "apply", "--filename=-"];
        all.extend(arguments);
        let output = plane.kubectl_stdin(User::Editor, &all, &with_password);
        assert_eq!(output.status, 1, "{}", output.stderr);
        assert!(output.stderr.contains("Error from server (Forbidden)"), "{}", output.stderr);
        assert!(output.stderr.contains("[G11] StatefulSet"), "{}", output.stderr);
        let after = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
        assert_eq!(
            after["metadata"]["uid"], before["metadata"]["uid"],
            "{arguments:?} replaced the StatefulSet"
        );
    }
}

/// The last line of defence is the bootstrap pod itself, whichever owner creates it.
#[test]
fn a_second_bootstrap_pod_is_refused() {
    let (plane, ns) = running_cluster("pod");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "own", "namespace": ns, "labels": { "app": "galera-bootstrap", "instance": "galera-instance" } },
        "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }] }] },
    });
    let output = plane.kubectl_stdin(User::Ci, &["create", "--filename=-"], &pod.to_string());
    assert_eq!(output.status, 1);
    assert!(output.stderr.starts_with("Error from server (Forbidden): error when creating \"STDIN\": admission webhook \"pods-inject-1.gatera.dev\" denied the request: [G04] Pod "), "{}", output.stderr);
    assert!(
        output.stderr.contains("already has data (3 of 3 members Synced, seen now)"),
        "{}",
        output.stderr
    );
}

#[test]
fn members_are_injected_and_marked() {
    let (plane, ns) = running_cluster("inject");
    let pod = plane.get(&ns, &format!("pod/{STATEFUL_SET}-1"));
    let server =
        pod["spec"]["containers"].as_array().unwrap().iter().find(|it| it["name"] == "mariadb").unwrap();
    assert_eq!(pod["metadata"]["annotations"]["gatera.dev/injected"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server["readinessProbe"]["exec"]["command"], json!(["/etc/gatera/wait-for-sync.sh", "ready"]));
    assert_eq!(
        server["lifecycle"]["preStop"]["exec"]["command"],
        json!(["/etc/gatera/wait-for-sync.sh", "leave", "540"])
    );
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 600);
    // The members joined through the bootstrap node; since it was removed, the address names only the members.
    let address = "# written by gatera\n[mysqld]\nloose-wsrep_status_file = /run/gatera/wsrep_status.json\nwsrep_cluster_address = gcomm://\
         galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,\
         galera-instance-galera-2.galera-instance-hs\n";
    for ordinal in 0..3 {
        let pod = plane.get(&ns, &format!("pod/{STATEFUL_SET}-{ordinal}"));
        assert_eq!(pod["metadata"]["annotations"]["gatera.dev/my-cnf"], address);
    }
    let template = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"))["spec"]["template"].clone();
    assert_eq!(template["spec"]["terminationGracePeriodSeconds"], 30, "the guard has changed the template");
}

#[test]
fn other_workloads_are_not_affected() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace("strangers");
    let stranger = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "web", "namespace": ns },
        "spec": {
            "serviceName": "web", "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": "nginx", "env": [{ "name": "DB_PASSWORD", "value": "x" }] }] } },
        },
    });
    let output = plane.kubectl_stdin(User::Editor, &["create", "--filename=-"], &stranger.to_string());
    assert_eq!((output.status, &*output.stderr), (0, ""));
    let output =
        plane.kubectl(User::Editor, &["--namespace", &ns, "scale", "statefulset", "web", "--replicas=0"]);
    assert_eq!((output.status, &*output.stderr), (0, ""));
}

/// The API server returns the registered entries as they were sent; otherwise the guard would write them again and again.
#[test]
fn entries_are_registered_once() {
    let (plane, guard) = guarded::shared();
    let version =
        |kind: &str| plane.get("default", &format!("{kind}/gatera"))["metadata"]["resourceVersion"].clone();
    let kinds = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
    let before: Vec<Value> = kinds.iter().map(|kind| version(kind)).collect();
    plane
        .kubectl(
            User::Admin,
            &["label", "validatingwebhookconfiguration/gatera", "touched=yes", "--overwrite"],
        )
        .succeeded();
    eventually("the guard to look at the change", || guard.log().contains("webhook entries").then_some(()));
    let entries =
        plane.get("default", "validatingwebhookconfiguration/gatera")["webhooks"].as_array().unwrap().len();
    assert!(entries >= 5, "{entries}");
    assert_eq!(version(kinds[1]), before[1], "the guard has written entries that were unchanged");
    assert_eq!(guard.log().matches("webhook entries").count(), 2, "{}", guard.log());
}

/// A used override causes a warning for the caller, an Event for other users and a metric for the alert; a dry run leaves no
/// trace.
#[test]
fn a_used_override_is_reported() {
    let (plane, ns) = running_cluster("override");
    let (_, guard) = guarded::shared();
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let mark = format!("gatera.dev/override=G01 until={until} reason=moving house");
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    run(&["annotate", "statefulset", STATEFUL_SET, &mark]).succeeded();
    let used = || {
        guard
            .get("/metrics")
            .unwrap()
            .1
            .lines()
            .find(|line| line.starts_with("gatera_overrides_total{rule=\"G01\"}"))
            .map(str::to_owned)
    };
    let before = used();
    let dry = run(&["scale", "statefulset", STATEFUL_SET, "--replicas=0", "--dry-run=server"]);
    assert_eq!(dry.status, 0, "{}", dry.stderr);
    let output = run(&["scale", "statefulset", STATEFUL_SET, "--replicas=0"]);
    assert_eq!(output.status, 0, "{}", output.stderr);
    assert!(
        output.stderr.contains("3 -> 0 replicas stops every member (overridden until "),
        "{}",
        output.stderr
    );
    let event = eventually("an Event about the override", || {
        // With Kubernetes 1.30 editors see only Events of the other group.
        let get = ["get", "events.events.k8s.io", "--output=json", "--namespace", &ns];
        let events = plane.kubectl(User::Admin, &get).succeeded();
        let events: Value = serde_json::from_str(&events).unwrap();
        events["items"].as_array()?.iter().find(|it| it["reason"] == "OverrideUsedG01").cloned()
    });
    assert_eq!(
        event["note"],
        "G01 was overridden: 3 -> 0 replicas stops every member (reason: moving house)"
    );
    assert_eq!(event["regarding"]["name"], STATEFUL_SET);
    assert_eq!(event["deprecatedCount"], 1, "the dry run wrote an Event too");
    assert!(
        event["deprecatedLastTimestamp"].is_string(),
        "`kubectl get events --sort-by=.lastTimestamp` needs this field: {event}"
    );
    assert_ne!(used(), before, "the metric does not count the override");
}

/// The data mark is set when the StatefulSet is created, changed to "present" by the leader, and survives every overwrite.
#[test]
fn the_data_mark_survives_replace_and_edit() {
    let (plane, ns) = running_cluster("mark");
    let mark = || {
        plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"))["metadata"]["annotations"]["gatera.dev/data"]
            .clone()
    };
    let mut set = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    set["metadata"]["annotations"] = json!({});
    set["metadata"]["resourceVersion"] = Value::Null;
    plane
        .kubectl_stdin(User::Editor, &["--namespace", &ns, "replace", "--filename=-"], &set.to_string())
        .succeeded();
    assert_eq!(mark(), "present", "kubectl replace has removed the mark");
    let annotate =
        ["--namespace", &ns, "annotate", "--overwrite", "statefulset", STATEFUL_SET, "gatera.dev/data=none"];
    plane.kubectl(User::Editor, &annotate).succeeded();
    assert_eq!(mark(), "present", "kubectl annotate has changed the mark");
}

/// A cluster that is older than the guard has no data mark; a new one is marked "none" before its first member runs.
#[test]
fn a_new_cluster_begins_without_data() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("new", &[("gatera.dev/mode", "enforce")]);
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], GALERA).succeeded();
    let set = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    assert_eq!(set["metadata"]["annotations"]["gatera.dev/data"], "none");
    let bootstrap = plane.get(&ns, "deployment/galera-instance-bootstrap");
    assert_eq!(bootstrap["spec"]["replicas"], 1, "a first install needs its bootstrap node");
}
