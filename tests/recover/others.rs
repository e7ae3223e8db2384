//! The members beside the one that starts the cluster: joiners without a donor, and members that serve another cluster.

use facts::settings::Settings;
use facts::view::{Freshness, Id, View, World};
use jiff::SignedDuration;
use leader::recovery::{self, RecoveryOptions, RecoveryStep};
use serde_json::json;

use super::{OTHER, reported_at};
use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

/// The member that started the cluster was restarted while others copied from it: a joiner that started before that has lost its
/// donor and does not notice it for minutes. A joiner that started later, or beside a member that did, may have a donor.
#[test]
fn a_joiner_without_a_donor_is_recreated() {
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let marks = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    let (before, after) = ("2026-12-01T09:00:00Z", "2026-12-01T09:20:00Z");
    let next = |first: &str, third: &str, granted: bool, does: &str| {
        let mut scene = Scene {
            members: ["starting", "ready", "starting"].map(str::to_owned).to_vec(),
            ..Scene::default()
        };
        if granted {
            scene.stateful_set = json!({ "metadata": { "annotations": marks } });
        }
        for (ordinal, began) in [(0, first), (1, "2026-12-01T09:10:00Z"), (2, third)] {
            let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
            let status = &mut pod["status"]["containerStatuses"][0];
            status["state"]["running"]["startedAt"] = json!(began);
            status["started"] = json!(ordinal == 1);
            pod["spec"]["containers"][0]["startupProbe"] =
                json!({ "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } });
            scene.also.push(pod);
        }
        let settings = Settings::default();
        let mut facts = scene.facts(&settings);
        for ordinal in [0, 2] {
            let said = format!(
                "Startup probe failed: the server is JOINING{does}; start of 2026-12-01T09:25:00Z: a state transfer was not finished, \
                 safe_to_bootstrap 0"
            );
            let id = Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}"));
            facts.add_report(&id, &format!("pod-{ordinal}"), "2026-12-01T09:25:00Z".parse().unwrap(), &said);
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let pod = format!("{STATEFUL_SET}-0");
        let step = recovery::next(cluster, &view, &RecoveryOptions::default(), SignedDuration::ZERO);
        (
            matches!(step, RecoveryStep::Restart { member, .. } if member == pod),
            engine::grant::may_recreate(cluster, &pod, &view),
        )
    };
    assert_eq!(next(before, before, true, ""), (true, true), "both joiners started before their donor");
    assert_eq!(next(after, before, true, ""), (false, false), "it started after its donor");
    assert_eq!(
        next(before, after, true, ""),
        (false, false),
        "it may have found the donor through the third member"
    );
    assert_eq!(next(before, before, false, ""), (false, false), "no recovery is under way");
    // Its transfer was interrupted, in any order of the starts.
    let interrupted = ", and nothing comes in; it says: node restart required";
    assert_eq!(next(after, after, true, interrupted), (true, true), "nothing comes in");
    assert_eq!(next(after, after, false, interrupted), (false, false), "without a recovery a person decides");
}

/// It happened on real nodes: two members without a position formed a cluster of their own, and the command waited for them
/// endlessly.
#[test]
fn a_member_in_another_cluster_is_reported_and_not_waited_for() {
    let asked = format!("{STATEFUL_SET}-0 at {ID}:363 until=2026-12-01T10:00:00Z");
    let marks = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    let next = |first: &str, granted: bool| {
        let mut scene = Scene { members: vec![first.to_owned(); 3], ..Scene::default() };
        if granted {
            scene.stateful_set = json!({ "metadata": { "annotations": marks } });
        }
        for ordinal in [1, 2] {
            let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
            pod["status"]["containerStatuses"] = json!([{ "name": "mariadb", "started": true, "state": { "running": { "startedAt": "2026-12-01T09:20:00Z" } } }]);
            scene.also.push(pod);
        }
        let settings = Settings::default();
        let mut facts = scene.facts(&settings);
        for ordinal in [1, 2] {
            let said = format!(
                "Readiness probe failed: the server is SYNCED, in another cluster: {OTHER}, but {ID} is recorded; x"
            );
            let id = Id::new(NAMESPACE, &format!("{STATEFUL_SET}-{ordinal}"));
            facts.add_report(&id, &format!("pod-{ordinal}"), "2026-12-01T09:25:00Z".parse().unwrap(), &said);
        }
        let world = World::build(facts, Freshness::Current);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        recovery::next(cluster, &view, &RecoveryOptions::default(), SignedDuration::ZERO)
    };
    let why = format!(
        "{STATEFUL_SET}-1, {STATEFUL_SET}-2 are Synced in another cluster than the recorded one, and may hold rows that the others lack: \
         gatera explain G04, \"A member in another cluster\", explains how to compare the tables and keep the right one"
    );
    assert_eq!(next(&reported_at(ID, 363), false), RecoveryStep::Cannot(why));
    let without = [1, 2].map(|ordinal| format!("{STATEFUL_SET}-{ordinal}")).to_vec();
    assert_eq!(next("ready", true), RecoveryStep::Finish { without }, "the recorded cluster serves");
}
