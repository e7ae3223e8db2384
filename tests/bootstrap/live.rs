//! The removal of the bootstrap node on a control plane with nodes, by the guard that all tests share.

use std::time::Instant;

use serde_json::Value;

use super::{MEMBER_ADDRESSES, SERVICE};
use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{User, eventually};
use crate::living_cluster::{self, Alive, BOOTSTRAP};

/// Returns the cluster address in the option file of each existing member.
pub(super) fn addresses(alive: &Alive) -> Vec<String> {
    let list: Value = serde_json::from_str(
        &alive.admin(&["get", "pods", "--selector=app=galera", "--output=json"]).succeeded(),
    )
    .unwrap();
    let address = |pod: &Value| {
        let text = pod["metadata"]["annotations"]["gatera.dev/my-cnf"].as_str().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("wsrep_cluster_address = "));
        line.unwrap_or_default().to_owned()
    };
    list["items"].as_array().unwrap().iter().map(address).collect()
}

/// Returns the notes of all Events with this reason, and checks that each was counted once.
pub fn events(alive: &Alive, reason: &str) -> Vec<String> {
    let text = alive.admin(&["get", "events.events.k8s.io", "--output=json"]).succeeded();
    let all: Value = serde_json::from_str(&text).unwrap();
    let ours = all["items"].as_array().unwrap().iter().filter(|it| it["reason"] == reason);
    ours.inspect(|it| {
        assert_eq!((&it["regarding"]["name"], &it["deprecatedCount"]), (&STATEFUL_SET.into(), &1.into()));
    })
    .map(|it| it["note"].as_str().unwrap().to_owned())
    .collect()
}

/// Lists what exists of the bootstrap node, and of these other objects.
pub(super) fn existing(alive: &Alive, others: &[&str]) -> Vec<String> {
    let service = format!("service/{SERVICE}");
    let own = ["get", BOOTSTRAP, &service, "configmap/galera-instance-bootstrap"];
    let existing = [&own[..], others, &["--ignore-not-found", "--output=name"]].concat();
    alive.admin(&existing).succeeded().lines().map(str::to_owned).collect()
}

pub(super) fn assert_nothing_is_left(alive: &Alive) {
    let others =
        ["secret/galera-instance", "configmap/galera-instance-nodeconfig", "service/galera-instance-hs"];
    assert_eq!(
        existing(alive, &others),
        others,
        "what is left of the bootstrap node, and the objects that must stay"
    );
    assert_eq!(alive.bootstrap_pods(), "", "a bootstrap pod is left");
}

fn status(alive: &Alive, arguments: &[&str]) -> (i32, String, String) {
    let output = std::process::Command::new(guarded::program())
        .args(["status", "--namespace", &alive.ns])
        .args(arguments)
        .env("KUBECONFIG", alive.plane.kubeconfig(User::Admin))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Manifests become three members without manual steps, and the bootstrap node is removed. If they are applied again, it stays at
/// 0 replicas, and the guard writes nothing more.
#[test]
fn the_bootstrap_node_removes_itself_and_stays_away() {
    let alive = Alive::empty("bootstrap");
    alive.apply(&[]).succeeded();
    alive.until_ready(3);
    let (ready, members) = (Instant::now(), alive.members());
    let note = eventually("the Event", || events(&alive, "BootstrapRemoved").pop());
    eprintln!("from three Ready members, as kubectl saw them, to the Event: {:?}", ready.elapsed());
    assert_eq!(
        note,
        format!(
            "removed {}: 3 of 3 members Synced",
            "Deployment galera-instance-bootstrap, Service galera-instance-bootstrap-svc, ConfigMap galera-instance-bootstrap"
        )
    );
    alive.until_bootstrap_removed();
    assert_nothing_is_left(&alive);
    assert_eq!(addresses(&alive), vec![MEMBER_ADDRESSES; 3]);
    assert_eq!(alive.members(), members, "no member was restarted");

    let again = alive.apply(&[]);
    assert!(again.status == 0 && again.stderr.contains("kept at 0 replicas"), "{again}");
    let writes = || {
        let asked = alive.plane.asked_by_the_guard();
        let here = asked.into_iter().filter(|it| it.writes() && it.namespace == alive.ns);
        here.filter(|it| it.resource != "events").collect::<Vec<_>>()
    };
    let before = writes();
    // An Event each time, because many clients do not show warnings.
    let kept = eventually("the Event", || events(&alive, "BootstrapKeptAtZero").pop());
    assert!(kept.starts_with("Deployment galera-instance-bootstrap is kept at 0 replicas: "), "{kept}");
    // A deletion that coincides with a change of the object is refused (409), and the object is judged again.
    let deletes: Vec<_> = before
        .iter()
        .filter(|it| it.verb == "delete" && it.code != 409)
        .map(|it| (&*it.resource, it.code))
        .collect();
    assert_eq!(deletes, [("deployments", 200), ("services", 200), ("configmaps", 200)]);
    alive.changes_nothing(|| (0..2).for_each(|_| drop(alive.apply(&[]).succeeded())));
    assert_eq!(alive.plane.get(&alive.ns, BOOTSTRAP)["spec"]["replicas"], 0);
    assert_eq!(events(&alive, "BootstrapRemoved").len(), 1);
    assert_eq!(writes(), before, "the guard writes nothing more");
    // An annotation that a person removes is restored; without it the removal would begin again.
    alive.admin(&["annotate", "statefulset", STATEFUL_SET, "gatera.dev/bootstrap-"]).succeeded();
    alive.until_bootstrap_removed();
    assert_eq!(writes(), before, "the removal did not begin again");
    let (code, text, err) = status(&alive, &[STATEFUL_SET]);
    assert_eq!((code, &*err), (0, ""));
    assert!(text.contains("└── Steps of the guard: done\n"), "{text}");
    assert!(text.contains("was applied again after it was removed"), "{text}");
}

/// 3 -> 5 -> 3: running members get the new list, and none restarts.
#[test]
fn addresses_follow_replicas_without_restarts() {
    let alive = Alive::cluster("membership");
    let before = alive.members();
    let scale = |from: i32, to: i32| {
        let arguments = ["scale", "statefulset", STATEFUL_SET, &format!("--replicas={to}")];
        eventually(&format!("{from} -> {to} to be admitted"), || {
            (alive.kubectl(&arguments).status == 0).then_some(())
        });
    };
    scale(3, 5);
    alive.until_ready(5);
    let five = format!(
        "{MEMBER_ADDRESSES},galera-instance-galera-3.galera-instance-hs,galera-instance-galera-4.galera-instance-hs"
    );
    eventually("five addresses of five", || (addresses(&alive) == vec![five.clone(); 5]).then_some(()));
    assert!(alive.members().starts_with(&before), "no member was restarted");
    scale(5, 3);
    eventually("three addresses of three", || (addresses(&alive) == vec![MEMBER_ADDRESSES; 3]).then_some(()));
    assert_eq!(alive.members(), before);
}

/// Without proof of Galera's state the bootstrap node is kept, and the reason is published once, not in a stream.
#[test]
fn the_reason_for_keeping_the_bootstrap_node_is_published_once() {
    let alive = Alive::empty("kept");
    alive.apply_text(&living_cluster::unproven(), &[]).succeeded();
    alive.until_formed();
    let note = eventually("the Event", || {
        events(&alive, "BootstrapKept")
            .into_iter()
            .find(|note| note.contains("does not check Galera's state"))
    });
    assert!(
        note.starts_with("the bootstrap node stays: galera-instance-galera-0 has a readiness probe"),
        "{note}"
    );
    assert_eq!(alive.plane.get(&alive.ns, BOOTSTRAP)["spec"]["replicas"], 1);
    let reported = events(&alive, "BootstrapKept").len();
    alive.admin(&["label", "statefulset", STATEFUL_SET, "a=b"]).succeeded();
    let (code, text, _) = status(&alive, &[]);
    assert_eq!(code, 0);
    assert!(
        text.contains("remove the bootstrap node: waits (galera-instance-galera-0 has a readiness probe"),
        "{text}"
    );
    assert_eq!(events(&alive, "BootstrapKept").len(), reported);
    let (code, _, err) = status(&alive, &["other"]);
    assert_eq!(
        (code, err),
        (
            2,
            format!(
                "gatera: there is no Galera cluster other in namespace {}; `gatera status` lists all\n",
                alive.ns
            )
        )
    );
}

/// The ReplicaSet would replace the pod at once with an empty one. The members hold the data, so the replacement is refused, and
/// the members' addresses no longer name the bootstrap node.
#[test]
fn a_bootstrap_pod_that_is_deleted_is_not_replaced() {
    let alive = Alive::empty("midway");
    alive.apply_text(&living_cluster::unproven(), &[]).succeeded();
    alive.until_formed();
    let pods = ["delete", "pods", "--selector=app=galera-bootstrap"];
    eventually("all members to be seen Ready", || (alive.kubectl(&pods).status == 0).then_some(()));
    eventually("the ReplicaSet to be refused", || {
        let events = alive.admin(&["get", "events", "--field-selector=reason=FailedCreate"]).stdout;
        events.contains("[G04] Pod ").then_some(())
    });
    eventually("the new addresses", || (addresses(&alive) == vec![MEMBER_ADDRESSES; 3]).then_some(()));
    assert_eq!(alive.bootstrap_pods(), "", "the bootstrap pod was replaced");
}

/// Another cluster's bootstrap node reads the same ConfigMap, which stays until the last of the two is gone.
#[test]
fn a_config_map_that_two_bootstrap_nodes_read_stays() {
    let alive = Alive::empty("shared");
    // Another cluster that never forms, because it has no StatefulSet.
    let parts: Vec<&str> = living_cluster::GALERA.split("---\n").collect();
    let deployment = parts.iter().find(|it| it.contains("kind: Deployment")).unwrap();
    let other = deployment
        .replace("metadata: {name: galera-instance-bootstrap,", "metadata: {name: other-bootstrap,")
        .replace("instance: galera-instance}", "instance: other}");
    alive.admin(&["get", "pods"]).succeeded();
    alive
        .plane
        .kubectl_stdin(User::Ci, &["--namespace", &alive.ns, "apply", "--filename=-"], &other)
        .succeeded();
    alive.apply(&[]).succeeded();
    alive.until_bootstrap_removed();
    let note = events(&alive, "BootstrapRemoved").pop().unwrap();
    assert_eq!(
        note,
        format!("removed Deployment galera-instance-bootstrap, Service {SERVICE}: 3 of 3 members Synced")
    );
    alive.admin(&["get", "configmap/galera-instance-bootstrap", "deployment/other-bootstrap"]).succeeded();
}
