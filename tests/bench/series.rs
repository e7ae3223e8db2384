//! One series: the same load on several servers, which take turns.
//!
//! Noise on a shared machine comes in waves that are longer than a block. So blocks are short, the order of the servers is
//! reversed in every second round, and each ratio is formed within one round. The median of these ratios is the result.

use std::time::Duration;

use serde::Serialize;

use crate::child::{self, Server};
use crate::fleet::CLUSTERS;
use crate::load::{self, Block, LoadConnection, Pace, count};
use crate::plan::Plan;
use crate::reviews::{ALLOWED, Shape};

/// A server that is compared: one row of each series in the table.
pub struct Arm<'a> {
    pub name: &'static str,
    pub server: &'a Server,
    /// Whether the other servers are compared with this one.
    pub floor: bool,
    /// Whether this server judges requests; the others allow everything.
    pub guards: bool,
}

/// One load: which requests are sent, over how many connections, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    pub name: &'static str,
    pub shape: Shape,
    pub connections: usize,
    pub pace: Pace,
}

/// The figures of one server in one series.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub series: &'static str,
    pub server: &'static str,
    pub requests: u64,
    pub per_second: f64,
    /// Throughput relative to the server that does nothing: lower quartile, median, upper quartile over the rounds.
    pub ratio: Option<[f64; 3]>,
    /// The median latency; like the other percentiles, in milliseconds.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub cpu_ms_per_request: f64,
    pub rss_mib: f64,
    /// The processor time that the generator took for a request, on the same processors.
    pub generator_cpu_ms_per_request: f64,
    /// The 99th percentile of how late the generator itself sent a request in an open loop, in milliseconds.
    pub generator_late_p99: f64,
    pub body_bytes: usize,
}

/// The number of different clusters that the requests of one connection are about.
const VARIETY: usize = 8;

/// A server with the connections to it, and what was measured in its turns.
struct Bench<'a> {
    arm: &'a Arm<'a>,
    connections: Vec<LoadConnection>,
    body: usize,
    cpu_before: f64,
    blocks: Vec<Block>,
    /// The processor time that the generator took, in seconds.
    generator: f64,
}

impl Series {
    /// Runs the series on all servers. Connections are opened and warmed up before measuring starts.
    pub fn run(&self, arms: &[Arm<'_>], plan: &Plan) -> Vec<Outcome> {
        let mut benches: Vec<_> = arms.iter().map(|arm| self.prepare(arm)).collect();
        for bench in &mut benches {
            load::run(&mut bench.connections, Pace::Closed, plan.warm_up());
            bench.cpu_before = child::cpu_seconds(bench.arm.server.pid());
        }
        for round in 0..plan.rounds() {
            let turn = |bench: &mut Bench<'_>| bench.block(self.pace, plan.block());
            if round % 2 == 0 {
                benches.iter_mut().for_each(turn);
            } else {
                benches.iter_mut().rev().for_each(turn);
            }
        }
        let floor = benches.iter().find(|bench| bench.arm.floor).map(Bench::throughputs);
        benches.iter().map(|bench| self.outcome(bench, floor.as_deref())).collect()
    }

    fn prepare<'a>(&self, arm: &'a Arm<'a>) -> Bench<'a> {
        let expects = if arm.guards { self.shape.expects() } else { &[ALLOWED] };
        let all = self.connections * VARIETY;
        let request = |number: usize| self.shape.request(number * CLUSTERS / all);
        let connections = (0..self.connections).map(|index| {
            let requests = (0..VARIETY).map(|turn| request(turn * self.connections + index)).collect();
            LoadConnection::new(arm.server.connect(), requests, expects)
        });
        let (connections, body) = (connections.collect(), request(0).body().len());
        Bench { arm, connections, body, cpu_before: 0.0, blocks: Vec::new(), generator: 0.0 }
    }

    fn outcome(&self, bench: &Bench<'_>, floor: Option<&[f64]>) -> Outcome {
        let cpu = child::cpu_seconds(bench.arm.server.pid()) - bench.cpu_before;
        let (first, rest) = bench.blocks.split_first().expect("there is at least one round");
        let mut total = Block::clone(first);
        for block in rest {
            total.add(block);
        }
        let at = |share| milliseconds(total.latencies.value_at_quantile(share));
        let per_request = |seconds: f64| seconds * 1e3 / count(total.requests().max(1));
        let paired = floor.filter(|_| !bench.arm.floor && self.pace == Pace::Closed).map(|floor| {
            quartiles(bench.throughputs().iter().zip(floor).map(|(own, floor)| own / floor).collect())
        });
        Outcome {
            series: self.name,
            server: bench.arm.name,
            requests: total.requests(),
            per_second: total.per_second(),
            ratio: paired,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            cpu_ms_per_request: per_request(cpu),
            rss_mib: child::resident(bench.arm.server.pid()),
            generator_cpu_ms_per_request: per_request(bench.generator),
            generator_late_p99: milliseconds(total.lateness.value_at_quantile(0.99)),
            body_bytes: bench.body,
        }
    }
}

impl Bench<'_> {
    fn block(&mut self, pace: Pace, length: Duration) {
        let before = child::cpu_seconds(std::process::id());
        self.blocks.push(load::run(&mut self.connections, pace, length));
        self.generator += child::cpu_seconds(std::process::id()) - before;
    }

    fn throughputs(&self) -> Vec<f64> {
        self.blocks.iter().map(Block::per_second).collect()
    }
}

pub fn milliseconds(nanoseconds: u64) -> f64 {
    count(nanoseconds) / 1e6
}

/// Returns the lower quartile, the median and the upper quartile, interpolated between neighbours where needed.
pub fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| {
        let place = (values.len() - 1) * quarter;
        let (low, part) = (values[place / 4], [0.0, 0.25, 0.5, 0.75][place % 4]);
        let high = values[(place / 4 + 1).min(values.len() - 1)];
        low + (high - low) * part
    })
}
