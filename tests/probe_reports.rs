//! Reports in the output of members' probes reach the guard: the identity of their cluster, and the state of the members.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::guarded;
use crate::lab::{User, eventually};
use crate::living_cluster::{Alive, GALERA};
use crate::scene::ID;

/// Creates an Event as a kubelet does for the output of a failed probe.
fn report_probe_failure(alive: &Alive, pod: &str, uid: &str, words: &str) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "generateName": format!("{pod}."), "namespace": alive.ns },
        "reason": "Unhealthy", "message": format!("Readiness probe failed: {words}\n"), "type": "Warning",
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": alive.ns, "name": pod, "uid": uid },
        "source": { "component": "kubelet" }, "lastTimestamp": format!("{:.0}", Timestamp::now()),
    });
    let kubelet = ["--as=system:node:n", "--as-group=system:nodes", "--as-group=system:masters"];
    let create = [&["create", "--filename=-"][..], &kubelet].concat();
    alive.plane.kubectl_stdin(User::Admin, &create, &event.to_string()).succeeded();
}

/// The controller manager's message comes half a minute later, so the other two parts run meanwhile.
#[test]
fn reports_of_members_and_of_their_controller_reach_the_user() {
    let uncreated = cluster_with_a_member_that_cannot_be_created();
    the_identity_of_a_cluster_is_that_of_most_members();
    a_refusal_names_the_state_of_members();
    the_reason_why_a_member_cannot_be_created_is_shown(&uncreated);
}

fn the_identity_of_a_cluster_is_that_of_most_members() {
    let alive = Alive::cluster("reported");
    let members = alive.members();
    let identity_of = |what: &str| {
        let object: Value =
            serde_json::from_str(&alive.admin(&["get", what, "--output=json"]).succeeded()).unwrap();
        object["metadata"]["annotations"]["gatera.dev/identity"].as_str().unwrap_or_default().to_owned()
    };
    let (pods, set) =
        (members.iter().map(|(pod, _)| format!("pod/{pod}")), "statefulset/galera-instance-galera");
    let pods: Vec<_> = pods.collect();
    assert_eq!((identity_of(&pods[0]), identity_of(set)), ("unknown".to_owned(), String::new()));
    for (pod, uid) in &members[..2] {
        report_probe_failure(&alive, pod, uid, &format!("the server is SYNCED; its cluster is {ID}"));
    }
    // An Event with the uid of another pod is not a report of this pod.
    report_probe_failure(
        &alive,
        &members[2].0,
        "of-another-pod",
        "the server is SYNCED; its cluster is 7a2c1d10-0000-11f1-91b9-7e68ccac15f1",
    );
    eventually("the identity to be recorded", || {
        (identity_of(set) == ID && identity_of(&pods[0]) == ID && identity_of(&pods[1]) == ID).then_some(())
    });
    assert_eq!(identity_of(&pods[2]), "unknown", "a pod that has not reported is annotated");
}

fn a_refusal_names_the_state_of_members() {
    let alive = Alive::cluster("states");
    for (pod, uid) in alive.members() {
        alive.plane.set_ready(&alive.ns, &pod, false);
        report_probe_failure(&alive, &pod, &uid, "the server is CONNECTED");
    }
    let pod = &alive.members()[1].0;
    let words = eventually("the guard to see the report", || {
        let deleted = alive.admin(&["delete", "pod", pod, "--wait=false"]);
        assert_eq!(deleted.status, 1, "{deleted}");
        deleted.stderr.contains("CUT-OFF").then_some(deleted.stderr)
    });
    assert!(words.contains("[G02]") && words.contains("no member of its cluster is Ready"), "{words}");
    let advice = "serve again by themselves when enough of them reach each other; otherwise, and only if you are certain that no other server runs";
    assert!(words.contains(advice), "{words}");
}

/// Deletes the service account of a cluster, as a refused `helm uninstall` or a use of an override may have done.
fn cluster_with_a_member_that_cannot_be_created() -> Alive {
    let alive = Alive::empty("uncreated");
    alive.kubectl(&["create", "serviceaccount", "galera"]).succeeded();
    let set = "    spec:\n      initContainers:\n      - name: galera-instance-init";
    let text =
        GALERA.replace(set, &set.replace("    spec:\n", "    spec:\n      serviceAccountName: galera\n"));
    assert_ne!(text, GALERA);
    alive.apply_text(&text, &[]).succeeded();
    alive.until_formed();
    alive.until_bootstrap_removed();
    let deleted = alive.kubectl(&["delete", "serviceaccount", "galera"]);
    assert!(deleted.status == 1 && deleted.stderr.contains("[G10]"), "{deleted}");
    assert!(deleted.stderr.contains("the members of galera-instance-galera run with it"), "{deleted}");

    let until = Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let annotation = format!("gatera.dev/override=G10 until={until:.0} reason=test");
    alive.kubectl(&["annotate", "serviceaccount", "galera", &annotation]).succeeded();
    alive.kubectl(&["delete", "serviceaccount", "galera"]).succeeded();
    alive.kubectl(&["delete", "pod", "galera-instance-galera-1", "--wait=false"]).succeeded();
    alive
}

fn the_reason_why_a_member_cannot_be_created_is_shown(alive: &Alive) {
    // This is the controller manager's own message; up to Kubernetes 1.33 it begins with a small letter.
    let create = if alive.plane.minor() > 33 { "Create" } else { "create" };
    let words = &format!(
        "cannot be created: {create} Pod galera-instance-galera-1 in StatefulSet galera-instance-galera failed error"
    );
    eventually("gatera status to give the reason", || {
        let status = ["status", "--namespace", &alive.ns];
        let text = guarded::ask(&alive.plane.kubeconfig(User::Admin), &status).stdout;
        (text.contains(words) && text.contains("serviceaccount \"galera\" not found")).then_some(())
    });
    // The guard sees the reason, too, and names it when it refuses the deletion of another member.
    let refused = eventually("the guard to see the report", || {
        let refused = alive.kubectl(&["delete", "pod", "galera-instance-galera-0", "--wait=false"]);
        assert_eq!(refused.status, 1, "{refused}");
        refused.stderr.contains(words).then_some(refused.stderr)
    });
    assert!(
        refused.contains("[G02]") && refused.contains("serviceaccount \"galera\" not found"),
        "{refused}"
    );
}
