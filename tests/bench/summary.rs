//! The results of a run, printed and compared with their targets.

use serde::Serialize;

use crate::decide::Percentiles;
use crate::growth::Growth;
use crate::large::Largest;
use crate::packs::{PackCost, Writes};
use crate::real::Real;
use crate::series::Outcome;
use crate::table::{self, Goal, Target};
use crate::{Engine, SERIES};

/// The names of the servers; this one decodes each review and allows it.
pub const NOTHING: &str = "nothing";
pub const UID: &str = "the uid alone";
pub const EMPTY: &str = "guard, 0 clusters";
pub const FULL: &str = "guard, 1000 clusters";

/// Everything that was measured. This is what `bench.json` keeps.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub outcomes: Vec<Outcome>,
    pub start: Start,
    /// How long the operator of a hundred Rds waits for the answers to its writes.
    pub operator: Writes,
    pub engine: Engine,
    pub real: Option<Real>,
}

/// How long a guard with 1000 clusters takes to start, in milliseconds, and its memory before the first request, in MiB.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    pub world_ms: f64,
    pub first_answer_ms: f64,
    pub idle_empty_mib: f64,
    pub idle_full_mib: f64,
}

/// Prints what was measured without a server.
pub fn print_engine(Engine { decisions, packs, growth, large }: &Engine) {
    let mut lines = vec![
        line("decision on 17 KB, 1000 a second", percentiles(&decisions.paced)),
        line("the same, world rebuilt 10 times a second", percentiles(&decisions.paced_while_rebuilding)),
        line("decisions on every kind of request, 1000 a second", percentiles(&decisions.paced_mix)),
        line("from an event to the world that shows it", percentiles(&decisions.rebuild)),
    ];
    lines.push(line("the leader's plan of all clusters", format!("mean {:.2} ms", decisions.plan)));
    for (name, mean) in &decisions.unpaced {
        lines.push((format!("{name}, without a pause"), format!("mean {mean:.4} ms")));
    }
    table::print_section("In this process, 1000 clusters in the view", &lines);
    print_packs(packs);
    print_growth(growth);
    let worst = |it: &Largest| format!("create {:.1} ms, update {:.1} ms", it.create_ms, it.update_ms);
    let mut lines: Vec<_> = large.config_maps.iter().map(|it| (it.text.to_owned(), worst(it))).collect();
    lines.push(line("gatera check of 10,000 documents", format!("{:.0} ms", large.check_ms)));
    table::print_section("ConfigMaps of 1 MB, by their content, and gatera check of many manifests", &lines);
}

/// Prints what all packs add to decisions, compared with decisions while all packs are off.
pub fn print_packs(packs: &[PackCost]) {
    let added = |it: &PackCost| {
        let [low, median, high] = it.added_ns;
        let value =
            format!("{median:+.0} ({low:+.0} to {high:+.0}) ns; {:.0} ns without packs", it.without_ns);
        (it.object.to_owned(), value)
    };
    let lines: Vec<_> = packs.iter().map(added).collect();
    table::print_section("What all packs add to a decision in which their rules find nothing", &lines);
}

/// Prints the times of an operator's writes, which are exempt.
pub fn print_operator(Writes { guard, nothing, without_a_pause }: &Writes) {
    let lines = [
        line("guard, 10 times a second", percentiles(guard)),
        line("nothing, 10 times a second", percentiles(nothing)),
        line("guard, one after the other", percentiles(without_a_pause)),
    ];
    table::print_section("The operator of 100 Rds writes one whole object", &lines);
}

/// Prints what a change costs as the view grows.
pub fn print_growth(growth: &[Growth]) {
    let reported = |it: &Growth| {
        let Growth { start_ms, change, looks: [plan, audit], kib_per_cluster, .. } = it;
        let value = format!(
            "change p50 {:.3}, p99 {:.3} ms; plan p99 {:.3}, audit p99 {:.3} ms; start {start_ms:.0} ms; {kib_per_cluster:.1} KiB each",
            change.p50, change.p99, plan.p99, audit.p99
        );
        (it.name(), value)
    };
    table::print_section(
        "From an event to the World that shows it",
        &growth.iter().map(reported).collect::<Vec<_>>(),
    );
    let answered = |it: &Growth| {
        let times: Vec<_> = it.requests.iter().map(|(name, mean)| format!("{name} {mean:.3}")).collect();
        (it.name(), times.join(", "))
    };
    table::print_section(
        "Mean time to answer a request, in ms",
        &growth.iter().map(answered).collect::<Vec<_>>(),
    );
}

/// Prints the figures of the real program.
pub fn print_real(real: &Real) {
    let ms = |value: f64| format!("{value:.1} ms");
    let added = |value: f64| format!("p50 {value:+.3} ms");
    let churn = &real.churn;
    let mut lines = vec![
        line("creating the clusters", format!("{:.0} s", real.populate_seconds)),
        line("process start to complete lists", ms(real.coming_up.listed)),
        line("complete lists to ready", ms(real.coming_up.ready)),
        line("complete lists to the first answer", ms(real.coming_up.first_admission)),
        line("memory, idle", format!("{:.1} MiB", real.idle_mib)),
        line("memory, under load", format!("{:.1} MiB, peak {:.1}", real.loaded_mib, real.peak_mib)),
        line("requests/s, 17 KB, 16 connections", format!("{:.0}", real.per_second)),
        line("an update, without the guard", format!("p50 {:.3} ms", real.update_ms)),
        line("added by a policy of the API server itself", added(real.added_by_a_policy_ms)),
        line("added by asking the guard", added(real.added_ms)),
        line("added where no rule reads the change", added(real.added_to_nothing_ms)),
        line(
            "from a member's status to a decision based on it",
            format!("p50 {:.1} ms, at most {:.1}", churn.seen_ms[0], churn.seen_ms[1]),
        ),
        line(
            "CPU of the leader, one member changing a second",
            format!(
                "{:.1} % of a processor, {:.1} at rest",
                churn.share * 100.0,
                churn.share_at_rest * 100.0
            ),
        ),
    ];
    let asked: f64 = real.requests_per_minute.values().sum();
    lines.push(line(
        "requests to the API server per minute, beyond those without a guard",
        format!("{asked:.0}"),
    ));
    for (name, count) in &real.requests_per_minute {
        lines.push((format!("  {name}"), format!("{count:.0}")));
    }
    let spread = if real.together { ", all in one namespace" } else { "" };
    table::print_section(
        &format!("The real program at a real API server, {} clusters{spread}", real.clusters),
        &lines,
    );
}

impl Summary {
    /// Prints everything that is not in the table of loads.
    pub fn print(&self) {
        let Self { start, operator, engine, outcomes, .. } = self;
        print_engine(engine);
        print_operator(operator);
        let lines = [
            line("building the first world", format!("{:.1} ms", start.world_ms)),
            line("from then to the first answer", format!("{:.1} ms", start.first_answer_ms)),
            line("memory before the first request, 0 clusters", format!("{:.1} MiB", start.idle_empty_mib)),
            line("the same with 1000 clusters", format!("{:.1} MiB", start.idle_full_mib)),
        ];
        table::print_section("Start", &lines);
        let generator = outcomes.first().map_or(0.0, |it| it.generator_cpu_ms_per_request);
        let paced = outcomes.iter().rfind(|it| it.series == SERIES[8].name);
        let late = paced.map_or(0.0, |it| it.generator_late_p99);
        let lines = [
            line("CPU per request, 17 KB, 16 connections", format!("{generator:.4} ms")),
            line("lateness at 1000 requests a second, p99", format!("{late:.3} ms")),
        ];
        table::print_section("The load generator", &lines);
    }

    /// Returns the figures that have a target.
    pub fn goals(&self) -> Vec<Goal> {
        use Target::{AtLeast, AtMost};
        let Self { start, operator, engine: Engine { decisions, packs, growth, large }, real, .. } = self;
        let added = packs.iter().map(|it| it.added_ns[1] / 1e3).fold(0.0, f64::max);
        let ratio = |series| self.of(series, FULL).ratio.map_or(0.0, |[_, median, _]| median);
        let (main, one) = (self.of(0, FULL), self.of(2, FULL));
        let first = start.world_ms + start.first_answer_ms;
        let mut goals = vec![
            Goal::new("throughput ratio to nothing, /validate, 17 KB", ratio(0), "", AtLeast(0.9)),
            Goal::new("throughput ratio to nothing, /mutate, 17 KB", ratio(4), "", AtLeast(0.9)),
            Goal::new("throughput ratio to nothing, /mutate, pod", ratio(7), "", AtLeast(0.9)),
            Goal::new("CPU per request, 17 KB, 16 connections", main.cpu_ms_per_request, "ms", AtMost(0.1)),
            Goal::new(
                "CPU per request, 17 KB with old faults",
                self.of(9, FULL).cpu_ms_per_request,
                "ms",
                AtMost(0.13),
            ),
            Goal::new(
                "CPU per pod that is injected",
                self.of(7, FULL).cpu_ms_per_request,
                "ms",
                AtMost(0.25),
            ),
            Goal::new("one connection, 17 KB, p50", one.p50, "ms", AtMost(0.35)),
            Goal::new("one connection, 17 KB, p99", one.p99, "ms", AtMost(1.5)),
            Goal::new("decision in process, 1000 a second, p99", decisions.paced.p99, "ms", AtMost(1.0)),
            Goal::new(
                "every kind of request, 1000 a second, p99",
                decisions.paced_mix.p99,
                "ms",
                AtMost(1.0),
            ),
            Goal::new("added by packs whose rules find nothing", added, "us", AtMost(1.0)),
            Goal::new(
                "writes of an operator of Rds, 10 a second, p99",
                operator.guard.p99,
                "ms",
                AtMost(1.0),
            ),
            Goal::new("the same, one after the other, p99", operator.without_a_pause.p99, "ms", AtMost(1.0)),
            Goal::new("ConfigMap of 1 MB, the slowest content", large.slowest(), "ms", AtMost(20.0)),
            Goal::new("plan of 1000 clusters", decisions.plan, "ms", AtMost(10.0)),
            Goal::new("gatera check of 10,000 documents", large.check_ms, "ms", AtMost(1000.0)),
            Goal::new("facts complete to first answer", first, "ms", AtMost(100.0)),
            Goal::new("memory, idle, 0 clusters", start.idle_empty_mib, "MiB", AtMost(12.0)),
            Goal::new("memory, under load, 0 clusters", self.of(8, EMPTY).rss_mib, "MiB", AtMost(20.0)),
            Goal::new("memory, under load, 1000 clusters", self.of(8, FULL).rss_mib, "MiB", AtMost(60.0)),
        ];
        for it in growth {
            let of = |what: &str| format!("{what}, {}", it.name());
            goals.push(Goal::new(of("event to World, p99"), it.change.p99, "ms", AtMost(2.0)));
            goals.push(Goal::new(of("memory for a cluster"), it.kib_per_cluster, "KiB", AtMost(20.0)));
            goals.push(Goal::new(of("objects to World"), it.start_ms, "ms", AtMost(3000.0)));
        }
        if let Some(real) = real {
            let first = real.coming_up.first_admission;
            goals.push(Goal::new(
                "real program: lists complete to first admission",
                first,
                "ms",
                AtMost(100.0),
            ));
            goals.push(Goal::new("real program: memory, under load", real.loaded_mib, "MiB", AtMost(60.0)));
        }
        goals
    }

    fn of(&self, series: usize, server: &str) -> &Outcome {
        let name = SERIES[series].name;
        self.outcomes.iter().find(|it| it.series == name && it.server == server).expect("it was measured")
    }
}

fn line(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

fn percentiles(it: &Percentiles) -> String {
    format!("p50 {:.3}, p99 {:.3}, p99.9 {:.3} ms", it.p50, it.p99, it.p999)
}
