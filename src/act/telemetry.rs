//! Logs and metrics for operators. The names of metrics are defined only here and in `telemetry/`.
//!
//! Must not know: rules and clusters, except as labels. The metrics of `telemetry/clusters.rs` name clusters: they grow with the
//! number of clusters, on the leader only. All other label values come from small, fixed sets, and no metric grows with the
//! number of other objects.

mod classic;
mod clusters;
mod error_chain;
mod process;
pub mod repeated;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engine::verdict::{Decision, Downgrade, Effect, Verdict};
use facts::view::State;
use inspect::audit::{ClusterReading, Counts};
use leader::plan::rollout::RolloutStage;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use clusters::ClusterGauges;
pub use error_chain::chain;
use process::ProcessMetrics;

/// All metrics of the guard.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The metrics whose names do not begin with `gatera`.
    process: Registry,
    reviews: Family<MetricLabels<2>, Counter>,
    findings: Family<MetricLabels<3>, Counter>,
    overrides: Family<MetricLabels<1>, Counter>,
    decision_seconds: Histogram,
    view: Family<MetricLabels<1>, Gauge>,
    audit: Family<MetricLabels<2>, Gauge>,
    clusters: Family<MetricLabels<1>, Gauge>,
    rollouts: Family<MetricLabels<1>, Gauge>,
    each_cluster: ClusterGauges,
    /// The number of namespaces in which break-glass suspends refusals.
    pub break_glass: Gauge,
    /// 1 while the view is current.
    pub view_current: Gauge,
    /// 1 while the settings in effect are those in the file.
    pub config_current: Gauge,
    /// Watched objects that could not be read.
    pub unreadable: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that the guard ended early, by reason: too many, too slow, or no handshake.
    turned_away: Family<MetricLabels<1>, Counter>,
    /// Connections that finished their handshake.
    pub opened: Counter,
    /// When the serving certificate expires, in seconds since 1970.
    pub certificate_ends: Gauge<f64, AtomicU64>,
    /// 1 on the replica that holds the lease.
    pub leader: Gauge,
    /// The number of times that the entries of a webhook configuration were written.
    pub entries_written: Counter,
    trouble: Family<MetricLabels<1>, Gauge>,
}

/// The names and values of a metric's labels. Values come from small, fixed sets.
type MetricLabels<const N: usize> = [(&'static str, &'static str); N];

/// The commit that this program was built from, or `unknown` if the build was not given it.
pub const COMMIT: &str = match option_env!("GATERA_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// A problem with the registration, by its name in the metric.
#[derive(Clone, Copy, Debug)]
pub struct Trouble(&'static str);

impl Trouble {
    /// Exactly one of the two webhook configurations does not exist.
    pub const CONFIGURATION_DELETED: Self = Self("configuration_deleted");
    /// Neither webhook configuration exists, so nothing is guarded.
    pub const BOTH_CONFIGURATIONS_DELETED: Self = Self("both_configurations_deleted");
    /// Entries are not as the guard wrote them.
    pub const FOREIGN_ENTRIES: Self = Self("foreign_entries");
    /// Another writer keeps changing the guard's entries.
    pub const CONTESTED_ENTRIES: Self = Self("contested_entries");
    /// The certificate that the guard serves is not valid yet.
    pub const LEAF_NOT_YET_VALID: Self = Self("leaf_not_yet_valid");
    /// The Secret with the certificates does not exist, or holds no certificates that can be used.
    pub const SECRET_UNUSABLE: Self = Self("secret_unusable");

    const ALL: [Self; 6] = [
        Self::CONFIGURATION_DELETED,
        Self::BOTH_CONFIGURATIONS_DELETED,
        Self::FOREIGN_ENTRIES,
        Self::CONTESTED_ENTRIES,
        Self::LEAF_NOT_YET_VALID,
        Self::SECRET_UNUSABLE,
    ];
}

/// The buckets for the time of a decision, in seconds. A decision takes microseconds, and the API server's own histogram begins
/// at five milliseconds.
const DECISION_BUCKETS: [f64; 10] = [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 1e-1];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("gatera");
        let r = &mut registry;
        let mut metrics = Self {
            reviews: registered(
                r,
                "reviews",
                "Requests by endpoint and answer, or by the reason why they were not judged",
            ),
            findings: registered(r, "findings", "Findings by rule, verdict and effect"),
            overrides: registered(r, "overrides", "Refusals that an override suspended"),
            decision_seconds: Histogram::new(DECISION_BUCKETS),
            audit: registered(
                r,
                "audit_findings",
                "Existing objects with a finding of a rule, on the leader",
            ),
            clusters: registered(r, "clusters", "Clusters by state, on the leader"),
            rollouts: registered(
                r,
                "rollouts",
                "Clusters by the stage of their configuration rollout, on the leader",
            ),
            each_cluster: ClusterGauges::default(),
            break_glass: registered(
                r,
                "break_glass_open",
                "Namespaces in which break-glass suspends refusals, on the leader",
            ),
            view: registered(r, "view_objects", "Objects in the view"),
            view_current: registered(r, "view_current", "1 while every watch is running"),
            config_current: registered(r, "config_current", "1 while the current settings file is in effect"),
            unreadable: registered(r, "view_unreadable", "Watched objects that could not be read"),
            connections: registered(r, "connections", "Open connections"),
            turned_away: registered(r, "connections_turned_away", "Connections turned away, by reason"),
            opened: registered(r, "connections_opened", "Connections that finished their handshake"),
            certificate_ends: registered(
                r,
                "certificate_ends_seconds",
                "Time at which the serving certificate expires, in seconds since the Unix epoch",
            ),
            leader: registered(r, "leader", "1 on the replica that holds the lease"),
            entries_written: registered(
                r,
                "registration_writes",
                "Times the entries of a webhook configuration were written",
            ),
            trouble: registered(r, "registration_trouble", "1 while registration has this problem"),
            registry: Registry::default(),
            process: Registry::default(),
        };
        r.register("decision_seconds", "Time from request body to answer", metrics.decision_seconds.clone());
        r.register_collector(Box::new(metrics.each_cluster.clone()));
        // `build_info` is a gauge, as in other programs, because the older text format has no info type.
        let build: Family<MetricLabels<2>, Gauge> =
            registered(r, "build_info", "1, with the version and the commit of this program");
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION")), ("commit", COMMIT)]).set(1);
        metrics.process.register_collector(Box::new(ProcessMetrics));
        metrics.config_current.set(1);
        for trouble in Trouble::ALL {
            metrics.set_trouble(trouble, false);
        }
        metrics.registry = registry;
        metrics
    }
}

/// Creates a metric and registers it under this name.
fn registered<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Starts the counters of overrides and refusals of these rules at 0: a counter that first appears as 1 shows no increase for
    /// its first event.
    pub fn start_at_zero(&self, rules: impl Iterator<Item = &'static str>) {
        for rule in rules {
            let _ = self.overrides.get_or_create(&[("rule", rule)]);
            for verdict in [Verdict::Deny, Verdict::Wait, Verdict::Unknown] {
                let (verdict, effect) = (verdict.name(), Effect::Refused.name());
                let _ =
                    self.findings.get_or_create(&[("rule", rule), ("verdict", verdict), ("effect", effect)]);
            }
        }
    }

    /// Counts one answered request. Findings and overrides of a dry run are not counted, because it changes nothing: a pipeline
    /// that only validates, and the self-test of `gatera doctor`, must not look like trouble.
    pub fn count_answered(&self, endpoint: &'static str, decision: &Decision, seconds: f64, dry_run: bool) {
        let outcome = if decision.allowed() { "allowed" } else { "refused" };
        let answer = if dry_run { "dry_run" } else { outcome };
        self.reviews.get_or_create(&[("endpoint", endpoint), ("answer", answer)]).inc();
        self.decision_seconds.observe(seconds);
        if dry_run {
            return;
        }
        for judged in &decision.judged {
            let effect = judged.effect.name();
            let (rule, verdict) = (judged.finding.rule, judged.finding.verdict.name());
            self.findings.get_or_create(&[("rule", rule), ("verdict", verdict), ("effect", effect)]).inc();
            if matches!(judged.softened, Some(Downgrade::ByOverride(_))) {
                self.overrides.get_or_create(&[("rule", rule)]).inc();
            }
        }
    }

    /// Counts a request that was not judged; the label `answer` holds the reason.
    pub fn count_unanswered(&self, endpoint: &'static str, answer: &'static str) {
        self.reviews.get_or_create(&[("endpoint", endpoint), ("answer", answer)]).inc();
    }

    /// Counts a connection that the guard ended early.
    pub fn count_turned_away(&self, reason: &'static str) {
        self.turned_away.get_or_create(&[("reason", reason)]).inc();
    }

    /// Records whether the registration has this problem.
    pub fn set_trouble(&self, trouble: Trouble, present: bool) {
        self.trouble.get_or_create(&[("what", trouble.0)]).set(i64::from(present));
    }

    /// Records the number of objects of each kind in the view.
    pub fn set_view_sizes(&self, sizes: impl IntoIterator<Item = (&'static str, usize)>) {
        for (kind, size) in sizes {
            self.view.get_or_create(&[("kind", kind)]).set(gauge_value(size));
        }
    }

    /// Records the findings of an audit, by rule and verdict. A count that existed `before` and does not exist now becomes 0.
    pub fn set_findings(&self, now: &Counts, before: &Counts) {
        for &(rule, verdict) in before.keys().chain(now.keys()) {
            let count = now.get(&(rule, verdict)).copied().unwrap_or_default();
            self.audit.get_or_create(&[("rule", rule), ("verdict", verdict)]).set(gauge_value(count));
        }
    }

    /// Records the state of every cluster, and the stage of its configuration rollout.
    pub fn set_clusters(&self, clusters: Vec<Arc<ClusterReading>>) {
        for state in State::ALL {
            let count = clusters.iter().filter(|it| it.state == state).count();
            self.clusters.get_or_create(&[("state", state.name())]).set(gauge_value(count));
        }
        for state in RolloutStage::NAMES {
            let count = clusters.iter().filter(|it| it.rollout == state).count();
            self.rollouts.get_or_create(&[("state", state)]).set(gauge_value(count));
        }
        self.each_cluster.set(clusters);
    }

    /// Clears the metrics of the audit, because this replica no longer audits.
    pub fn clear_audit(&self) {
        self.audit.clear();
        self.clusters.clear();
        self.rollouts.clear();
        self.each_cluster.set(Vec::new());
        self.break_glass.set(0);
    }

    /// Returns the text that Prometheus scrapes, in the OpenMetrics format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = encode_registry(&mut text, &self.process);
        let _ = encode_eof(&mut text);
        text
    }

    /// Returns the text that Prometheus scrapes, in the older format.
    pub fn classic_text(&self) -> String {
        classic::classic(&self.text())
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Starts logging to stderr: plain text on a terminal, JSON lines elsewhere. `RUST_LOG` selects what is logged.
pub fn init_logging() {
    use std::io::IsTerminal as _;
    // kube's watcher logs each error in its debug format, at every attempt; the guard logs it as a sentence.
    let default_filter = || "info,kube_runtime=error".into();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| default_filter());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A subscriber that is already set belongs to a test, and stays.
    let _ = if std::io::stderr().is_terminal() {
        builder.try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
}
