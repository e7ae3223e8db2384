//! What a request costs the API server: the GETs of ConfigMaps that the view does not hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use axum::http::Request;
use facts::settings::Settings;
use facts::view::{Freshness, Id, World};
use gatera::act::config_maps::ConfigMaps;
use gatera::act::guard::Guard;
use jiff::SignedDuration;
use objects::{Kind, Unreadable};
use serde_json::{Value, json};

use super::ask;
use crate::scene::{self, Scene};

/// A ConfigMap that does not exist, or does not fit into memory, costs no GET while the template that reads it stays unchanged.
/// The API server is asked where nothing in the view reads the ConfigMap yet, or where it may have been created together with the
/// template.
#[tokio::test]
async fn a_missing_config_map_is_not_requested_for_every_review() {
    let (_, mut set) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "dump", "configMap": { "name": "dump" } }));
    volumes.push(json!({ "name": "gone", "configMap": { "name": "gone", "optional": true } }));
    let mut facts = Scene {
        stateful_set: json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }),
        ..Scene::default()
    }
    .facts(&Settings::default());
    let large = Unreadable::NotExamined("it is larger than 512 KiB");
    facts.cannot_read(Kind::ConfigMap, Id::new(scene::NAMESPACE, "dump"), large);
    let world = Arc::new(ArcSwap::from_pointee(World::build(facts, Freshness::Current)));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let nothing = tower::service_fn(move |_: Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
        let answer = axum::http::Response::builder()
            .status(404)
            .body(kube::client::Body::from(status.to_string().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(answer.unwrap()))
    });
    let maps = ConfigMaps::new(kube::Client::new(nothing, "default"));
    let mut guard = Guard::new(world, Settings::default(), scene::now);
    guard.config_maps = maps;
    let guard = Arc::new(guard);
    let changed = async |old: Value, new: Value| {
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "StatefulSet" },
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "userInfo": { "username": "editor" },
            "namespace": scene::NAMESPACE, "name": new["metadata"]["name"], "object": new, "oldObject": old,
        } });
        ask(&guard, "/validate", &body).await["response"].clone()
    };
    for seconds in 1..4 {
        let mut new = set.clone();
        new["spec"]["minReadySeconds"] = json!(seconds);
        let answer = changed(set.clone(), new).await;
        let says = "ConfigMap dump is not examined: it is larger than 512 KiB";
        assert!(answer["warnings"].to_string().contains(says), "{answer}");
    }
    assert_eq!(
        asked.load(Ordering::Relaxed),
        0,
        "neither dump nor gone is requested while the template is unchanged"
    );
    let mut other = set.clone();
    other["metadata"]["name"] = json!("other");
    other["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!("unheard-of");
    changed(Value::Null, other).await;
    assert_eq!(
        asked.swap(0, Ordering::Relaxed),
        3,
        "a new StatefulSet reads unheard-of, dump and gone, which may have been created with it"
    );
    let mut new = set.clone();
    new["spec"]["template"]["metadata"]["annotations"]["restarted"] = json!("now");
    changed(set.clone(), new).await;
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1, "gone may have been created with the changed template");
    guard.replace_world(World::build(
        guard.world.load().facts().clone(),
        Freshness::Stale(SignedDuration::from_mins(1)),
    ));
    changed(set.clone(), set.clone()).await;
    assert_eq!(asked.swap(0, Ordering::Relaxed), 0, "an update without a change needs no ConfigMap");
    let mut more = set.clone();
    more["spec"]["replicas"] = json!(5);
    changed(set.clone(), more).await;
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1, "a stale view may lack a ConfigMap");
}
