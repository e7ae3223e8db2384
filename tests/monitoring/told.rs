//! What a guard tells: every metric it has, with its labels, as Prometheus would scrape it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use facts::settings::Settings;
use facts::view::{Id, State};
use gatera::act::answer::operations;
use inspect::audit::ClusterReading;
use leader::plan::rollout::Stage;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::router;
use crate::scene::{self, Scene};

use super::promql::{Asked, Matcher, Selector, asked};

/// What Prometheus adds.
const OF_THE_TARGET: [&str; 3] = ["namespace", "job", "pod"];

/// The values of every label of every metric.
pub struct Told(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Told {
    /// Asks a guard to which everything has happened that is counted.
    pub async fn by_a_guard() -> Told {
        let until = scene::now() + jiff::SignedDuration::from_mins(30);
        let mark = json!({ "gatera.dev/override": format!("G01 until={until} reason=moving house") });
        let scene =
            Scene { stateful_set: json!({ "metadata": { "annotations": mark } }), ..Scene::default() };
        let guard = router::guard(scene.world(&Settings::default()));
        let answer = router::ask(&guard, "/validate", &to_nobody()).await;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");

        // What the watches, the port and the leader note.
        let metrics = &guard.metrics;
        metrics.holds(guard.world.load().sizes());
        metrics.opened(true);
        metrics.turn_away("too_many");
        metrics.audited(&[(("G01", "deny"), 1)].into(), &[].into());
        metrics.clusters_are(
            State::ALL.into_iter().zip(Stage::WORDS.into_iter().cycle()).map(reading).collect(),
        );

        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let body = operations(guard).oneshot(request).await.unwrap().into_body();
        let text = to_bytes(body, usize::MAX).await.unwrap();
        Told::read(std::str::from_utf8(&text).unwrap())
    }

    fn read(text: &str) -> Told {
        let mut told: BTreeMap<String, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let values = told.entry(name.to_owned()).or_default();
            for pair in labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
                let (label, value) = pair.split_once('=').unwrap();
                values.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
            }
        }
        Told(told)
    }

    pub fn has(&self, metric: &str) -> bool {
        self.0.contains_key(metric)
    }

    /// Whether every metric, label and value that is `asked` for is told; and if not, what is not.
    pub fn knows(&self, asked: &Asked) -> Result<(), String> {
        let mut labels: BTreeSet<&str> = OF_THE_TARGET.into();
        for Selector { metric, matchers } in &asked.selectors {
            let values = self.0.get(metric).ok_or_else(|| format!("no guard tells {metric}"))?;
            labels.extend(values.keys().map(String::as_str));
            let own = matchers.iter().filter(|it| !OF_THE_TARGET.contains(&&*it.label));
            for Matcher { label, values: wanted } in own {
                let there = values.get(label).ok_or_else(|| format!("{metric} has no {label}"))?;
                if let Some(value) = wanted.iter().find(|value| !there.contains(*value)) {
                    return Err(format!("{metric} is never told with {label}={value}"));
                }
            }
        }
        let unknown = asked.grouped.iter().find(|label| !labels.contains(&***label));
        unknown.map_or(Ok(()), |label| Err(format!("nothing has a label {label}")))
    }
}

/// A cluster in this state, and this far with its configuration.
fn reading((state, rollout): (State, &'static str)) -> Arc<ClusterReading> {
    let id = Id::new("db", state.name());
    Arc::new(ClusterReading { id, state, rollout, members: 3, ready: 2 })
}

/// A cluster is scaled to nobody.
fn to_nobody() -> Value {
    let scale = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "namespace": scene::NAMESPACE, "name": scene::STATEFUL_SET,
        "kind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
        "resource": { "group": "apps", "version": "v1", "resource": "statefulsets" }, "subResource": "scale",
        "oldObject": scale(3), "object": scale(0),
    } })
}

#[tokio::test]
async fn what_is_told_is_known_and_nothing_else() {
    let told = Told::by_a_guard().await;
    for metric in ["gatera_overrides_total", "gatera_decision_seconds_bucket", "gatera_view_current"] {
        assert!(told.has(metric), "{metric}");
    }
    assert_eq!(told.0["gatera_overrides_total"]["rule"], ["G01".to_owned()].into());
    assert_eq!(told.0["gatera_clusters"]["state"].len(), State::ALL.len());
    for (expression, words) in [
        ("gatera_view", "no guard tells gatera_view"),
        (r#"gatera_clusters{stage="DOWN"}"#, "gatera_clusters has no stage"),
        (r#"gatera_clusters{state=~"DOWN|GONE"}"#, "gatera_clusters is never told with state=GONE"),
        ("sum by (rule) (gatera_leader)", "nothing has a label rule"),
    ] {
        assert_eq!(told.knows(&asked(expression)), Err(words.to_owned()));
    }
}
