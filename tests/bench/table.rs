//! The tables that a run prints, and `bench.json` beside Cargo.toml, which stores the figures so that runs can be compared.
//!
//! Some figures have targets, and a table shows whether each was reached. A missed target does not fail the run: the target was
//! set on another machine.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::series::Outcome;

/// A figure with its target.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub name: String,
    pub figure: f64,
    pub unit: &'static str,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub fn new(name: impl Into<String>, figure: f64, unit: &'static str, target: Target) -> Self {
        Self { name: name.into(), figure, unit, target }
    }

    fn reached(&self) -> bool {
        match self.target {
            Target::AtLeast(limit) => self.figure >= limit,
            Target::AtMost(limit) => self.figure <= limit,
        }
    }
}

/// Returns the number of cores and the model of the processor.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(':').nth(1));
    format!("{cores} cores, {}", model.unwrap_or("unknown processor").trim())
}

/// Prints the title of the run.
pub fn print_title(plan: &Plan) {
    println!("gatera {} on {}", env!("CARGO_PKG_VERSION"), machine());
    let busy = fs::read_to_string("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse().ok());
    if let Some(busy) = busy.filter(|busy: &f64| *busy > 0.5) {
        println!(
            "Other programs use this machine (load average {busy}): compare figures of this run only, not with another run."
        );
    }
    println!(
        "{} s per server and series, servers taking turns every {} ms; the generator shares the processors.\n",
        plan.seconds,
        plan.block().as_millis()
    );
}

/// Prints the head of the table of loads.
pub fn print_load_head() {
    let columns =
        ["requests/s", "ratio to nothing", "p50 ms", "p99 ms", "p99.9 ms", "CPU ms each", "RSS MiB"];
    let [rate, ratio, p50, p99, p999, cpu, rss] = columns;
    println!("{:<22}{rate:>11}  {ratio:>20}{p50:>9}{p99:>9}{p999:>10}{cpu:>13}{rss:>9}", "");
}

/// Prints one series: a row per server.
pub fn print_load(outcomes: &[Outcome]) {
    let Some(first) = outcomes.first() else { return };
    println!("{} ({} bytes)", first.series, first.body_bytes);
    for it in outcomes {
        let ratio = it
            .ratio
            .map_or_else(String::new, |[low, median, high]| format!("{median:.3} ({low:.2} to {high:.2})"));
        println!(
            "  {:<20}{:>11.0}  {ratio:>20}{:>9.3}{:>9.3}{:>10.3}{:>13.4}{:>9.1}",
            it.server, it.per_second, it.p50, it.p99, it.p999, it.cpu_ms_per_request, it.rss_mib
        );
    }
}

/// Prints a heading and lines of name and value.
pub fn print_section(heading: &str, lines: &[(String, String)]) {
    println!("\n{heading}");
    let widest = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in lines {
        println!("  {name:<widest$}  {value}");
    }
}

/// Prints figures, their targets, and the figures of the previous run.
pub fn print_goals(goals: &[Goal], before: &Value) {
    let widest = goals.iter().map(|goal| goal.name.chars().count()).max().unwrap_or(0);
    println!(
        "\n{:<widest$}  {:>8} {:<3}  {:<9} {:<8}  {:>10}",
        "figure", "now", "", "target", "", "last run"
    );
    for goal in goals {
        let (sign, limit) = match goal.target {
            Target::AtLeast(limit) => (">=", limit),
            Target::AtMost(limit) => ("<=", limit),
        };
        let reached = if goal.reached() { "reached" } else { "missed" };
        let old = before["goals"].as_array().into_iter().flatten().find(|old| old["name"] == *goal.name);
        let old = old
            .and_then(|old| old["figure"].as_f64())
            .map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
        println!(
            "{:<widest$}  {:>8.3} {:<3}  {sign} {limit:<6} {reached:<8}  {old:>10}",
            goal.name, goal.figure, goal.unit
        );
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bench.json")
}

/// Returns the content of `bench.json` from the previous run, or null.
pub fn last_run() -> Value {
    fs::read_to_string(path()).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Writes all figures to `bench.json`.
pub fn save(plan: &Plan, goals: &[Goal], figures: &impl Serialize) {
    let it = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "at": jiff::Timestamp::now().to_string(),
        "machine": machine(),
        "seconds": plan.seconds,
        "goals": goals,
        "figures": figures,
    });
    let text = serde_json::to_string_pretty(&it).expect("figures are JSON");
    fs::write(path(), text + "\n").expect("writing bench.json");
    println!("\nAll figures are in bench.json.");
}
