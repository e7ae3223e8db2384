//! Releases of the chart on a guarded control plane with nodes: installed, scaled, rolled back, uninstalled, and installed again
//! over leftovers.

use serde_json::Value;

use super::{CHART, FIXED, INSTANCE};
use crate::cluster::STATEFUL_SET;
use crate::lab::{Output, User, eventually};
use crate::living_cluster::{Alive, BOOTSTRAP};

impl Alive {
    pub(super) fn install(&self, flags: &[&str]) -> Output {
        self.helm(&[&["install", INSTANCE, CHART], flags].concat())
    }

    pub(super) fn upgrade_chart(&self, flags: &[&str]) -> Output {
        self.helm(&[&["upgrade", INSTANCE, CHART], flags].concat())
    }

    fn passwords(&self) -> Value {
        self.plane.get(&self.ns, "secret/galera-instance-secret")["data"].clone()
    }
}

pub(super) fn assert_quiet(output: &Output) {
    assert_eq!((output.status, &*output.stderr), (0, ""), "{output}");
}

pub(super) fn assert_refused(output: &Output, words: &str) {
    assert!(output.status != 0 && output.stderr.contains(words), "{words:?} is not in {output}");
}

#[test]
fn a_release_is_installed_scaled_and_uninstalled_under_the_guard() {
    let alive = Alive::empty("chart");
    let installed = alive.install(&[]);
    assert_quiet(&installed);
    alive.until_formed();
    alive.until_bootstrap_removed();
    let (members, passwords) = (alive.members(), alive.passwords());

    assert_quiet(&alive.upgrade_chart(&["--set=nodeCount=5"]));
    alive.until_ready(5);
    assert!(alive.members().starts_with(&members), "an upgrade that only adds members has restarted one");
    assert_refused(
        &alive.upgrade_chart(&["--set=nodeCount=1,allowEvenOrSmall=true"]),
        "nodeCount 5 -> 1 would leave 1 of 5 members, and 3 are a majority: go to 3 first, and wait until all members are Ready",
    );
    assert_refused(
        &alive.upgrade_chart(&["--set=nodeCount=5,ports.replication=4600"]),
        "ports.replication 4567 -> 4600: a member that restarts would look for the others, and clients for it, where they do not listen",
    );
    assert_refused(
        &alive.upgrade_chart(&["--set=nodeCount=5,volumeSize=9Gi"]),
        "volumeSize 8Gi -> 9Gi: a StatefulSet's volumes are fixed when it is created.",
    );
    assert_refused(
        &alive.upgrade_chart(&["--set=auth.rootPassword=another-one"]),
        "change a password in MariaDB first, then in the Secret",
    );

    assert_quiet(&alive.helm(&["rollback", INSTANCE, "1"]));
    alive.until_ready(3);
    assert_refused(
        &alive.upgrade_chart(&["--set=nodeCount=1,allowEvenOrSmall=true"]),
        "nodeCount 3 -> 1 would leave 1 of 3 members, and 2 are a majority: go to 2 first (with allowEvenOrSmall=true), and wait until",
    );
    eventually("the others are gone", || (alive.members() == members).then_some(()));
    assert_eq!(alive.passwords(), passwords);
    assert_eq!(
        alive.kubectl(&["get", BOOTSTRAP]).status,
        1,
        "the rollback has brought the bootstrap node back"
    );

    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let mark = format!("gatera.dev/override=G03 until={until} reason=moving house");
    assert_refused(&alive.helm(&["uninstall", INSTANCE]), "");
    alive.helm(&["rollback", INSTANCE, "1"]).succeeded();
    alive.kubectl(&["annotate", "statefulset", STATEFUL_SET, &mark]).succeeded();
    eventually("the override is seen", || {
        Some(alive.helm(&["uninstall", INSTANCE])).filter(|it| it.status == 0)
    });
    eventually("the members are gone", || alive.members().is_empty().then_some(()));

    assert_refused(&alive.install(&[]), "PersistentVolumeClaim ");
    assert_refused(&alive.install(&[]), "To keep the data: --set bootstrap.enabled=false");
    let installed = alive.install(&["--set=bootstrap.enabled=false"]);
    let reported = format!(
        "[G07] StatefulSet {0}/{STATEFUL_SET}: it has data from before (claims: 5): its members use it, but none of them \
         starts the cluster by itself; after you have applied it: gatera start {STATEFUL_SET} -n {0}\"\n",
        alive.ns
    );
    assert!(installed.status == 0 && installed.stderr.ends_with(&reported), "{installed}");
    assert_eq!(installed.stderr.lines().count(), 1, "{installed}");
    assert_eq!(alive.passwords(), passwords, "the data needs the passwords of the first installation");
    assert_eq!(alive.bootstrap_pods(), "");
}

/// Claims match the selector of the printed command that deletes them.
#[test]
fn claims_have_the_labels_of_the_members() {
    let alive = Alive::empty("chart-claims");
    assert_quiet(&alive.install(&["--set=bootstrap.enabled=false"]));
    alive.until_ready(3);
    let selector = format!("--selector=app in (galera, galera-bootstrap),instance={INSTANCE}");
    let claims = || alive.admin(&["get", "pvc", &selector, "--output=name"]).succeeded();
    assert_eq!(claims().lines().count(), 3);
}

/// A failed installation also leaves a running server: the printed command removes that, too.
#[test]
fn the_printed_command_removes_the_remains_of_a_failed_installation() {
    let alive = Alive::empty("chart-anew");
    let left = ["--show-only=templates/secret.yaml", "--show-only=templates/bootstrap.yaml"];
    let left = alive.helm(&[&["template", INSTANCE, CHART][..], &left, &FIXED].concat()).succeeded();
    let apply = |text: &str| {
        let flags = ["--namespace", &alive.ns, "apply", "--filename=-"];
        alive.plane.kubectl_stdin(User::Ci, &flags, text).succeeded();
    };
    apply(&left);
    let claim = serde_json::json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("{INSTANCE}-datadir-{STATEFUL_SET}-0"), "labels": { "app": "galera", "instance": INSTANCE },
        },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "8Gi" } } },
    });
    apply(&claim.to_string());
    let named = eventually("status to name the bootstrap node", || {
        let output =
            crate::guarded::ask(&alive.plane.kubeconfig(User::Admin), &["status", "--namespace", &alive.ns]);
        Some(output.stdout).filter(|text| text.contains("there is no StatefulSet whose members join it"))
    });
    assert!(named.contains(&format!("Deployment {}/galera-instance-bootstrap runs", alive.ns)), "{named}");

    let output = alive.install(&[]);
    let (_, command) = output
        .stderr
        .split_once("To begin again, without the data: kubectl ")
        .expect("the refusal prints a command");
    let (command, selector) = command.trim_end().split_once(" -l ").unwrap();
    let words: Vec<_> =
        command.split(' ').chain(["-l", selector.trim_matches('\''), "--wait=false"]).collect();
    alive.plane.kubectl(User::Editor, &words).succeeded();
    eventually("the remains to be deleted", || {
        let kinds = "deployments,services,pods,persistentvolumeclaims";
        alive.admin(&["get", kinds, "--output=name"]).succeeded().is_empty().then_some(())
    });
}

/// Instances work with short and with long names, and beside each other.
#[test]
fn two_instances_share_a_namespace() {
    let alive = Alive::empty("chart-two");
    let long = "a".repeat(45);
    for name in ["b", &long] {
        assert_quiet(&alive.helm(&["install", name, CHART]));
    }
    for name in ["b", &long] {
        let wait = [
            "wait",
            "statefulset",
            &format!("{name}-galera"),
            "--timeout=80s",
            "--for=jsonpath={.status.readyReplicas}=3",
        ];
        alive.admin(&wait).succeeded();
    }
    assert_eq!(alive.members().len(), 6);
}

#[test]
fn a_secret_without_a_key_is_named() {
    let alive = Alive::empty("chart-secret");
    alive.admin(&["create", "secret", "generic", "mine", "--from-literal=root-password=x"]).succeeded();
    let words =
        format!("Secret {}/mine has no key sst.cnf: servers do not start without it; add it", alive.ns);
    assert_refused(&alive.install(&["--set=auth.existingSecret=mine"]), &words);
    alive
        .admin(&["create", "secret", "generic", "galera-instance-secret", "--from-literal=sst.cnf=x"])
        .succeeded();
    assert_refused(&alive.install(&[]), "/galera-instance-secret has no key root-password");

    // Only a user that is to be created needs a password.
    let keys = ["--from-literal=root-password=x", "--from-literal=sst.cnf=x", "--from-literal=password=x"];
    alive.admin(&[&["create", "secret", "generic", "two"][..], &keys[..2]].concat()).succeeded();
    let two = ["--set=auth.existingSecret=two", "--set=auth.username=app"];
    assert_refused(&alive.install(&two), "/two has no key password: servers do not start without it");
    alive.admin(&["delete", "secret", "galera-instance-secret"]).succeeded();
    alive
        .admin(&[&["create", "secret", "generic", "galera-instance-secret"][..], &keys].concat())
        .succeeded();
    let other = alive.install(&["--set=auth.username=app", "--set=auth.password=hunter2"]);
    assert_refused(&other, "auth.rootPassword, auth.sstPassword or auth.password is not what Secret ");
    assert!(!other.stderr.contains("hunter2"), "a password is shown: {other}");
}

/// An earlier attempt left the Secret and a bootstrap node behind, and no data.
#[test]
fn a_second_attempt_uses_what_the_first_one_left() {
    let alive = Alive::empty("chart-again");
    let parts = ["--show-only=templates/secret.yaml", "--show-only=templates/bootstrap.yaml"];
    let left = alive.helm(&[&["template", INSTANCE, CHART][..], &parts, &FIXED].concat()).succeeded();
    let apply = ["--namespace", &alive.ns, "apply", "--filename=-"];
    alive.plane.kubectl_stdin(User::Ci, &apply, &left).succeeded();
    let before = (alive.passwords(), alive.plane.get(&alive.ns, BOOTSTRAP)["metadata"]["uid"].clone());

    assert_quiet(&alive.install(&[]));
    let after = (alive.passwords(), alive.plane.get(&alive.ns, BOOTSTRAP)["metadata"]["uid"].clone());
    alive.until_formed();
    assert_eq!(after.0, before.0, "the Secret was changed");
    assert_ne!(after.1, before.1, "the bootstrap node was not replaced");
    assert_quiet(&alive.upgrade_chart(&FIXED));
    assert_refused(&alive.upgrade_chart(&["--set=auth.sstPassword=hunter2"]), "is not what Secret ");
}
