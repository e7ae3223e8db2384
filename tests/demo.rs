//! `make demo`: a throw-away control plane, the guard in front of it, and the commands that destroy a Galera cluster.
//!
//! The real kubectl runs every command that is printed after a `$`, and its output follows. There are no nodes: the lab
//! stands in for scheduler and kubelet, so members are Ready without a database in them. KEEP=1 leaves everything running
//! for you to try.
#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "only the demo uses these modules, and a panic is how it fails"
)]

#[path = "guarded.rs"]
mod guarded;
#[path = "lab/mod.rs"]
mod lab;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use guarded::{Guard, Start};
use lab::{ControlPlane, User};

const SEED: &str = include_str!("fixtures/seed.yaml");
const GALERA: &str = include_str!("fixtures/galera.yaml");
/// The rendered chart, so that the demo needs no Helm. A test keeps the snapshot equal to the chart.
const CHART: &str = include_str!("fixtures/chart-gatera.snap");
const NAMESPACE: &str = "db";
const STATEFUL_SET: &str = "galera-instance-galera";
const CONTROL_PLANE: &str = "kube-apiserver, etcd and kube-controller-manager, on loopback, in a temp folder";

fn main() {
    let started = Instant::now();
    say(&format!("Starting a control plane ({CONTROL_PLANE}) and the guard."));
    let plane = ControlPlane::start();
    install(&plane);
    let guard =
        Guard::start(&plane, &guarded::program(), &Start { identity: "demo".into(), ..Start::default() });
    guard.until_registered();
    say(&format!(
        "Both are ready after {:.1} s. The guard has registered its webhooks by itself.",
        started.elapsed().as_secs_f64()
    ));
    let demo = Demo { plane: &plane };
    demo.install();
    demo.destroy();
    demo.end();
}

/// Installs the guard's chart as Helm renders it, except its Deployment: the guard runs on this machine, outside the cluster,
/// so the policy that holds its account to an address inside the cluster is left out too.
fn install(plane: &ControlPlane) {
    plane.kubectl(User::Admin, &["create", "namespace", "gatera"]).succeeded();
    let rendered = CHART.splitn(3, "---\n").nth(2).expect("a snapshot begins with a header");
    let left_out = ["Deployment", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    let is_needed = |it: &&str| {
        !it.contains("helm.sh/hook") && !left_out.iter().any(|kind| it.contains(&format!("\nkind: {kind}\n")))
    };
    let kept = rendered.split("---\n").filter(is_needed);
    let manifests = kept.collect::<Vec<_>>().join("---\n");
    plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], &manifests).succeeded();
}

struct Demo<'a> {
    plane: &'a ControlPlane,
}

impl Demo<'_> {
    /// Installs the cluster of the seed documents: it is refused as it is, and admitted with its passwords in a Secret.
    fn install(&self) {
        self.kubectl(&["create", "namespace", NAMESPACE]);
        self.kubectl(&["label", "namespace", NAMESPACE, "gatera.dev/mode=enforce"]);
        say(
            "A Galera example from a well-known blog, applied as it is. It writes its root password into seven places.",
        );
        self.apply("seed.yaml", SEED);
        say("The same with its passwords in a Secret.");
        self.apply("galera.yaml", GALERA);
        say(
            "(The lab plays scheduler and kubelet: volumes are bound, members become Ready one after the other.)",
        );
        self.plane.run_stateful_set(NAMESPACE, STATEFUL_SET);
        self.kubectl(&["get", "pods", "--selector=app=galera"]);
        say(
            "The cluster has formed, so the guard removes the bootstrap node, as the blog does in its last step.",
        );
        lab::eventually("the guard to remove the bootstrap node", || {
            let set = self.plane.get(NAMESPACE, &format!("statefulset/{STATEFUL_SET}"));
            let mark = set["metadata"]["annotations"]["gatera.dev/bootstrap"].as_str()?;
            mark.starts_with("removed").then_some(())
        });
        self.kubectl(&["get", "events", "--field-selector=reason=BootstrapRemoved"]);
    }

    /// Runs ordinary commands, each of which has destroyed a real database.
    fn destroy(&self) {
        say(
            "The two everyday commands that erase a database. First an administrator restarts the members, all at once.",
        );
        self.kubectl(&["delete", "pods", "--selector=app=galera", "--wait=false"]);
        say(
            "One member restarts, two stay. A power cut asks no webhook: now all members have stopped. No member is left to join, so none may start first; the data is intact. Then you apply the original manifests again \"to fix it\". Without a guard this starts a second, empty cluster, the members that join it are wiped, and every pod is 1/1 Running.",
        );
        self.plane.finish_deletes(NAMESPACE);
        for ordinal in 0..3 {
            self.plane.make_pod_unready(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}"));
        }
        self.kubectl(&["get", "pods", "--selector=app=galera"]);
        self.apply("galera.yaml", GALERA);
        self.kubectl(&["get", "deployment", "galera-instance-bootstrap"]);
        self.kubectl(&["scale", "deployment", "galera-instance-bootstrap", "--replicas=1"]);
        say(
            "The way back is `gatera recover`, rows kept. (Here the lab lets the members become Ready again.)",
        );
        self.plane.run_stateful_set(NAMESPACE, STATEFUL_SET);
        say("You scale down to save money over the weekend.");
        self.kubectl(&["scale", "statefulset", STATEFUL_SET, "--replicas=0"]);
        self.kubectl(&["scale", "statefulset", STATEFUL_SET, "--replicas=1"]);
        say("You clean up claims, and the StatefulSet itself.");
        let claim = format!("persistentvolumeclaim/galera-instance-datadir-{STATEFUL_SET}-0");
        self.kubectl(&["delete", &claim, "--wait=false"]);
        self.kubectl(&["delete", "statefulset", STATEFUL_SET, "--wait=false"]);
        say("A change of the address makes every member create a cluster of its own at its next start.");
        let patch = r#"{"data":{"galera.cnf":"[galera]\nwsrep_on = ON\nwsrep_provider = /usr/lib/galera/libgalera_smm.so\nwsrep_cluster_address = gcomm://\n"}}"#;
        self.kubectl(&["patch", "configmap", "galera-instance-nodeconfig", "--patch", patch]);
        say("A password is set in a hurry.");
        self.kubectl(&[
            "set",
            "env",
            &format!("statefulset/{STATEFUL_SET}"),
            "MARIADB_ROOT_PASSWORD=hunter2",
        ]);
        say("A correct change is allowed: two more members.");
        self.kubectl(&["scale", "statefulset", STATEFUL_SET, "--replicas=5"]);
    }

    fn end(&self) {
        say("For real: charts/gatera; its README.md says how. In CI: gatera check PATH.");
        if std::env::var("KEEP").is_ok_and(|keep| !keep.is_empty()) {
            println!("\nIt keeps running until you press Ctrl-C. In another terminal:\n");
            println!("  export KUBECONFIG={}", self.plane.kubeconfig(User::Admin).display());
            println!("  kubectl --namespace {NAMESPACE} get pods\n");
            loop {
                std::thread::park();
            }
        }
        say(
            "Everything is stopped and removed. `make demo KEEP=1` keeps it running and prints its KUBECONFIG.",
        );
    }

    fn kubectl(&self, arguments: &[&str]) {
        let quoted = arguments
            .iter()
            .map(|word| if word.contains(['{', ' ']) { format!("'{word}'") } else { (*word).to_owned() });
        command(&format!("kubectl -n {NAMESPACE} {}", quoted.collect::<Vec<_>>().join(" ")));
        let output = self.plane.kubectl(User::Admin, &[&["--namespace", NAMESPACE], arguments].concat());
        print!("{}{}", output.stdout, output.stderr);
    }

    fn apply(&self, name: &str, manifest: &str) {
        command(&format!("kubectl -n {NAMESPACE} apply -f {name}"));
        let output = self.plane.kubectl_stdin(
            User::Admin,
            &["--namespace", NAMESPACE, "apply", "--filename=-"],
            manifest,
        );
        print!("{}{}", output.stdout, output.stderr);
    }
}

/// Prints an explanation for the reader, wrapped at 100 columns.
fn say(text: &str) {
    let mut line = String::new();
    println!();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + word.chars().count() >= 100 {
            println!("{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    println!("{line}");
}

/// Prints a command, in bold on a terminal.
fn command(text: &str) {
    if io::stdout().is_terminal() {
        println!("\n\u{1b}[1m$ {text}\u{1b}[0m");
    } else {
        println!("\n$ {text}");
    }
    let _ = io::stdout().flush();
}
