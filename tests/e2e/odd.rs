//! Two instances in one namespace. One of them is unusual: its passwords contain every printable character, and two of its
//! members share a node. The clusters stay apart; changes that would mix them up or lose data are refused; the node with two
//! members is drained while a client writes; and a password is changed as `gatera explain G12` says.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tempfile::NamedTempFile;

use crate::advice::{commands, follow, refused};
use crate::galera::{Galera, Wsrep, patiently};
use crate::guard::guarded;
use crate::install::{endpoints, helm, helm_test, password, until_bootstrap_is_removed};
use crate::lab::{ControlPlane, User};
use crate::password;
use crate::writer::Writer;

#[test]
fn two_instances_share_a_namespace_and_nothing_else() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("odd", &[("gatera.dev/mode", "enforce")]);
    let plain = Galera::new(lab, &namespace, "plain");
    let odd = Galera::new(lab, &namespace, "odd");
    helm(&plain, "install", &[]);
    install_on_two_nodes(&odd);
    for galera in [&plain, &odd] {
        galera.until_ready(3);
        until_bootstrap_is_removed(galera);
    }
    neither_sees_the_other(&plain, &odd);
    for galera in [&plain, &odd] {
        helm_test(lab, &galera.name, &namespace);
    }

    the_node_with_two_members_is_drained(&odd);
    another_cluster_cannot_be_joined(&plain, &odd);
    plain.fill();
    password::change_as_the_page_says(&plain, &odd.member(0));
    a_claim_is_deleted_as_the_refusal_says(&plain);
    for ordinal in 0..3 {
        assert_eq!(plain.rows(&plain.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }
}

/// Returns every printable character, with a space first.
fn every_printable_character() -> String {
    (' '..='~').collect()
}

fn install_on_two_nodes(galera: &Galera<'_>) {
    let label = ["label", "node", "node-1", "node-2", "odd.example/pair=yes", "--overwrite"];
    galera.lab.kubectl(User::Admin, &label).succeeded();
    let values = json!({
        "auth": { "rootPassword": every_printable_character(), "sstPassword": every_printable_character() },
        "antiAffinity": false,
        "nodeSelector": { "odd.example/pair": "yes" },
    });
    let mut file = NamedTempFile::new_in(galera.lab.folder()).unwrap();
    file.write_all(values.to_string().as_bytes()).unwrap();
    helm(galera, "install", &["--values", &file.path().display().to_string()]);
}

fn neither_sees_the_other(one: &Galera<'_>, other: &Galera<'_>) {
    assert_ne!(one.until_synced(3, 3), other.until_synced(3, 3), "two clusters with one identity");
    one.ask(&one.member(0), "CREATE DATABASE ours");
    let seen = other.ask(&other.member(0), "SHOW DATABASES LIKE 'ours'");
    assert_eq!(seen, "", "a database of one cluster is not in the other");
    for galera in [one, other] {
        let own: Vec<_> = (0..3).map(|it| galera.member(it)).collect();
        assert_eq!(endpoints(galera), own, "the client Service leads to its own members");
    }
}

/// Makes a node schedulable again when it is dropped, even after a panic.
struct UncordonOnDrop<'a>(&'a ControlPlane, String);

impl Drop for UncordonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.kubectl(User::Admin, &["uncordon", &self.1]);
    }
}

fn the_node_with_two_members_is_drained(galera: &Galera<'_>) {
    let node = |pod: &str| galera.pod(pod).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let mut on = BTreeMap::<_, Vec<String>>::new();
    for pod in (0..3).map(|it| galera.member(it)) {
        on.entry(node(&pod)).or_default().push(pod);
    }
    let (crowded, both) = on.iter().max_by_key(|(_, pods)| pods.len()).unwrap();
    assert_eq!(both.len(), 2, "one node holds two members: {on:?}");
    let survivor = (0..3).map(|it| galera.member(it)).find(|pod| !both.contains(pod)).unwrap();

    let writer = Writer::start(galera, &password(galera));
    let printed = {
        let _cordoned = UncordonOnDrop(galera.lab, crowded.clone());
        let printed = keeping_a_majority(galera, &survivor, || drain(galera, crowded));
        // The pod that was evicted last may still be pending.
        galera.until_ready(3);
        printed
    };
    assert!(
        printed.contains("will retry after 5s") && printed.contains("[G02]"),
        "the second eviction did not wait: {printed}"
    );
    for pod in both {
        assert_ne!(&node(pod), crowded, "{pod} runs on another node");
    }
    galera.until_synced(3, 3);
    writer.until_writes();
    writer.finish(3);
}

/// Drains a node, repeatedly until that succeeds. Returns the stderr of all attempts.
fn drain(galera: &Galera<'_>, node: &str) -> String {
    let mut printed = String::new();
    patiently("the node is drained", || {
        let output = galera.drain(node, "--timeout=80s");
        printed.push_str(&output.stderr);
        if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
    });
    printed
}

/// Runs `act`. Asserts that this member, which is queried meanwhile, always belongs to a majority.
fn keeping_a_majority<T>(galera: &Galera<'_>, survivor: &str, act: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let queries = scope.spawn(|| {
            let mut seen = Vec::new();
            while !done.load(Ordering::Relaxed) {
                seen.extend(galera.wsrep(survivor).ok());
                thread::sleep(Duration::from_millis(300));
            }
            seen
        });
        let result = act();
        done.store(true, Ordering::Relaxed);
        let seen = queries.join().unwrap();
        let has_majority = |it: &&Wsrep| it.component == "Primary" && it.size >= 2;
        assert!(
            seen.len() > 3 && seen.iter().all(|it| has_majority(&it)),
            "{survivor} was without a majority, or answered too rarely: {seen:?}"
        );
        result
    })
}

fn another_cluster_cannot_be_joined(galera: &Galera<'_>, other: &Galera<'_>) {
    let config = format!("configmap/{}-nodeconfig", galera.name);
    let theirs = other.lab.get(&other.namespace, &format!("configmap/{}-nodeconfig", other.name));
    let patch = json!({ "data": theirs["data"] }).to_string();
    let patched = galera.kubectl(&["patch", &config, "--type=merge", "--patch", &patch]);
    refused(&patched, "G06", "lists odd-galera-0.odd-hs, which belongs to cluster odd-galera");
    let own = "do instead: set it to gcomm://plain-galera-0.plain-hs,plain-galera-1.plain-hs,plain-galera-2.plain-hs";
    assert!(patched.stderr.contains(own), "the refusal does not print the right address: {patched}");
}

fn a_claim_is_deleted_as_the_refusal_says(galera: &Galera<'_>) {
    let claim = format!("persistentvolumeclaim/{}", galera.claim(1));
    let deleted = galera.kubectl(&["delete", &claim, "--wait=false"]);
    refused(&deleted, "G07", "it holds the data of member plain-galera-1 (3 of 3 members Synced");
    let advice = commands(&deleted.stderr);
    assert_eq!(advice.len(), 3, "the advice has three commands: {deleted}");
    let uid = |what: &str| galera.lab.get(&galera.namespace, what)["metadata"]["uid"].clone();
    let before = uid(&claim);
    for command in &advice {
        follow(galera.lab, command);
    }
    galera.until_ready(3);
    galera.until_synced(3, 3);
    assert_ne!(uid(&claim), before, "the member has a new claim");
}
