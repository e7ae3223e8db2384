//! The advice walk: a caller whose request is refused follows the advice in the denial and succeeds. The commands are taken
//! from the printed text and run verbatim, so a test fails as soon as printed advice does not work.

use serde_json::json;

use crate::cluster::STATEFUL_SET;
use crate::lab::{ControlPlane, Output, User, eventually};
use crate::paths::Terminal;

/// Returns the commands in the advice of a denial, in order and without the word `kubectl`.
pub fn advice(output: &Output) -> Vec<String> {
    assert_ne!(output.status, 0, "the request was not refused, so there is no advice: {output}");
    let (_, after) =
        output.stderr.split_once("do instead:").unwrap_or_else(|| panic!("no \"do instead:\" in: {output}"));
    // The advice is one line, or several numbered lines.
    let (advice, _) = after.split_once("\n  more:").unwrap_or_else(|| panic!("no \"more:\" in: {output}"));
    let commands = advice.split("kubectl ").skip(1).map(|rest| {
        let end =
            [", ", "; ", " (", ")", "\n"].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    commands.collect()
}

/// Splits a command as a shell would: single quotes keep words together.
pub fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in command.split('\'').enumerate() {
        for (at, piece) in
            if index % 2 == 1 { vec![part] } else { part.split(' ').collect() }.iter().enumerate()
        {
            if at > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("there is always a last word").push_str(piece);
        }
    }
    words.retain(|it| !it.is_empty());
    words
}

/// Runs one command of the advice and asserts that it succeeds.
pub fn follow(plane: &ControlPlane, user: User, command: &str) {
    // The reader fills in the reason: the guard refuses the placeholder.
    let words = words(&command.replace("reason=…", "reason=as-advised"));
    let mut words: Vec<_> = words.iter().map(|word| &**word).collect();
    if words.contains(&"delete") {
        words.push("--wait=false");
    }
    let output = plane.kubectl(user, &words);
    assert_eq!(output.status, 0, "the advice does not work: kubectl {command}\n{output}");
}

impl Terminal {
    fn follow(&self, command: &str) {
        follow(self.plane, self.user, command);
    }
}

#[test]
fn members_deleted_together_are_deleted_one_after_the_other() {
    let it = Terminal::new("walk-pods");
    let delete =
        |ordinal: usize| it.run(&["delete", "pod", &format!("{STATEFUL_SET}-{ordinal}"), "--wait=false"]);
    assert_eq!(delete(0).status, 0);
    let commands = advice(&delete(1));
    let [wait, restart] = &commands[..] else { panic!("not a wait and a restart, but: {commands:?}") };
    assert!(wait.contains(" wait ") && restart.contains(" rollout restart statefulset "), "{wait} {restart}");
    it.heal();
    it.follow(wait);
    assert_eq!(delete(1).status, 0, "still refused after the advised wait");
    it.heal();
    let forced = it.run(&[
        "delete",
        "pod",
        &format!("{STATEFUL_SET}-2"),
        "--force",
        "--grace-period=0",
        "--wait=false",
    ]);
    it.follow(&advice(&forced)[0]);
    it.heal();
}

#[test]
fn a_cluster_scales_down_to_one_member_and_up_again_in_steps() {
    let it = Terminal::new("walk-scale");
    let scale =
        |replicas: &str| it.run(&["scale", "statefulset", STATEFUL_SET, &format!("--replicas={replicas}")]);
    it.follow(&advice(&scale("1"))[0]);
    it.plane.finish_deletes(&it.ns);
    let down = eventually("two healthy members", || {
        it.plane.finish_deletes(&it.ns);
        Some(scale("1")).filter(|output| output.status == 0)
    });
    assert!(down.stderr.contains("the loss of a single member stops the cluster"), "{down}");
    eventually("one healthy member", || {
        it.plane.finish_deletes(&it.ns);
        let only = it.run(&["delete", "pod", &format!("{STATEFUL_SET}-0"), "--dry-run=server"]);
        only.stderr.contains("it is the only member").then_some(())
    });
    let only = it.run(&["delete", "pod", &format!("{STATEFUL_SET}-0")]);
    it.follow(&advice(&only)[0]);
    it.heal();
    assert_eq!(it.run(&["delete", "pod", &format!("{STATEFUL_SET}-0"), "--wait=false"]).status, 0);
}

#[test]
fn a_fixed_field_is_changed_by_orphaning() {
    let it = Terminal::new("walk-fixed");
    let mut set = it.plane.get(&it.ns, &format!("statefulset/{STATEFUL_SET}"));
    set["metadata"] =
        json!({ "name": STATEFUL_SET, "namespace": it.ns, "annotations": { "gatera.dev/data": "present" } });
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let apply = || it.feed(&["apply", "--server-side", "--force-conflicts", "--filename=-"], &set);
    let pod = || it.plane.get(&it.ns, &format!("pod/{STATEFUL_SET}-0"))["metadata"]["uid"].clone();
    let before = pod();
    it.follow(&advice(&apply())[0]);
    let output =
        eventually("the old StatefulSet to be gone", || Some(apply()).filter(|output| output.status == 0));
    assert!(!output.stderr.contains("denied"), "{output}");
    eventually("the pods to be adopted again", || {
        let pod = it.plane.get(&it.ns, &format!("pod/{STATEFUL_SET}-0"));
        let set = it.plane.get(&it.ns, &format!("statefulset/{STATEFUL_SET}"));
        (pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]).then_some(())
    });
    assert_eq!(pod(), before, "the member was restarted");
    assert_eq!(
        it.plane.get(&it.ns, &format!("statefulset/{STATEFUL_SET}"))["spec"]["podManagementPolicy"],
        "Parallel"
    );
}

#[test]
fn one_override_is_enough_to_delete_a_cluster() {
    let it = Terminal::new("walk-end");
    let refused = it.run(&["delete", "statefulset", STATEFUL_SET]);
    let commands = advice(&refused);
    let annotate = commands.iter().find(|it| it.contains("annotate")).expect("the advice names the override");
    it.follow(annotate);
    // Everything that the cluster uses may now be deleted, in the order in which Helm does so. Its data may not.
    for what in ["service/galera-instance-hs", "service/galera-instance-cs"] {
        let output = eventually("the override to be seen", || {
            Some(it.run(&["delete", what])).filter(|output| output.status == 0)
        });
        assert!(output.stderr.contains("Warning: [G10] Service "), "{output}");
    }
    let claim = format!("galera-instance-datadir-{STATEFUL_SET}-0");
    let kept = it.run(&["delete", "persistentvolumeclaim", &claim, "--wait=false"]);
    assert!(kept.status == 1 && kept.stderr.contains("[G07]"), "{kept}");
    assert_eq!(it.run(&["delete", "statefulset", STATEFUL_SET, "--wait=false"]).status, 0);
    for what in ["configmap/galera-instance-nodeconfig", "secret/galera-instance"] {
        assert_eq!(it.run(&["delete", what]).status, 0, "{what}");
    }
    // The garbage collector completes the deletion; the guard does not refuse it.
    eventually("the members to be collected", || {
        it.plane.finish_deletes(&it.ns);
        let pods = it.run(&["get", "pods", "--selector=app=galera", "--output=name"]);
        pods.stdout.is_empty().then_some(())
    });
    let user = User::Admin;
    let gone = eventually("the guard to forget the cluster", || {
        Some(it.plane.kubectl(user, &["delete", "namespace", &it.ns, "--wait=false"]))
            .filter(|output| output.status == 0)
    });
    assert!(gone.stdout.contains("deleted"), "{gone}");
}

#[test]
fn a_claim_is_deleted_so_that_its_member_copies_all_data_again() {
    let it = Terminal::new("walk-claim");
    let claim = format!("persistentvolumeclaim/galera-instance-datadir-{STATEFUL_SET}-1");
    let commands = advice(&it.run(&["delete", &claim, "--wait=false"]));
    let [annotate, delete, restart] = commands.as_slice() else { panic!("not three commands: {commands:?}") };
    it.follow(annotate);
    it.follow(delete);
    // A restart while another member is missing would lose a copy; now all others are Ready.
    it.follow(restart);
    it.plane.finish_deletes(&it.ns);
    eventually("a new claim", || {
        let found = it.plane.kubectl(
            User::Admin,
            &["--namespace", &it.ns, "get", &claim, "--output=jsonpath={.metadata.deletionTimestamp}|"],
        );
        (found.status == 0 && found.stdout == "|").then_some(())
    });
    it.heal();
}

#[test]
fn the_mode_of_a_namespace_changes_as_the_advice_says() {
    let mut it = Terminal::new("walk-label");
    let pod = format!("{STATEFUL_SET}-1");
    let refused = it.run(&["label", "pod", &pod, "app-"]);
    assert!(refused.status == 1 && refused.stderr.contains("[G18]"), "{refused}");
    it.user = User::Admin;
    let refused = it.run(&["label", "namespace", &it.ns, "gatera.dev/mode-"]);
    it.follow(&advice(&refused)[0]);
    it.user = User::Editor;
    eventually("the mode to be seen", || (it.run(&["label", "pod", &pod, "app-"]).status == 0).then_some(()));
}

/// Where the advice is to write a different value, that value is admitted.
#[test]
fn what_the_advice_says_to_write_is_admitted() {
    let it = Terminal::new("walk-values");
    let (set, config) = (format!("statefulset/{STATEFUL_SET}"), "configmap/galera-instance-nodeconfig");
    let patch = |what: &str, patch: &serde_json::Value| it.run(&["patch", what, &format!("--patch={patch}")]);
    let file = |text: String| json!({ "data": { "z.cnf": format!("[mysqld]\n{text}\n") } });
    let pod = |spec: serde_json::Value| json!({ "spec": { "template": { "spec": spec } } });
    let env =
        |value: serde_json::Value| pod(json!({ "containers": [{ "name": "mariadb", "env": [value] }] }));
    let from_secret = json!({ "secretKeyRef": { "name": "galera-instance", "key": "root-password" } });

    let refused = patch(config, &file("wsrep_cluster_address=gcomm://10.0.0.7".into()));
    let (_, advised) = refused.stderr.split_once("do instead: set it to ").expect("the address is named");
    let advised = advised.lines().next().unwrap();
    assert_eq!(patch(config, &file(format!("wsrep_cluster_address={advised}"))).status, 0, "G06: {refused}");

    for (rule, what, wrong, advice, right) in [
        (
            "G09",
            config,
            file("binlog_format=STATEMENT".into()),
            "write binlog_format = ROW",
            file("binlog_format = ROW".into()),
        ),
        (
            "G11",
            &*set,
            env(json!({ "name": "MARIADB_PASSWORD", "value": "hunter2" })),
            "use valueFrom.secretKeyRef instead of value",
            env(json!({ "name": "MARIADB_PASSWORD", "valueFrom": from_secret })),
        ),
        (
            "G14",
            &*set,
            pod(json!({ "terminationGracePeriodSeconds": 0 })),
            "write 600",
            pod(json!({ "terminationGracePeriodSeconds": 600 })),
        ),
        (
            "G17",
            &*set,
            pod(json!({ "containers": [{ "name": "mariadb", "image": "mariadb" }] })),
            "write the version: mariadb:VERSION",
            pod(json!({ "containers": [{ "name": "mariadb", "image": "mariadb:10.11" }] })),
        ),
        (
            "G16",
            "service/galera-instance-hs",
            json!({ "spec": { "publishNotReadyAddresses": false } }),
            "keep it true",
            json!({ "spec": { "publishNotReadyAddresses": true } }),
        ),
    ] {
        let refused = patch(what, &wrong);
        assert!(refused.stderr.contains(&format!("[{rule}] ")), "{rule} does not refuse: {refused}");
        assert!(refused.stderr.contains(advice), "{rule} does not say {advice:?}: {refused}");
        // Only the verdict matters, so this is a dry run, for which no member restarts.
        let done = it.run(&["patch", what, &format!("--patch={right}"), "--dry-run=server"]);
        assert_eq!(done.status, 0, "{rule} refuses what it advises: {done}");
    }

    // Once another Service leads to the cluster, the old one may be deleted.
    let service = ["service/galera-instance-cs"];
    let refused = it.run(&["delete", service[0]]);
    assert!(refused.stderr.contains("create the Service that replaces it first"), "{refused}");
    let second = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "second" },
        "spec": { "ports": [{ "port": 3306 }], "selector": { "app": "galera", "instance": "galera-instance" } },
    });
    it.feed(&["create", "--filename=-"], &second).succeeded();
    eventually("the new Service to be seen", || (it.run(&["delete", service[0]]).status == 0).then_some(()));

    // The password is changed in MariaDB first, then in the Secret, with the override that the text names.
    let (secret, new) = ("secret/galera-instance", json!({ "stringData": { "root-password": "new" } }));
    let refused = patch(secret, &new);
    assert!(refused.stderr.contains("with the override of G12"), "{refused}");
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    it.run(&["annotate", secret, &format!("gatera.dev/override=G12 until={until} reason=step 2")])
        .succeeded();
    let changed = patch(secret, &new);
    assert!(changed.status == 0 && changed.stderr.contains("Warning: [G12] Secret "), "{changed}");
}
