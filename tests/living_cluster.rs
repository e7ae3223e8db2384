//! A guarded cluster on nodes with a scheduler, where pods become Ready and end by themselves, as real pods do. It is for
//! tests in which a tool does several things and waits for their results.

use serde_json::Value;

use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};

pub const GALERA: &str = include_str!("fixtures/galera.yaml");
pub const BOOTSTRAP: &str = "deployment/galera-instance-bootstrap";
const MEMBERS: &str = "--selector=app=galera";
const KINDS: &str = "secret,configmap,service,deployment,statefulset,pod";

/// Returns the same cluster with readiness probes that are kept: its members become Ready, but nothing proves them Synced.
pub fn unproven() -> String {
    let labels = "    metadata: {labels: {app: galera, galera: galera, instance: galera-instance}";
    assert!(GALERA.contains(labels), "the template of the members has other labels");
    GALERA.replace(labels, &format!("{labels}, annotations: {{gatera.dev/readiness: keep}}"))
}

/// A namespace that is guarded as a whole.
pub struct Alive {
    pub plane: &'static ControlPlane,
    pub ns: String,
}

impl Alive {
    /// Creates a namespace with nothing in it.
    pub fn empty(prefix: &str) -> Alive {
        let (plane, _) = guarded::shared_with_nodes();
        let ns = plane.namespace_with_labels(prefix, &[("gatera.dev/mode", "enforce")]);
        Alive { plane, ns }
    }

    /// Creates a namespace with a cluster that has formed and whose bootstrap node the guard has removed.
    pub fn cluster(prefix: &str) -> Alive {
        let alive = Alive::empty(prefix);
        alive.apply(&[]).succeeded();
        alive.until_formed();
        alive.until_bootstrap_removed();
        alive
    }

    /// Runs kubectl with the rights of an editor.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Editor, &[&["--namespace", &*self.ns], arguments].concat())
    }

    /// Runs kubectl with the rights of an administrator, who may also change nodes and namespaces.
    pub fn admin(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Admin, &[&["--namespace", &*self.ns], arguments].concat())
    }

    /// Runs `kubectl apply` for the fixture, as CI does. The label `instance` is set to the name of the namespace, so that the
    /// pods of one test can be selected among all pods on a node.
    pub fn apply(&self, flags: &[&str]) -> Output {
        self.apply_text(GALERA, flags)
    }

    /// Runs `kubectl apply` for other manifests in the same way.
    pub fn apply_text(&self, text: &str, flags: &[&str]) -> Output {
        let all = [&["--namespace", &*self.ns, "apply", "--filename=-"], flags].concat();
        let labelled = text.replace("instance: galera-instance", &format!("instance: {}", self.ns));
        self.plane.kubectl_stdin(User::Ci, &all, &labelled)
    }

    pub fn helm(&self, arguments: &[&str]) -> Output {
        self.plane.helm(User::Ci, &[&["--namespace", &*self.ns], arguments].concat())
    }

    pub fn stateful_set(&self) -> Value {
        self.plane.get(&self.ns, &format!("statefulset/{STATEFUL_SET}"))
    }

    /// Waits until all three members are Ready and the leader has seen one of them.
    pub fn until_formed(&self) {
        self.until_ready(3);
        self.until("statefulset", "jsonpath={.metadata.annotations.gatera\\.dev/data}=present");
    }

    pub fn until_ready(&self, members: usize) {
        self.until("statefulset", &format!("jsonpath={{.status.readyReplicas}}={members}"));
    }

    /// Waits until the guard has removed the bootstrap node and recorded the removal.
    pub fn until_bootstrap_removed(&self) {
        until_bootstrap_removed(self.plane, &self.ns);
    }

    /// Waits with one kubectl that watches, which is cheaper than many that poll.
    fn until(&self, kind: &str, condition: &str) {
        let wait = ["wait", kind, MEMBERS, "--timeout=80s", &format!("--for={condition}")];
        self.admin(&wait).succeeded();
    }

    /// Returns the names of the bootstrap pods.
    pub fn bootstrap_pods(&self) -> String {
        self.kubectl(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).succeeded()
    }

    /// Returns the name and uid of each member's pod.
    pub fn members(&self) -> Vec<(String, String)> {
        let path = "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
        let text = self.kubectl(&["get", "pods", MEMBERS, path]).succeeded();
        text.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect()
    }

    /// Returns the name of the node on which a pod runs.
    pub fn node_of(&self, pod: &str) -> String {
        self.kubectl(&["get", "pod", pod, "--output=jsonpath={.spec.nodeName}"]).succeeded()
    }

    /// Asserts that every object is the same before and after `act`.
    pub fn changes_nothing(&self, act: impl FnOnce()) {
        let before = self.objects();
        act();
        let after = self.objects();
        let changes = json_patch::diff(&before, &after);
        assert!(changes.is_empty(), "objects were changed: {changes}");
    }

    /// Returns every object as its writers left it, including the managers of its fields, but without what controllers report
    /// and without Helm's own records.
    pub fn objects(&self) -> Value {
        eventually("controllers to have seen every object", || {
            let get = ["get", KINDS, "--show-managed-fields", "--output=json"];
            let mut list: Value = serde_json::from_str(&self.admin(&get).succeeded()).unwrap();
            let mut objects = std::mem::take(list["items"].as_array_mut().unwrap());
            objects.retain(|it| it["type"] != "helm.sh/release.v1");
            objects.iter().all(is_settled).then(|| {
                let written = objects.into_iter().map(as_written);
                written.map(|it| (format!("{} {}", it["kind"], it["metadata"]["name"]), it)).collect()
            })
        })
    }
}

/// Waits until the guard has removed the bootstrap node and recorded the removal.
pub fn until_bootstrap_removed(plane: &ControlPlane, ns: &str) {
    eventually("the guard to remove the bootstrap node", || {
        let set = plane.get(ns, &format!("statefulset/{STATEFUL_SET}"));
        set["metadata"]["annotations"]["gatera.dev/bootstrap"].as_str()?.strip_prefix("removed ").map(drop)
    });
}

fn is_settled(object: &Value) -> bool {
    let (meta, status) = (&object["metadata"], &object["status"]);
    let numbered = !meta["annotations"]["deployment.kubernetes.io/revision"].is_null();
    match object["kind"].as_str() {
        Some("Deployment") => numbered && status["observedGeneration"] == meta["generation"],
        Some("StatefulSet") => status["observedGeneration"] == meta["generation"],
        _ => true,
    }
}

fn as_written(mut object: Value) -> Value {
    object["status"] = Value::Null;
    object["metadata"]["resourceVersion"] = Value::Null;
    let Some(managers) = object["metadata"]["managedFields"].as_array_mut() else { return object };
    managers.retain(|it| it["subresource"] != "status");
    // The list is sorted by time: the first time that the guard keeps replicas 1 at 0, the manager that wrote 1 moves to the end.
    for manager in managers.iter_mut() {
        manager["time"] = Value::Null;
    }
    managers.sort_by_key(|it| format!("{} {}", it["manager"], it["operation"]));
    object
}

/// Pods become Ready and unready and are replaced after a deletion, as the tests with nodes expect.
#[test]
fn pods_become_ready_and_are_replaced_by_themselves() {
    let alive = Alive::cluster("alive");
    alive.plane.set_ready(&alive.ns, &format!("{STATEFUL_SET}-1"), false);
    alive.until_ready(2);
    alive.plane.set_ready(&alive.ns, &format!("{STATEFUL_SET}-1"), true);
    alive.until_ready(3);
    let before = alive.members();
    alive.admin(&["delete", "pod", &format!("{STATEFUL_SET}-0")]).succeeded();
    let after = eventually("the pod to be replaced", || {
        Some(alive.members()).filter(|after| after.len() == 3 && after[0] != before[0])
    });
    assert_eq!(after[1..], before[1..], "other pods were replaced, too");
    alive.until_ready(3);
}
