//! The metrics of a guard, with their labels, as Prometheus would scrape them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use facts::settings::Settings;
use facts::view::{Id, State};
use gatera::act::answer::operations;
use gatera::act::guard::Guard;
use inspect::audit::ClusterReading;
use leader::plan::rollout::RolloutStage;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::router;
use crate::scene::{self, Scene};

use super::promql::{Asked, Matcher, Selector, asked};

/// The labels that Prometheus adds.
const TARGET_LABELS: [&str; 3] = ["namespace", "job", "pod"];

/// The values of every label of every metric.
pub struct Reported(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Reported {
    /// Scrapes a guard in which every event that is counted has happened.
    pub async fn by_a_guard() -> Reported {
        let until = scene::now() + jiff::SignedDuration::from_mins(30);
        let mark = json!({ "gatera.dev/override": format!("G01 until={until} reason=moving house") });
        let scene =
            Scene { stateful_set: json!({ "metadata": { "annotations": mark } }), ..Scene::default() };
        let guard = router::guard(scene.world(&Settings::default()));
        let answer = router::ask(&guard, "/validate", &scale_to_zero()).await;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");

        // The metrics that the watches, the port and the leader update.
        let metrics = &guard.metrics;
        metrics.set_view_sizes(guard.world.load().sizes());
        metrics.opened.inc();
        metrics.count_turned_away("too_many");
        metrics.set_findings(&[(("G01", "deny"), 1)].into(), &[].into());
        metrics.set_clusters(
            State::ALL.into_iter().zip(RolloutStage::NAMES.into_iter().cycle()).map(reading).collect(),
        );

        Reported::read(&scraped(&guard, "*/*").await.1)
    }

    fn read(text: &str) -> Reported {
        let mut reported: BTreeMap<String, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let values = reported.entry(name.to_owned()).or_default();
            for pair in labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
                let (label, value) = pair.split_once('=').unwrap();
                values.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
            }
        }
        Reported(reported)
    }

    pub fn has(&self, metric: &str) -> bool {
        self.0.contains_key(metric)
    }

    /// Checks that every metric, label and value that is `asked` for exists; the error names one that does not.
    pub fn check(&self, asked: &Asked) -> Result<(), String> {
        let mut labels: BTreeSet<&str> = TARGET_LABELS.into();
        for Selector { metric, matchers } in &asked.selectors {
            let values = self.0.get(metric).ok_or_else(|| format!("no guard has {metric}"))?;
            labels.extend(values.keys().map(String::as_str));
            let own = matchers.iter().filter(|it| !TARGET_LABELS.contains(&&*it.label));
            for Matcher { label, values: wanted } in own {
                let there = values.get(label).ok_or_else(|| format!("{metric} has no {label}"))?;
                if let Some(value) = wanted.iter().find(|value| !there.contains(*value)) {
                    return Err(format!("{metric} is never reported with {label}={value}"));
                }
            }
        }
        let unknown = asked.grouped.iter().find(|label| !labels.contains(&***label));
        unknown.map_or(Ok(()), |label| Err(format!("nothing has a label {label}")))
    }
}

/// Returns the reading of a cluster in this state and at this stage of its rollout.
fn reading((state, rollout): (State, &'static str)) -> Arc<ClusterReading> {
    let id = Id::new("db", state.name());
    Arc::new(ClusterReading { id, state, rollout, members: 3, ready: 2 })
}

/// Returns the content type and the text of the answer to a scraper that accepts this.
async fn scraped(guard: &Arc<Guard>, accept: &str) -> (String, String) {
    let request = Request::get("/metrics").header("accept", accept).body(Body::empty()).unwrap();
    let answer = operations(Arc::clone(guard)).oneshot(request).await.unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (kind, String::from_utf8(text.to_vec()).unwrap())
}

/// Returns the request that scales a cluster to 0.
fn scale_to_zero() -> Value {
    let scale = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "namespace": scene::NAMESPACE, "name": scene::STATEFUL_SET,
        "kind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
        "resource": { "group": "apps", "version": "v1", "resource": "statefulsets" }, "subResource": "scale",
        "oldObject": scale(3), "object": scale(0),
    } })
}

#[tokio::test]
async fn only_reported_metrics_labels_and_values_pass_the_check() {
    let reported = Reported::by_a_guard().await;
    for metric in ["gatera_overrides_total", "gatera_decision_seconds_bucket", "gatera_view_current"] {
        assert!(reported.has(metric), "{metric} is missing");
    }
    for metric in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"] {
        assert!(reported.has(&format!("process_{metric}")), "process_{metric} is missing");
    }
    assert_eq!(reported.0["gatera_build_info"]["version"], [env!("CARGO_PKG_VERSION").to_owned()].into());
    assert_eq!(reported.0["gatera_overrides_total"]["rule"].len(), gatera::rulebook().rules().len());
    assert_eq!(reported.0["gatera_clusters"]["state"].len(), State::ALL.len());
    for (expression, words) in [
        ("gatera_view", "no guard has gatera_view"),
        (r#"gatera_clusters{stage="DOWN"}"#, "gatera_clusters has no stage"),
        (r#"gatera_clusters{state=~"DOWN|GONE"}"#, "gatera_clusters is never reported with state=GONE"),
        ("sum by (rule) (gatera_leader)", "nothing has a label rule"),
    ] {
        assert_eq!(reported.check(&asked(expression)), Err(words.to_owned()));
    }
}

/// Scrapers get OpenMetrics by default, and the older text format with `scrape_protocols: [PrometheusText0.0.4]` or `text/plain`.
#[tokio::test]
async fn openmetrics_is_the_default_and_the_older_text_format_is_available() {
    let guard = router::guard(Scene::default().world(&Settings::default()));
    router::ask(&guard, "/validate", &scale_to_zero()).await;
    let both = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
    for accept in [both, "*/*", ""] {
        let (kind, text) = scraped(&guard, accept).await;
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{accept}: {kind}");
        assert!(text.contains("# TYPE gatera_reviews counter\n") && text.ends_with("# EOF\n"), "{text}");
    }
    for accept in ["text/plain", "text/plain;version=0.0.4;q=1.0,*/*;q=0.1"] {
        let (kind, text) = scraped(&guard, accept).await;
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8", "{accept}");
        assert!(text.contains("# TYPE gatera_reviews_total counter\n"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains(" info\n"), "{text}");
    }
}

#[tokio::test]
async fn a_dry_run_is_not_counted_as_a_refusal() {
    let guard = router::guard(Scene::default().world(&Settings::default()));
    let mut request = scale_to_zero();
    request["request"]["dryRun"] = json!(true);
    let answer = router::ask(&guard, "/validate", &request).await;
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
    let (_, text) = scraped(&guard, "*/*").await;
    assert!(text.contains(r#"gatera_reviews_total{endpoint="/validate",answer="dry_run"} 1"#), "{text}");
    let mut findings = text.lines().filter(|line| line.starts_with("gatera_findings_total"));
    assert!(!text.contains(r#"answer="refused""#) && findings.all(|line| line.ends_with(" 0")), "{text}");
}
