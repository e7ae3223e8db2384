//! `make bench`: the guard beside a server that does nothing, under the same load, in one run.
//!
//! | file | owns |
//! |---|---|
//! | `plan.rs` | how long, how often |
//! | `fleet.rs`, `captured/` | the clusters in the view |
//! | `reviews.rs` | what is sent |
//! | `servers.rs`, `child.rs` | the servers, from inside and from outside |
//! | `client.rs`, `load.rs` | one connection, many of them |
//! | `series.rs` | servers taking turns under one load |
//! | `decide.rs` | the decision without a server |
//! | `real.rs` | the real program at a real API server (`BENCH_LAB=1`) |
//! | `table.rs` | what is printed and kept |
//!
//! It is no test: figures stand beside targets, and only a wrong answer fails.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "the modules of a benchmark are nobody else's, and a panic is how it fails"
)]

mod child;
mod client;
mod decide;
mod fleet;
mod load;
mod plan;
mod reviews;
mod series;
mod servers;
mod table;

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use child::Server;
use decide::Decisions;
use load::{Line, Pace};
use plan::Plan;
use reviews::Shape;
use serde::Serialize;
use serde_json::json;
use series::{Arm, Outcome, Series};
use table::{Goal, Target};

const KB: usize = 1024;
const NOTHING: &str = "nothing";
const EMPTY: &str = "guard, 0 clusters";
const FULL: &str = "guard, full view";

/// The first is the one that the targets speak of.
const SERIES: [Series; 9] = [
    closed("update of 17 KB, 16 connections", Shape::Update(17 * KB), 16),
    closed("update of 17 KB, 8 connections", Shape::Update(17 * KB), 8),
    closed("update of 17 KB, 1 connection", Shape::Update(17 * KB), 1),
    closed("create of 8 KB, 16 connections", Shape::Create(8 * KB), 16),
    closed("update of 14 KB, 16 connections", Shape::Update(14 * KB), 16),
    closed("update of 20 KB, 16 connections", Shape::Update(20 * KB), 16),
    closed("scale, 16 connections", Shape::Scale, 16),
    closed("pod that is injected, 16 connections", Shape::Pod, 16),
    Series {
        name: "update of 17 KB, 1000 a second over 16 connections",
        shape: Shape::Update(17 * KB),
        connections: 16,
        pace: Pace::Open(1000.0),
    },
];

const fn closed(name: &'static str, shape: Shape, connections: usize) -> Series {
    Series { name, shape, connections, pace: Pace::Closed }
}

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // cargo itself passes --bench or --test.
    let role: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve-guard", clusters] => servers::guard(clusters.parse().expect("a number of clusters")),
        ["serve-nothing"] => servers::nothing(),
        _ => run(&Plan::of_this_run()),
    }
}

fn run(plan: &Plan) {
    let before = table::last_run();
    table::title(plan);
    let (outcomes, start) = loads(plan);
    let decisions = decide::measure(plan);
    tell(&start, &decisions, plan);
    let goals = goals(&outcomes, &start, &decisions);
    table::goals(&goals, &before);
    if !plan.tiny {
        table::keep(plan, &goals, &json!({ "series": outcomes, "start": start, "decisions": decisions }));
    }
}

/// How a guard with a full view comes up, in milliseconds, and what it weighs before anybody asks, in MiB.
#[derive(Clone, Debug, Serialize)]
struct Start {
    world_ms: f64,
    first_answer_ms: f64,
    idle_empty_mib: f64,
    idle_full_mib: f64,
}

/// All series, with three servers.
fn loads(plan: &Plan) -> (Vec<Outcome>, Start) {
    let nothing = Server::start(&["serve-nothing"]);
    let empty = Server::start(&["serve-guard", "0"]);
    let full = Server::start(&["serve-guard", &plan.clusters.to_string()]);
    let start = start(&empty, &full);
    let clusters = plan.clusters;
    let arms = [
        Arm { name: NOTHING, server: &nothing, clusters, floor: true },
        Arm { name: EMPTY, server: &empty, clusters, floor: false },
        Arm { name: FULL, server: &full, clusters, floor: false },
    ];
    table::load_head();
    let mut outcomes = Vec::new();
    for series in SERIES {
        let these = series.run(&arms, plan);
        table::load(&these);
        outcomes.extend(these);
    }
    (outcomes, start)
}

fn start(empty: &Server, full: &Server) -> Start {
    let asked = Instant::now();
    Line::new(full.connect(), vec![Shape::Scale.request(0)], Shape::Scale.expects()).ask();
    let first = full.hello.ready + asked.elapsed();
    thread::sleep(Duration::from_millis(200));
    Start {
        world_ms: full.hello.build.as_secs_f64() * 1e3,
        first_answer_ms: first.as_secs_f64() * 1e3,
        idle_empty_mib: child::resident(empty.pid()),
        idle_full_mib: child::resident(full.pid()),
    }
}

fn tell(start: &Start, decisions: &Decisions, plan: &Plan) {
    let clusters = plan.clusters;
    let percentiles =
        |it: &decide::Percentiles| format!("p50 {:.3}, p99 {:.3}, p99.9 {:.3} ms", it.p50, it.p99, it.p999);
    let mut lines = vec![
        ("decision on 17 KB, 1000 a second".to_owned(), percentiles(&decisions.paced)),
        (
            "the same, world rebuilt 10 times a second".to_owned(),
            percentiles(&decisions.paced_while_rebuilding),
        ),
        ("rebuilding the world".to_owned(), percentiles(&decisions.rebuild)),
    ];
    for (name, mean) in &decisions.unpaced {
        lines.push((format!("{name}, without a pause"), format!("mean {mean:.4} ms")));
    }
    table::section(&format!("In this process, {clusters} clusters in the view"), &lines);
    let lines = [
        ("building the first world".to_owned(), format!("{:.1} ms", start.world_ms)),
        ("from there to the first answer".to_owned(), format!("{:.1} ms", start.first_answer_ms)),
        (
            "memory before the first request, empty view".to_owned(),
            format!("{:.1} MiB", start.idle_empty_mib),
        ),
        (format!("the same with {clusters} clusters"), format!("{:.1} MiB", start.idle_full_mib)),
    ];
    table::section("Start", &lines);
}

fn goals(outcomes: &[Outcome], start: &Start, decisions: &Decisions) -> Vec<Goal> {
    use Target::{AtLeast, AtMost};
    let of = |series: usize, server: &str| {
        let name = SERIES[series].name;
        outcomes.iter().find(|it| it.series == name && it.server == server).expect("it was measured")
    };
    let ratio = |series| of(series, FULL).ratio.map_or(0.0, |[_, median, _]| median);
    let (main, one, pod) = (of(0, FULL), of(2, FULL), 7);
    vec![
        Goal::new("throughput of /validate beside nothing, 17 KB", ratio(0), "", AtLeast(0.9)),
        Goal::new("throughput of /mutate beside nothing, pod", ratio(pod), "", AtLeast(0.9)),
        Goal::new("CPU per request, 17 KB, 16 connections", main.cpu_ms_per_request, "ms", AtMost(0.12)),
        Goal::new("one connection, 17 KB, p50", one.p50, "ms", AtMost(0.35)),
        Goal::new("one connection, 17 KB, p99", one.p99, "ms", AtMost(1.5)),
        Goal::new("decision in process at 1000/s, p99", decisions.paced.p99, "ms", AtMost(1.0)),
        Goal::new(
            "first answer after the view is complete",
            start.world_ms + start.first_answer_ms,
            "ms",
            AtMost(100.0),
        ),
        Goal::new("memory, idle, empty view", start.idle_empty_mib, "MiB", AtMost(15.0)),
        Goal::new("memory under load, empty view", of(8, EMPTY).rss_mib, "MiB", AtMost(20.0)),
        Goal::new("memory under load, full view", of(8, FULL).rss_mib, "MiB", AtMost(60.0)),
    ]
}
