//! The manual recovery of a cluster that is down, as `gatera explain G04` describes it, on a real API server: each step is
//! refused without the override and admitted with it, and at the end no override is needed any more.

use serde_json::json;

use crate::cluster::{STATEFUL_SET, running_cluster};
use crate::lab::{Output, User, eventually};

const GALERA: &str = include_str!("fixtures/galera.yaml");
const FOUNDING_FILE: &str = "[galera]\nwsrep_on = ON\nwsrep_provider = /usr/lib/galera/libgalera_smm.so\nbinlog_format = ROW\ninnodb_autoinc_lock_mode = 2\nwsrep_cluster_address = gcomm://\n";
const JOINING_FILE: &str = "[galera]\nwsrep_on = ON\nwsrep_provider = /usr/lib/galera/libgalera_smm.so\nbinlog_format = ROW\ninnodb_autoinc_lock_mode = 2\nwsrep_cluster_address = gcomm://galera-instance-galera-0.galera-instance-hs,galera-instance-galera-1.galera-instance-hs,galera-instance-galera-2.galera-instance-hs\n";

#[test]
fn each_step_of_the_manual_recovery_is_admitted_with_the_override() {
    let (plane, ns) = running_cluster("back");
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    let patch = |what: &str, patch: serde_json::Value| {
        run(&["patch", what, "--type=merge", &format!("--patch={patch}")])
    };
    let (config, set) = ("configmap/galera-instance-nodeconfig", format!("statefulset/{STATEFUL_SET}"));
    let set_founding_file = || patch(config, json!({ "data": { "galera.cnf": FOUNDING_FILE } }));
    let keep_only_member_two =
        || patch(&set, json!({ "spec": { "replicas": 1, "ordinals": { "start": 2 } } }));

    // Every member has stopped; the data is on the claims.
    for ordinal in 0..3 {
        plane.make_pod_unready(&ns, &format!("{STATEFUL_SET}-{ordinal}"));
    }
    let assert_says = |output: &Output, words: &str| {
        assert!(output.stderr.contains(words), "expected {words:?}:\n{}", output.stderr);
    };
    let refused = eventually("the guard to see that the cluster is down", || {
        let output = set_founding_file();
        output.stderr.contains("0 of 3 members").then_some(output)
    });
    assert_eq!(refused.status, 1, "a founding file is refused without an override: {refused}");
    assert_says(
        &refused,
        &format!(
            "do instead: gatera recover {STATEFUL_SET} -n {ns}, which starts it from the member with the newest data; the data is still on the claims (by hand: gatera explain G04)"
        ),
    );
    assert_says(&keep_only_member_two(), "[G01]");

    // According to grastate.dat member 2 has the newest data.
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let override_mark = format!("gatera.dev/override=G01,G02,G04 until={until} reason=start from member 2");
    for what in [config, &set] {
        run(&["annotate", what, &override_mark]).succeeded();
    }
    let overridden = eventually("the override to be seen", || {
        Some(set_founding_file()).filter(|output| output.status == 0)
    });
    assert_says(&overridden, "Warning: [G04] ConfigMap ");
    let step = keep_only_member_two();
    assert_eq!(step.status, 0, "{}", step.stderr);
    assert_says(&step, "Warning: [G01] StatefulSet ");
    let pod = format!("pod/{STATEFUL_SET}-2");
    let stopped = run(&["delete", "pods", "--selector=app=galera", "--wait=false"]);
    assert_eq!(stopped.status, 0, "{}", stopped.stderr);
    assert_says(&stopped, "Warning: [G02] Pod ");
    plane.finish_deletes(&ns);
    let my_cnf = eventually("member 2 to be recreated", || {
        let pod = run(&[
            "get",
            &pod,
            "--output=jsonpath={.metadata.deletionTimestamp}|{.metadata.annotations.gatera\\.dev/my-cnf}",
        ]);
        pod.stdout.strip_prefix('|').map(str::to_owned)
    });
    assert!(
        my_cnf.contains("wsrep_status_file") && !my_cnf.contains("wsrep_cluster_address"),
        "with an address in its option file, member 2 would not found the cluster: {my_cnf}"
    );
    plane.make_pod_ready(&ns, &format!("{STATEFUL_SET}-2"));

    // Member 2 is Ready with its data, and the other members join it; none of these steps needs an override.
    for what in [config, &set] {
        run(&["annotate", what, "gatera.dev/override-"]).succeeded();
    }
    let back = patch(config, json!({ "data": { "galera.cnf": JOINING_FILE } }));
    assert_eq!((back.status, &*back.stderr), (0, ""), "the joining file needs no override");
    let up = eventually("the guard to see the member", || {
        Some(patch(&set, json!({ "spec": { "replicas": 3, "ordinals": { "start": 0 } } })))
            .filter(|output| output.status == 0)
    });
    assert_eq!(&*up.stderr, "", "the scale back to 3 needs no override");
    plane.run_stateful_set(&ns, STATEFUL_SET);
    let scaled = eventually("a healthy cluster again", || {
        Some(run(&["scale", "statefulset", STATEFUL_SET, "--replicas=4"])).filter(|output| output.status == 0)
    });
    assert_says(&scaled, "4 members survive no more failures than 3 do");
}

/// All pods are deleted, and the manifest is applied again. Without a guard, as measured, every pod is then 1/1 Running and every
/// table is gone.
#[test]
fn the_two_commands_that_erase_a_database_erase_nothing() {
    let (plane, ns) = running_cluster("erase");
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    let uids = || {
        run(&["get", "pods", "--selector=app=galera", "--output=jsonpath={.items[*].metadata.uid}"])
            .succeeded()
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = uids();
    let output = run(&["delete", "pods", "--selector=app=galera", "--wait=false"]);
    let refused = output.stderr.matches("[G02] Pod ").count();
    assert_eq!((output.status, refused), (1, 2), "two of three deletions are refused: {}", output.stderr);
    plane.finish_deletes(&ns);
    let kept = uids().into_iter().filter(|uid| before.contains(uid)).count();
    assert_eq!(kept, 2, "more than one member was deleted");
    // No webhook is called about a power cut.
    for ordinal in 0..3 {
        plane.make_pod_unready(&ns, &format!("{STATEFUL_SET}-{ordinal}"));
    }
    eventually("the guard to see that the cluster is down", || {
        let output = run(&["scale", "statefulset", STATEFUL_SET, "--replicas=2"]);
        output.stderr.contains("0 of 3 members").then_some(())
    });
    // Repeating the command does not change the result.
    for _ in 0..2 {
        let output =
            plane.kubectl_stdin(User::Editor, &["--namespace", &ns, "apply", "--filename=-"], GALERA);
        assert_eq!(output.status, 0, "{}", output.stderr);
        assert!(
            output.stderr.contains("Warning: [G04] Deployment ")
                && output.stderr.contains("kept at 0 replicas"),
            "{}",
            output.stderr
        );
    }
    let bootstrap = plane.get(&ns, "deployment/galera-instance-bootstrap");
    assert_eq!(bootstrap["spec"]["replicas"], 0, "the bootstrap Deployment is kept at 0 replicas");
    let pods = run(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).succeeded();
    assert_eq!(pods, "", "a bootstrap node would found a second, empty cluster");
}
