//! The real program at a real API server with all the clusters in it: how it starts, what it weighs, what it asks.
//!
//! Runs with `BENCH_LAB=1` only: a control plane has to make a thousand StatefulSets and three thousand pods first,
//! which takes minutes. Uses the lab of the tests.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use crate::api::{Api, STRANGER, difference};
use crate::client::{self, Connection};
use crate::fleet::CLUSTERS;
use crate::guarded::{self, Guard, Start};
use crate::lab::{self, ControlPlane, User};
use crate::load::{self, Line, Pace};
use crate::plan::Plan;
use crate::reviews::{Request, Shape};
use crate::series::quartiles;
use crate::{child, fleet};

/// Milliseconds and MiB.
#[derive(Clone, Debug, Serialize)]
pub struct Real {
    pub populate_seconds: f64,
    pub coming_up: ComingUp,
    pub idle_mib: f64,
    pub loaded_mib: f64,
    pub peak_mib: f64,
    pub per_second: f64,
    /// Requests to the API server per minute in steady state, beyond what it has without a guard.
    pub requests_per_minute: BTreeMap<String, f64>,
    /// An update that the guard is not asked about, and what asking it (one mutating and one validating call) adds.
    pub update_ms: f64,
    pub added_ms: f64,
}

/// The first seconds of the process, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct ComingUp {
    /// From its start until every list is complete.
    pub listed: f64,
    /// From there until it is ready.
    pub ready: f64,
    /// From there until a request over a new connection has its answer.
    pub first_admission: f64,
}

/// So long is counted what is asked when nothing happens.
const STEADY: Duration = Duration::from_secs(30);
/// A start is over then, and what it caused.
const SETTLED: Duration = Duration::from_secs(5);
/// Updates of each kind.
const UPDATES: usize = 300;
const CONNECTIONS: usize = 16;
const UPDATE: Shape = Shape::Update(17 * 1024);

/// Measures all of it. Panics if the lab does not work.
pub fn measure(plan: &Plan) -> Real {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let plane = ControlPlane::start();
    guarded::install(&plane);
    let api = runtime.block_on(Api::connect(&plane.kubeconfig(User::Admin)));
    let started = Instant::now();
    runtime.block_on(api.populate(CLUSTERS));
    let populate_seconds = started.elapsed().as_secs_f64();
    register(&plane);
    let alone = runtime.block_on(steady(&api));

    let ca = authority(&plane);
    let guard = begin(&plane, "measured");
    let coming_up = come_up(&guard, &ca);
    thread::sleep(SETTLED);
    let idle_mib = child::resident(guard.pid());
    let block = load::run(&mut lines(&guard, &ca), Pace::Closed, plan.length());
    let loaded_mib = child::resident(guard.pid());

    until_it_leads(&guard);
    let with = runtime.block_on(steady(&api));
    let (update_ms, added_ms) = runtime.block_on(added(&api));
    Real {
        populate_seconds,
        coming_up,
        idle_mib,
        loaded_mib,
        peak_mib: child::peak(guard.pid()),
        per_second: block.per_second(),
        requests_per_minute: difference(&alone, &with),
        update_ms,
        added_ms,
    }
}

/// A first guard makes the certificates and registers; the one that is measured finds both, as every replica does after
/// the first. An orderly end leaves the lease to the next.
fn register(plane: &ControlPlane) {
    let first = begin(plane, "first");
    until_it_leads(&first);
    first.terminate();
    first.until_ended(Duration::from_secs(30));
}

fn begin(plane: &ControlPlane, identity: &str) -> Guard {
    let arguments = vec!["--lame-duck=0".to_owned()];
    Guard::start(
        plane,
        &guarded::program(),
        &Start { identity: identity.into(), arguments, ..Start::default() },
    )
}

/// Only a leader makes certificates, registers and marks clusters; before it has, nothing is steady.
fn until_it_leads(guard: &Guard) {
    lab::eventually("the guard to lead", || {
        guard.get("/metrics")?.1.lines().any(|line| line == "gatera_leader 1").then_some(())
    });
    guard.until_registered();
    thread::sleep(SETTLED);
}

/// Whom a client of the guard trusts: as the guard has registered it.
fn authority(plane: &ControlPlane) -> String {
    let path = "--output=jsonpath={.webhooks[0].clientConfig.caBundle}";
    let text =
        plane.kubectl(User::Admin, &["get", "validatingwebhookconfiguration/gatera", path]).succeeded();
    String::from_utf8(BASE64.decode(text.trim()).expect("a caBundle is base64")).expect("and PEM")
}

/// Watches it come up. Its age counts from the kernel's clock, as starting it is the lab's work.
fn come_up(guard: &Guard, ca: &str) -> ComingUp {
    let request = UPDATE.request(0);
    let until = |holds: &dyn Fn(u16, &str) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !guard.get("/readyz").is_some_and(|(status, text)| holds(status, &text)) {
            assert!(Instant::now() < deadline, "the guard does not become ready:\n{}", guard.log());
            thread::sleep(Duration::from_millis(1));
        }
        Instant::now()
    };
    let listed = until(&|_, text| text.contains("[+] view"));
    let age = child::age(guard.pid()).saturating_sub(listed.elapsed());
    let ready = until(&|status, _| status == 200);
    line(guard, ca, request).ask();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    ComingUp {
        listed: milliseconds(age),
        ready: milliseconds(ready - listed),
        first_admission: milliseconds(listed.elapsed()),
    }
}

fn line(guard: &Guard, ca: &str, request: Request) -> Line {
    let connection = Connection::open(guard.webhooks, &client::trusting(ca)).expect("the guard accepts");
    Line::new(connection, vec![request], UPDATE.expects())
}

fn lines(guard: &Guard, ca: &str) -> Vec<Line> {
    let about = |number| UPDATE.request(number * CLUSTERS / CONNECTIONS);
    (0..CONNECTIONS).map(|number| line(guard, ca, about(number))).collect()
}

/// Requests per minute while nothing happens.
async fn steady(api: &Api) -> BTreeMap<String, f64> {
    api.until_quiet().await;
    let before = api.requests().await;
    tokio::time::sleep(STEADY).await;
    let mut asked = difference(&before, &api.requests().await);
    for count in asked.values_mut() {
        *count *= 60.0 / STEADY.as_secs_f64();
    }
    asked
}

/// An update without the guard, and what the guard adds, at the median of pairs. Both go through the same API server;
/// the stranger's labels keep the guard out. In every second pair the order is the other one.
async fn added(api: &Api) -> (f64, f64) {
    let (mut alone, mut extra) = (Vec::new(), Vec::new());
    for number in 0..UPDATES {
        let guarded = fleet::namespace(number % CLUSTERS);
        let mut times = [0.0; 2];
        for turn in if number % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (namespace, name) =
                if turn == 0 { ("db-0000", STRANGER) } else { (&*guarded, fleet::STATEFUL_SET) };
            times[turn] = api.dry_run_update(namespace, name, number).await.as_secs_f64() * 1e3;
        }
        alone.push(times[0]);
        extra.push(times[1] - times[0]);
    }
    (quartiles(alone)[1], quartiles(extra)[1])
}
