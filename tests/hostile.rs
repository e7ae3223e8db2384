//! A thousand hostile connections and a few real ones: the real program stays below the memory limit of its chart and
//! answers every real request.

mod crowd;
mod lists;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use gatera::act::certs::{Lifetimes, Material};
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::caller::{Caller, config, update};
use crate::guarded::{self, Guard, Start, program};
use crate::lab::eventually;
use crate::scene::{self, Scene};

const HOSTILE_CONNECTIONS: usize = 1000;
/// The memory limit in `charts/gatera`.
const MEMORY_LIMIT_KIB: u64 = 128 * 1024;
/// How long real clients send requests while more and more of the hostile connections do harm.
const CROWD_LASTS: Duration = Duration::from_secs(15);
/// The number of connections that read no answers. On each, the guard sends thirty refusals before the kernel's buffers are full.
const UNREAD_CONNECTIONS: usize = 16;
/// The number of requests of each real client.
const REQUESTS_PER_CLIENT: usize = 20;
/// The time after which a missing answer fails the test. The benchmark in `tests/bench/crowd.rs` measures the response times.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts a guard that uses certificates of the test and registers no webhooks, and returns it with the CA to trust.
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

/// Writes new certificates into this folder and returns the CA to trust.
fn certificates(folder: &std::path::Path) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let material =
        Material::new(&["127.0.0.1".to_owned()], Lifetimes::default(), jiff::Timestamp::now()).unwrap();
    for (name, bytes) in material.data() {
        std::fs::write(folder.join(name), bytes.0).unwrap();
    }
    material.bundle()
}

/// Returns the guard's peak memory in KiB, without mapped files, whose memory a kernel can reclaim.
fn peak_memory(guard: &Guard) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", guard.pid())).unwrap();
    let kib = |what: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    };
    kib("VmHWM") - kib("RssFile")
}

/// Sends one request after another, all on one connection or each on a new one.
async fn real_client(
    kept: bool,
    to: SocketAddr,
    config: Arc<ClientConfig>,
    body: Bytes,
) -> Result<(), String> {
    let mut open = None;
    for turn in 0..REQUESTS_PER_CLIENT {
        let asked = async {
            let mut caller = match open.take() {
                Some(caller) => caller,
                None => Caller::open(to, &config).await?,
            };
            let (status, _, text) = caller.ask("/validate", &body).await?;
            if status == 200 && text.contains("\"allowed\":true") {
                Ok(caller)
            } else {
                Err(format!("{status}: {text}"))
            }
        };
        let outcome = timeout(ANSWER_TIMEOUT, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()));
        let caller = outcome.map_err(|words| format!("kept: {kept}, request {turn}: {words}"))?;
        open = Some(caller).filter(|_| kept);
    }
    Ok(())
}

/// Asserts that every request of real clients is answered, on connections that are kept and on new ones.
fn assert_real_clients_are_answered(guard: &Guard, bundle: &str) {
    let (_, object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    let body = update(&object);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(async {
        let mut asking = tokio::task::JoinSet::new();
        for kept in [true, true, true, false, false] {
            asking.spawn(real_client(kept, guard.webhooks, config(bundle, None), body.clone()));
        }
        asking.join_all().await
    });
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed, Vec::<String>::new(), "real requests failed");
}

#[test]
fn real_requests_are_answered_within_the_memory_limit_despite_a_thousand_hostile_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "hostile");
    let before = peak_memory(&guard);
    let (crowd, tally) = crowd::gather(HOSTILE_CONNECTIONS, guard.webhooks, &bundle);
    // On a busy machine it takes time until all connections are open.
    let turns_away = || counter(&guard, r#"gatera_connections_turned_away_total{reason="too_many"}"#) > 0;
    eventually("every kind of hostile connection to do harm, and connections to be turned away", || {
        (tally.every_kind_did_harm() && turns_away()).then_some(())
    });
    let begun = Instant::now();
    while begun.elapsed() < CROWD_LASTS {
        assert_real_clients_are_answered(&guard, &bundle);
    }
    crowd.shutdown_timeout(Duration::from_secs(1));
    let peak = peak_memory(&guard);
    eprintln!("{before} KiB before, {peak} KiB at the peak");
    assert!(peak < MEMORY_LIMIT_KIB, "the guard took {peak} KiB; its limit is {MEMORY_LIMIT_KIB} KiB");
    eprintln!("how often connections of each kind did harm: {:?}", tally.counts());
}

/// Returns the value of a counter in `/metrics`, or 0 while it is not listed.
fn counter(guard: &Guard, line: &str) -> u64 {
    let metrics = guard.get("/metrics").unwrap().1;
    let value = metrics.lines().find_map(|it| it.strip_prefix(line));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

/// Each body lacks its last byte of 8 MiB, on a connection that looks like an API server's: 32 of them once took 303 MiB.
#[test]
fn bodies_that_never_end_take_no_more_than_their_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "bodies");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let held = runtime.block_on(crowd::unfinished_bodies(32, guard.webhooks, &bundle));
    let peak = peak_memory(&guard);
    let busy = counter(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="busy"}"#);
    eprintln!(
        "{} of 32 bodies were accepted, {busy} requests were refused for lack of memory; {peak} KiB",
        held.len()
    );
    assert!(busy > 0, "the budget was never used up");
    assert!(peak < MEMORY_LIMIT_KIB, "the guard took {peak} KiB; its limit is {MEMORY_LIMIT_KIB} KiB");
    assert_real_clients_are_answered(&guard, &bundle);
}

/// Each refusal has 100 KiB, and the clients read none of them.
#[test]
fn answers_that_clients_do_not_read_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "untaken");
    let runtime = crowd::runtime();
    let crowd = runtime.spawn(crowd::unread_answers(UNREAD_CONNECTIONS, guard.webhooks, bundle.clone()));
    assert_real_clients_are_answered(&guard, &bundle);
    let closed = runtime.block_on(crowd).unwrap();
    assert_real_clients_are_answered(&guard, &bundle);
    let peak = peak_memory(&guard);
    let refused = counter(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="refused"}"#);
    let slow = counter(&guard, r#"gatera_connections_turned_away_total{reason="slow"}"#);
    eprintln!("{refused} refusals, {slow} slow connections were closed; {peak} KiB");
    assert!(
        closed.len() == UNREAD_CONNECTIONS && slow > 0,
        "not all connections that read nothing were closed: {closed:?}"
    );
    assert!(peak < MEMORY_LIMIT_KIB, "the guard took {peak} KiB; its limit is {MEMORY_LIMIT_KIB} KiB");
}
