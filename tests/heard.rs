//! What members tell their probes reaches the guard, and with it the words of a refusal.

use jiff::Timestamp;
use serde_json::json;

use crate::alive::Alive;
use crate::lab::{User, eventually};

#[test]
fn a_refusal_says_what_became_of_members() {
    let alive = Alive::cluster("heard");
    for (pod, uid) in alive.members() {
        alive.plane.set_ready(&alive.ns, &pod, false);
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("{pod}.1"), "namespace": alive.ns },
            "reason": "Unhealthy", "message": "Readiness probe failed: the server is CONNECTED\n", "type": "Warning",
            "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": alive.ns, "name": pod, "uid": uid },
            "source": { "component": "kubelet" }, "lastTimestamp": format!("{:.0}", Timestamp::now()),
        });
        let kubelet = ["--as=system:node:n", "--as-group=system:nodes", "--as-group=system:masters"];
        let create = [&["create", "--filename=-"][..], &kubelet].concat();
        alive.plane.kubectl_stdin(User::Admin, &create, &event.to_string()).succeeded();
    }
    let pod = &alive.members()[1].0;
    let words = eventually("the guard to hear it", || {
        let deleted = alive.admin(&["delete", "pod", pod, "--wait=false"]);
        assert_eq!(deleted.status, 1, "{deleted}");
        deleted.stderr.contains("CUT-OFF").then_some(deleted.stderr)
    });
    assert!(words.contains("[G02]") && words.contains("no member of its cluster is Ready"), "{words}");
    let advice =
        "serve again by themselves when enough of them meet; only if it is certain that no other server runs";
    assert!(words.contains(advice), "{words}");
}
