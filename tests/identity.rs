//! The identity of a cluster: the annotation of a new pod, when the reports of members are read, what follows from them, and
//! which pods are annotated with the result.

use engine::inject;
use facts::galera::identity::{Identity, IdentityReport};
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use gatera::rulebook;
use leader::plan::identity::{Conclusion, PodReports, conclusion};
use leader::plan::{self, LeaderStep, PlannedStep};
use objects::{Kind, Object};
use serde_json::{Value, json};

use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

const THIS: &str = scene::ID;
const OTHER: &str = "7a2c1d10-e610-11f1-91b9-7e68ccac15f1";
const OVERRIDE: &str = "G04 until=2026-12-01T10:00:00Z reason=a drill";

/// Returns a healthy cluster of three, with the identity in each pod's annotation and the one that is recorded.
fn world(annotated: [&str; 3], recorded: &str, change: impl Fn(&mut Value)) -> World {
    let mut scene = Scene::default();
    if !recorded.is_empty() {
        scene.stateful_set = json!({ "metadata": { "annotations": { "gatera.dev/identity": recorded } } });
    }
    let mut facts = rulebook().facts(&Settings::default().adoption);
    for (kind, mut object) in scene.objects() {
        let ordinal =
            object["metadata"]["uid"].as_str().and_then(|uid| uid.strip_prefix("pod-")?.parse().ok());
        if let Some(word) = ordinal.map(|ordinal: usize| annotated[ordinal]).filter(|word| !word.is_empty()) {
            object["metadata"]["annotations"]["gatera.dev/identity"] = json!(word);
            object["spec"]["containers"][0]["command"] =
                json!(["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"]);
            object["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] =
                json!("2026-12-01T09:00:00Z");
        }
        change(&mut object);
        facts.put(Object::read(kind, &object.to_string()).unwrap());
    }
    World::build(facts, Freshness::Current)
}

fn reported(ids: &[(&str, &str)]) -> PodReports {
    reported_at("2026-12-01T09:00:00Z", ids)
}

fn reported_at(at: &str, ids: &[(&str, &str)]) -> PodReports {
    let is = |id: &str| Identity::read(id).map_or(IdentityReport::HasNone, IdentityReport::Is);
    let reported = |(uid, id): &(&str, &str)| ((*uid).to_owned(), (at.parse().unwrap(), is(id)));
    ids.iter().map(reported).collect()
}

#[test]
fn the_identity_is_concluded_from_reports() {
    const UNKNOWN: [&str; 3] = ["unknown"; 3];
    let all = |id| [("pod-0", id), ("pod-1", id), ("pod-2", id)];
    let same = |_: &mut Value| {};
    let unready = |object: &mut Value| {
        if object["metadata"]["uid"] != "pod-0" && object["kind"] == "Pod" {
            object["status"]["conditions"] = json!([]);
        }
    };
    let unproven = |object: &mut Value| {
        if object["kind"] == "Pod" {
            object["metadata"]["annotations"]["gatera.dev/injected"] = json!("0.1.0 readiness unproven");
        }
    };
    // Checks the concluded identity, whether it is new, and the pods that receive it.
    let check = |what: &str, world: &World, ids: &[(&str, &str)], expected: Option<(&str, bool, &[u8])>| {
        let cluster = world.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let settings = Settings::default();
        let found = conclusion(cluster, &View::new(world, scene::now(), &settings), &reported(ids));
        let events = found.as_ref().map(|it| it.events.clone()).unwrap_or_default();
        let expected = expected.map(|(id, is_new, pods)| Conclusion {
            events,
            identity: Identity::read(id),
            is_new,
            unannotated: pods
                .iter()
                .map(|it| (format!("{STATEFUL_SET}-{it}"), format!("pod-{it}")))
                .collect(),
        });
        assert_eq!(found, expected, "{what}");
    };
    let first = world(UNKNOWN, "", same);
    check("all reported the same", &first, &all(THIS), Some((THIS, true, &[0, 1, 2])));
    check("most reported the same", &first, &all(THIS)[..2], Some((THIS, true, &[0, 1])));
    check("one is not enough", &first, &all(THIS)[..1], None);
    check("no member reported anything", &first, &[], None);
    check("all reported that it has none", &first, &all("none"), Some(("none", true, &[0, 1, 2])));
    check("a single member reports that it has none", &first, &all("none")[..1], None);
    check(
        "one reports an id, the others none",
        &first,
        &[("pod-0", THIS), ("pod-1", "none"), ("pod-2", "none")],
        None,
    );
    let without = world(["none", "unknown", "none"], "none", same);
    check("the cluster is recorded to have none", &without, &all("none")[1..2], Some(("none", false, &[1])));
    check(
        "the cluster is founded again, in the same pods",
        &without,
        &all(THIS),
        Some((THIS, true, &[0, 1, 2])),
    );
    check("members are in two clusters", &first, &[("pod-0", THIS), ("pod-1", THIS), ("pod-2", OTHER)], None);
    check("only pods that are gone reported", &first, &[("gone", THIS), ("old", THIS)], None);
    check("most pods are not Ready", &world(UNKNOWN, "", unready), &all(THIS), None);
    check("Ready does not prove Synced", &world(UNKNOWN, "", unproven), &all(THIS), None);
    check("the pods are annotated already", &world([THIS; 3], "", same), &[], Some((THIS, true, &[])));
    let one_knows = world(["unknown", THIS, "unknown"], THIS, same);
    let lost = world(UNKNOWN, THIS, same);
    check("the cluster lost its identity", &lost, &all("none"), Some(("none", true, &[0, 1, 2])));
    check("a single member cannot prove that loss", &lost, &all("none")[..1], None);
    check("another member still has it", &one_knows, &all("none")[..1], Some((THIS, false, &[])));
    check("one pod is not annotated yet", &one_knows, &all(THIS)[..1], Some((THIS, false, &[0])));
    check("one is in another cluster", &one_knows, &all(OTHER)[..1], Some((THIS, false, &[])));
    let beside = world(["founds", THIS, THIS], THIS, same);
    check(
        "one founded a cluster beside members that serve",
        &beside,
        &all(OTHER)[..1],
        Some((THIS, false, &[])),
    );
    let cluster = beside.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let events = conclusion(
        cluster,
        &View::new(&beside, scene::now(), &Settings::default()),
        &reported(&all(OTHER)[..1]),
    )
    .unwrap()
    .events;
    let notes: Vec<_> = events.iter().map(|it| (it.reason, &*it.note)).collect();
    let note = format!(
        "pod {STATEFUL_SET}-0 serves cluster {OTHER}, but {THIS} is recorded: what is written to one never reaches the other; decide \
         which one is right, and compare their tables before you remove a member (gatera explain G04)"
    );
    assert_eq!(notes, [("AnotherCluster", &*note)]);
    let founded = world(["founds", THIS, THIS], THIS, unready);
    check("founded again, and no other member serves", &founded, &all(OTHER)[..1], Some((OTHER, true, &[0])));
    check("founded with the old data", &founded, &all(THIS)[..1], Some((THIS, false, &[0])));
    check("a pod may found a cluster and has not reported", &founded, &[], None);
    let earlier_reports = reported_at("2026-12-01T08:59:59Z", &all(THIS));
    let settings = Settings::default();
    let cluster = first.cluster(NAMESPACE, STATEFUL_SET).unwrap();
    let found = conclusion(cluster, &View::new(&first, scene::now(), &settings), &earlier_reports);
    assert_eq!(found, None, "what servers reported in an earlier run may be outdated");
}

/// Lists the planned steps that concern the identity, as text.
fn steps(world: &World, settings: &Settings) -> Vec<String> {
    let words = |planned: PlannedStep| match planned.step {
        LeaderStep::RecordIdentity => Some(format!("record {}", planned.id.name)),
        LeaderStep::AnnotateIdentity { pod, value, .. } => Some(format!("{} is {value}", pod.name)),
        _ => None,
    };
    plan::next(&View::new(world, scene::now(), settings)).into_iter().filter_map(words).collect()
}

#[test]
fn reports_are_read_until_the_identity_is_recorded_and_then_pods_are_annotated() {
    let settings = Settings::default();
    let record = [format!("record {STATEFUL_SET}")];
    let same = |_: &mut Value| {};
    let planned = |annotated, recorded| steps(&world(annotated, recorded, same), &settings);
    assert_eq!(planned(["unknown"; 3], ""), record);
    assert_eq!(planned([""; 3], ""), [""; 0], "pods of an earlier guard report nothing");
    assert_eq!(planned([THIS; 3], THIS), [""; 0]);
    let reported = |ordinal| format!("{STATEFUL_SET}-{ordinal} is {THIS}");
    assert_eq!(planned(["founds", THIS, ""], THIS), record, "the founded cluster is recorded first");
    assert_eq!(planned(["unknown", THIS, OTHER], THIS), [reported(2), record[0].clone()]);
    assert_eq!(planned([THIS; 3], ""), record, "the record was lost");
    assert_eq!(planned(["free", THIS, THIS], THIS), [format!("{STATEFUL_SET}-0 is unknown")]);

    let warns = |object: &mut Value| {
        if object["kind"] == "Namespace" {
            object["metadata"]["labels"]["gatera.dev/mode"] = json!("warn");
        }
    };
    let single = |object: &mut Value| {
        if object["kind"] == "StatefulSet" {
            object["spec"]["replicas"] = json!(1);
        }
    };
    let alone = world(["founds", "", ""], "", single);
    assert_eq!(
        steps(&alone, &settings),
        record,
        "a single member is recorded, too, because the cluster may grow"
    );
    assert_eq!(steps(&world(["free", "", ""], THIS, single), &settings), [""; 0]);
    assert_eq!(steps(&world([THIS, "", ""], THIS, single), &settings), [format!("{STATEFUL_SET}-0 is free")]);
    let without_reports = |object: &mut Value| {
        if object["kind"] == "Pod" {
            object["spec"]["containers"][0]["command"] = json!(["/opt/bitnami/scripts/run.sh"]);
        }
    };
    assert_eq!(
        steps(&world(["free"; 3], "", without_reports), &settings),
        [""; 0],
        "reports of members that cannot report are not read"
    );
    let without_step_script = |object: &mut Value| {
        if object["kind"] == "Pod" {
            let server = &mut object["spec"]["containers"][0];
            server["command"] = json!(["docker-entrypoint.sh", "mariadbd"]);
            server["readinessProbe"] =
                json!({ "exec": { "command": ["/etc/gatera/wait-for-sync.sh", "ready"] } });
            object["status"]["containerStatuses"][0]["lastState"]["terminated"] = json!({ "exitCode": 137 });
        }
    };
    assert_eq!(
        steps(&world([THIS; 3], THIS, without_step_script), &settings),
        record,
        "the cluster may have lost its identity"
    );
    assert_eq!(
        steps(&world(["none"; 3], "none", without_step_script), &settings),
        record,
        "the cluster may have an identity again"
    );
    let long_ago = |object: &mut Value| {
        without_step_script(object);
        if object["kind"] == "Pod" {
            object["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] =
                json!("2026-12-01T08:30:00Z");
        }
    };
    for id in [THIS, "none"] {
        assert_eq!(steps(&world([id; 3], id, long_ago), &settings), [""; 0], "Events expire after an hour");
    }
    let freed = [0, 1, 2].map(|it| format!("{STATEFUL_SET}-{it} is free"));
    assert_eq!(
        steps(&world(["unknown", THIS, "founds"], THIS, warns), &settings),
        freed,
        "nothing is refused in mode warn"
    );
    assert_eq!(steps(&world(["free"; 3], THIS, warns), &settings), [""; 0]);
}

#[test]
fn a_new_pod_is_annotated_with_the_identity_of_its_cluster() {
    let recorded = |change: Value| {
        let mut set = json!({ "metadata": { "annotations": { "gatera.dev/identity": THIS } } });
        json_patch::merge(&mut set, &change);
        set
    };
    let overrides = json!({ "metadata": { "annotations": { "gatera.dev/override": OVERRIDE } } });
    let expired = OVERRIDE.replace("T10", "T09");
    let down = || Scene { members: vec!["absent".into(); 3], ..Scene::default() };
    let (_, mut annotated) = Scene::default().object(&format!("Pod/{STATEFUL_SET}-1"));
    annotated["metadata"]["annotations"]["gatera.dev/identity"] = json!(THIS);
    let serves = Scene { also: vec![annotated], ..Scene::default() };
    for (what, stateful_set, pod, scene, expected) in [
        ("others serve, and one is known to be in the cluster", recorded(json!({})), json!({}), serves, THIS),
        ("a first install", json!({}), json!({}), Scene::default(), "unknown"),
        ("a member of a cluster that is down", recorded(json!({})), json!({}), down(), THIS),
        (
            "others serve, and none is known to be in the cluster",
            recorded(json!({})),
            json!({}),
            Scene::default(),
            "unknown",
        ),
        ("a forged identity", recorded(json!({})), json!({ "gatera.dev/identity": OTHER }), down(), THIS),
        ("an override on the cluster", recorded(overrides.clone()), json!({}), Scene::default(), "founds"),
        (
            "an override on a member's pod",
            recorded(json!({})),
            json!({ "gatera.dev/override": OVERRIDE }),
            down(),
            THIS,
        ),
        ("an expired override", recorded(json!({})), json!({ "gatera.dev/override": expired }), down(), THIS),
        (
            "an override of another rule",
            recorded(json!({})),
            json!({ "gatera.dev/override": OVERRIDE.replace("G04", "G07") }),
            down(),
            THIS,
        ),
        (
            "garbage is recorded",
            json!({ "metadata": { "annotations": { "gatera.dev/identity": "x" } } }),
            json!({}),
            Scene::default(),
            "unknown",
        ),
        (
            "a single member founds at every start",
            recorded(json!({})),
            json!({}),
            Scene { members: vec!["ready".into()], ..Scene::default() },
            "founds",
        ),
        (
            "the first of three that were stopped",
            recorded(json!({})),
            json!({}),
            Scene { members: vec!["absent".into()], ended: vec![363, 360, 351], ..Scene::default() },
            THIS,
        ),
        (
            "without a step script the probes report",
            recorded(json!({})),
            json!({ "gatera.dev/start": "keep" }),
            Scene::default(),
            "unknown",
        ),
        (
            "with probes of its own and without a step script nothing reports",
            recorded(json!({})),
            json!({ "gatera.dev/start": "keep", "gatera.dev/profile": "unknown" }),
            Scene::default(),
            "free",
        ),
        (
            "the cluster is recorded to have no identity",
            json!({ "metadata": { "annotations": { "gatera.dev/identity": "none" } } }),
            json!({}),
            Scene::default(),
            "none",
        ),
        (
            "a namespace in which nothing is refused",
            recorded(json!({})),
            json!({}),
            Scene { mode: Some("warn".into()), ..Scene::default() },
            "free",
        ),
    ] {
        let scene = Scene { stateful_set, ..scene };
        let (_, mut object) = Scene::default().object(&format!("Pod/{STATEFUL_SET}-0"));
        object["metadata"]["annotations"] = pod;
        // As in its template, the container has no injected command.
        object["spec"]["containers"][0].as_object_mut().unwrap().remove("command");
        let settings = Settings::default();
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &object.to_string()) else { panic!("{what}") };
        inject::into_pod(&mut object, &read, NAMESPACE, &view);
        assert_eq!(object["metadata"]["annotations"]["gatera.dev/identity"], expected, "{what}");
    }
}
