//! What packs cost: for objects about which their rules find nothing, and for the operator of an Rds, which writes all the time
//! and is exempt from the rules.
//!
//! Decisions with and without packs are measured in turns, object by object: separate runs cannot show nanoseconds.

use gatera::rulebook;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use facts::review::{Origin, Review};
use facts::settings::Settings;
use facts::view::{Facts, View};
use jiff::Timestamp;
use objects::{Kind, Object};
use serde::Serialize;
use serde_json::{Value, json};

use crate::child::Server;
use crate::decide::{Engine, Percentiles};
use crate::fleet::{self, Spread};
use crate::load::{self, LoadConnection, Pace, count};
use crate::plan::Plan;
use crate::reviews::{ALLOWED, Envelope, Request};
use crate::series::quartiles;

/// The target duration of one turn in nanoseconds: so short that other processes rarely interrupt it.
const TURN_NS: f64 = 200_000.0;
/// The number of instances: as many as one operator in production manages.
const INSTANCES: usize = 100;
/// The rate of the operator's writes: it reconciles each instance every ten seconds, and writes the whole object.
const WRITES_PER_SECOND: f64 = 10.0;
/// The least duration in seconds: at ten writes a second, it takes this long to get enough writes for a 99th percentile.
const LEAST_SECONDS: f64 = 20.0;
/// The number of turns of each server in the operator's writes.
const TURNS: u32 = 5;
/// The end of an answer that shows that nothing was found: any finding would add a field.
const NOTHING_FOUND: &[&str] = &["\"allowed\":true}}"];

/// What packs add to the decision about one kind of object, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct PackCost {
    pub object: &'static str,
    pub without_ns: f64,
    /// Lower quartile, median, upper quartile over the turns.
    pub added_ns: [f64; 3],
}

/// Measures the decision about the creation of each kind of object in a cluster. Some packs have rules for these kinds, but the
/// rules find nothing.
pub fn added_to_decisions(plan: &Plan, engine: &Engine) -> Vec<PackCost> {
    let of_cluster = fleet::all(1, Spread::EachAlone).filter(|(kind, _)| *kind != Kind::Node);
    let bootstrap_node = [(Kind::Deployment, fleet::stateful_set(0))];
    let objects: BTreeMap<_, _> = of_cluster.chain(bootstrap_node).collect();
    let off: Vec<_> = rulebook().packs().iter().map(|pack| format!("{}: false", pack.name)).collect();
    let off = rulebook().settings(&format!("packs: {{{}}}", off.join(", "))).expect("settings");
    let each = plan.length() / 5;
    let measure = |(kind, object): (Kind, Value)| {
        let read = Object::read(kind, &object.to_string());
        let id = read.as_ref().map(|it| it.meta().clone()).expect("the fleet is made of readable objects");
        let review = Review::as_created(Origin::Validating, kind, &id.namespace, &id.name, read);
        let world = engine.world();
        let turn = |settings: &Settings, times: u64| {
            let view = View::new(&world, Timestamp::now(), settings);
            let started = Instant::now();
            for _ in 0..times {
                drop(black_box(rulebook().evaluate(black_box(&review), &view)));
            }
            started.elapsed().as_secs_f64() * 1e9 / count(times)
        };
        let mut times = 1;
        while times < 1024 && turn(&off, times) * count(times) < TURN_NS {
            times *= 2;
        }
        let (mut without, mut added, started) = (Vec::new(), Vec::new(), Instant::now());
        while added.len() < 2 || started.elapsed() < each {
            // Each setting comes first in every second turn.
            let (with, none) = if added.len() % 2 == 0 {
                let with = turn(&engine.settings, times);
                (with, turn(&off, times))
            } else {
                let none = turn(&off, times);
                (turn(&engine.settings, times), none)
            };
            without.push(none);
            added.push(with - none);
        }
        PackCost { object: kind.name(), without_ns: quartiles(without)[1], added_ns: quartiles(added) }
    };
    objects.into_iter().map(measure).collect()
}

/// How long the operator waits for the answers to its writes.
#[derive(Clone, Debug, Serialize)]
pub struct Writes {
    /// The answers of a guard that knows all instances.
    pub guard: Percentiles,
    /// The answers of the server that does nothing, in turns with the guard: how long an idle machine takes to wake.
    pub nothing: Percentiles,
    /// The answers of the guard to one write after the other.
    pub without_a_pause: Percentiles,
}

/// Sends the operator's writes ten times a second, to both servers in turns.
pub fn operator(plan: &Plan, guard: &Server, nothing: &Server) -> Writes {
    let (pace, seconds) = if plan.tiny {
        (Pace::Closed, plan.seconds)
    } else {
        (Pace::Open(WRITES_PER_SECOND), plan.seconds.max(LEAST_SECONDS))
    };
    let mut arms = [(guard, NOTHING_FOUND), (nothing, &[ALLOWED])].map(|(server, expects)| {
        let requests = (0..INSTANCES * CHANGES.len()).map(write_request).collect();
        (vec![LoadConnection::new(server.connect(), requests, expects)], load::histogram())
    });
    for _ in 0..TURNS {
        for (connections, latencies) in &mut arms {
            let block = load::run(connections, pace, Duration::from_secs_f64(seconds / f64::from(TURNS)));
            latencies.add(&block.latencies).expect("histograms of one kind");
        }
    }
    let [(mut connections, guard), (_, nothing)] = arms;
    let busy = load::run(&mut connections, Pace::Closed, plan.length());
    let [guard, nothing, without_a_pause] = [guard, nothing, busy.latencies].each_ref().map(Percentiles::of);
    Writes { guard, nothing, without_a_pause }
}

/// Adds all instances to the facts, in the namespaces of the first clusters.
pub fn put_instances(facts: &mut Facts) {
    for number in 0..INSTANCES {
        let read = Object::read(
            rulebook().kinds().named("otc.mcsps.de", "Rds"),
            &instance(number, &json!({})).to_string(),
        );
        assert!(facts.put(read.expect("an Rds")), "the view holds this kind");
    }
}

/// What is merged into an instance before and after each kind of write.
const CHANGES: [[&str; 2]; 6] = [
    ["{}", "{}"],
    [r#"{"status":{"status":"BUILD"}}"#, r#"{"status":{"status":"ACTIVE"}}"#],
    [
        r#"{"spec":{"backuprestoretime":"2026-11-20T08:00:00Z"}}"#,
        r#"{"spec":{"backuprestoretime":""},"status":{"status":"RESTORING"}}"#,
    ],
    ["{}", r#"{"spec":{"volumesize":110}}"#],
    ["{}", r#"{"spec":{"flavorref":"rds.mysql.c2.xlarge"},"status":{"autopilot":true}}"#],
    [r#"{"status":{"reboot":true,"logs":true}}"#, r#"{"status":{"reboot":false,"logs":false}}"#],
];

fn write_request(number: usize) -> Request {
    let name = format!("orders-{}", number % INSTANCES);
    let [old, new] = CHANGES[number / INSTANCES]
        .map(|change| instance(number % INSTANCES, &serde_json::from_str(change).expect("a change is JSON")));
    let envelope = Envelope {
        kind: ["otc.mcsps.de", "v1alpha1", "Rds"],
        resource: "rdss",
        operation: "UPDATE",
        name: &name,
        user: "system:serviceaccount:otc:rdsoperator",
        ..Envelope::default()
    };
    Request::of("validate", &envelope.body(number % INSTANCES, Some(&new), Some(&old)))
}

/// Returns an Rds as an API server holds it: applied once, then written by its operator.
fn instance(number: usize, change: &Value) -> Value {
    let user = |name: &str| {
        let grant = format!("GRANT SELECT ON shop.* TO '{name}'");
        json!({ "name": name, "host": "10.0.0.%", "password": "Correct-Horse-7", "privileges": [grant] })
    };
    let spec = json!({
        "availabilityzone": "eu-de-01,eu-de-02", "backupkeepdays": 12, "backuprestoretime": "", "backupstarttime": "01:00-02:00",
        "databases": ["shop", "orders", "stock"], "datastoretype": "MySQL", "datastoreversion": "8.0", "endpoint": "https://rds.example.com/",
        "flavorref": "rds.mysql.c2.large.ha", "hamode": "Ha", "hareplicationmode": "semisync", "password": "xxxxxxxxxx", "port": "3306",
        "region": "eu-de", "securitygroup": "default", "subnet": "default", "users": (0..8).map(|it| user(&format!("app{it}"))).collect::<Vec<_>>(),
        "volumesize": 100, "volumetype": "COMMON", "vpc": "default",
    });
    let fields: serde_json::Map<_, _> =
        spec.as_object().expect("a spec").keys().map(|it| (format!("f:{it}"), json!({}))).collect();
    let mut it = json!({
        "apiVersion": "otc.mcsps.de/v1alpha1",
        "kind": "Rds",
        "metadata": {
            "name": format!("orders-{number}"),
            "namespace": fleet::namespace(number),
            "uid": format!("2f3a9c1e-4f55-4d2b-8a39-{number:012}"),
            "resourceVersion": "4711",
            "creationTimestamp": "2026-11-01T08:00:00Z",
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": json!({ "spec": spec }).to_string() },
            "managedFields": [{ "manager": "rdsoperator", "operation": "Update", "apiVersion": "otc.mcsps.de/v1alpha1", "fieldsV1": { "f:spec": fields } }],
        },
        "spec": spec,
        "status": { "id": format!("b63d19{number:04}in01"), "ip": "10.0.0.7", "status": "ACTIVE", "autopilot": false, "logs": false, "reboot": false },
    });
    json_patch::merge(&mut it, change);
    it
}
