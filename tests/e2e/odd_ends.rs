//! Clean-ups of the bootstrap node that do not go smoothly: the guard's leader is killed at every step of one, and the
//! namespace goes in the middle of another.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::galera::{Galera, patiently};
use crate::guard::{NAMESPACE, chart, guarded};
use crate::install::{SMALL, events, helm, until_bootstrap_is_removed};
use crate::lab::{ControlPlane, User};
use crate::odd::{commands, follow, refused};

/// The pod that leads, and when it last said so.
fn lease(lab: &ControlPlane) -> (String, Timestamp) {
    let lease = lab.get(NAMESPACE, "lease/gatera");
    let text = |name: &str| lease["spec"][name].as_str().unwrap_or_default().to_owned();
    let pod = text("holderIdentity").split('_').next().unwrap_or_default().to_owned();
    (pod, text("renewTime").parse().unwrap())
}

/// As when its node is gone: no good-bye.
fn kill(lab: &ControlPlane, guard: &str) {
    let delete = ["delete", "pod", guard, "--namespace", NAMESPACE, "--force", "--grace-period=0"];
    lab.kubectl(User::Admin, &delete).succeeded();
}

/// How far the removal of the bootstrap node is, as everybody can see.
fn progress(galera: &Galera<'_>) -> String {
    let name = &galera.name;
    let mark = format!("statefulset/{name}-galera");
    let mark =
        galera.kubectl(&["get", &mark, r"--output=jsonpath={.metadata.annotations.gatera\.dev/bootstrap}"]);
    let objects = [
        format!("deployment/{name}-bootstrap"),
        format!("service/{name}-bootstrap-svc"),
        format!("configmap/{name}-bootstrap"),
    ];
    let show = r#"--output=jsonpath={range .items[*]}{.kind} {.metadata.deletionTimestamp}{"\n"}{end}"#;
    let objects = galera.kubectl(&["get", &objects[0], &objects[1], &objects[2], "--ignore-not-found", show]);
    let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    format!("{}\n{}", word(&mark.stdout), objects.stdout)
}

/// What must not change: the pods, and how often their servers were started.
fn lives(galera: &Galera<'_>) -> Vec<Value> {
    let life = |ordinal| {
        let pod = galera.pod(&galera.member(ordinal)).unwrap();
        json!([pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]])
    };
    (0..3).map(life).collect()
}

#[test]
fn a_clean_up_outlives_its_leaders() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("heirs", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "heirs");
    a_secret_without_a_key_is_named(&galera);
    helm(&galera, "install", &["--set=auth.existingSecret=own"]);
    galera.until_ready(1);
    galera.fill();
    let until_last_is_ready = ["wait", "pod", &galera.member(2), "--for=condition=Ready", "--timeout=5s"];
    patiently("the last member is Ready", || {
        let waited = galera.kubectl(&until_last_is_ready);
        if waited.status == 0 { Ok(()) } else { Err(waited.stderr) }
    });
    let before = lives(&galera);

    // The first at once; then whoever leads when something has changed.
    let (mut killed, mut at) = (HashSet::new(), String::new());
    patiently("the bootstrap node is removed", || {
        if !events(&galera, "BootstrapRemoved").is_empty() {
            return Ok(());
        }
        let (now, leader) = (progress(&galera), lease(lab).0);
        if now != at && !killed.contains(&leader) {
            println!("killing {leader} at: {}", now.replace('\n', "; "));
            kill(lab, &leader);
            killed.insert(leader);
            at.clone_from(&now);
        }
        Err(now)
    });
    assert!(killed.len() > 1, "leaders were killed: {killed:?}");
    until_bootstrap_is_removed(&galera);
    patiently("the last leader has written that it is over", || {
        let now = progress(&galera);
        if now.starts_with("removed") { Ok(()) } else { Err(now) }
    });
    let told = events(&galera, "BootstrapRemoved");
    assert_eq!(told.len(), 1, "it is told once: {told:?}");
    galera.until_synced(3, 3);
    assert_eq!(lives(&galera), before, "nobody restarts for it");
    for ordinal in 0..3 {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3");
    }
}

/// Leaves a Secret that has everything.
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
    let words =
        format!("Secret {}/own has no key sst.cnf: members do not start without it", galera.namespace);
    assert!(output.status == 1 && output.stderr.contains(&words), "{output}");
    let rest = json!({ "stringData": { "sst.cnf": "[mariadbd]\nwsrep_sst_auth = \"sst:of its own\"\n" } });
    galera.kubectl(&["patch", "secret", "own", "--patch", &rest.to_string()]).succeeded();
}

/// What the guards said about a namespace.
fn said(lab: &ControlPlane, namespace: &str) -> Vec<String> {
    let logs = ["logs", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=gatera", "--tail=-1"];
    let logs = lab.kubectl(User::Admin, &logs).stdout;
    logs.lines().filter(|line| line.contains(namespace)).map(str::to_owned).collect()
}

#[test]
fn a_namespace_goes_in_the_middle_of_a_clean_up() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("going", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "going");
    helm(&galera, "install", &["--set=nodeCount=1", "--set=allowEvenOrSmall=true"]);
    galera.until_ready(1);
    let delete = ["delete", "namespace", &namespace, "--wait=false"];
    let deleted = lab.kubectl(User::Admin, &delete);
    refused(&deleted, "G03", "it holds cluster going-galera (1 of 1 members Synced");
    let advice = commands(&deleted.stderr);
    assert_eq!(advice.len(), 1, "{deleted}");
    follow(lab, &advice[0]);
    patiently("the bootstrap node is being removed", || {
        let now = progress(&galera);
        if now.starts_with("removing") { Ok(()) } else { Err(now) }
    });
    println!("the namespace goes at: {}", progress(&galera).replace('\n', "; "));
    patiently("the override to be seen", || {
        let deleted = lab.kubectl(User::Admin, &delete);
        if deleted.status == 0 { Ok(()) } else { Err(deleted.to_string()) }
    });
    let told = lab.kubectl(
        User::Admin,
        &[
            "get",
            "events.events.k8s.io",
            "--field-selector=reason=OverrideUsedG03",
            "--output=jsonpath={.items[*].note}",
        ],
    );
    println!("{told}");
    patiently("the namespace is gone", || {
        let there = lab
            .kubectl(User::Admin, &["get", "namespace", &namespace, "--ignore-not-found", "--output=yaml"]);
        if there.stdout.is_empty() { Ok(()) } else { Err(there.stdout) }
    });

    let (gone, before) = (Timestamp::now(), said(lab, &namespace));
    patiently("the leader works on for longer than it waits before it tries again", || {
        let since = lease(lab).1;
        if since > gone + Duration::from_secs(20) { Ok(()) } else { Err(since.to_string()) }
    });
    let after = said(lab, &namespace);
    assert!(after.len() <= before.len(), "it is over: {after:#?}");
    let troubles: Vec<_> = before.iter().filter(|it| it.contains("WARN") || it.contains("ERROR")).collect();
    println!("troubles of the guard: {troubles:#?}");
    assert!(troubles.len() <= 3, "{troubles:#?}");
}
