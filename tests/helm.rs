//! Helm with the guard: everyday installations and upgrades keep working with both of Helm's ways to apply, and never
//! bring a bootstrap node back.
//!
//! The chart in fixtures/chart contains the objects of fixtures/galera.yaml. Its bootstrap node is a hook, which is created
//! once; with `ORDINARY_BOOTSTRAP` it is an ordinary object of the release, as it is in many charts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{Output, User, eventually, is_helm_3};
use crate::living_cluster::{Alive, BOOTSTRAP, GALERA};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/chart");
const ORDINARY_BOOTSTRAP: &str = "--set=bootstrap.hook=false";
const BY_SERVER: &str = "--server-side=true";
const BY_CLIENT: &str = "--server-side=false";

/// Installs a release and waits until its cluster has formed and its bootstrap node is removed.
fn release(flags: &[&str]) -> Alive {
    let alive = Alive::empty("helm");
    alive.helm(&[&["install", "db", CHART], flags].concat()).succeeded();
    alive.until_formed();
    alive.until_bootstrap_removed();
    alive
}

impl Alive {
    fn upgrade(&self, flags: &[&str]) -> Output {
        self.helm(&[&["upgrade", "db", CHART], flags].concat())
    }

    /// Asserts that Helm prints the warning of the API server, and that no bootstrap node starts.
    fn assert_bootstrap_held(&self, output: &Output) {
        assert_eq!(output.status, 0, "{output}");
        let warning =
            format!("Warning: [G04] Deployment {}/galera-instance-bootstrap: kept at 0 replicas: ", self.ns);
        assert_eq!(output.stderr.matches("Warning: ").count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains(&warning), "{}", output.stderr);
        assert_eq!(self.plane.get(&self.ns, BOOTSTRAP)["spec"]["replicas"], 0);
        assert_eq!(self.bootstrap_pods(), "");
    }
}

/// Checks that the first upgrade re-creates the objects of the bootstrap node, without its pod, and later ones change nothing.
fn upgrades_keep_an_ordinary_bootstrap_node_at_zero(method: &str) {
    let alive = release(&[ORDINARY_BOOTSTRAP, method]);
    let members = alive.members();
    alive.assert_bootstrap_held(&alive.upgrade(&[ORDINARY_BOOTSTRAP, method]));
    alive.changes_nothing(|| {
        alive.assert_bootstrap_held(&alive.upgrade(&[ORDINARY_BOOTSTRAP, method]));
        alive.assert_bootstrap_held(&alive.helm(&["rollback", "db", "1"]));
    });
    // A change of another value takes effect.
    alive.assert_bootstrap_held(&alive.upgrade(&[ORDINARY_BOOTSTRAP, method, "--set=replicas=5"]));
    alive.until_ready(5);
    assert!(alive.members().starts_with(&members), "a member was restarted");
}

#[test]
fn an_ordinary_bootstrap_node_stays_at_zero_with_server_side_apply() {
    upgrades_keep_an_ordinary_bootstrap_node_at_zero(BY_SERVER);
}

#[test]
fn an_ordinary_bootstrap_node_stays_at_zero_with_client_side_apply() {
    upgrades_keep_an_ordinary_bootstrap_node_at_zero(BY_CLIENT);
}

#[test]
fn a_release_can_change_its_way_to_apply() {
    let alive = release(&[ORDINARY_BOOTSTRAP, BY_CLIENT]);
    for method in [BY_SERVER, BY_CLIENT, BY_SERVER] {
        alive.assert_bootstrap_held(&alive.upgrade(&[ORDINARY_BOOTSTRAP, method]));
    }
}

#[test]
fn a_bootstrap_node_that_is_a_hook_does_not_come_back() {
    let alive = release(&[]);
    alive.changes_nothing(|| {
        for arguments in [&["upgrade", "db", CHART][..], &["rollback", "db", "1"]] {
            let output = alive.helm(arguments);
            assert_eq!((output.status, &*output.stderr), (0, ""), "{arguments:?}: {output}");
        }
    });
    assert_eq!(alive.kubectl(&["get", BOOTSTRAP]).status, 1, "the bootstrap node came back");
}

/// The user sees the message, and Helm's own rollback is allowed.
#[test]
fn a_refused_upgrade_says_why_and_can_be_rolled_back() {
    let alive = release(&[]);
    let output = alive.upgrade(&["--set=replicas=1", "--rollback-on-failure"]);
    assert_eq!(output.status, 1, "{output}");
    let how = if is_helm_3() { "atomic" } else { "rollback-on-failure" };
    for words in [
        &*format!("has been rolled back due to {how} being set"),
        "[G01] StatefulSet ",
        "3 -> 1 replicas would leave 1 of 3 members",
        " upgrade db CHART --reuse-values --set VALUE=2 (CHART: the chart of this release, VALUE: its value for the number of members), wait",
    ] {
        assert!(output.stderr.contains(words), "{words:?} is not in:\n{}", output.stderr);
    }
    assert_eq!(alive.stateful_set()["spec"]["replicas"], 3);
    let config = alive.plane.get(&alive.ns, "configmap/galera-instance-nodeconfig");
    assert!(config["data"]["galera.cnf"].as_str().unwrap().contains(&format!("{STATEFUL_SET}-2")));
    let output = alive.upgrade(&[]);
    assert_eq!(output.status, 0, "{output}");
}

/// Anti-affinity is injected as `required`, because there are enough nodes, and a real scheduler obeys it.
#[test]
fn members_run_on_different_nodes() {
    let alive = Alive::empty("helm");
    alive.helm(&["install", "db", CHART]).succeeded();
    alive.until_formed();
    let nodes: BTreeSet<String> = alive.members().iter().map(|(pod, _)| alive.node_of(pod)).collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
}

/// If they differed, the tests here and in other files would test different clusters.
#[test]
fn the_chart_renders_the_fixture() {
    let (plane, _) = guarded::shared_with_nodes();
    let text = plane.helm(User::Ci, &["template", "db", CHART, ORDINARY_BOOTSTRAP]).succeeded();
    let objects = |text: &str| -> BTreeMap<String, Value> {
        let documents = inspect::manifest::read(text).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let named = documents.iter().map(|it| {
            let object = it.json();
            (format!("{} {}", object["kind"], object["metadata"]["name"]), object)
        });
        named.collect()
    };
    assert_eq!(objects(&text), objects(GALERA), "fixtures/chart and fixtures/galera.yaml differ");
}

/// Half an uninstallation is worse than none: it would leave members without their Service and their configuration.
#[test]
fn an_uninstall_is_refused_as_a_whole() {
    let alive = release(&[]);
    let mut output = None;
    alive.changes_nothing(|| output = Some(alive.helm(&["uninstall", "db"])));
    let output = output.unwrap();
    assert_eq!(output.status, 1, "{output}");
    // Without --debug Helm hides the message of a refusal, so it is also in an Event.
    let reported = eventually("an Event with the reason of the refusal", || {
        let on = format!("--field-selector=reason=RefusedG03,involvedObject.name={STATEFUL_SET}");
        let events = ["get", "events", &on, "--output=jsonpath={.items[*].message}"];
        Some(alive.kubectl(&events).succeeded()).filter(|message| !message.is_empty())
    });
    assert!(reported.starts_with("this may not be deleted: "), "{reported}");

    // Helm considers the release partly uninstalled and refuses to upgrade it; a rollback is the way out.
    let stuck = alive.upgrade(&[]);
    assert!(stuck.stderr.contains("has no deployed releases"), "{stuck}");
    alive.helm(&["rollback", "db", "1"]).succeeded();
    alive.upgrade(&[]).succeeded();

    // One override, on the StatefulSet, allows the uninstallation of the whole release.
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let annotation = format!("gatera.dev/override=G03 until={until} reason=moving house");
    alive.kubectl(&["annotate", "statefulset", STATEFUL_SET, &annotation]).succeeded();
    let output = eventually("the guard to see the override and allow the uninstallation", || {
        Some(alive.helm(&["uninstall", "db"])).filter(|output| output.status == 0)
    });
    assert!(output.stdout.contains("uninstalled"), "{output}");
    eventually("everything but the claims to be deleted", || {
        let left = alive.admin(&["get", "statefulset,service,secret,pods", "--output=name"]).succeeded();
        left.is_empty().then_some(())
    });
    let claims = alive.admin(&["get", "persistentvolumeclaims", "--output=name"]).succeeded();
    assert_eq!(claims.lines().count(), 3, "{claims}");
}
