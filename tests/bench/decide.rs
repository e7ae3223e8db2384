//! The decision alone, in this process: from a request's body to the bytes of the answer, without HTTP, TLS or sockets.
//!
//! Measured at 1,000 requests a second, as in production (cold caches included), and without pauses for the mean.

use gatera::rulebook;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use engine::amend::amend;
pub use engine::verdict::Decision;
pub use facts::review::Incoming;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{Facts, Freshness, View, World};
use hdrhistogram::Histogram;
use jiff::Timestamp;
use objects::{Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fleet::{self, CLUSTERS};
use crate::load::{self, count};
use crate::plan::Plan;
use crate::reviews::{ALLOWED, Request, Shape};
use crate::series::milliseconds;

/// The rate of paced decisions, per second.
const RATE: f64 = 1000.0;
/// The interval between rebuilds of the world while members come and go.
const REBUILT_EVERY: Duration = Duration::from_millis(100);

/// The times of decisions, and of other work of the guard, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Decisions {
    pub paced: Percentiles,
    /// Decisions about every shape of request in turn.
    pub paced_mix: Percentiles,
    /// The same as `paced`, while the world is rebuilt ten times a second.
    pub paced_while_rebuilding: Percentiles,
    /// The time to rebuild the world from the facts, as after every event.
    pub rebuild: Percentiles,
    /// The mean time to plan the steps of all clusters.
    pub plan: f64,
    /// Means of decisions made one after the other, without a pause.
    pub unpaced: Vec<(&'static str, f64)>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Percentiles {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |share| milliseconds(histogram.value_at_quantile(share));
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

/// The guard without its network side.
pub struct Engine {
    pub settings: Settings,
    world: ArcSwap<World>,
}

impl Engine {
    /// Returns an engine with this world.
    pub fn of_world(world: ArcSwap<World>, settings: Settings) -> Self {
        Self { settings, world }
    }

    /// Returns the current world.
    pub fn world(&self) -> Arc<World> {
        self.world.load_full()
    }

    /// Does everything that happens between the last byte of a request and the first byte of its answer.
    pub fn decide(&self, mutating: bool, body: &[u8]) -> Vec<u8> {
        let incoming = read(mutating, body);
        let decision = self.judge(&incoming);
        self.answer(mutating, &incoming, &decision)
    }

    /// Judges a request.
    pub fn judge(&self, incoming: &Incoming<'_>) -> Decision {
        let world = self.world.load();
        rulebook().evaluate(&incoming.review, &View::new(&world, Timestamp::now(), &self.settings))
    }

    /// Writes the answer, with the patch.
    pub fn answer(&self, mutating: bool, incoming: &Incoming<'_>, decision: &Decision) -> Vec<u8> {
        let world = self.world.load();
        let view = View::new(&world, Timestamp::now(), &self.settings);
        let review = &incoming.review;
        let object = incoming.object.as_ref().filter(|_| mutating && decision.allowed());
        let patch = object.and_then(|object| amend(review, object, decision, &view));
        let (uid, pages) = (&incoming.uid, &self.settings.pages);
        let answer = report::admission(uid, review, decision, &view.seen(), patch.as_ref(), pages);
        serde_json::to_vec(&answer).expect("an answer is JSON")
    }
}

/// Reads a request.
pub fn read(mutating: bool, body: &[u8]) -> Incoming<'_> {
    let origin = if mutating { Origin::Mutating } else { Origin::Validating };
    review::read(body, origin, rulebook().kinds()).expect("a review")
}

/// Every shape of request that reaches the webhooks in production.
pub const MIX: [Shape; 8] = [
    Shape::Update(17 * 1024),
    Shape::Amend(17 * 1024),
    Shape::Create(8 * 1024),
    Shape::Scale,
    Shape::Pod,
    Shape::Delete,
    Shape::Config,
    Shape::Secret,
];

/// Returns an engine whose view holds all clusters, and the facts that the view is built from.
pub fn engine() -> (Engine, Facts) {
    let settings = Settings::default();
    let facts = fleet::facts(CLUSTERS, &settings);
    (engine_of(facts.clone()), facts)
}

/// Returns an engine with these facts.
pub fn engine_of(facts: Facts) -> Engine {
    let world = World::build(facts, Freshness::Current);
    Engine::of_world(ArcSwap::from_pointee(world), Settings::default())
}

/// Measures all figures of `Decisions`.
pub fn measure(plan: &Plan, engine: &Engine, facts: &Facts) -> Decisions {
    let clusters = || (0..CLUSTERS).step_by(4);
    let updates: Vec<_> = clusters().map(|cluster| (false, MIX[0].request(cluster))).collect();
    let mix: Vec<_> = clusters()
        .zip(MIX.iter().cycle())
        .map(|(cluster, shape)| (shape.mutating(), shape.request(cluster)))
        .collect();
    let (paced, _) = at_rate(engine, &updates, plan.length(), None);
    let (paced_mix, _) = at_rate(engine, &mix, plan.length(), None);
    let (while_rebuilding, rebuilds) = at_rate(engine, &updates, plan.length(), Some(facts));
    Decisions {
        paced: Percentiles::of(&paced),
        paced_mix: Percentiles::of(&paced_mix),
        paced_while_rebuilding: Percentiles::of(&while_rebuilding),
        rebuild: Percentiles::of(&rebuilds),
        plan: mean_look(plan.length() / 10, engine, leader::plan::next),
        unpaced: unpaced(engine, plan),
    }
}

/// Measures paced decisions and, if there are `facts`, the rebuilds of the world that run at the same time.
fn at_rate(
    engine: &Engine,
    bodies: &[(bool, Request)],
    length: Duration,
    facts: Option<&Facts>,
) -> (Histogram<u64>, Histogram<u64>) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rebuilding = facts.map(|facts| scope.spawn(|| rebuild(engine, facts, &is_over)));
        let deciding = scope.spawn(|| {
            load::reduce_timer_slack();
            let mut latencies = load::histogram();
            let (mut due, end) = (Instant::now(), Instant::now() + length);
            for (mutating, body) in bodies.iter().cycle() {
                load::wait_until(due);
                let started = Instant::now();
                black_box(engine.decide(*mutating, body.body()));
                latencies.saturating_record(load::nanoseconds(started.elapsed()));
                due += Duration::from_secs_f64(1.0 / RATE);
                if due > end {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            latencies
        });
        let rebuilds = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("worlds can be built");
        (deciding.join().expect("every body is a review"), rebuilding.map_or_else(load::histogram, rebuilds))
    })
}

/// Rebuilds the world, as `watch` does after every event, until the decisions are over. Each event here repeats a member.
fn rebuild(engine: &Engine, facts: &Facts, is_over: &AtomicBool) -> Histogram<u64> {
    let (mut facts, mut times) = (facts.clone(), load::histogram());
    for cluster in (0..CLUSTERS).cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let text = fleet::pod(cluster, 0).to_string();
        let started = Instant::now();
        let pod = Object::read(Kind::Pod, &text).expect("the fleet is made of readable objects");
        facts.put(pod);
        let world = engine.world.load().after(&mut facts);
        engine.world.store(world.into());
        times.saturating_record(load::nanoseconds(started.elapsed()));
        thread::sleep(REBUILT_EVERY);
    }
    times
}

/// Measures the mean times of decisions and other work without a pause.
fn unpaced(engine: &Engine, plan: &Plan) -> Vec<(&'static str, f64)> {
    let each = plan.length() / 10;
    let of = |shape: Shape| {
        let bodies: Vec<_> = (0..64).map(|cluster| shape.request(cluster)).collect();
        let answer = engine.decide(shape.mutating(), bodies[0].body());
        let answer = String::from_utf8(answer).expect("answers are text");
        assert!(answer.contains(ALLOWED), "{shape:?}: {answer}");
        mean(each, &bodies, |body| drop(black_box(engine.decide(shape.mutating(), body))))
    };
    let update = Shape::Update(17 * 1024);
    let bodies = [update.request(0)];
    let decode = |body: &[u8]| drop(black_box(serde_json::from_slice::<Value>(body).expect("JSON")));
    vec![
        ("only decoding 17 KB into a Value", mean(each, &bodies, decode)),
        ("17 KB update", of(update)),
        ("17 KB update of what no rule reads", of(Shape::Touch(17 * 1024))),
        ("17 KB update with old faults", of(Shape::Faulty(17 * 1024))),
        ("17 KB update, mutating", of(Shape::Amend(17 * 1024))),
        ("8 KB create", of(Shape::Create(8 * 1024))),
        ("scale", of(Shape::Scale)),
        ("pod, with its patch", of(Shape::Pod)),
        ("pod deleted", of(Shape::Delete)),
        ("ConfigMap update", of(Shape::Config)),
        ("Secret update", of(Shape::Secret)),
        ("audit of every cluster", mean_look(each, engine, |view| inspect::audit::run(rulebook(), view))),
    ]
}

/// Returns the mean time in milliseconds that one look at all clusters takes: for the plan, or for the audit.
fn mean_look<T>(length: Duration, engine: &Engine, look: impl Fn(&View<'_>) -> T) -> f64 {
    let world = engine.world.load();
    let view = View::new(&world, Timestamp::now(), &engine.settings);
    assert_eq!(world.clusters().count(), CLUSTERS);
    let started = Instant::now();
    let mut done = 0;
    while done == 0 || started.elapsed() < length {
        black_box(look(&view));
        done += 1;
    }
    started.elapsed().as_secs_f64() * 1e3 / count(done)
}

/// Returns the mean time per request in milliseconds.
fn mean(length: Duration, bodies: &[Request], mut act: impl FnMut(&[u8])) -> f64 {
    let started = Instant::now();
    let mut done = 0;
    for body in bodies.iter().cycle() {
        act(body.body());
        done += 1;
        if started.elapsed() >= length {
            break;
        }
    }
    started.elapsed().as_secs_f64() * 1e3 / count(done)
}
