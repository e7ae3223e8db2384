//! A release in the shape of Bitnami's chart, with the guard in front of it: it is installed, runs, grows, shrinks and is
//! upgraded as without a guard; changes that would destroy it are refused; and neighbouring workloads are left alone.

use serde_json::Value;

use crate::lab::{Output, User};
use crate::living_cluster::Alive;

const RELEASE: &str = include_str!("fixtures/bitnami-like.yaml");
const CLUSTER: &str = "orders-db";
/// The command in the fixture that starts the server.
const START: &str = "exec /opt/bitnami/scripts/mariadb-galera/entrypoint.sh";

/// The differences that chart values make in the rendered release.
#[derive(Clone, Copy)]
struct Values {
    replicas: usize,
    tag: &'static str,
    /// The shell commands that run before the server starts.
    script: &'static str,
}

const USUAL: Values = Values { replicas: 3, tag: "12.0.2-debian-12-r0", script: "" };

impl Alive {
    fn release(&self, values: Values) -> Output {
        let members: Vec<_> =
            (0..values.replicas).map(|n| format!("{CLUSTER}-{n}.{CLUSTER}-headless")).collect();
        let text = RELEASE
            .replace("replicas: 3", &format!("replicas: {}", values.replicas))
            .replace(USUAL.tag, values.tag)
            .replace(START, &format!("{}{START}", values.script))
            .replace(
                "orders-db-0.orders-db-headless,orders-db-1.orders-db-headless,orders-db-2.orders-db-headless",
                &members.join(","),
            );
        self.plane.kubectl_stdin(User::Ci, &["--namespace", &self.ns, "apply", "--filename=-"], &text)
    }

    /// Installs the release and waits until the guard has seen its data.
    fn installed() -> Alive {
        let alive = Alive::empty("foreign");
        alive.apply_and_wait(USUAL);
        alive.until_cluster("jsonpath={.metadata.annotations.gatera\\.dev/data}=present");
        alive
    }

    /// Applies the release, which must be admitted, and waits until the rollout is complete.
    fn apply_and_wait(&self, values: Values) {
        self.release(values).succeeded();
        self.until_cluster(&format!("jsonpath={{.status.updatedReplicas}}={}", values.replicas));
        self.until_cluster(&format!("jsonpath={{.status.readyReplicas}}={}", values.replicas));
    }

    fn until_cluster(&self, condition: &str) {
        let all = ["wait", "statefulset", CLUSTER, "--timeout=80s", &format!("--for={condition}")];
        self.admin(&all).succeeded();
    }
}

fn server(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]
}

#[test]
fn a_release_installs_and_its_members_are_injected() {
    let alive = Alive::installed();
    let member = alive.plane.get(&alive.ns, &format!("pod/{CLUSTER}-0"));
    let mark = member["metadata"]["annotations"]["gatera.dev/injected"].as_str().unwrap();
    assert!(!mark.contains("unproven"), "the probes were not replaced: {mark}");
    let env = server(&member)["env"].as_array().unwrap();
    let script = env.iter().find(|var| var["name"] == "BASH_ENV").expect("BASH_ENV is injected");
    assert_eq!(script["value"], "/etc/gatera/bitnami.bash");
    assert!(
        env.iter().all(|var| var["name"] != "MYSQL_HOME"),
        "MYSQL_HOME was injected, but Bitnami's image does not read it"
    );
    let ready = &server(&member)["readinessProbe"]["exec"]["command"];
    assert_eq!((&ready[0], &ready[1]), (&"/etc/gatera/wait-for-sync.sh".into(), &"ready".into()));
    assert_eq!(server(&member)["livenessProbe"]["tcpSocket"]["port"], 3306);
    assert_eq!(member["spec"]["containers"][1]["livenessProbe"]["httpGet"]["port"], "metrics");
    // Applying the release again changes nothing.
    let generation =
        || alive.plane.get(&alive.ns, &format!("statefulset/{CLUSTER}"))["metadata"]["generation"].clone();
    let before = generation();
    alive.release(USUAL).succeeded();
    assert_eq!(generation(), before, "applying the same release again changed the StatefulSet");
}

#[test]
fn a_release_grows_shrinks_and_is_upgraded() {
    let alive = Alive::installed();
    alive.apply_and_wait(Values { replicas: 5, ..USUAL });
    alive.apply_and_wait(USUAL);
    alive.apply_and_wait(Values { tag: "12.0.2-debian-12-r4", ..USUAL });
}

#[test]
fn changes_that_would_destroy_a_release_are_refused() {
    let alive = Alive::installed();
    for (what, values, rule) in [
        ("all members stop", Values { replicas: 0, ..USUAL }, "[G01] "),
        ("one of three members stays", Values { replicas: 1, ..USUAL }, "[G01] "),
        (
            "a member founds a cluster",
            Values { script: "export MARIADB_GALERA_CLUSTER_BOOTSTRAP=yes; ", ..USUAL },
            "[G04] ",
        ),
        ("a downgrade over several series", Values { tag: "10.6.20-debian-12-r0", ..USUAL }, "[G17] "),
    ] {
        let output = alive.release(values);
        assert!(output.status == 1 && output.stderr.contains(rule), "{what}: {output}");
    }
}

#[test]
fn neighbours_of_a_release_are_left_alone() {
    let alive = Alive::installed();
    let pods = |label: &str| -> Vec<Value> {
        let text = alive.admin(&["get", "pods", "--selector", label, "--output=json"]).succeeded();
        let mut list: Value = serde_json::from_str(&text).unwrap();
        std::mem::take(list["items"].as_array_mut().unwrap())
    };
    for label in ["app.kubernetes.io/name=proxysql", "app.kubernetes.io/instance=orders-reports"] {
        let pods = pods(label);
        assert!(!pods.is_empty(), "no pod has the label {label}");
        for pod in pods {
            assert!(
                !pod["metadata"]["annotations"].to_string().contains("gatera.dev"),
                "a neighbour was injected: {pod}"
            );
        }
    }
    for deployment in ["deployment/orders-proxy", "deployment/orders-reports"] {
        for arguments in [["scale", deployment, "--replicas=0"], ["delete", deployment, "--wait=false"]] {
            let output = alive.kubectl(&arguments);
            assert_eq!((output.status, &*output.stderr), (0, ""), "{arguments:?}: {output}");
        }
    }
}
