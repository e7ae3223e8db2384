//! A guarded cluster that lives by itself: on nodes, with a scheduler, every pod becoming Ready and going as pods do.
//! For the tests in which a tool does several things and waits for what comes of them.

use serde_json::Value;

use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};

pub const GALERA: &str = include_str!("fixtures/galera.yaml");
pub const BOOTSTRAP: &str = "deployment/galera-instance-bootstrap";
const MEMBERS: &str = "--selector=app=galera";
const KINDS: &str = "secret,configmap,service,deployment,statefulset,pod";

/// The same cluster with readiness probes that are kept: its members become Ready, and nothing proves them Synced.
pub fn unproven() -> String {
    let labels = "    metadata: {labels: {app: galera, galera: galera, instance: galera-instance}";
    assert!(GALERA.contains(labels), "the template of the members");
    GALERA.replace(labels, &format!("{labels}, annotations: {{gatera.dev/readiness: keep}}"))
}

/// One namespace, guarded as a whole.
pub struct Alive {
    pub plane: &'static ControlPlane,
    pub ns: String,
}

impl Alive {
    /// Nothing in it yet.
    pub fn empty(prefix: &str) -> Alive {
        let (plane, _) = guarded::shared_with_nodes();
        let ns = plane.namespace_with_labels(prefix, &[("gatera.dev/mode", "enforce")]);
        Alive { plane, ns }
    }

    /// Applied, formed, and its bootstrap node removed by the guard.
    pub fn cluster(prefix: &str) -> Alive {
        let alive = Alive::empty(prefix);
        alive.apply(&[]).succeeded();
        alive.until_formed();
        alive.until_bootstrap_removed();
        alive
    }

    /// What an ordinary person types.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Editor, &[&["--namespace", &*self.ns], arguments].concat())
    }

    /// What somebody types who may also change nodes and namespaces.
    pub fn admin(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Admin, &[&["--namespace", &*self.ns], arguments].concat())
    }

    /// The robot's `kubectl apply` of the fixture. The label `instance` is the namespace's name, so that of all the pods
    /// on a node those of one test can be named.
    pub fn apply(&self, flags: &[&str]) -> Output {
        self.apply_text(GALERA, flags)
    }

    /// The same with other manifests.
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

    /// All three members are Ready and the leader has seen one of them.
    pub fn until_formed(&self) {
        self.until_ready(3);
        self.until("statefulset", "jsonpath={.metadata.annotations.gatera\\.dev/data}=present");
    }

    pub fn until_ready(&self, members: usize) {
        self.until("statefulset", &format!("jsonpath={{.status.readyReplicas}}={members}"));
    }

    /// The guard has removed the bootstrap node and written down that it did.
    pub fn until_bootstrap_removed(&self) {
        until_bootstrap_removed(self.plane, &self.ns);
    }

    /// One kubectl that watches is cheaper than many that look.
    fn until(&self, kind: &str, condition: &str) {
        let wait = ["wait", kind, MEMBERS, "--timeout=80s", &format!("--for={condition}")];
        self.admin(&wait).succeeded();
    }

    /// Bootstrap pods.
    pub fn founders(&self) -> String {
        self.kubectl(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).succeeded()
    }

    /// uid of each member's pod, by name.
    pub fn members(&self) -> Vec<(String, String)> {
        let path = "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
        let text = self.kubectl(&["get", "pods", MEMBERS, path]).succeeded();
        text.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect()
    }

    /// On which node a pod is.
    pub fn node_of(&self, pod: &str) -> String {
        self.kubectl(&["get", "pod", pod, "--output=jsonpath={.spec.nodeName}"]).succeeded()
    }

    /// Whatever `act` does, every object is afterwards what it was.
    pub fn changes_nothing(&self, act: impl FnOnce()) {
        let before = self.objects();
        act();
        let after = self.objects();
        let changes = json_patch::diff(&before, &after);
        assert!(changes.is_empty(), "{changes}");
    }

    /// Every object as its writers left it, who owns which field included; nothing of what controllers report or of what
    /// Helm writes down for itself.
    pub fn objects(&self) -> Value {
        eventually("controllers have seen everything", || {
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

/// The guard has removed the bootstrap node and written down that it did.
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
    // The list is in the order of its times: a replicas of 1 that is held at 0 moves its writer to the end, once.
    for manager in managers.iter_mut() {
        manager["time"] = Value::Null;
    }
    managers.sort_by_key(|it| format!("{} {}", it["manager"], it["operation"]));
    object
}

/// Ready and not, gone and back: what the tests with nodes rely on.
#[test]
fn pods_live_and_go_by_themselves() {
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
    assert_eq!(after[1..], before[1..]);
    alive.until_ready(3);
}
