//! Interrupted removals of the bootstrap node: during one, the guard's leader is killed at every step; during another, the
//! namespace is deleted.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::advice::{commands, follow, refused};
use crate::galera::{Galera, patiently};
use crate::guard::{NAMESPACE, chart, guarded, until_registered};
use crate::install::{SMALL, events, helm, until_bootstrap_is_removed};
use crate::lab::{ControlPlane, User};
use crate::power::uids_and_restarts;

/// Returns the pod that leads and the time at which it last renewed its lease.
fn lease(lab: &ControlPlane) -> (String, Timestamp) {
    let lease = lab.get(NAMESPACE, "lease/gatera");
    let text = |name: &str| lease["spec"][name].as_str().unwrap_or_default().to_owned();
    let pod = text("holderIdentity").split('_').next().unwrap_or_default().to_owned();
    (pod, text("renewTime").parse().unwrap())
}

/// Kills the leader without an orderly stop, as when its node fails. Waits for both replicas first, so that a guard always
/// answers.
fn kill_the_leader(lab: &ControlPlane, killed: &mut Vec<String>, during: &str) {
    until_registered(lab);
    let leader = patiently("a replica that was not killed leads", || {
        let leader = lease(lab).0;
        if leader.is_empty() || killed.contains(&leader) { Err(leader) } else { Ok(leader) }
    });
    println!("{leader} is killed {during}");
    let delete = ["delete", "pod", &leader, "--namespace", NAMESPACE, "--force", "--grace-period=0"];
    lab.kubectl(User::Admin, &delete).succeeded();
    killed.push(leader);
}

/// A finalizer that makes the removal take longer: an object stays until its finalizer is removed.
const HOLD: &str = "odd.example/hold";

/// Adds `HOLD` to an object, or removes it.
fn hold(galera: &Galera<'_>, what: &str, hold: bool) {
    let finalizers: &[&str] = if hold { &[HOLD] } else { &[] };
    let patch = json!({ "metadata": { "finalizers": finalizers } }).to_string();
    // The API server may still call the leader that was killed a moment ago.
    patiently("the finalizers are set", || {
        let output = galera.kubectl(&["patch", what, "--type=merge", "--patch", &patch]);
        if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
    });
}

/// Waits until the object is being deleted and only `HOLD` keeps it.
fn until_only_held(galera: &Galera<'_>, what: &str) {
    patiently(&format!("only the finalizer keeps {what}"), || {
        let meta = galera.lab.get(&galera.namespace, what)["metadata"].clone();
        let held = meta["deletionTimestamp"].is_string() && meta["finalizers"] == json!([HOLD]);
        if held { Ok(()) } else { Err(meta.to_string()) }
    });
}

/// Returns the bootstrap node's objects, in the order in which they are deleted.
fn bootstrap_objects(galera: &Galera<'_>) -> [String; 3] {
    let name = &galera.name;
    [
        format!("deployment/{name}-bootstrap"),
        format!("service/{name}-bootstrap-svc"),
        format!("configmap/{name}-bootstrap"),
    ]
}

/// Returns the first word of the guard's mark about the bootstrap node, which says how far its removal has got.
fn progress(galera: &Galera<'_>) -> String {
    let mark = r"--output=jsonpath={.metadata.annotations.gatera\.dev/bootstrap}";
    let mark = galera.kubectl(&["get", &galera.stateful_set(), mark]).succeeded();
    mark.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn the_removal_of_a_bootstrap_node_continues_after_the_leader_is_killed() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("heirs", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "heirs");
    a_secret_without_a_key_is_named(&galera);
    helm(&galera, "install", &["--set=auth.existingSecret=own"]);
    let parts = bootstrap_objects(&galera);
    for what in &parts {
        hold(&galera, what, true);
    }
    galera.until_ready(1);
    galera.fill();
    let until_last_is_ready = ["wait", "pod", &galera.member(2), "--for=condition=Ready", "--timeout=5s"];
    patiently("the last member is Ready", || {
        let waited = galera.kubectl(&until_last_is_ready);
        if waited.status == 0 { Ok(()) } else { Err(waited.stderr) }
    });
    let before = uids_and_restarts(&galera);

    let mut killed = Vec::new();
    kill_the_leader(lab, &mut killed, "when the last member is Ready");
    for what in &parts {
        let deleted = ["wait", what, "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=5s"];
        patiently(&format!("{what} is deleted"), || {
            let waited = galera.kubectl(&deleted);
            if waited.status == 0 { Ok(()) } else { Err(waited.stderr) }
        });
        kill_the_leader(lab, &mut killed, &format!("while {what} is deleted: {}", progress(&galera)));
        until_only_held(&galera, what);
        hold(&galera, what, false);
    }
    until_bootstrap_is_removed(&galera);
    patiently("the leader has recorded the end of the removal", || {
        let now = progress(&galera);
        if now.starts_with("removed") { Ok(()) } else { Err(now) }
    });
    let reported = events(&galera, "BootstrapRemoved");
    assert_eq!(reported.len(), 1, "the removal is reported once: {reported:?}");
    galera.until_synced(3, 3);
    assert_eq!(uids_and_restarts(&galera), before, "no member restarts during the removal");
    for ordinal in 0..3 {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }
}

/// Checks that the chart refuses a Secret that lacks a key and names the key, and then adds the key.
fn a_secret_without_a_key_is_named(galera: &Galera<'_>) {
    let half = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "own", "namespace": galera.namespace },
        "stringData": { "root-password": "of our own" },
    });
    galera.lab.create(&half);
    let install = ["install", &galera.name, &chart("galera"), "--namespace", &galera.namespace];
    let output =
        galera.lab.helm(User::Admin, &[&install, SMALL, &["--set=auth.existingSecret=own"]].concat());
    let expected =
        format!("Secret {}/own has no key sst.cnf: servers do not start without it", galera.namespace);
    assert!(output.status == 1 && output.stderr.contains(&expected), "{output}");
    let rest = json!({ "stringData": { "sst.cnf": "[mariadbd]\nwsrep_sst_auth = \"sst:of its own\"\n" } });
    galera.kubectl(&["patch", "secret", "own", "--patch", &rest.to_string()]).succeeded();
}

/// Returns what the guards logged about a namespace.
fn log_lines(lab: &ControlPlane, namespace: &str) -> Vec<String> {
    let logs = ["logs", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=gatera", "--tail=-1"];
    let logs = lab.kubectl(User::Admin, &logs).stdout;
    logs.lines().filter(|line| line.contains(namespace)).map(str::to_owned).collect()
}

#[test]
fn a_namespace_is_deleted_during_the_removal_of_its_bootstrap_node() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("going", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "going");
    helm(&galera, "install", &["--set=nodeCount=1", "--set=allowEvenOrSmall=true"]);
    let [_, service, _] = bootstrap_objects(&galera);
    hold(&galera, &service, true);
    galera.until_ready(1);
    let delete = ["delete", "namespace", &namespace, "--wait=false"];
    let deleted = lab.kubectl(User::Admin, &delete);
    refused(&deleted, "G03", "it holds cluster going-galera (1 of 1 members Synced");
    let advice = commands(&deleted.stderr);
    assert_eq!(advice.len(), 1, "the advice has one command: {deleted}");
    follow(lab, &advice[0]);
    patiently("the bootstrap node is being removed", || {
        let now = progress(&galera);
        if now.starts_with("removing") { Ok(()) } else { Err(now) }
    });
    patiently("the override takes effect", || {
        let deleted = lab.kubectl(User::Admin, &delete);
        if deleted.status == 0 { Ok(()) } else { Err(deleted.to_string()) }
    });
    hold(&galera, &service, false);
    patiently("the use of the override is reported", || {
        let reported = [
            "get",
            "events",
            "--field-selector=reason=OverrideUsedG03",
            "--output=jsonpath={.items[*].message}",
        ];
        let reported = lab.kubectl(User::Admin, &[&reported[..], &["--namespace=default"]].concat()).stdout;
        if reported.contains("G03 was overridden: it holds cluster going-galera") {
            Ok(())
        } else {
            Err(reported)
        }
    });
    patiently("the namespace is gone", || {
        let there = lab
            .kubectl(User::Admin, &["get", "namespace", &namespace, "--ignore-not-found", "--output=yaml"]);
        if there.stdout.is_empty() { Ok(()) } else { Err(there.stdout) }
    });

    let (gone, before) = (Timestamp::now(), log_lines(lab, &namespace));
    patiently("the leader has worked for longer than its longest retry delay", || {
        let since = lease(lab).1;
        if since > gone + Duration::from_secs(20) { Ok(()) } else { Err(since.to_string()) }
    });
    let after = log_lines(lab, &namespace);
    assert!(after.len() <= before.len(), "the leader still works on the deleted namespace: {after:#?}");
    let problems: Vec<_> = before.iter().filter(|it| it.contains("WARN") || it.contains("ERROR")).collect();
    println!("warnings and errors of the guard: {problems:#?}");
    assert!(problems.len() <= 3, "the guard logged more than three warnings and errors: {problems:#?}");
}
