//! `make bench`: the guard and a server that does nothing, compared under the same load in one run.
//!
//! | file | owns |
//! |---|---|
//! | `plan.rs` | how long and how often |
//! | `fleet.rs`, `captured/` | the clusters in the view |
//! | `reviews.rs` | what is sent |
//! | `servers.rs`, `child.rs` | the servers, as they run and as processes |
//! | `client.rs`, `load.rs` | one connection, many of them |
//! | `series.rs` | servers taking turns under one load |
//! | `decide.rs` | the decision without a server |
//! | `instructions.rs`, `served.rs` | the instructions of a decision, with their limits, and those of a whole server |
//! | `growth.rs` | the cost of a change, and the memory of the view, as the view grows |
//! | `crowd.rs` | how much hostile connections slow down real requests |
//! | `packs.rs` | what packs cost where their rules find nothing, and for an operator that is exempt |
//! | `large.rs` | the largest objects, and `gatera check` of many |
//! | `real.rs`, `api.rs` | the real program at a real API server (`BENCH_LAB=1`) |
//! | `summary.rs`, `table.rs` | what is printed and saved |
//!
//! `cargo bench --bench guard -- engine` leaves the servers out and measures only the decision, `-- growth` only how the
//! cost of a change grows with the view, `-- packs` only what packs cost.
//!
//! `-- real 10000 true` measures the real program at a real API server with 10,000 clusters in one namespace, `-- instructions`
//! only what `make profile` shows, and `-- loads faults` only the loads whose names contain the word `faults`.
//!
//! It is not a test: figures are printed beside their targets. A run fails only if an answer is wrong or if a decision takes more
//! instructions than its limit.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only the benchmark uses these modules, and a panic is how it fails"
)]

mod api;
mod child;
mod client;
mod crowd;
mod decide;
mod fleet;
mod growth;
mod instructions;
mod large;
mod load;
mod packs;
mod plan;
mod real;
mod reviews;
mod series;
mod served;
mod servers;
mod summary;
mod table;

#[path = "../caller.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod caller;
#[path = "../guarded.rs"]
mod guarded;
#[path = "../hostile/crowd.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod hostile;
#[path = "../lab/mod.rs"]
mod lab;

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use child::Server;
use decide::Decisions;
use fleet::{CLUSTERS, Spread};
use growth::Growth;
use large::Large;
use load::{LoadConnection, Pace};
use packs::{PackCost, Writes};
use plan::Plan;
use reviews::Shape;
use serde::Serialize;
use series::{Arm, Outcome, Series};
use summary::{EMPTY, FULL, NOTHING, Start, Summary, UID};

const KB: usize = 1024;

/// Every load. `Summary::goals` refers to some of them by their index.
const SERIES: [Series; 12] = [
    closed("update of 17 KB, 16 connections", Shape::Update(17 * KB), 16),
    closed("update of 17 KB, 8 connections", Shape::Update(17 * KB), 8),
    closed("update of 17 KB, 1 connection", Shape::Update(17 * KB), 1),
    closed("create of 8 KB, 16 connections", Shape::Create(8 * KB), 16),
    closed("update of 17 KB at /mutate, 16 connections", Shape::Amend(17 * KB), 16),
    closed("update of 20 KB, 16 connections", Shape::Update(20 * KB), 16),
    closed("scale, 16 connections", Shape::Scale, 16),
    closed("pod that is injected, 16 connections", Shape::Pod, 16),
    Series {
        name: "update of 17 KB, 1000 a second over 16 connections",
        shape: Shape::Update(17 * KB),
        connections: 16,
        pace: Pace::Open(1000.0),
    },
    closed("update of 17 KB with old faults, 16 connections", Shape::Faulty(17 * KB), 16),
    closed("update of 17 KB of what no rule reads, 16 connections", Shape::Touch(17 * KB), 16),
    closed("update of 17 KB of its template, 16 connections", Shape::Roll(17 * KB), 16),
];

/// The same load twice: alone, and among hostile connections.
const IN_A_CROWD: [Series; 2] = [
    closed("update of 17 KB, 4 connections, alone", Shape::Update(17 * KB), 4),
    closed("the same, in a crowd of 1000 hostile connections", Shape::Update(17 * KB), 4),
];

const fn closed(name: &'static str, shape: Shape, connections: usize) -> Series {
    Series { name, shape, connections, pace: Pace::Closed }
}

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // cargo itself passes `--bench` or `--test`.
    let role: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve-guard", clusters] => servers::guard(clusters.parse().expect("a number of clusters")),
        ["serve-nothing"] => servers::nothing(),
        ["serve-uid"] => servers::uid(),
        ["grow", clusters, together] => {
            growth::grow(clusters.parse().expect("a number of clusters"), Spread::of(together));
        }
        ["real", clusters, together] => {
            let clusters = clusters.parse().expect("a number of clusters");
            summary::print_real(&real::measure(&Plan::of_this_run(), clusters, Spread::of(together)));
        }
        ["decisions"] => instructions::decide(),
        ["instructions"] => instructions::measure(),
        ["growth"] => summary::print_growth(&growth::measure(&Plan::of_this_run())),
        ["loads", names] => drop(loads(&Plan::of_this_run(), names)),
        ["packs"] => {
            let (plan, full) = (Plan::of_this_run(), CLUSTERS.to_string());
            let [full, nothing] = [&["serve-guard", &*full][..], &["serve-nothing"]].map(Server::start);
            summary::print_operator(&packs::operator(&plan, &full, &nothing));
            summary::print_packs(&packs::added_to_decisions(&plan, &decide::engine().0));
        }
        ["engine"] => {
            summary::print_engine(&Engine::measure(&Plan::of_this_run()));
        }
        _ => run(&Plan::of_this_run()),
    }
}

fn run(plan: &Plan) {
    table::print_title(plan);
    let (outcomes, start, operator) = loads(plan, "");
    let engine = Engine::measure(plan);
    let mut summary = Summary { outcomes, start, operator, engine, real: None };
    summary.print();
    if plan.lab {
        println!("\nBENCH_LAB=1: starting a control plane with {CLUSTERS} clusters; this takes minutes.");
        let real = real::measure(plan, CLUSTERS, Spread::EachAlone);
        summary::print_real(&real);
        summary.real = Some(real);
    } else {
        println!(
            "\nThe real program at a real API server: skipped; BENCH_LAB=1 includes it and takes minutes."
        );
    }
    instructions::measure();
    let goals = summary.goals();
    table::print_goals(&goals, &table::last_run());
    if !plan.tiny {
        table::save(plan, &goals, &summary);
    }
}

/// The figures that need no server.
#[derive(Debug, Serialize)]
struct Engine {
    decisions: Decisions,
    packs: Vec<PackCost>,
    growth: Vec<Growth>,
    large: Large,
}

impl Engine {
    fn measure(plan: &Plan) -> Self {
        let (engine, facts) = decide::engine();
        let decisions = decide::measure(plan, &engine, &facts);
        let packs = packs::added_to_decisions(plan, &engine);
        Self { decisions, packs, growth: growth::measure(plan), large: large::measure(plan, &engine) }
    }
}

/// Runs all series whose names contain this text on the four servers.
fn loads(plan: &Plan, names: &str) -> (Vec<Outcome>, Start, Writes) {
    let nothing = Server::start(&["serve-nothing"]);
    let uid = Server::start(&["serve-uid"]);
    let empty = Server::start(&["serve-guard", "0"]);
    let full = Server::start(&["serve-guard", &CLUSTERS.to_string()]);
    let start = start(&empty, &full);
    let arms = [
        Arm { name: NOTHING, server: &nothing, floor: true, guards: false },
        Arm { name: UID, server: &uid, floor: false, guards: false },
        Arm { name: EMPTY, server: &empty, floor: false, guards: true },
        Arm { name: FULL, server: &full, floor: false, guards: true },
    ];
    table::print_load_head();
    let mut outcomes = Vec::new();
    for series in SERIES.iter().filter(|it| it.name.contains(names)) {
        let these = series.run(&arms, plan);
        table::print_load(&these);
        outcomes.extend(these);
    }
    let operator = packs::operator(plan, &full, &nothing);
    for these in crowd::measure(IN_A_CROWD, &full, plan) {
        table::print_load(&these);
        outcomes.extend(these);
    }
    (outcomes, start, operator)
}

fn start(empty: &Server, full: &Server) -> Start {
    let asked = Instant::now();
    LoadConnection::new(full.connect(), vec![Shape::Scale.request(0)], Shape::Scale.expects()).ask();
    let first = full.hello.ready + asked.elapsed();
    thread::sleep(Duration::from_millis(200));
    Start {
        world_ms: full.hello.build.as_secs_f64() * 1e3,
        first_answer_ms: first.as_secs_f64() * 1e3,
        idle_empty_mib: child::resident(empty.pid()),
        idle_full_mib: child::resident(full.pid()),
    }
}
