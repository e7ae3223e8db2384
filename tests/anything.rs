//! Arbitrary JSON, and bodies that are almost `AdmissionReviews`: none of them may ever cause a panic.
//!
//! There are some 2,500 cases, and 100,000 with `make sim`. The slow cases consist of five reviews each, and every review is
//! judged at both webhooks.

use gatera::rulebook;
use std::sync::LazyLock;
use std::time::Duration;

use engine::amend::amend;
use facts::review::{self, Origin, Review};
use facts::settings::Settings;
use facts::view::{View, World};
use objects::{Kind, Object};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cpu_time;
use crate::scene::{self, Scene};

/// Generates any JSON value. Keys and words are often those that the guard looks at, so that many values reach its rules.
pub fn json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "template",
            "containers",
            "name",
            "labels",
            "annotations",
            "env",
            "value",
            "command",
            "args",
            "replicas",
            "volumes",
            "volumeMounts",
            "mountPath",
            "app",
            "galera",
            "instance",
            "data",
            "gatera.dev/override",
            "gatera.dev/cluster",
            "galera.cnf",
            "wsrep_cluster_address=gcomm://",
            "[galera]\nwsrep_sst_auth=a:b",
            "[galera]\nwsrep_provider_options = 'pc.weight=0; x'\nwsrep_provider_options=\nskip-wsrep-on\n[innodb]\ninnodb_x",
            "[mysqld]\nwsrep_cluster_address = gcomm://0.0.0.0,[::1,a-0.b,a-99999999999999999999.b,,.\n!include x\n[",
            "--wsrep-cluster-address",
            "serviceName",
            "mysql -px",
            "/var/lib/mysql",
            "G01 until=2026-12-01T10:00:00Z reason=x",
            "image",
            "mariadb",
            "ports",
            "containerPort",
            "ordinals",
            "start",
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Generates a valid object with an arbitrary value in an arbitrary place.
fn with_one_odd_value(base: Value) -> impl Strategy<Value = Value> {
    let mut places = Vec::new();
    collect_places(&base, String::new(), &mut places);
    (prop::sample::select(places), json()).prop_map(move |(place, value)| {
        let mut object = base.clone();
        if let Some(target) = object.pointer_mut(&place) {
            *target = value;
        }
        object
    })
}

fn collect_places(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            collect_places(value, format!("{place}/{}", key.replace('/', "~1")), places);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| collect_places(value, format!("{place}/{index}"), places)),
        _ => {}
    }
    places.push(place);
}

/// Returns a configuration with this number of cases, multiplied by `GATERA_ANYTHING` if that is set.
pub fn cases(usually: u32) -> ProptestConfig {
    let times =
        std::env::var("GATERA_ANYTHING").map_or(1, |text| text.parse().expect("GATERA_ANYTHING is a number"));
    ProptestConfig::with_cases(usually * times)
}

/// Takes a request through its whole path at both webhooks, without HTTP, and returns the last answer.
fn answer(body: &[u8]) -> Option<Value> {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);
    static WORLD: LazyLock<World> = LazyLock::new(|| Scene::default().world(&SETTINGS));
    let view = View::new(&WORLD, scene::now(), &SETTINGS);
    let mut last = None;
    for origin in [Origin::Mutating, Origin::Validating] {
        last = match review::read(body, origin, rulebook().kinds()) {
            Ok(incoming) => {
                let decision = rulebook().evaluate(&incoming.review, &view);
                let patch =
                    incoming.object.and_then(|object| amend(&incoming.review, &object, &decision, &view));
                let answer = report::admission(
                    &incoming.uid,
                    &incoming.review,
                    &decision,
                    "seen now",
                    patch.as_ref(),
                    &SETTINGS.pages,
                );
                serde_json::to_value(answer).ok()
            }
            Err(_) => None,
        };
    }
    last
}

fn request(
    group: &str,
    kind: &str,
    resource: &str,
    subresource: &str,
    object: &Value,
    old: &Value,
) -> Vec<u8> {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "kind": { "group": group, "version": "v1", "kind": kind },
            "resource": { "group": group, "version": "v1", "resource": resource },
            "subResource": subresource,
            "namespace": scene::NAMESPACE,
            "name": scene::STATEFUL_SET,
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
            "object": object,
            "oldObject": old,
        },
    })
    .to_string()
    .into_bytes()
}

proptest! {
    #![proptest_config(cases(375))]

    #[test]
    fn any_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        answer(&bytes);
    }

    #[test]
    fn any_json_causes_no_panic(body in json()) {
        answer(body.to_string().as_bytes());
    }
}

proptest! {
    #![proptest_config(cases(1_250))]

    #[test]
    fn any_object_of_a_known_kind_is_answered_with_its_uid(
        (group, kind, resource, subresource) in prop::sample::select(vec![
            ("apps", "StatefulSet", "statefulsets", ""),
            ("apps", "Deployment", "deployments", ""),
            ("", "Pod", "pods", ""),
            ("", "ConfigMap", "configmaps", ""),
            ("", "Service", "services", ""),
            ("policy", "PodDisruptionBudget", "poddisruptionbudgets", ""),
            ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", ""),
            ("autoscaling", "Scale", "statefulsets", "scale"),
            ("policy", "Eviction", "pods", "eviction"),
        ]),
        object in json(),
        old in json(),
    ) {
        let answer = answer(&request(group, kind, resource, subresource, &object, &old)).expect("an answer with the uid");
        prop_assert_eq!(&answer["response"]["uid"], "u1");
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn an_object_with_one_odd_value_is_answered(
        sts in with_one_odd_value(Scene::default().stateful_set()),
        old in with_one_odd_value(Scene::default().stateful_set()),
        deployment in with_one_odd_value(scene::bootstrap_deployment(1)),
        pod in with_one_odd_value(scene::bootstrap_pod("x")),
        config in with_one_odd_value(Scene::default().config_map()),
    ) {
        for body in [
            request("apps", "StatefulSet", "statefulsets", "", &sts, &old),
            request("apps", "StatefulSet", "statefulsets", "", &sts, &Value::Null),
            request("apps", "Deployment", "deployments", "", &deployment, &Value::Null),
            request("", "Pod", "pods", "", &pod, &Value::Null),
            request("", "ConfigMap", "configmaps", "", &config, &config),
        ] {
            let answer = answer(&body).expect("an answer with the uid");
            prop_assert_eq!(&answer["response"]["uid"], "u1");
        }
    }
}

/// Each file may belong to one member, so each is judged by itself; the work must not grow with the square of their number.
#[test]
fn thousands_of_files_for_one_member_each_are_judged_in_time() {
    let files = (0..8_000).map(|member| (format!("a-{member}.cnf"), json!("[galera]\nwsrep_on=OFF\n")));
    let map = json!({ "metadata": { "name": "many", "labels": { "app": "galera", "instance": "x" } }, "data": files.collect::<serde_json::Map<_, _>>() });
    let object = Object::read(Kind::ConfigMap, &map.to_string());
    let review = Review::as_created(Origin::Validating, Kind::ConfigMap, scene::NAMESPACE, "many", object);
    let settings = Settings::default();
    let world = Scene::default().world(&settings);
    let took = cpu_time::of(|| {
        let decision = rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings));
        assert!(!decision.allowed());
    });
    assert!(took < Duration::from_secs(10), "judging 8,000 files took {took:?} of CPU time");
}
