//! The leader's audit: judges the objects that changed, and publishes the findings as gauges and Events.
//!
//! Must not know: how findings are made, or which namespaces to judge again (`inspect::audit` does). It reads nothing from the
//! API server, publishes only new findings, and passes its findings to `policy_reports.rs` if Reports can be written.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use facts::marks::overrides::Override;
use facts::view::View;
use inspect::audit::{Audit, Counts, IncrementalAudit, Round};
use kube::Client;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::policy_reports::{FindingsByNamespace, PolicyReports};
use crate::act::events::{self, Notice};
use crate::act::guard::Guard;
use crate::act::lease::Leading;

/// The shortest pause after a round, for a storm of watch events.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a round, as a multiple of the time that the round took: rounds take at most a tenth of the time.
const PAUSE_FACTOR: u32 = 9;
/// The longest wait for a change before the next round: overrides expire without a watch event.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of Events about findings in each [`EVENT_PERIOD`]; the others follow later. After an upgrade with new
/// rules, a large cluster may have many new findings at once.
const MAX_EVENTS: usize = 50;
/// The period in which Events about findings are counted.
const EVENT_PERIOD: Duration = Duration::from_secs(60);

/// Audits while this replica leads: after the world has `changed`, and about once a minute without a change.
pub async fn run(client: Client, guard: Arc<Guard>, mut leading: Leading, mut changed: watch::Receiver<u64>) {
    while leading.until_leading().await {
        tokio::select! {
            () = run_rounds(client.clone(), &guard, &mut changed) => return,
            () = leading.until_not_leading() => {}
        }
        guard.metrics.clear_audit();
    }
}

/// Runs one round after the other, until `changed` is closed. The findings of a round are reported after it, so that a replica
/// that no longer leads reports nothing.
async fn run_rounds(client: Client, guard: &Arc<Guard>, changed: &mut watch::Receiver<u64>) {
    let began = Instant::now();
    let rounds = Arc::new(Mutex::new(IncrementalAudit::default()));
    let mut reports = PolicyReports::new(client);
    let mut reported =
        Reported { counts: Counts::new(), open: BTreeMap::new(), events_left: MAX_EVENTS, since: began };
    loop {
        changed.mark_unchanged();
        let (round_began, max_events) = (Instant::now(), reported.events_left());
        let with_report = reports.namespaces().await;
        let (guard_of_round, rounds) = (Arc::clone(guard), Arc::clone(&rounds));
        // Judging runs on a thread of its own, so that requests are answered meanwhile.
        let judged = tokio::task::spawn_blocking(move || {
            // After a round that panicked the lock is poisoned; what the round had judged by then is kept.
            let mut rounds = rounds.lock().unwrap_or_else(PoisonError::into_inner);
            run_round(&guard_of_round, &mut rounds, began.elapsed(), max_events, with_report.as_ref())
        });
        let judged = judged.await;
        let cost = round_began.elapsed();
        match judged {
            Ok(RoundResult { round, open, news, findings }) => {
                reported.report_break_glass(guard, open);
                reported.report_round(guard, round, news);
                reports.write(findings).await;
            }
            Err(error) => warn!(%error, "an audit failed"),
        }
        debug!(milliseconds = cost.as_millis(), "an audit took this long");
        tokio::time::sleep(MIN_PAUSE.max(cost * PAUSE_FACTOR)).await;
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(MAX_PAUSE) => {}
        }
    }
}

/// The namespaces in which break-glass suspends refusals, each with the exception in its annotation.
type OpenNamespaces = BTreeMap<String, Override>;

/// The result of one round.
struct RoundResult {
    round: Round,
    open: OpenNamespaces,
    /// The Events about new findings.
    news: Vec<Notice>,
    /// The findings for Reports: of each namespace that was judged, and an empty list for each namespace that has a report but no
    /// finding any more.
    findings: FindingsByNamespace,
}

fn run_round(
    guard: &Guard,
    rounds: &mut IncrementalAudit,
    now: Duration,
    max_events: usize,
    with_report: Option<&BTreeSet<String>>,
) -> RoundResult {
    let (world, settings) = (guard.world.load_full(), guard.settings.load_full());
    let view = View { freshness: guard.freshness(&world), ..View::new(&world, (guard.clock)(), &settings) };
    let (mut news, mut findings) = (Vec::new(), FindingsByNamespace::new());
    let collect_results = |namespace: &str, audit: &Audit| {
        if with_report.is_some() {
            let results = report::policy_report::results(&audit.objects, view.now);
            findings.insert(namespace.to_owned(), results);
        }
    };
    let round = rounds.next(crate::rulebook(), &view, now, max_events, collect_results, |it| {
        news.push(events::audit_finding(it));
    });
    // A stale view does not prove that a finding is gone.
    if round.counts.is_some() {
        for namespace in with_report.into_iter().flatten().filter(|it| !rounds.has_findings(it)) {
            findings.insert(namespace.clone(), Vec::new());
        }
    }
    let open = view.break_glasses().map(|(namespace, open)| (namespace.to_owned(), open)).collect();
    RoundResult { round, open, news, findings }
}

/// The findings and break-glasses that have been reported so far.
struct Reported {
    counts: Counts,
    open: OpenNamespaces,
    events_left: usize,
    since: Instant,
}

impl Reported {
    fn events_left(&mut self) -> usize {
        if self.since.elapsed() >= EVENT_PERIOD {
            (self.events_left, self.since) = (MAX_EVENTS, Instant::now());
        }
        self.events_left
    }

    /// Reports each break-glass that began or ended, at once, however many other Events wait.
    fn report_break_glass(&mut self, guard: &Guard, open: OpenNamespaces) {
        guard.metrics.break_glass.set(i64::try_from(open.len()).unwrap_or(i64::MAX));
        for (namespace, exception) in
            open.iter().filter(|(name, exception)| self.open.get(*name) != Some(exception))
        {
            warn!(namespace, until = %exception.until, reason = exception.reason, "break-glass suspends the refusals in this namespace");
            guard.publish(events::break_glass_began(namespace, exception));
        }
        for namespace in self.open.keys().filter(|name| !open.contains_key(*name)) {
            info!(namespace, "requests are refused in this namespace again: break-glass has ended");
            guard.publish(events::break_glass_ended(namespace));
        }
        self.open = open;
    }

    fn report_round(&mut self, guard: &Guard, mut round: Round, news: Vec<Notice>) {
        guard.metrics.set_clusters(mem::take(&mut round.clusters));
        let sent = news.len();
        self.events_left -= sent;
        for notice in news {
            guard.publish(notice);
        }
        let Round { counts: Some(counts), judged, refused, warned, held_back, .. } = round else { return };
        if counts != self.counts {
            info!(objects = judged, refused, warned, "the audit's findings have changed");
        }
        guard.metrics.set_findings(&counts, &self.counts);
        self.counts = counts;
        if held_back > 0 && sent > 0 {
            info!(sent, held_back, "there are more Events than are sent at once; the others follow");
        }
    }
}
