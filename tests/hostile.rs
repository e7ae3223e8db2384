//! A thousand connections that mean harm, and a few that do not: the real program keeps below the memory that its chart
//! allows, and answers each real request.

mod crowd;
mod lists;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use gatera::act::certs::{Lives, Material};
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::caller::{Caller, config, update};
use crate::guarded::{self, Guard, Start, program};
use crate::lab::eventually;
use crate::scene::{self, Scene};

const HOSTILE: usize = 1000;
/// The limit of `charts/gatera`.
const ALLOWED_KIB: u64 = 128 * 1024;
/// Each client asks so often, and its answers say something about all.
const ENOUGH: usize = 20;
/// A guard that never answers fails the test; how long an answer takes is the bench's matter (`tests/bench/crowd.rs`).
const NEVER: Duration = Duration::from_secs(120);

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

/// The most memory that it ever had, in KiB, without the program's own file: a kernel takes that back when it needs to.
fn most_memory(guard: &Guard) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", guard.pid())).unwrap();
    let kib = |what: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    };
    kib("VmHWM") - kib("RssFile")
}

/// Asks again and again, on one connection or each time on a new one.
async fn real(kept: bool, to: SocketAddr, config: Arc<ClientConfig>, body: Bytes) -> Result<(), String> {
    let mut open = None;
    for turn in 0..ENOUGH {
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
        let outcome = timeout(NEVER, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()));
        let caller = outcome.map_err(|words| format!("kept: {kept}, request {turn}: {words}"))?;
        open = Some(caller).filter(|_| kept);
    }
    Ok(())
}

/// Real clients, over kept connections and new ones: each of their requests is answered.
fn each_is_answered(guard: &Guard, bundle: &str) {
    let (_, object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    let body = update(&object);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(async {
        let mut asking = tokio::task::JoinSet::new();
        for kept in [true, true, true, false, false] {
            asking.spawn(real(kept, guard.webhooks, config(bundle, None), body.clone()));
        }
        asking.join_all().await
    });
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed, Vec::<String>::new(), "real requests failed");
}

#[test]
fn a_thousand_hostile_connections_take_neither_the_memory_nor_the_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "hostile");
    let before = most_memory(&guard);
    let (crowd, tally) = crowd::gather(HOSTILE, guard.webhooks, &bundle);
    eventually("a crowd in which everybody does harm", || tally.is_whole().then_some(()));
    each_is_answered(&guard, &bundle);
    crowd.shutdown_timeout(Duration::from_secs(1));
    let peak = most_memory(&guard);
    eprintln!("{before} KiB alone, {peak} KiB in the crowd");
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
    let peak = most_memory(&guard);
    let busy = counted(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="busy"}"#);
    eprintln!("{} of 32 were taken so far, {busy} had to make way; {peak} KiB", held.len());
    assert!(busy > 0, "the budget was never used up");
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
    each_is_answered(&guard, &bundle);
}

/// Refusals of 100 KiB to clients that take none of them.
#[test]
fn answers_that_nobody_takes_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (guard, bundle) = guard(folder.path(), "untaken");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let crowd = runtime.spawn(crowd::untaken_answers(48, guard.webhooks, bundle.clone()));
    each_is_answered(&guard, &bundle);
    let thrown_out = runtime.block_on(crowd).unwrap();
    each_is_answered(&guard, &bundle);
    let peak = most_memory(&guard);
    let refused = counted(&guard, r#"gatera_reviews_total{endpoint="/validate",answer="refused"}"#);
    let slow = counted(&guard, r#"gatera_connections_turned_away_total{reason="slow"}"#);
    eprintln!("{refused} refusals, {slow} connections had to make way; {peak} KiB");
    assert!(thrown_out.len() == 48 && slow > 0, "who takes nothing is thrown out: {thrown_out:?}");
    assert!(peak < ALLOWED_KIB, "it took {peak} KiB of {ALLOWED_KIB}");
}
