//! Rollouts on a control plane with nodes, by the guard that all tests share.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use crate::bootstrap::crash::CrashLab;
use crate::bootstrap::live::events;
use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{User, eventually};
use crate::living_cluster::Alive;

const CONFIG: &str = "configmap/galera-instance-nodeconfig";

/// Returns the revision that each member runs, by its annotation and by the ConfigMap that its volume names.
fn revisions(alive: &Alive) -> BTreeMap<String, (String, String)> {
    let text = alive.admin(&["get", "pods", "--selector=app=galera", "--output=json"]).succeeded();
    let list: Value = serde_json::from_str(&text).unwrap();
    let of = |pod: &Value| {
        let mark = pod["metadata"]["annotations"]["gatera.dev/revision"].as_str().unwrap_or_default();
        let volumes = pod["spec"]["volumes"].to_string();
        let mounted = volumes.split('"').find(|it| it.contains("nodeconfig")).unwrap_or_default();
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), (mark.to_owned(), mounted.to_owned()))
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

/// Returns the configuration that the guard recorded for the cluster.
fn recorded(alive: &Alive) -> Value {
    let set = alive.stateful_set();
    let text = set["metadata"]["annotations"]["gatera.dev/configuration"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

/// Waits until the guard has recorded the configuration of the cluster, and returns its revision.
fn first_revision(alive: &Alive) -> String {
    eventually("the recorded configuration", || Some(recorded(alive)["good"].as_str()?.to_owned()))
}

/// Waits until all members run another revision than this one, and returns what the guard then recorded.
fn until_rolled_out(alive: &Alive, before: &str) -> Value {
    eventually("the rollout", || {
        let recorded = recorded(alive);
        (recorded["good"] != before && recorded["next"].is_null()).then_some(recorded)
    })
}

/// Appends a line to the option file of the members.
fn set_option(alive: &Alive, line: &str) {
    let map = alive.plane.get(&alive.ns, CONFIG);
    let (key, text) = map["data"].as_object().unwrap().iter().next().unwrap();
    let changed = format!("{}\n[mysqld]\n{line}\n", text.as_str().unwrap());
    let patch = serde_json::json!({ "data": { key: changed } }).to_string();
    alive.kubectl(&["patch", CONFIG, "--type=merge", "--patch", &patch]).succeeded();
}

/// Lists the guard's successful writes in the namespace, in order.
fn writes(alive: &Alive) -> Vec<String> {
    let asked = alive.plane.asked_by_the_guard();
    let here = asked.into_iter().filter(|it| it.writes() && it.namespace == alive.ns && it.code < 300);
    here.map(|it| format!("{} {}", it.verb, it.resource)).collect()
}

#[test]
fn a_change_reaches_one_member_then_the_others() {
    let alive = Alive::cluster("rollout");
    let good = first_revision(&alive);
    let (before, written) = (alive.members(), writes(&alive).len());
    // The first pods get their snapshots from the webhook, which waits for the view for half a second at most.
    let at_first = revisions(&alive);
    assert!(
        at_first.values().all(|(mark, _)| !mark.is_empty()),
        "a member started without a snapshot: {at_first:?}"
    );
    let changed = Instant::now();
    set_option(&alive, "max_connections = 77");
    eventually("the first restart", || (alive.members() != before).then_some(()));
    eprintln!("from the change to a new pod: {:?}, of which the guard waits 10 s", changed.elapsed());
    let done = until_rolled_out(&alive, &good);
    let revision = done["good"].as_str().unwrap();
    for (name, (mark, mounted)) in revisions(&alive) {
        assert_eq!(mark, revision, "{name}");
        assert_eq!(
            mounted,
            format!("galera-instance-nodeconfig-gatera-{}", &revision[revision.len() - 32..]),
            "{name}"
        );
    }
    let after = alive.members();
    assert!(before.iter().zip(&after).all(|(before, after)| before.1 != after.1), "{before:?} {after:?}");
    assert_eq!(
        events(&alive, "RollingOut"),
        [format!(
            "max_connections: {STATEFUL_SET}-2 restarts with the new configuration, then the others, one at a time ({revision})"
        )]
    );
    assert_eq!(events(&alive, "RolledOut"), [format!("all 3 members run max_connections ({revision})")]);
    // Each member also causes one write to a Lease of the guard, which is in another namespace.
    let (evictions, records, events_written) =
        ("create pods/eviction", "patch statefulsets", "create events");
    let all = writes(&alive);
    assert_eq!(
        all[written..],
        [
            "create configmaps",
            events_written,
            records,
            evictions,
            records,
            evictions,
            evictions,
            events_written,
            records
        ]
        .map(str::to_owned)
    );
}

/// A new leader continues the rollout of a leader that was killed. By default that leader is killed after the first eviction;
/// `GATERA_CRASHES=all` also kills it after three other writes.
#[test]
fn the_next_leader_continues() {
    let lab = CrashLab::new();
    let mut leader = lab.leader(0);
    let all = std::env::var("GATERA_CRASHES").is_ok_and(|it| it == "all");
    let points =
        [(1, "the snapshot"), (3, "the record"), (4, "the first eviction"), (6, "the second eviction")];
    for (writes, last) in points.into_iter().filter(|(writes, _)| all || *writes == 4) {
        let alive = lab.namespace();
        leader.gate.allow_writes(&alive.ns, usize::MAX);
        alive.apply(&[]).succeeded();
        alive.until_formed();
        alive.until_bootstrap_removed();
        let good = first_revision(&alive);
        leader.gate.allow_writes(&alive.ns, writes);
        set_option(&alive, "max_connections = 78");
        eventually("a write of the leader to be held", || leader.gate.holds_a_request().then_some(()));
        leader = lab.kill(leader);
        let done = until_rolled_out(&alive, &good);
        let revision = done["good"].as_str().unwrap();
        assert!(
            revisions(&alive).values().all(|(mark, _)| mark == revision),
            "a member does not run it: killed after {last}"
        );
        let evicted = alive
            .plane
            .asked_by_the_guard()
            .into_iter()
            .filter(|it| it.namespace == alive.ns && it.resource == "pods/eviction" && it.code < 300);
        // A pod that is created while no guard runs reads the ConfigMap itself and is replaced once more in its turn.
        let evicted = evicted.count();
        assert!(matches!(evicted, 3 | 4), "{evicted} evictions: killed after {last}");
        assert_eq!(events(&alive, "RollingOut").len(), 1, "killed after {last}");
    }
}

/// The commands `gatera rollout …` and their output.
#[test]
fn a_rollout_is_paused_resumed_and_undone_by_command() {
    let alive = Alive::cluster("asked");
    let good = first_revision(&alive);
    let rollout = |arguments: &[&str]| {
        let output = std::process::Command::new(guarded::program())
            .arg("rollout")
            .args(arguments)
            .args(["--namespace", &alive.ns])
            .env("KUBECONFIG", alive.plane.kubeconfig(User::Admin))
            .output()
            .unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        let stderr =
            stderr.strip_prefix("gatera: settings: those of the guard (ConfigMap gatera/gatera-settings)\n");
        (output.status.code().unwrap(), stdout + stderr.unwrap())
    };
    let says = |arguments: &[&str], begins: &str| {
        let (code, text) = rollout(arguments);
        assert!(code == 0 && text.starts_with(begins), "{arguments:?}: {text}");
        text
    };
    let id = format!("{}/{STATEFUL_SET}", alive.ns);
    let settled = says(&["status"], &format!("{id}  configuration: done\n├── {STATEFUL_SET}-0  "));
    assert!(settled.contains(&format!("{good}  good")), "{settled}");
    says(&["pause", STATEFUL_SET], &format!("{id} is paused"));
    set_option(&alive, "max_connections = 79");
    eventually("`gatera rollout status` to show that it is paused", || {
        let (code, text) = rollout(&["status", STATEFUL_SET, "--watch"]);
        (code == 1 && text.contains(": waits (paused by annotation gatera.dev/rollout;")).then_some(())
    });
    let before = alive.members();
    // A member that restarts meanwhile starts with the good revision.
    alive.admin(&["delete", "pod", &format!("{STATEFUL_SET}-0")]).succeeded();
    alive.until_ready(3);
    assert!(revisions(&alive).values().all(|(mark, _)| *mark == good), "{:?}", revisions(&alive));
    assert_eq!(alive.members()[1..], before[1..], "a member restarted although the rollout is paused");

    says(&["resume", STATEFUL_SET], &format!("{id} continues"));
    let done = until_rolled_out(&alive, &good);
    let new = done["good"].as_str().unwrap().to_owned();
    says(&["status", STATEFUL_SET, "--watch"], &format!("{id}  configuration: done"));
    let history = says(&["history", STATEFUL_SET], &new);
    assert!(history.lines().next().unwrap().contains("good, in the ConfigMap  run by"), "{history}");
    assert!(history.lines().nth(1).unwrap().starts_with(&good), "{history}");

    let undone = says(
        &["undo", STATEFUL_SET],
        &format!("members of {id} that do not run {good} will restart with it"),
    );
    assert!(undone.contains(&format!("the ConfigMap still holds {new}")), "{undone}");
    eventually("all members to run the previous configuration", || {
        let back = revisions(&alive).values().all(|(mark, _)| *mark == good);
        (back && recorded(&alive)["good"] == good).then_some(())
    });
    let (code, text) = rollout(&["undo", STATEFUL_SET, "--to=nonsense"]);
    assert_eq!(
        (code, &*text),
        (2, "gatera: nonsense is not a revision; `gatera rollout history` lists them\n")
    );
    let (code, text) = rollout(&["retry", STATEFUL_SET]);
    assert_eq!(
        (code, text),
        (2, format!("gatera: {id} has no revision that was given up, so there is nothing to retry\n"))
    );
    let (code, text) = rollout(&["pause", "other"]);
    assert!(code == 2 && text.starts_with("gatera: there is no Galera cluster other in namespace"), "{text}");
}

/// A deployment tool applies the previous template again after its timeout. The guard knows that template from its watch.
#[test]
fn a_template_with_which_a_member_hangs_is_taken_back() {
    let alive = Alive::cluster("taken-back");
    let before = alive.members();
    let hangs = r#"{"spec":{"template":{"metadata":{"annotations":{"gatera.lab/ready":"false"}}}}}"#;
    alive.kubectl(&["patch", "statefulset", STATEFUL_SET, "--patch", hangs]).succeeded();
    let last = format!("{STATEFUL_SET}-2");
    let shows = "--output=jsonpath={.metadata.annotations.gatera\\.lab/ready} {.status.phase}";
    eventually("the last member to hang", || {
        (alive.admin(&["get", "pod", &last, shows]).stdout == "false Running").then_some(())
    });
    let another = eventually("another template to be refused", || {
        let patch = hangs.replace("gatera.lab/ready", "another");
        let flags = ["patch", "statefulset", STATEFUL_SET, "--dry-run=server", "--patch", &patch];
        let output = alive.admin(&flags);
        output.stderr.contains("[G14]").then_some(output.stderr)
    });
    assert!(another.contains("the previous template is allowed at once"), "{another}");

    let undone = alive.admin(&["rollout", "undo", "statefulset", STATEFUL_SET]);
    assert!(undone.status == 0 && undone.stderr.contains("[G14]"), "{undone}");
    assert!(undone.stderr.contains("its pod template changes back to that of the Ready members"), "{undone}");
    let printed = eventually("`gatera status` to print the command", || {
        let output = guarded::ask(
            &alive.plane.kubeconfig(User::Admin),
            &["status", STATEFUL_SET, "--namespace", &alive.ns],
        );
        output.stdout.contains("was created from an earlier template").then_some(output.stdout)
    });
    assert!(printed.contains(&format!("kubectl -n {} delete pod {last}", alive.ns)), "{printed}");
    alive.kubectl(&["delete", "pod", &last, "--wait=false"]).succeeded();
    alive.until_ready(3);
    assert_eq!(alive.members()[..2], before[..2], "no other member was restarted");
}
