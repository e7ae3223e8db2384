//! Members that leave by drain, deletion or restart: one at a time, and only while all others are Ready.

mod programs;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::cluster::STATEFUL_SET;
use crate::lab::{Output, eventually};
use crate::living_cluster::Alive;

/// For each node, how many tests have drained it and still need it empty. The tests share the nodes.
static EMPTIED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn pod(ordinal: usize) -> String {
    format!("{STATEFUL_SET}-{ordinal}")
}

impl Alive {
    /// Drains a node of the pods of this test, as an administrator does before working on the node. The flag about emptyDir is
    /// needed for the volume that the guard injects.
    fn drain(&self, node: &str, timeout: &str) -> Output {
        *EMPTIED.lock().unwrap_or_else(PoisonError::into_inner).entry(node.to_owned()).or_default() += 1;
        let selector = format!("--pod-selector=instance={}", self.ns);
        let flags = ["--ignore-daemonsets", "--delete-emptydir-data", &selector, timeout];
        self.admin(&[&["drain", node][..], &flags].concat())
    }

    /// Lets pods run on a node again, once no test needs it empty.
    fn uncordon(&self, node: &str) {
        let mut emptied = EMPTIED.lock().unwrap_or_else(PoisonError::into_inner);
        let tests = emptied.entry(node.to_owned()).or_default();
        *tests = tests.saturating_sub(1);
        if *tests == 0 {
            self.admin(&["uncordon", node]).succeeded();
        }
    }

    /// Returns the number of members that are Ready and not being deleted.
    fn ready(&self) -> usize {
        let path = "--output=jsonpath={range .items[*]}{.metadata.deletionTimestamp}|{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let text = self.kubectl(&["get", "pods", "--selector=app=galera", path]).succeeded();
        text.lines().filter(|line| *line == "|True").count()
    }

    /// Asserts that a command is refused with these words and that every member is still the same pod.
    fn assert_refused_and_no_member_lost(&self, arguments: &[&str], words: &str) {
        let before = self.members();
        let output = self.admin(arguments);
        assert_eq!(output.status, 1, "{arguments:?}: {output}");
        assert!(output.stderr.contains(words), "{arguments:?}: {output}");
        assert_eq!(self.members(), before, "{arguments:?}");
        assert_eq!(self.ready(), 3, "{arguments:?}");
    }

    /// Lets the readiness probe of a member fail and waits until the guard has seen it: it then refuses to scale down to two.
    fn make_unready(&self, ordinal: usize) {
        self.plane.set_ready(&self.ns, &pod(ordinal), false);
        self.until_shrinking_is(1);
    }

    fn make_ready_again(&self, ordinal: usize) {
        self.plane.set_ready(&self.ns, &pod(ordinal), true);
        self.until_shrinking_is(0);
    }

    fn until_shrinking_is(&self, status: i32) {
        let shrink = ["scale", "statefulset", STATEFUL_SET, "--replicas=2", "--dry-run=server"];
        eventually("the guard to see whether a member is Ready", || {
            (self.kubectl(&shrink).status == status).then_some(())
        });
    }

    fn until_all_are_ready(&self) {
        eventually("three members to be Ready", || (self.ready() == 3).then_some(()));
    }
}

#[test]
fn a_node_can_be_drained_while_all_others_are_ready() {
    let alive = Alive::cluster("drain");
    let (node, before) = (alive.node_of(&pod(1)), alive.members());
    let output = alive.drain(&node, "--timeout=60s");
    assert_eq!(output.status, 0, "{output}");
    alive.until_all_are_ready();
    let after = alive.members();
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "another member was replaced, too");
    assert_ne!(alive.node_of(&pod(1)), node, "the member is back on the drained node");
    alive.uncordon(&node);
}

/// The refusal must have the status 429: `kubectl drain` retries after it and gives up after any other.
#[test]
fn a_drain_waits_until_the_others_are_ready() {
    let alive = Alive::cluster("drain");
    alive.make_unready(0);
    let (node, before) = (alive.node_of(&pod(1)), alive.members());
    let words =
        format!("error when evicting pods/\"{}\" -n \"{}\" (will retry after 5s): ", pod(1), alive.ns);
    let output = alive.drain(&node, "--timeout=10s");
    assert_eq!(output.status, 1, "{output}");
    assert!(output.stderr.contains(&words), "{output}");
    assert!(output.stderr.contains("[G02] Pod "), "{output}");
    assert!(output.stderr.contains("global timeout reached: 10s"), "{output}");
    assert_eq!(alive.members(), before);

    // The second drain succeeds because the member becomes Ready meanwhile.
    alive.uncordon(&node);
    thread::scope(|scope| {
        let drain = scope.spawn(|| alive.drain(&node, "--timeout=60s"));
        eventually("the node to be cordoned again", || {
            let unschedulable =
                alive.plane.get(&alive.ns, &format!("node/{node}"))["spec"]["unschedulable"].clone();
            (unschedulable == true).then_some(())
        });
        assert_eq!(alive.members(), before);
        alive.plane.set_ready(&alive.ns, &pod(0), true);
        let output = drain.join().unwrap();
        assert_eq!(output.status, 0, "{output}");
    });
    alive.until_all_are_ready();
    assert_ne!(alive.node_of(&pod(1)), node);
    alive.uncordon(&node);
}

#[test]
fn two_drains_at_once_take_turns() {
    let alive = Alive::cluster("drain");
    let nodes = [alive.node_of(&pod(0)), alive.node_of(&pod(1))];
    let outputs = thread::scope(|scope| {
        let drains = nodes.each_ref().map(|node| scope.spawn(|| alive.drain(node, "--timeout=80s")));
        while drains.iter().any(|drain| !drain.is_finished()) {
            let ready = alive.ready();
            assert!(ready >= 2, "{ready} of 3 members are Ready");
        }
        drains.map(|drain| drain.join().unwrap())
    });
    for output in &outputs {
        assert_eq!(output.status, 0, "{output}");
    }
    // Whether the drains coincide depends on the machine's timing; if they do, one of them waits.
    let waited = outputs.iter().filter(|output| output.stderr.contains("[G02] Pod ")).count();
    assert!(waited <= 1, "both drains had to wait: {outputs:?}");
    alive.until_all_are_ready();
    for node in &nodes {
        alive.uncordon(node);
    }
}

/// Restarting all members at once is the first of the two commands that erase a database.
#[test]
fn a_deletion_of_all_members_at_once_deletes_at_most_one() {
    let alive = Alive::cluster("delete");
    let collection = format!("--raw=/api/v1/namespaces/{}/pods?labelSelector=app%3Dgalera", alive.ns);
    for arguments in
        [&["delete", "pods", "--selector=app=galera", "--wait=false"][..], &["delete", &collection]]
    {
        let before = alive.members();
        let output = alive.kubectl(arguments);
        assert_eq!(output.status, 1, "{arguments:?}: {output}");
        assert!(output.stderr.contains("[G02] Pod "), "{arguments:?}: {output}");
        assert!(alive.ready() >= 2, "{arguments:?}");
        alive.until_all_are_ready();
        let replaced =
            before.iter().zip(alive.members()).filter(|(before, after)| **before != *after).count();
        assert!(replaced <= 1, "{arguments:?}: {replaced} members were replaced");
    }
}

/// Without its grace period a member would be killed in the middle of its work for other members.
#[test]
fn a_member_is_not_deleted_by_force() {
    let alive = Alive::cluster("force");
    let member = pod(1);
    for how in [&["--grace-period=0", "--force"][..], &["--grace-period=1"], &["--now"]] {
        alive.assert_refused_and_no_member_lost(
            &[&["delete", "pod", &member, "--wait=false"][..], how].concat(),
            "[G02] Pod ",
        );
    }
}

#[test]
fn a_member_is_not_deleted_while_another_is_not_ready() {
    let alive = Alive::cluster("delete");
    alive.make_unready(0);
    let before = alive.members();
    let output = alive.kubectl(&["delete", "pod", &pod(2), "--wait=false"]);
    assert_eq!(output.status, 1, "{output}");
    assert!(output.stderr.contains("[G02] Pod "), "{output}");
    assert_eq!(alive.members(), before);
    // A member that is not Ready does not block its own deletion.
    alive.kubectl(&["delete", "pod", &pod(0), "--wait=false"]).succeeded();
    alive.until_all_are_ready();
}

#[test]
fn a_namespace_with_a_cluster_is_not_deleted() {
    let alive = Alive::cluster("whole");
    let ns = alive.ns.clone();
    alive.assert_refused_and_no_member_lost(&["delete", "namespace", &ns, "--wait=false"], "[G03] ");
    assert_eq!(alive.plane.get(&ns, &format!("namespace/{ns}"))["status"]["phase"], "Active");
}

const RESTART: &[&str] = &["rollout", "restart", "statefulset", STATEFUL_SET];

/// A restart is a change of the template: a healthy cluster allows it, one member after the other.
#[test]
fn a_rollout_restart_replaces_one_member_after_the_other() {
    let alive = Alive::cluster("restart");
    let before = alive.members();
    alive.kubectl(RESTART).succeeded();
    eventually("every member to be restarted", || {
        let (ready, after) = (alive.ready(), alive.members());
        assert!(ready >= 2, "{ready} of 3 members are Ready");
        let all = before.iter().all(|member| !after.contains(member));
        (all && ready == 3).then_some(())
    });
}

#[test]
fn a_rollout_restart_waits_for_a_healthy_cluster() {
    let alive = Alive::cluster("restart");
    let template = || alive.stateful_set()["spec"]["template"].clone();
    alive.make_unready(0);
    let before = (alive.members(), template());
    let refused = alive.kubectl(RESTART);
    assert_eq!(refused.status, 1, "{refused}");
    assert!(refused.stderr.contains("[G14] StatefulSet "), "{refused}");
    assert_eq!((alive.members(), template()), before);

    alive.make_ready_again(0);
    alive.kubectl(RESTART).succeeded();
}
