//! The metrics that name clusters. Only the leader has these series; the other replicas have none.
//!
//! Must not know: what a state means. A scrape reads the result of the audit's last round, so a cluster that is gone has no
//! series, and no scrape shows a cluster in two states.
//!
//! `gatera_cluster_state` has one series for each cluster: its present state, with the value 1. Eight series for each, seven of
//! them 0, would be 80,000 series for 10,000 clusters. Most queries work without the zeros:
//! `gatera_cluster_state{state="DOWN"} == 1` lists the clusters that are down, a state timeline of Grafana gives each state a
//! number (`… * 1 or … * 2`), and Prometheus ends the series of the previous state at the next scrape. The drawback:
//! `last_over_time` still finds the previous state, so alerts look back over `gatera_clusters`, which has the zeros.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use inspect::audit::ClusterReading;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

/// The clusters of the audit's last round, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterGauges(Arc<ArcSwap<Vec<Arc<ClusterReading>>>>);

impl ClusterGauges {
    pub(super) fn set(&self, clusters: Vec<Arc<ClusterReading>>) {
        self.0.store(Arc::new(clusters));
    }
}

/// Returns the value of a gauge for one cluster, and the value of its label `state` if the gauge has that label.
type ClusterSample = fn(&ClusterReading) -> (Option<&'static str>, i64);

/// The gauges: the name of each, its help text and its value.
const GAUGES: [(&str, &str, ClusterSample); 4] = [
    ("cluster_state", "1 for the present state of a cluster, on the leader.", |it| {
        (Some(it.state.name()), 1)
    }),
    ("cluster_rollout", "1 for the stage of a cluster's configuration rollout, on the leader.", |it| {
        (Some(it.rollout), 1)
    }),
    ("cluster_members", "Members a cluster should have, on the leader.", |it| (None, it.members)),
    ("cluster_members_ready", "Members of a cluster that are Ready, on the leader.", |it| {
        (None, super::gauge_value(it.ready))
    }),
];

impl Collector for ClusterGauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let clusters = self.0.load();
        // Without clusters no metric is declared, so the output of a replica that does not lead does not even name them.
        for (name, help, sample) in GAUGES.iter().filter(|_| !clusters.is_empty()) {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for cluster in clusters.iter() {
                let id = [("namespace", &*cluster.id.namespace), ("cluster", &*cluster.id.name)];
                match sample(cluster) {
                    (Some(state), value) => {
                        metric.encode_family(&[id[0], id[1], ("state", state)])?.encode_gauge(&value)?;
                    }
                    (None, value) => metric.encode_family(&id)?.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use facts::view::{Id, State};

    use super::*;
    use crate::act::telemetry::Metrics;

    fn lines(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text();
        text.lines().filter_map(|it| it.strip_prefix("gatera_cluster_")).map(str::to_owned).collect()
    }

    #[test]
    fn a_cluster_has_one_state_and_disappears_with_the_lease() {
        let reading = |name: &str, state, ready| {
            let id = Id::new("db", name);
            Arc::new(ClusterReading { id, state, rollout: "settled", members: 3, ready })
        };
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("gatera_cluster_"));
        metrics.set_clusters(vec![reading("a", State::Degraded, 2), reading("b", State::Healthy, 3)]);
        assert_eq!(lines(&metrics).len(), 8);
        metrics.set_clusters(vec![reading("a", State::Healthy, 3)]);
        let only = [
            r#"state{namespace="db",cluster="a",state="HEALTHY"} 1"#,
            r#"rollout{namespace="db",cluster="a",state="settled"} 1"#,
            r#"members{namespace="db",cluster="a"} 3"#,
            r#"members_ready{namespace="db",cluster="a"} 3"#,
        ];
        assert_eq!(lines(&metrics), only);
        metrics.clear_audit();
        assert!(!metrics.text().contains("gatera_cluster_"));
    }
}
