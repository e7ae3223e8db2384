//! The instructions of one decision, by kind of request and by phase, counted by callgrind: a figure that other work on the
//! machine does not change, so that CI can enforce a limit.
//!
//! Owns: the phases, the run under valgrind, the limits. Data: this program is started again under valgrind for each phase.
//! Callgrind counts only inside the `phase_` function of that phase, and writes a file after each call of it.

use std::env;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use facts::settings::Settings;

use crate::decide::{self, Engine};
use crate::fleet;
use crate::reviews::Shape;
use crate::served;

pub const KB: usize = 1024;
/// The number of clusters in the view: enough that look-ups are no special case.
const CLUSTERS: usize = 50;
/// The phases of each decision, as in the names of the `phase_` functions.
const PHASES: [&str; 3] = ["read", "judge", "answer"];
/// The requests, and the most instructions that the whole decision may take in the build of the tests.
///
/// A limit is a tenth above the count at the time when it was set. It is lowered when the count falls, and raised only for a
/// reason that the commit names.
const LIMITS: [(&str, Shape, u64); 11] = [
    ("update of 17 KB", Shape::Update(17 * KB), 2_440_000),
    ("update of 17 KB, of its template", Shape::Roll(17 * KB), 3_710_000),
    ("the same, of what no rule reads", Shape::Touch(17 * KB), 1_370_000),
    ("update of 17 KB with old faults", Shape::Faulty(17 * KB), 2_300_000),
    ("update of 17 KB at /mutate", Shape::Amend(17 * KB), 3_030_000),
    ("create of 8 KB", Shape::Create(8 * KB), 2_980_000),
    ("scale", Shape::Scale, 540_000),
    ("pod that is injected", Shape::Pod, 18_300_000),
    ("pod deleted", Shape::Delete, 975_000),
    ("ConfigMap update", Shape::Config, 1_980_000),
    ("Secret update", Shape::Secret, 320_000),
];

/// Makes each decision three times; only the third is counted, because the first also builds what all decisions share.
pub fn decide() {
    let engine = decide::engine_of(fleet::facts(CLUSTERS, &Settings::default()));
    for (_, shape, _) in LIMITS {
        let request = shape.request(0);
        for _ in 0..2 {
            black_box(engine.decide(shape.mutating(), request.body()));
        }
        counted(&engine, shape.mutating(), request.body());
    }
}

fn counted(engine: &Engine, mutating: bool, body: &[u8]) {
    let incoming = phase_read(mutating, body);
    let decision = phase_judge(engine, &incoming);
    black_box(phase_answer(engine, mutating, incoming, decision));
}

// Callgrind takes a jump at the end of a function for the end of that function, so no phase ends with a call.
#[inline(never)]
fn phase_read(mutating: bool, body: &[u8]) -> decide::Incoming<'_> {
    black_box(decide::read(mutating, body))
}

#[inline(never)]
fn phase_judge(engine: &Engine, incoming: &decide::Incoming<'_>) -> decide::Decision {
    black_box(engine.judge(incoming))
}

/// Writes the answer, and frees everything that the request needed.
#[inline(never)]
fn phase_answer(
    engine: &Engine,
    mutating: bool,
    incoming: decide::Incoming<'_>,
    decision: decide::Decision,
) -> Vec<u8> {
    let answer = engine.answer(mutating, &incoming, &decision);
    drop((incoming, decision));
    black_box(answer)
}

/// Counts, prints the table, and fails if a limit is exceeded.
pub fn measure() {
    let limits_apply = cfg!(debug_assertions);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the counts");
    let Some(counts) = count(&folder) else {
        assert!(
            !limits_apply || env::var_os("CI").is_none(),
            "CI needs valgrind to check the limits of instructions, but valgrind is not installed"
        );
        return println!("\nInstructions: not counted, because valgrind is not installed.");
    };
    println!("\nInstructions per decision, in thousands ({CLUSTERS} clusters in the view)");
    println!("{:<34}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "read", "judge", "answer", "all", "limit");
    let mut over = Vec::new();
    for (number, (name, _, limit)) in LIMITS.iter().enumerate() {
        let phases: Vec<u64> = counts.iter().map(|counts| counts[number]).collect();
        let all: u64 = phases.iter().sum();
        let cells: String =
            phases.iter().chain([&all]).map(|it| format!("{:>9.1}", thousands(*it))).collect();
        let limit_cell =
            if limits_apply { format!("{:>9.1}", thousands(*limit)) } else { format!("{:>9}", "-") };
        println!("{name:<34}{cells}{limit_cell}");
        if limits_apply && all > *limit {
            over.push(format!("{name}: {all} instructions; the limit is {limit}"));
        }
    }
    assert!(over.is_empty(), "decisions that take more instructions than their limits:\n{}", over.join("\n"));
    if !limits_apply {
        served::print(&folder);
    }
    if env::var_os("KEEP").is_some() {
        println!("\nthe profiles are in {}: callgrind_annotate FILE", folder.display());
    } else {
        fs::remove_dir_all(&folder).expect("the folder of the counts is ours");
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub fn thousands(count: u64) -> f64 {
    count as f64 / 1e3
}

/// Returns the counts of all decisions, for each phase; `None` if valgrind is not installed.
fn count(folder: &Path) -> Option<Vec<Vec<u64>>> {
    PHASES.iter().map(|phase| in_phase(phase, folder)).collect()
}

/// Returns the count of one phase in every decision. Each phase has a run of its own, because valgrind counts nothing in a second
/// function after it has written the file of the first.
fn in_phase(phase: &str, folder: &Path) -> Option<Vec<u64>> {
    let file = |part: usize| folder.join(format!("{phase}.{part}"));
    let function = format!("{}::phase_{phase}", module_path!());
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}/{phase}", folder.display()));
    command.args([format!("--toggle-collect={function}"), format!("--dump-after={function}")]);
    command.arg(env::current_exe().expect("this program has a path")).arg("decisions");
    let ended = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        ended => ended.expect("starting valgrind"),
    };
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some((1..=LIMITS.len()).map(|part| total(&file(part))).collect())
}

/// Returns the number of instructions in one of callgrind's files.
pub fn total(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let line = text.lines().find_map(|line| line.strip_prefix("summary: "));
    let count = line.and_then(|it| it.trim().parse().ok()).expect("callgrind writes a summary");
    assert!(count > 0, "{}: callgrind counted nothing, because the function was not found", file.display());
    count
}
