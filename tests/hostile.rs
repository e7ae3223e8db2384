//! A thousand connections that mean harm, and a few that do not: the real program keeps below the memory that its chart
//! allows, and answers real requests in time.

mod crowd;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use gatera::certs::{Lives, Material};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use tokio::time::sleep;

use crate::caller::{Caller, Http, config, update};
use crate::guarded::{self, Guard, Start, program};
use crate::lab::eventually;
use crate::scene::{self, Scene};

const HOSTILE: usize = 1000;
/// The limit of `charts/gatera`.
const ALLOWED_KIB: u64 = 128 * 1024;
const LASTS: Duration = Duration::from_secs(8);
const IN_TIME: Duration = Duration::from_secs(1);

/// Latencies, and what went wrong.
#[derive(Default)]
struct Told {
    latencies: Vec<Duration>,
    failed: Vec<String>,
}

/// A guard with certificates of ours, which registers nothing.
fn guard(folder: &std::path::Path) -> (Guard, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let material =
        Material::new(&["127.0.0.1".to_owned()], Lives::default(), jiff::Timestamp::now()).unwrap();
    for (name, bytes) in material.data() {
        std::fs::write(folder.join(name), bytes.0).unwrap();
    }
    let (plane, _) = guarded::shared();
    let start = Start {
        identity: "hostile".into(),
        namespace: Some("default".into()),
        arguments: vec![format!("--tls-folder={}", folder.display()), "--configuration=hostile".into()],
        ..Start::default()
    };
    let guard = Guard::start(plane, &program(), &start);
    eventually("a guard that is ready", || guard.get("/readyz").filter(|(status, _)| *status == 200));
    (guard, material.bundle())
}

/// A line of `/proc/PID/status`, in KiB.
fn memory(guard: &Guard, what: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", guard.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn more_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8192, |most| most.min(8192));
    if limit.current.is_some_and(|now| now < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
}

/// Asks again and again, on one connection or each time on a new one.
async fn real(
    http: Http,
    kept: bool,
    to: SocketAddr,
    config: Arc<ClientConfig>,
    body: Bytes,
    told: Arc<Mutex<Told>>,
    until: Instant,
) {
    let mut open = None;
    while Instant::now() < until {
        let asked = Instant::now();
        let outcome = async {
            let mut caller = match open.take() {
                Some(caller) => caller,
                None => Caller::open(http, to, &config).await?,
            };
            let (status, _, text) = caller.ask("/validate", &body).await?;
            if status != 200 || !text.contains("\"allowed\":true") {
                return Err(format!("{status}: {text}"));
            }
            Ok(caller)
        };
        match outcome.await {
            Ok(caller) => {
                told.lock().unwrap().latencies.push(asked.elapsed());
                open = Some(caller).filter(|_| kept);
            }
            Err(words) => told.lock().unwrap().failed.push(format!("{http:?}, kept: {kept}: {words}")),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_thousand_hostile_connections_take_neither_the_memory_nor_the_time() {
    more_files();
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path());
    let (_, object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    let body = update(&object);
    let told = Arc::<Mutex<Told>>::default();
    let before = memory(&guard, "VmHWM");
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let crowd = crowd::gather(HOSTILE, guard.webhooks, &bundle);
    clients.block_on(async {
        let until = Instant::now() + LASTS;
        let mut asking = tokio::task::JoinSet::new();
        for (http, kept) in
            [(Http::One, true), (Http::One, true), (Http::Two, true), (Http::One, false), (Http::Two, false)]
        {
            let (config, told) = (config(http, &bundle, None), Arc::clone(&told));
            asking.spawn(real(http, kept, guard.webhooks, config, body.clone(), told, until));
        }
        asking.join_all().await;
    });
    crowd.shutdown_timeout(Duration::from_secs(1));
    let peak = memory(&guard, "VmHWM");
    let mut told = told.lock().unwrap();
    told.latencies.sort();
    let at = |percent: usize| told.latencies[(told.latencies.len() - 1) * percent / 100];
    eprintln!(
        "{} answers: p50 {:?}, p99 {:?}, slowest {:?}; memory {before} -> {peak} KiB",
        told.latencies.len(),
        at(50),
        at(99),
        at(100)
    );
    let metrics = guard.get("/metrics").unwrap().1;
    for line in metrics.lines().filter(|line| line.contains("turned_away") || line.contains("reviews_total"))
    {
        eprintln!("{line}");
    }
    assert_eq!(told.failed, Vec::<String>::new(), "real requests failed");
    assert!(told.latencies.len() > 100, "only {} answers", told.latencies.len());
    assert!(at(99) < IN_TIME, "p99 {:?}", at(99));
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
    for reason in ["too_many", "slow"] {
        let line = format!("gatera_connections_turned_away_total{{reason=\"{reason}\"}}");
        assert!(
            metrics.contains(&line),
            "nobody was turned away as {reason}: what did the crowd do?\n{metrics}"
        );
    }
}
