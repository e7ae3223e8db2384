//! A thousand connections that mean harm, and a few that do not: the real program keeps below the memory that its chart
//! allows, and answers real requests in time.

mod crowd;
mod lists;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use gatera::act::certs::{Lives, Material};
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
const CALM: Duration = Duration::from_secs(2);
const LASTS: Duration = Duration::from_secs(8);
/// So many answers say something about all of them, and so long they are waited for.
const ENOUGH: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);
/// API servers wait for ten; a program that is not optimized, on two busy processors, takes one now and then.
const IN_TIME: Duration = Duration::from_secs(2);

/// Latencies, and what went wrong.
#[derive(Default)]
struct Told {
    latencies: Vec<Duration>,
    failed: Vec<String>,
}

/// A guard with certificates of ours, which registers nothing.
fn guard(folder: &std::path::Path, identity: &str) -> (Guard, String) {
    let bundle = certificates(folder);
    let (plane, _) = guarded::shared();
    let start = Start {
        identity: identity.into(),
        namespace: Some("default".into()),
        arguments: vec![format!("--tls-folder={}", folder.display()), format!("--configuration={identity}")],
        ..Start::default()
    };
    let guard = Guard::start(plane, &program(), &start);
    eventually("a guard that is ready", || guard.get("/readyz").filter(|(status, _)| *status == 200));
    (guard, bundle)
}

/// Certificates of ours in this folder, and what to trust.
fn certificates(folder: &std::path::Path) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let material =
        Material::new(&["127.0.0.1".to_owned()], Lives::default(), jiff::Timestamp::now()).unwrap();
    for (name, bytes) in material.data() {
        std::fs::write(folder.join(name), bytes.0).unwrap();
    }
    material.bundle()
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
    // A machine that is busy with something else answers less in the same time.
    let too_few = || told.lock().unwrap().latencies.len() <= ENOUGH && Instant::now() < until + PATIENCE;
    while Instant::now() < until || too_few() {
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

/// What real clients are told in so much time: over kept connections and new ones, in both protocols.
fn asked(guard: &Guard, bundle: &str, lasts: Duration) -> Told {
    let (_, object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    let (body, told) = (update(&object), Arc::<Mutex<Told>>::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let until = Instant::now() + lasts;
        let mut asking = tokio::task::JoinSet::new();
        for (http, kept) in
            [(Http::One, true), (Http::One, true), (Http::Two, true), (Http::One, false), (Http::Two, false)]
        {
            let (config, told) = (config(http, bundle, None), Arc::clone(&told));
            asking.spawn(real(http, kept, guard.webhooks, config, body.clone(), told, until));
        }
        asking.join_all().await;
    });
    let mut told = std::mem::take(&mut *told.lock().unwrap());
    told.latencies.sort();
    assert_eq!(told.failed, Vec::<String>::new(), "real requests failed");
    assert!(told.latencies.len() > ENOUGH, "only {} answers", told.latencies.len());
    told
}

impl Told {
    fn percentile(&self, percent: usize) -> Duration {
        self.latencies[(self.latencies.len() - 1) * percent / 100]
    }
}

#[test]
fn a_thousand_hostile_connections_take_neither_the_memory_nor_the_time() {
    more_files();
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "hostile");
    let calm = asked(&guard, &bundle, CALM);
    let before = memory(&guard, "VmHWM");
    let (crowd, tally) = crowd::gather(HOSTILE, guard.webhooks, &bundle);
    eventually("a crowd in which everybody does harm", || tally.is_whole().then_some(()));
    let told = asked(&guard, &bundle, LASTS);
    crowd.shutdown_timeout(Duration::from_secs(1));
    let peak = memory(&guard, "VmHWM");
    eprintln!(
        "alone: {} answers, p50 {:?}, p99 {:?}, {before} KiB; in the crowd: {} answers, p50 {:?}, p99 {:?}, {peak} KiB",
        calm.latencies.len(),
        calm.percentile(50),
        calm.percentile(99),
        told.latencies.len(),
        told.percentile(50),
        told.percentile(99),
    );
    // A machine that is busy with something else takes long without a crowd, too, and longer with it.
    let limit = IN_TIME + 4 * calm.percentile(99);
    assert!(told.percentile(99) < limit, "p99 {:?} instead of {limit:?}", told.percentile(99));
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
    let metrics = guard.get("/metrics").unwrap().1;
    let line = "gatera_connections_turned_away_total{reason=\"too_many\"}";
    assert!(metrics.contains(line), "nobody had to make way: what did the crowd do?\n{metrics}");
    eprintln!("so often each way came to do harm: {:?}", tally.told());
}

/// A counter of `/metrics`; 0 while it is not there.
fn counted(guard: &Guard, line: &str) -> u64 {
    let metrics = guard.get("/metrics").unwrap().1;
    let value = metrics.lines().find_map(|it| it.strip_prefix(line));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

/// Bodies of 8 MiB less one byte, on connections that look like an API server's: 32 of them once took 303 MiB.
#[test]
fn bodies_that_never_end_take_no_more_than_their_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "bodies");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let held = runtime.block_on(crowd::unfinished_bodies(32, guard.webhooks, &bundle));
    let peak = memory(&guard, "VmHWM");
    let busy = counted(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="busy"}"#);
    eprintln!("{} of 32 were taken so far, {busy} had to make way; {peak} KiB", held.len());
    assert!(busy > 0, "the budget was never used up");
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
    asked(&guard, &bundle, CALM);
}

/// Refusals of 100 KiB over HTTP/2, to clients that have no room for them: 150 MiB, if all of them were kept.
#[test]
fn answers_that_nobody_takes_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "untaken");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let held = runtime.block_on(crowd::untaken_answers(48, guard.webhooks, &bundle));
    asked(&guard, &bundle, CALM);
    let peak = memory(&guard, "VmHWM");
    let refused = counted(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="refused"}"#);
    let slow = counted(&guard, r#"gatera_connections_turned_away_total{reason="slow"}"#);
    let errors: Vec<_> = held.iter().filter_map(|it| it.as_ref().err()).collect();
    eprintln!("{refused} refusals, {slow} connections had to make way; {peak} KiB; {errors:?}");
    assert!(refused > 512 && slow > 0, "so few answers are kept whoever takes them");
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
}
