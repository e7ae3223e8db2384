//! Incremental plans and audits: in each round the leader examines only what changed, and finds exactly what it would find if it
//! examined everything.

use std::sync::Arc;
use std::time::Duration;

use facts::settings::Settings;
use facts::view::{Facts, Freshness, Id, View, World};
use gatera::rulebook;
use inspect::audit::{self, ClusterReading, IncrementalAudit};
use leader::plan::{self, IncrementalPlanner};
use objects::{Kind, Object};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::scene::{self, Scene};

/// Returns scenes that differ in what the leader has to do or to report.
fn scenes() -> [Scene; 6] {
    let env = json!([{ "name": "MARIADB_ROOT_PASSWORD", "value": "hunter2" }]);
    let containers = json!([{ "name": "mariadb", "image": "mariadb:10.11", "env": env, "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }], "ports": [{ "containerPort": 4567 }] }]);
    let plain_password = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let founding_config = json!({ "data": { "galera.cnf": "[galera]\nwsrep_cluster_address = gcomm://\n" } });
    [
        Scene::default(),
        Scene { bootstrap: "running".into(), data: "none".into(), ..Scene::default() },
        Scene { stateful_set: plain_password, ..Scene::default() },
        Scene {
            config: founding_config,
            members: vec!["ready".into(), "starting".into()],
            ..Scene::default()
        },
        Scene {
            mode: Some("off".into()),
            bootstrap: "running".into(),
            data: "none".into(),
            ..Scene::default()
        },
        Scene { exists: false, ..Scene::default() },
    ]
}

/// The facts of a few clusters, and the world that is built from them.
struct Clusters {
    facts: Facts,
    world: World,
    ids: [Vec<(Kind, Id)>; PLACES.len()],
}

/// The namespace and the instance of each cluster. Two are in one namespace.
const PLACES: [(&str, &str); 4] =
    [("a", "galera-instance"), ("b", "galera-instance"), ("c", "galera-instance"), ("c", "other-instance")];
/// The kind of the objects that change at once; `None` means all kinds.
const KINDS: [Option<Kind>; 8] = [
    None,
    Some(Kind::StatefulSet),
    Some(Kind::Deployment),
    Some(Kind::Pod),
    Some(Kind::Service),
    Some(Kind::ConfigMap),
    Some(Kind::Namespace),
    Some(Kind::Budget),
];

impl Clusters {
    fn new() -> Self {
        let facts = rulebook().facts(&Settings::default().adoption);
        let world = World::empty(&Settings::default().adoption, Freshness::Current);
        Self { facts, world, ids: [const { Vec::new() }; PLACES.len()] }
    }

    /// Replaces the objects of this cluster with those of the scene; `None` removes them.
    fn set(&mut self, place: usize, scene: Option<&Scene>) {
        self.set_some(place, scene, |_| true);
    }

    /// Replaces only the objects of the kinds that `of` accepts.
    fn set_some(&mut self, place: usize, scene: Option<&Scene>, of: impl Fn(Kind) -> bool) {
        for (kind, id) in self.ids[place].extract_if(.., |(kind, _)| of(*kind)) {
            self.facts.remove(kind, &id);
        }
        let objects = scene.map(Scene::objects).unwrap_or_default();
        let (namespace, instance) = PLACES[place];
        for (kind, object) in objects.into_iter().filter(|(kind, _)| of(*kind)) {
            let text = object.to_string().replace("galera-instance", instance);
            let mut object: Value = serde_json::from_str(&text).unwrap();
            match kind {
                Kind::Node => continue,
                Kind::Namespace => object["metadata"]["name"] = json!(namespace),
                _ => object["metadata"]["namespace"] = json!(namespace),
            }
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            self.ids[place].push((kind, Id { namespace: text("namespace"), name: text("name") }));
            self.facts.put(Object::read(kind, &object.to_string()).unwrap());
        }
        self.world = self.world.after(&mut self.facts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_incremental_round_finds_what_a_full_round_finds(
        changes in prop::collection::vec((0..PLACES.len(), prop::option::weighted(0.9, 0..6_usize), select(KINDS.to_vec())), 1..24)
    ) {
        let (settings, scenes) = (Settings::default(), scenes());
        let (mut clusters, mut planner, mut incremental) = (Clusters::new(), IncrementalPlanner::default(), IncrementalAudit::default());
        for (place, scene, some) in changes {
            clusters.set_some(place, scene.map(|it| &scenes[it]), |kind| some.is_none_or(|it| it == kind));
            let view = View::new(&clusters.world, scene::now(), &settings);
            prop_assert_eq!(planner.next(&view, Duration::ZERO), plan::next(&view));
            let round = incremental.next(rulebook(), &view, Duration::ZERO, 100, |_, _| {}, |_| {});
            let all = audit::run(rulebook(), &view);
            let readings: Vec<_> = view.world.clusters().map(|it| Arc::new(ClusterReading::of(it, &view))).collect();
            prop_assert_eq!(&round.clusters, &readings);
            prop_assert_eq!(round.counts, Some(all.counts()));
            prop_assert_eq!(
                (round.judged, round.refused, round.warned),
                (all.judged, all.refused(), all.warned())
            );
        }
    }
}

#[test]
fn a_finding_is_reported_once_even_if_other_objects_change() {
    let (settings, scenes) = (Settings::default(), scenes());
    let (mut clusters, mut incremental) = (Clusters::new(), IncrementalAudit::default());
    let mut next = |clusters: &mut Clusters, later: u64, most: usize| {
        let (view, mut reported) = (View::new(&clusters.world, scene::now(), &settings), Vec::new());
        let now = Duration::from_secs(later);
        let round = incremental.next(
            rulebook(),
            &view,
            now,
            most,
            |_, _| {},
            |news| {
                reported.push(format!("{} {}", news.rule, news.object.id.namespace));
            },
        );
        (reported, round.held_back)
    };
    let nothing: Vec<String> = Vec::new();
    assert_eq!(next(&mut clusters, 0, 9), (nothing.clone(), 0), "there is nothing to report yet");
    clusters.set(0, Some(&scenes[2]));
    clusters.set(1, Some(&scenes[2]));
    assert_eq!(next(&mut clusters, 1, 1), (vec!["G11 a".to_owned()], 1), "only one finding may be reported");
    assert_eq!(next(&mut clusters, 2, 0), (nothing.clone(), 1));
    assert_eq!(
        next(&mut clusters, 3, 9),
        (vec!["G11 b".to_owned()], 0),
        "a finding that was held back is reported, although nothing changed"
    );
    clusters.set(2, Some(&scenes[0]));
    assert_eq!(next(&mut clusters, 4, 9), (nothing.clone(), 0));
    clusters.world.freshness = Freshness::Loading;
    assert_eq!(next(&mut clusters, 5, 9), (nothing.clone(), 0), "an old view reports nothing");
    clusters.world.freshness = Freshness::Current;
    assert_eq!(
        next(&mut clusters, 6, 9),
        (nothing.clone(), 0),
        "a finding that an old view did not show is not new"
    );
    assert_eq!(next(&mut clusters, 600, 9), (nothing.clone(), 0), "a full round reports nothing again");
    clusters.set(0, Some(&scenes[0]));
    assert_eq!(next(&mut clusters, 601, 9), (nothing.clone(), 0));
    clusters.set(0, Some(&scenes[2]));
    assert_eq!(next(&mut clusters, 602, 9), (vec!["G11 a".to_owned()], 0), "the finding is back");
    clusters.set(0, None);
    assert_eq!(next(&mut clusters, 603, 9), (nothing, 0));
    clusters.set(0, Some(&scenes[2]));
    assert_eq!(next(&mut clusters, 604, 9), (vec!["G11 a".to_owned()], 0), "a new cluster of the same name");
}

#[test]
fn nothing_is_planned_from_an_old_view() {
    let (settings, scenes) = (Settings::default(), scenes());
    let (mut clusters, mut planner) = (Clusters::new(), IncrementalPlanner::default());
    clusters.set(0, Some(&scenes[1]));
    let mut next = |world: &World, settings: &Settings, later: u64| {
        planner.next(&View::new(world, scene::now(), settings), Duration::from_secs(later)).len()
    };
    let plan_count = next(&clusters.world, &settings, 0);
    assert!(plan_count > 0, "the scene has no planned step");
    assert_eq!(next(&clusters.world, &settings, 1), plan_count);
    let mut stale = clusters.world.clone();
    stale.freshness = Freshness::Loading;
    assert_eq!(next(&stale, &settings, 2), 0, "something is planned from an old view");
    assert_eq!(next(&clusters.world, &settings, 3), plan_count);
}
