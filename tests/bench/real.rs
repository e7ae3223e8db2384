//! The real program at a real API server that holds all the clusters: how it starts, how much memory it uses, which
//! requests it sends.
//!
//! Runs only with `BENCH_LAB=1`: a control plane first has to create a thousand StatefulSets and three thousand pods, which
//! takes minutes. Uses the lab of the tests.

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

/// The figures of the real program; memory is in MiB, update times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Real {
    pub populate_seconds: f64,
    pub coming_up: ComingUp,
    pub idle_mib: f64,
    pub loaded_mib: f64,
    pub peak_mib: f64,
    pub per_second: f64,
    /// Requests per minute to the API server in steady state, beyond those without a guard.
    pub requests_per_minute: BTreeMap<String, f64>,
    /// The time of an update that does not reach the guard, and what calling it adds (once mutating, once validating).
    pub update_ms: f64,
    pub added_ms: f64,
}

/// The phases of the program's start, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct ComingUp {
    /// From the start of the process until every list is complete.
    pub listed: f64,
    /// From complete lists until the guard is ready.
    pub ready: f64,
    /// From complete lists until a request over a new connection has its answer.
    pub first_admission: f64,
}

/// How long requests are counted while nothing happens.
const STEADY: Duration = Duration::from_secs(30);
/// The time after which a start, and all that it caused, is over.
const SETTLED: Duration = Duration::from_secs(5);
/// The number of updates with the guard, and the number without it.
const UPDATES: usize = 300;
const CONNECTIONS: usize = 16;
const UPDATE: Shape = Shape::Update(17 * 1024);

/// Measures everything. Panics if the lab does not work.
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

/// Lets a first guard make the certificates and the registration. The measured guard finds both, as every replica after the
/// first does. The first guard ends in an orderly way and releases its lease for the next.
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

/// Waits until the guard leads, as only a leader makes certificates, registers and marks clusters, and then until it is settled.
fn until_it_leads(guard: &Guard) {
    lab::eventually("the guard to lead", || {
        guard.get("/metrics")?.1.lines().any(|line| line == "gatera_leader 1").then_some(())
    });
    guard.until_registered();
    thread::sleep(SETTLED);
}

/// Returns the CA bundle from the guard's registration, for clients of the guard.
fn authority(plane: &ControlPlane) -> String {
    let path = "--output=jsonpath={.webhooks[0].clientConfig.caBundle}";
    let text =
        plane.kubectl(User::Admin, &["get", "validatingwebhookconfiguration/gatera", path]).succeeded();
    String::from_utf8(BASE64.decode(text.trim()).expect("a caBundle is base64")).expect("and PEM")
}

/// Measures the start. The process age comes from the kernel's clock, because the lab starts the process.
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

/// Counts the requests per minute while nothing happens.
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

/// Returns the time of an update without the guard and the time that the guard adds, each the median over all pairs. Both
/// updates of a pair go through the same API server; the labels of the stranger keep the guard out. Every second pair has
/// the reverse order.
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
