//! Members whose StatefulSet was deleted without them, on a real API server.

use serde_json::{Value, json};

use crate::cluster::{STATEFUL_SET, running_cluster};
use crate::guarded;
use crate::lab::{User, eventually};

/// Between `delete --cascade=orphan` and the next apply the members have no owner, but they are still the cluster. The
/// manifest that is applied then may have been saved when the cluster was new.
#[test]
fn members_without_a_stateful_set_are_still_guarded() {
    let (plane, ns) = running_cluster("orphan");
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    let create = |set: &Value| {
        plane.kubectl_stdin(User::Editor, &["--namespace", &ns, "create", "--filename=-"], &set.to_string())
    };
    let mut set = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    set["metadata"] = json!({ "name": STATEFUL_SET, "annotations": { "gatera.dev/data": "none" } });
    run(&["delete", "statefulset", STATEFUL_SET, "--cascade=orphan"]).succeeded();
    eventually("the guard to see that the StatefulSet is gone", || {
        let output = run(&["delete", "pods", "--selector=app=galera", "--dry-run=server"]);
        (output.stderr.matches("[G02] Pod ").count() == 3).then_some(())
    });
    let claims = run(&["delete", "persistentvolumeclaims", "--all", "--dry-run=server"]);
    assert_eq!((claims.status, claims.stderr.matches("[G07] ").count()), (1, 3), "{claims}");
    let gone = plane.kubectl(User::Admin, &["delete", "namespace", &ns, "--dry-run=server"]);
    assert!(gone.status == 1 && gone.stderr.contains("[G03] Namespace "), "{gone}");

    let run_gatera = |arguments: &[&str]| {
        let output =
            guarded::ask(&plane.kubeconfig(User::Admin), &[arguments, &["--namespace", &ns]].concat());
        [output.stdout, output.stderr].concat()
    };
    let seen = run_gatera(&["status", STATEFUL_SET]);
    assert!(seen.contains("DEGRADED  3 of 3 members Synced, without a StatefulSet"), "{seen}");
    assert!(seen.contains("apply the StatefulSet again as it was"), "{seen}");
    let stopped = run_gatera(&["stop", STATEFUL_SET, "--yes"]);
    assert!(stopped.contains("was deleted, but 3 of its pods still exist; apply it again"), "{stopped}");

    // Objects that the members read, and Services by which they are reached, stay guarded.
    for (what, rule) in [
        ("configmap/galera-instance-nodeconfig", "[G10] ConfigMap "),
        ("service/galera-instance-hs", "[G10] Service "),
    ] {
        let refused = run(&["delete", what, "--dry-run=server"]);
        assert!(refused.stderr.contains(rule), "{what}: {refused}");
    }
    // The StatefulSet that adopts the members is compared with what they run.
    for (change, rule) in [
        (json!({ "spec": { "replicas": 1 } }), "[G01] "),
        (json!({ "spec": { "serviceName": "other" } }), "[G08] "),
        (
            json!({ "spec": { "selector": { "matchLabels": { "tier": "db" } }, "template": { "metadata": { "labels": { "tier": "db" } } } } }),
            "[G08] ",
        ),
    ] {
        let mut other = set.clone();
        json_patch::merge(&mut other, &change);
        let refused = create(&other);
        assert!(refused.status == 1 && refused.stderr.contains(&format!("{rule}StatefulSet ")), "{refused}");
    }
    let mut older = set.clone();
    older["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mariadb:10.6");
    let refused = create(&older);
    assert!(refused.status == 1 && refused.stderr.contains("[G17] StatefulSet "), "{refused}");
    let taken_over = create(&set);
    let reported: Vec<_> =
        taken_over.stderr.lines().filter(|line| !line.contains("gatera.dev/data")).collect();
    assert_eq!((taken_over.status, reported), (0, vec![]), "the same template was reported as a change");
    let set = plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    assert_eq!(
        set["metadata"]["annotations"]["gatera.dev/data"], "present",
        "its claims have volumes, so the cluster has data"
    );
    eventually("the pods to be members again", || {
        (run(&["delete", "pod", &format!("{STATEFUL_SET}-0"), "--dry-run=server"]).status == 0).then_some(())
    });
}
