//! `gatera recover`: every member has stopped, one after the other or all at once, while rows were written. The command finds the
//! newest member, starts the cluster from it, and brings back its peers. Every acknowledged row is still there.

use std::io::{BufRead as _, BufReader};
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::galera::{Galera, patiently};
use crate::gate;
use crate::guard::guarded;
use crate::install::{events, helm, password, until_bootstrap_is_removed};
use crate::lab::User;
use crate::page;
use crate::power::{self, Kill};
use crate::writer::Writer;

/// Returns a `gatera recover` command for this cluster, for the caller to start.
pub fn recover(galera: &Galera<'_>, more: &[&str]) -> Command {
    gatera("recover", galera, more)
}

/// Returns a `gatera` command for this cluster, for the caller to start.
pub fn gatera(verb: &str, galera: &Galera<'_>, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatera"));
    command
        .args([verb, &galera.name, "--namespace", &galera.namespace, "--kubeconfig"])
        .arg(galera.lab.kubeconfig(User::Admin))
        .args(more);
    command
}

/// Deletes a member with an override, against the guard's advice.
pub fn delete_member(galera: &Galera<'_>, pod: &str) {
    galera.set_override(&format!("pod/{pod}"), "G02").succeeded();
    galera.kubectl(&["delete", "pod", pod, "--timeout=120s"]).succeeded();
}

/// Deletes all members at once, with overrides.
pub fn delete_all_members(galera: &Galera<'_>, members: usize) {
    let pods: Vec<_> = (0..members).map(|ordinal| format!("pod/{}", galera.member(ordinal))).collect();
    for pod in &pods {
        galera.set_override(pod, "G02").succeeded();
    }
    let pods = pods.iter().map(String::as_str);
    galera.kubectl(&["delete", "--timeout=120s"].into_iter().chain(pods).collect::<Vec<_>>()).succeeded();
}

/// Cordoned nodes: no pod starts on them until this value is dropped.
pub struct Cordoned<'a>(&'a Galera<'a>);

impl<'a> Cordoned<'a> {
    pub fn all(galera: &'a Galera<'a>) -> Self {
        galera.lab.kubectl(User::Admin, &["cordon", "--selector=!odd.example/none"]).succeeded();
        Self(galera)
    }
}

impl Drop for Cordoned<'_> {
    fn drop(&mut self) {
        self.0.lab.kubectl(User::Admin, &["uncordon", "--selector=!odd.example/none"]);
    }
}

/// Runs the command repeatedly, and kills it as soon as it prints a new line. Returns all lines once it succeeds.
fn kill_after_every_line(galera: &Galera<'_>) -> Vec<String> {
    let mut printed: Vec<String> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        assert!(Instant::now() < deadline, "not recovered after ten minutes: {printed:#?}");
        let mut child = recover(galera, &["--yes"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Each line begins with the time of day, which differs in every run.
        let mut steps =
            lines.map(|line| line.unwrap().split_once(' ').map(|it| it.1.to_owned()).unwrap_or_default());
        match steps.find(|line| !printed.contains(line)) {
            Some(line) => {
                printed.push(line);
                // The command prints each step before it takes it.
                child.kill().unwrap();
                child.wait().unwrap();
            }
            None => {
                assert!(child.wait().unwrap().success(), "`gatera recover` failed: {printed:#?}");
                return printed;
            }
        }
    }
}

/// Runs `work` while a GitOps tool repeatedly restores its state of the StatefulSet.
fn while_replicas_are_restored<T>(galera: &Galera<'_>, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let set = galera.stateful_set();
    let restore =
        ["patch", &set, "--type=merge", r#"--patch={"spec":{"replicas":3,"ordinals":{"start":0}}}"#];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                galera.kubectl(&restore);
                thread::sleep(Duration::from_secs(1));
            }
        });
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

/// Runs a command. Returns its exit code and its stdout.
pub fn outcome(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Recovers the cluster with `gatera recover`. Checks that it starts from this member and keeps its identity.
pub fn recover_from(galera: &Galera<'_>, newest: usize, cluster: &str) {
    let (code, text) = outcome(recover(galera, &["--yes"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    let member = galera.member(newest);
    let asks = format!("{member}: asking the guard whether it may start the cluster from {cluster}:");
    assert!(text.contains(&asks), "the command did not start the cluster from {member}: {text}");
}

/// Checks the most likely case after a power failure: a node does not come back, and the other members wait for its member until
/// `gatera recover` continues without it. Part of `make drills`.
pub fn a_recovery_continues_without_a_node_that_is_away() {
    let (galera, cluster) = gate::formed_with_identity("without");
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    let paused = power::pause_kubelets_of(&galera, &pods[2..]);
    power::kill_servers(&[&pods[2]]);
    power::kill_until_restarted(&galera, Kill::Servers, &[&pods[0], &pods[1]], Duration::ZERO);

    // The command stops, and names the member that may have newer data.
    let text = patiently("the command reports that the node does not answer", || {
        let (code, text) = outcome(recover(&galera, &["--yes"]));
        if code == Some(1) && text.contains("which does not answer") { Ok(text) } else { Err(text) }
    });
    println!("{text}");
    let (_, way) = text.split_once(" anyway: gatera recover ").expect("the next command is printed");
    let from = way.split_whitespace().skip_while(|word| *word != "--from").nth(1).unwrap();
    assert!(way.trim_end().ends_with("--accept-loss 'unknown'"), "{way}");
    let (code, text) = outcome(recover(&galera, &["--yes", "--from", from, "--accept-loss", "unknown"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("is back without {}", pods[2])), "{text}");
    for pod in &pods[..2] {
        assert_eq!(galera.rows(pod).succeeded().trim(), "3", "rows of {pod}");
    }

    // The member has no newer data, and joins when its node is back.
    drop(paused);
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t");
}

/// Checks that a recovery waits and succeeds, although after nearly every line that it prints the API server dies or stalls for
/// a while, or every guard is deleted. Part of `make drills`.
pub fn a_recovery_survives_outages_of_the_api_server_and_the_guard() {
    let (galera, cluster) = gate::formed_with_identity("outlives");
    delete_all_members(&galera, 3);
    let mut child = recover(&galera, &["--yes"]).stdout(Stdio::piped()).spawn().unwrap();
    for (count, line) in BufReader::new(child.stdout.take().unwrap()).lines().enumerate() {
        println!("{}", line.unwrap());
        match count {
            1 | 4 => power::kill_api_server(Duration::from_secs(5)),
            7 => power::stall_api_server(Duration::from_secs(15)),
            // Until new guards run, requests about the cluster fail or are answered late.
            2 | 5 | 8 => {
                let guards =
                    ["--namespace=gatera", "delete", "pods", "--all", "--wait=false", "--grace-period=1"];
                galera.lab.kubectl(User::Admin, &guards);
            }
            _ => {}
        }
    }
    assert!(child.wait().unwrap().success(), "`gatera recover` failed");
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t");
}

/// Returns what `gatera stop` recorded on each member's claim.
fn stop_records(galera: &Galera<'_>) -> Vec<String> {
    let record = |ordinal| {
        let claim = galera.lab.get(&galera.namespace, &format!("pvc/{}", galera.claim(ordinal)));
        claim["metadata"]["annotations"]["gatera.dev/stopped"].as_str().unwrap_or_default().to_owned()
    };
    (0..3).map(record).collect()
}

/// Stops and uninstalls the cluster, which leaves only its claims and its password. Then installs it again under the same name,
/// and starts it from these claims.
fn stop_uninstall_and_start(galera: &Galera<'_>, cluster: &str) {
    let set = galera.stateful_set();
    let (code, text) = outcome(gatera("stop", galera, &["--yes"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    let seqno = |record: &String| {
        let position = record.strip_prefix(cluster).and_then(|rest| rest.strip_prefix(':'));
        let number = position.and_then(|rest| rest.split_once(" of=3 since="));
        number.and_then(|it| it.0.parse::<u64>().ok()).unwrap_or_else(|| panic!("{record} {text}"))
    };
    let ends: Vec<_> = stop_records(galera).iter().map(seqno).collect();
    assert!(
        ends[0] >= ends[1] && ends[1] >= ends[2],
        "the member that stopped last does not have the newest data: {ends:?}"
    );
    let kept = galera.lab.get(&galera.namespace, &set);
    assert_eq!(kept["spec"]["replicas"], 0, "the stopped StatefulSet");
    let owns_replicas =
        |it: &Value| it["manager"] == "gatera-command" && it["fieldsV1"].to_string().contains("f:replicas");
    let fields = kept["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    assert!(!fields.iter().any(owns_replicas), "the command still owns spec.replicas: {fields:#?}");

    let uninstalled =
        galera.lab.helm(User::Admin, &["uninstall", &galera.name, "--namespace", &galera.namespace]);
    assert_eq!(uninstalled.status, 0, "{uninstalled}");
    galera.until_gone(&set);
    let installed = helm(galera, "install", &["--set=bootstrap.enabled=false"]);
    println!("{uninstalled}\n{installed}");
    // This changes the template, which would restart members, so it comes before they start.
    gate::read_address_from_secret(galera);
    let began = Instant::now();
    let (code, text) = outcome(gatera("start", galera, &["--yes"]));
    println!("{text}after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(code, Some(0), "{text}");
    let first = format!(
        "{}: asking the guard whether it may start the cluster from {cluster}:{}",
        galera.member(0),
        ends[0]
    );
    assert!(text.contains(&first), "the command did not start the cluster from the first member: {text}");
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    assert_eq!(stop_records(galera), [""; 3], "the start removes the records of the stop");
}

/// Recovers, stops and starts clusters of one, two and five members, and one whose pods are created in parallel. Part of
/// `make drills`.
pub fn clusters_of_other_sizes_recover() {
    let lab = guarded();
    for (name, members, policy) in
        [("one", 1, ""), ("two", 2, ""), ("five", 5, ""), ("parallel", 3, "Parallel")]
    {
        let namespace = lab.namespace_with_labels(name, &[("gatera.dev/mode", "enforce")]);
        let galera = Galera::new(lab, &namespace, name);
        helm(
            &galera,
            "install",
            &[&format!("--set=nodeCount={members},allowEvenOrSmall=true,antiAffinity=false")],
        );
        galera.until_ready(members);
        until_bootstrap_is_removed(&galera);
        let cluster = galera.until_synced(members, members);
        patiently("the cluster's identity is recorded", || {
            let set = galera.lab.get(&galera.namespace, &galera.stateful_set());
            let recorded = &set["metadata"]["annotations"]["gatera.dev/identity"];
            // The guard does not record the identity of a single member, which has no peers to differ from.
            if members == 1 || *recorded == *cluster { Ok(()) } else { Err(recorded.to_string()) }
        });
        galera.fill();
        if !policy.is_empty() {
            recreate_with_policy(&galera, policy);
            galera.until_ready(members);
        }
        delete_all_members(&galera, members);
        let (code, text) = outcome(recover(&galera, &["--yes"]));
        println!("{name}:\n{text}");
        assert_eq!(code, Some(0), "{text}");
        galera.until_ready(members);
        assert_eq!(galera.until_synced(members, members), cluster, "the cluster keeps its identity");
        let (code, text) = outcome(gatera("stop", &galera, &["--yes"]));
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = outcome(gatera("start", &galera, &["--yes"]));
        println!("{text}");
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(galera.until_synced(members, members), cluster, "the cluster keeps its identity");
        for ordinal in 0..members {
            assert_eq!(
                galera.rows(&galera.member(ordinal)).succeeded().trim(),
                "3",
                "rows of member {ordinal}"
            );
        }
        let (code, text) = outcome(gatera("stop", &galera, &["--yes"]));
        assert_eq!(code, Some(0), "{text}");
    }
}

/// Creates the StatefulSet again with this pod management policy, around its existing pods.
fn recreate_with_policy(galera: &Galera<'_>, policy: &str) {
    let name = galera.stateful_set();
    let mut set = galera.lab.get(&galera.namespace, &name);
    set["spec"]["podManagementPolicy"] = policy.into();
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"] {
        set["metadata"].as_object_mut().unwrap().remove(field);
    }
    galera.kubectl(&["delete", &name, "--cascade=orphan"]).succeeded();
    galera.until_gone(&name);
    galera.apply(&set.to_string()).succeeded();
}

/// Kills the command after every line that it prints, and runs it again. Then recovers the same cluster only with the commands in
/// docs/down.md. Part of `make drills`.
pub fn a_recovery_that_is_killed_repeatedly_is_finished() {
    let (galera, cluster) = gate::formed_with_identity("killed");
    let writer = Writer::start(&galera, &password(&galera));
    writer.until_writes();
    delete_all_members(&galera, 3);
    println!("{}", kill_after_every_line(&galera).join("\n"));
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();

    delete_all_members(&galera, 3);
    page::recover_by_the_page(&galera);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
}

#[test]
fn one_command_recovers_a_cluster_that_is_down() {
    let (galera, cluster) = gate::formed_with_identity("back");
    let writer = Writer::start(&galera, &password(&galera));
    let set = || {
        let set = galera.lab.get(&galera.namespace, "statefulset/back-galera");
        (set["spec"].clone(), set["metadata"]["annotations"].clone())
    };
    let before = set();

    // The members are deleted one after the other, with rows in between: the newest is neither the first nor the last ordinal.
    {
        let _cordoned = Cordoned::all(&galera);
        for ordinal in [0, 2, 1] {
            writer.until_writes();
            delete_member(&galera, &galera.member(ordinal));
        }
    }
    let (_, plan) = outcome(recover(&galera, &["--dry-run"]));
    println!("{plan}");
    assert!(plan.contains("next step: "), "--dry-run prints no next step: {plan}");
    recover_from(&galera, 1, &cluster);
    assert_eq!(set(), before, "the recovery leaves the StatefulSet unchanged");
    for reason in ["RecoveryGranted", "RecoveryOver"] {
        patiently(&format!("there is an Event {reason}"), || {
            if events(&galera, reason).is_empty() { Err("no Event") } else { Ok(()) }.map_err(str::to_owned)
        });
    }
    writer.until_writes();

    // All members are deleted, and a GitOps tool keeps restoring its state during the recovery.
    delete_all_members(&galera, 3);
    let began = Instant::now();
    let (code, text) = while_replicas_are_restored(&galera, || outcome(recover(&galera, &["--yes"])));
    println!("{text}after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    stop_uninstall_and_start(&galera, &cluster);
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
    gate::a_member_that_would_found_a_second_cluster_is_stopped_in_its_pod(&galera, &cluster);
}
