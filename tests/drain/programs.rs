//! Programs that empty nodes: cluster autoscalers and node upgraders. Each evicts members in its own way (docs/drains.md has
//! the sources), and at its deadline some delete the pod, or the node.

use serde_json::{Value, json};

use super::pod;
use crate::lab::{Output, User, eventually};
use crate::living_cluster::Alive;

/// A program that evicts pods: its user, and the eviction that it sends for a pod with this name and this uid.
type Program = (&'static str, fn(&Alive, &str, &str) -> Value);

const PROGRAMS: [Program; 4] = [
    // In the old version, with the pod's own grace, cut to `--max-graceful-termination-sec`.
    ("system:serviceaccount:kube-system:cluster-autoscaler", |alive, name, _| {
        let metadata = json!({ "name": name, "namespace": alive.ns });
        let mut it = eviction(&metadata, &json!({ "gracePeriodSeconds": 600 }));
        it["apiVersion"] = json!("policy/v1beta1");
        it
    }),
    // With the uid of the pod that it saw, so a new pod of this name is not evicted.
    ("system:serviceaccount:kube-system:karpenter", |alive, name, uid| {
        let options = json!({ "preconditions": { "uid": uid } });
        eviction(&json!({ "name": name, "namespace": alive.ns }), &options)
    }),
    // Without the namespace, as some programs send it (strimzi/drain-cleaner#34).
    ("spot", |_, name, _| eviction(&json!({ "name": name }), &json!({ "gracePeriodSeconds": 120 }))),
    ("eks:node-manager", |alive, name, _| {
        eviction(&json!({ "name": name, "namespace": alive.ns }), &Value::Null)
    }),
];

fn eviction(metadata: &Value, options: &Value) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options })
}

impl Alive {
    fn evict(&self, (user, request): Program, name: &str) -> Output {
        let seen = self.plane.get(&self.ns, &format!("pod/{name}"));
        let body = request(self, name, seen["metadata"]["uid"].as_str().unwrap());
        let path = format!("--raw=/api/v1/namespaces/{}/pods/{name}/eviction", self.ns);
        let user = format!("--as={user}");
        let arguments = ["create", &path, "--filename=-", &user, "--as-group=system:masters"];
        self.plane.kubectl_stdin(User::Admin, &arguments, &body.to_string())
    }

    fn delete_as(&self, user: &str, name: &str, flags: &[&str]) -> Output {
        let user = format!("--as={user}");
        let base = ["delete", "pod", name, "--wait=false", &user, "--as-group=system:masters"];
        self.admin(&[&base[..], flags].concat())
    }
}

/// Any other status than 429 ends `kubectl drain` and an upgrade of AKS at once (Azure/AKS#5637).
#[test]
fn evictions_by_every_program_wait_for_the_other_members() {
    let alive = Alive::cluster("programs");
    for program in PROGRAMS {
        let (user, _) = program;
        alive.make_unready(0);
        let before = alive.members();
        for _ in 0..3 {
            let refused = alive.evict(program, &pod(1));
            assert_eq!(refused.status, 1, "{user}: {refused}");
            let words = format!(
                "(TooManyRequests): admission webhook \"namespace.gatera.dev\" denied the request: [G02] Pod {}/{}: {} is not Ready yet",
                alive.ns,
                pod(1),
                pod(0)
            );
            assert!(refused.stderr.contains(&words), "{user}: {refused}");
        }
        assert_eq!(alive.members(), before, "{user}");
        alive.make_ready_again(0);
        // While this quota exists, the evicted member cannot come back.
        alive.admin(&["create", "quota", "two", "--hard=pods=2"]).succeeded();
        let evicted = alive.evict(program, &pod(1));
        assert_eq!(evicted.status, 0, "{user}: {evicted}");
        // The eviction of the next member waits for this one.
        let refused = alive.evict(program, &pod(2));
        let words = format!("[G02] Pod {}/{}: {} ", alive.ns, pod(2), pod(1));
        assert!(
            refused.stderr.contains("(TooManyRequests)") && refused.stderr.contains(&words),
            "{user}: {refused}"
        );
        alive.admin(&["delete", "quota", "two"]).succeeded();
        alive.until_all_are_ready();
        let after = alive.members();
        assert_eq!(
            (&after[0], &after[2]),
            (&before[0], &before[2]),
            "{user}: another member was replaced, too"
        );
        assert_ne!(after[1], before[1], "{user}");
        eventually("the guard to see that all members are Ready", || {
            (alive.delete_as(user, &pod(1), &["--dry-run=server"]).status == 0).then_some(())
        });
    }
}

/// At its deadline Karpenter deletes the pod, with the seconds that are left.
#[test]
fn a_deletion_at_the_deadline_is_judged_like_every_other() {
    let alive = Alive::cluster("programs");
    let user = "system:serviceaccount:kube-system:karpenter";
    alive.make_unready(0);
    let before = alive.members();
    for (grace, words) in [
        ("--grace-period=300", format!("{} is not Ready yet", pod(0))),
        ("--grace-period=30", "a grace period of 30s instead of its own 600s, while its server runs".into()),
    ] {
        let refused = alive.delete_as(user, &pod(1), &[grace]);
        assert_eq!(refused.status, 1, "{refused}");
        let head = format!(
            "(Forbidden): admission webhook \"pods-1.gatera.dev\" denied the request: [G02] Pod {}/{}: {words}",
            alive.ns,
            pod(1)
        );
        assert!(refused.stderr.contains(&head), "{head} is not in {refused}");
    }
    assert_eq!(alive.members(), before);

    // With less than a minute left, the deletion is refused even if all members are Ready. The message says what to do.
    alive.make_ready_again(0);
    let refused = alive.delete_as(user, &pod(1), &["--grace-period=30"]);
    let way =
        format!("do instead: kubectl -n {} delete pod {}, without --now or --grace-period", alive.ns, pod(1));
    assert!(refused.stderr.contains(&way), "{refused}");
    alive.admin(&["delete", "pod", &pod(1), "--wait=false"]).succeeded();
    alive.until_all_are_ready();
    assert_ne!(alive.members()[1], before[1]);
}

/// When a node is deleted, the control plane removes its pods by force, whether or not other members are Ready. A refusal would
/// leave pods of nodes that no longer exist.
#[test]
fn pods_of_a_deleted_node_are_removed_in_every_state_of_the_cluster() {
    let alive = Alive::cluster("programs");
    alive.make_unready(0);
    let before = alive.members();
    let garbage_collector = "system:serviceaccount:kube-system:pod-garbage-collector";
    alive.delete_as(garbage_collector, &pod(1), &["--grace-period=0", "--force"]).succeeded();
    alive.plane.set_ready(&alive.ns, &pod(0), true);
    alive.until_all_are_ready();
    assert_ne!(alive.members()[1], before[1]);
}
