//! The real program at a real API server that holds all the clusters: how it starts, how much memory it uses, which
//! requests it sends.
//!
//! Runs only with `BENCH_LAB=1`, or as `-- real CLUSTERS TOGETHER` (`true`: all in one namespace): a control plane first has to
//! create thousands of StatefulSets and pods, which takes minutes. Uses the lab of the tests.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::json;

use crate::api::{self, Api, NATIVE, UNSELECTED, difference};
use crate::client::{self, Connection};
use crate::fleet::Spread;
use crate::guarded::{self, Guard, Start};
use crate::lab::{self, ControlPlane, User};
use crate::load::{self, LoadConnection, Pace};
use crate::plan::Plan;
use crate::reviews::{ALLOWED, Request, Shape};
use crate::series::quartiles;
use crate::{child, fleet};

/// The figures of the real program; memory is in MiB, update times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Real {
    pub clusters: usize,
    pub together: bool,
    pub populate_seconds: f64,
    pub coming_up: ComingUp,
    pub idle_mib: f64,
    pub loaded_mib: f64,
    pub peak_mib: f64,
    pub per_second: f64,
    /// Requests per minute to the API server in steady state, beyond those without a guard.
    pub requests_per_minute: BTreeMap<String, f64>,
    /// The time of an update that neither the guard nor a policy judges.
    pub update_ms: f64,
    /// What a ValidatingAdmissionPolicy adds to that time.
    pub added_by_a_policy_ms: f64,
    /// What the guard adds to that time.
    pub added_ms: f64,
    /// What the guard adds to an update that changes nothing that a rule reads.
    pub added_to_nothing_ms: f64,
    pub churn: Churn,
}

/// The cost of members that stop being Ready: one each second, each in another cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// The processor time of the guard, as a share of one processor.
    pub share: f64,
    /// The same while nothing happens.
    pub share_at_rest: f64,
    /// The time from when a member's status is written until the guard judges by it, in milliseconds: median and maximum.
    pub seen_ms: [f64; 2],
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
/// The time after which a start, and everything that it causes, is over.
const SETTLED: Duration = Duration::from_secs(5);
/// The number of rounds of updates, with one update of each sort per round.
const UPDATES: usize = 300;
const CONNECTIONS: usize = 16;
const UPDATE: Shape = Shape::Update(17 * 1024);
/// The number of members that stop being Ready, one each second.
const CHANGES: usize = 40;

/// Measures everything. Panics if the lab does not work.
pub fn measure(plan: &Plan, clusters: usize, spread: Spread) -> Real {
    assert!(
        clusters >= CHANGES,
        "{clusters} clusters are too few: {CHANGES} of them lose a member, one after the other"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let plane = ControlPlane::start();
    guarded::install(&plane);
    let api = runtime.block_on(Api::connect(&plane.kubeconfig(User::Admin), spread));
    let started = Instant::now();
    runtime.block_on(api.populate(clusters));
    let populate_seconds = started.elapsed().as_secs_f64();
    register(&plane, clusters);
    let alone = runtime.block_on(steady(&api));

    let ca = authority(&plane);
    let guard = start_guard(&plane, "measured", clusters);
    let coming_up = come_up(&guard, &ca);
    thread::sleep(SETTLED);
    let idle_mib = child::resident(guard.pid());
    let connections = &mut connections(&guard, &ca, clusters, spread);
    let block = load::run(connections, Pace::Closed, plan.length());
    let loaded_mib = child::resident(guard.pid());

    until_it_leads(&guard);
    let with = runtime.block_on(steady(&api));
    let [update_ms, added_by_a_policy_ms, added_ms, added_to_nothing_ms] =
        runtime.block_on(added(&api, clusters));
    let churn = runtime.block_on(churn(&api, &guard, &ca, clusters, spread));
    Real {
        clusters,
        together: spread == Spread::Together,
        populate_seconds,
        coming_up,
        idle_mib,
        loaded_mib,
        peak_mib: child::peak(guard.pid()),
        per_second: block.per_second(),
        requests_per_minute: difference(&alone, &with),
        update_ms,
        added_by_a_policy_ms,
        added_ms,
        added_to_nothing_ms,
        churn,
    }
}

/// Lets a first guard create the certificates and the registration. The measured guard finds both, as every replica after the
/// first does. The first guard is stopped in order, so it releases its lease for the next one.
fn register(plane: &ControlPlane, clusters: usize) {
    let first = start_guard(plane, "first", clusters);
    until_it_leads(&first);
    first.terminate();
    first.until_ended(Duration::from_secs(30));
}

fn start_guard(plane: &ControlPlane, identity: &str, clusters: usize) -> Guard {
    // Enough for all clusters in a single namespace; the chart's limit of 128 MiB is enough for some hundred.
    let memory = fleet::CLUSTERS.max(clusters) << 20;
    let arguments = vec!["--lame-duck=0".to_owned(), format!("--memory={memory}")];
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
    String::from_utf8(BASE64.decode(text.trim()).expect("a caBundle is base64")).expect("a caBundle is PEM")
}

/// Measures the start. The process age comes from the kernel's clock, because the lab starts the process.
fn come_up(guard: &Guard, ca: &str) -> ComingUp {
    let request = UPDATE.request(0);
    let until = |holds: &dyn Fn(u16, &str) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !guard.get("/readyz").is_some_and(|(status, text)| holds(status, &text)) {
            assert!(Instant::now() < deadline, "the guard was not ready after two minutes:\n{}", guard.log());
            thread::sleep(Duration::from_millis(1));
        }
        Instant::now()
    };
    let listed = until(&|_, text| text.contains("[+] view"));
    let age = child::age(guard.pid()).saturating_sub(listed.elapsed());
    let ready = until(&|status, _| status == 200);
    connection(guard, ca, request).ask();
    ComingUp {
        listed: milliseconds(age),
        ready: milliseconds(ready - listed),
        first_admission: milliseconds(listed.elapsed()),
    }
}

fn connection(guard: &Guard, ca: &str, request: Request) -> LoadConnection {
    let connection = Connection::open(guard.webhooks, &client::trusting(ca)).expect("the guard accepts");
    LoadConnection::new(connection, vec![request], UPDATE.expects())
}

fn connections(guard: &Guard, ca: &str, clusters: usize, spread: Spread) -> Vec<LoadConnection> {
    let about = |number| UPDATE.moved(number * clusters / CONNECTIONS, spread);
    (0..CONNECTIONS).map(|number| connection(guard, ca, about(number))).collect()
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

/// Returns four medians over all rounds: the time of an update that is not judged, and what a policy adds to it, what the guard
/// adds to it, and what the guard adds to an update of a field that no rule reads. All updates of a round go through the
/// same API server, in an order that rotates from round to round.
async fn added(api: &Api, clusters: usize) -> [f64; 4] {
    let [mut alone, mut policy, mut judged, mut nothing] = [const { Vec::new() }; 4];
    for number in 0..UPDATES {
        let set = api.set(number % clusters);
        let field = json!({ "spec": { "minReadySeconds": number } });
        let annotation = json!({ "metadata": { "annotations": { "example.com/turn": number.to_string() } } });
        let [unselected, native] = [UNSELECTED, NATIVE].map(api::unguarded_set);
        let updates = [(&unselected, &field), (&native, &field), (&set, &field), (&set, &annotation)];
        let mut times = [0.0; 4];
        for turn in (0..updates.len()).map(|turn| (turn + number) % updates.len()) {
            let (set, change) = updates[turn];
            times[turn] = milliseconds(api.dry_run_update(set, change).await);
        }
        alone.push(times[0]);
        policy.push(times[1] - times[0]);
        judged.push(times[2] - times[0]);
        nothing.push(times[3] - times[0]);
    }
    [alone, policy, judged, nothing].map(|times| quartiles(times)[1])
}

/// Makes member 0 of a cluster not Ready each second, every time in another cluster. Then asks the guard, in dry runs, whether
/// member 2 of that cluster may be deleted, until it refuses.
async fn churn(api: &Api, guard: &Guard, ca: &str, clusters: usize, spread: Spread) -> Churn {
    let used = || (Instant::now(), child::cpu_seconds(guard.pid()));
    let since = |(began, before): (Instant, f64)| {
        (child::cpu_seconds(guard.pid()) - before) / began.elapsed().as_secs_f64()
    };
    let rest = used();
    tokio::time::sleep(STEADY).await;
    let share_at_rest = since(rest);
    let mut not_ready = fleet::running();
    not_ready["conditions"][3]["status"] = json!("False");
    let mut connection = Connection::open(guard.webhooks, &client::trusting(ca)).expect("the guard accepts");
    let (busy, mut seen) = (used(), Vec::new());
    for number in 0..CHANGES {
        let next = tokio::time::sleep(Duration::from_secs(1));
        let cluster = number * 7919 % clusters;
        let deletion = Shape::DryDelete.moved(cluster, spread);
        api.write_status(cluster, 0, &not_ready).await;
        let written = Instant::now();
        while connection.ask(&deletion.bytes).expect("the guard answers").1.contains(ALLOWED) {
            assert!(
                written.elapsed() < Duration::from_secs(60),
                "the guard does not see that member 0 of cluster {cluster} is not Ready"
            );
        }
        seen.push(milliseconds(written.elapsed()));
        next.await;
    }
    let share = since(busy);
    seen.sort_by(f64::total_cmp);
    Churn { share, share_at_rest, seen_ms: [seen[seen.len() / 2], seen[seen.len() - 1]] }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
