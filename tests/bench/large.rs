//! The largest things that are judged: ConfigMaps of the largest size that etcd takes, and ten thousand manifests.
//!
//! Some of the texts are hostile: they do not occur in practice, but a caller that sends one must not delay other requests.

use std::fs;
use std::hint::black_box;

use clap::Parser as _;
use gatera::command::check;
use jiff::Timestamp;
use serde::Serialize;

use crate::decide::Engine;
use crate::fleet;
use crate::plan::Plan;
use crate::reviews;
use crate::series::milliseconds;

/// The size of the largest text, in bytes; the API server refuses larger ConfigMaps.
const LARGEST: usize = 1024 * 1024;
const DOCUMENTS: usize = 10_000;

#[derive(Clone, Debug, Serialize)]
pub struct Large {
    pub config_maps: Vec<Largest>,
    /// The time that `gatera check` takes for 10,000 documents in files of eight.
    pub check_ms: f64,
}

/// The median processor time of the decisions about a ConfigMap with one text.
#[derive(Clone, Debug, Serialize)]
pub struct Largest {
    pub text: &'static str,
    pub create_ms: f64,
    /// The time for an update that adds a comment.
    pub update_ms: f64,
}

impl Large {
    pub fn slowest(&self) -> f64 {
        self.config_maps.iter().map(|it| it.create_ms.max(it.update_ms)).fold(0.0, f64::max)
    }
}

pub fn measure(plan: &Plan, engine: &Engine) -> Large {
    let times = if plan.tiny { 1 } else { 9 };
    let config_maps = texts().into_iter().map(|(name, text)| {
        let longer = format!("# the members\n{text}");
        let (create, update) = (reviews::config(0, &text, None), reviews::config(0, &text, Some(&longer)));
        let judged = |body: &str| median(times, || drop(black_box(engine.decide(false, body.as_bytes()))));
        Largest { text: name, create_ms: judged(&create), update_ms: judged(&update) }
    });
    Large { config_maps: config_maps.collect(), check_ms: check(times.min(3)) }
}

/// Returns the texts for the ConfigMap with the option file, each with a name.
fn texts() -> Vec<(&'static str, String)> {
    let filled = |line: &dyn Fn(usize) -> String| {
        let mut text = fleet::OPTIONS.to_owned();
        for number in 0.. {
            let line = line(number);
            if text.len() + line.len() > LARGEST {
                break;
            }
            text.push_str(&line);
        }
        text
    };
    let long = |begin: &str, each: &dyn Fn(usize) -> String| {
        let mut text = fleet::OPTIONS.to_owned() + begin;
        for number in 0.. {
            let more = each(number);
            if text.len() + more.len() + 1 > LARGEST {
                break;
            }
            text.push_str(&more);
        }
        text + "\n"
    };
    vec![
        ("options and comments", filled(&|_| ORDINARY.to_owned())),
        ("a script", filled(&|_| SCRIPT.to_owned())),
        ("empty lines", filled(&|_| "\n".to_owned())),
        ("a byte a line", filled(&|_| "a\n".to_owned())),
        ("groups that no program reads", filled(&|number| format!("[x{number}]\nport=1\n"))),
        ("passwords", filled(&|_| "password=x\n".to_owned())),
        ("passwords in groups", filled(&|number| format!("[x{number}]\npassword=x\n"))),
        ("passwords in a script", filled(&|_| "mysql -px\n".to_owned())),
        ("wrong values", filled(&|_| "binlog_format=MIXED\n".to_owned())),
        ("lines of provider options", filled(&|n| format!("wsrep_provider_options=a.x{n}=1;pc.weight=0\n"))),
        ("one line of provider options", long("wsrep_provider_options=", &|n| format!("a.x{n}=1;"))),
        ("one line of hosts", long("wsrep_cluster_address=gcomm://", &|n| format!("h{n},"))),
        ("one line of words", long("x=", &|_| "-p ".to_owned())),
        ("one line of quotes", long("x=", &|_| "'\"\\#".to_owned())),
        ("prefixes of keys", long("", &|_| "loose-".to_owned())),
        ("a group that does not end", long("", &|_| "[".to_owned())),
    ]
}

const ORDINARY: &str = "
# How much of the data is kept in memory: three quarters of the limit.
innodb_buffer_pool_size = 6G
innodb_flush_log_at_trx_commit = 2  # the cluster is the safety
innodb_flush_method = O_DIRECT
max_connections = 500
slow_query_log_file = /var/lib/mysql/slow.log
wsrep_slave_threads = 8
";

const SCRIPT: &str = "
# Waits until the member is Synced.
until mysql -u root -p\"$MARIADB_ROOT_PASSWORD\" -e \"SHOW STATUS LIKE 'wsrep_local_state_comment'\" | grep -q Synced; do
  sleep 1 && echo still waiting
done
";

#[derive(clap::Parser)]
struct CheckLine {
    #[command(flatten)]
    options: check::Options,
}

/// Returns the milliseconds of processor time that `gatera check` takes, from reading the files to its last line.
fn check(times: usize) -> f64 {
    let cluster = include_str!("../fixtures/galera.yaml");
    let documents = cluster.split("\n---\n").count();
    let clusters = (0..DOCUMENTS.div_ceil(documents)).map(|number| {
        let namespace = format!("metadata: {{namespace: {}, name:", fleet::namespace(number));
        cluster.replace("metadata: {name:", &namespace)
    });
    let folder = tempfile::tempdir().expect("a folder for manifests");
    for (number, text) in clusters.enumerate() {
        fs::write(folder.path().join(format!("{number:04}.yaml")), text).expect("writing a manifest");
    }
    let path = folder.path().to_str().expect("a temporary folder has a plain name");
    let options = CheckLine::parse_from(["check", path]).options;
    median(times, || {
        let mut printed = Vec::new();
        check::run(&options, Timestamp::now(), &mut printed).expect("a check that ends");
        let printed = String::from_utf8(printed).expect("a text");
        assert!(printed.contains(&format!("{DOCUMENTS} objects: ")), "{printed}");
    })
}

/// Returns the median processor time in milliseconds: wall-clock time would include other work on a shared machine.
fn median(times: usize, mut act: impl FnMut()) -> f64 {
    let mut took: Vec<u64> = (0..times)
        .map(|_| {
            let before = run_ns();
            act();
            run_ns() - before
        })
        .collect();
    took.sort_unstable();
    milliseconds(took[times / 2])
}

/// Returns how many nanoseconds this thread has run, as counted by the scheduler.
fn run_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts for every thread");
    text.split(' ').next().and_then(|ran| ran.parse().ok()).expect("the first number is the time it ran")
}
