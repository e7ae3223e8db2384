//! What a change costs in a view of 100, 1,000 and 10,000 clusters, and how much memory such a view takes. Each size is
//! measured in its own process, so that memory is counted separately.
//!
//! In each change a member becomes Ready or stops being Ready: its text is read, the object is put into the facts, the next World
//! is built and published, and the previous one is dropped. The delivery of the text is not included. Now and then the leader
//! looks at what has changed since its last look, for its plan and its audit. At the end, requests of every kind are judged in
//! that view.

use gatera::rulebook;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use facts::settings::Settings;
use facts::view::{Facts, Freshness, View, World};
use inspect::audit::IncrementalAudit;
use jiff::Timestamp;
use leader::plan::IncrementalPlanner;
use objects::{Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::decide::{Engine, MIX, Percentiles};
use crate::fleet::{self, Spread};
use crate::plan::Plan;
use crate::reviews::Shape;
use crate::{child, load};

/// The numbers of clusters that are measured, and how they are spread.
const SIZES: [(usize, Spread); 4] = [
    (100, Spread::EachAlone),
    (1_000, Spread::EachAlone),
    (10_000, Spread::EachAlone),
    (10_000, Spread::Together),
];
const CHANGES: usize = 2_000;
/// How often the leader looks at the view during the changes.
const LOOKS: usize = 10;
/// How many requests of each kind are judged, each about a different cluster.
const REQUESTS: usize = 64;
const KIB: f64 = 1024.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Growth {
    pub clusters: usize,
    pub together: bool,
    /// From the text of every object to the first World.
    pub start_ms: f64,
    /// From the text of a changed pod to a World that shows it.
    pub change: Percentiles,
    /// How long the leader's plan and its audit take. If one namespace holds all clusters, each change makes the leader look at
    /// all of them.
    pub looks: [Percentiles; 2],
    /// The mean time to answer a request, in milliseconds, for each kind of request.
    pub requests: Vec<(String, f64)>,
    /// The resident memory per cluster.
    pub kib_per_cluster: f64,
}

impl Growth {
    pub fn name(&self) -> String {
        let spread = if self.together { "in one namespace" } else { "each in its own namespace" };
        format!("{} clusters, {spread}", self.clusters)
    }
}

/// Measures all sizes; a tiny run measures only the smallest.
pub fn measure(plan: &Plan) -> Vec<Growth> {
    let sizes = if plan.tiny { &SIZES[..1] } else { &SIZES[..] };
    let program = std::env::current_exe().expect("this program has a path");
    let grow = |(clusters, spread): &(usize, Spread)| {
        let together = (*spread == Spread::Together).to_string();
        let output = Command::new(&program).args(["grow", &clusters.to_string(), &together]).output();
        let output = output.expect("starting this program again");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("it prints what it measured")
    };
    sizes.iter().map(grow).collect()
}

/// Measures one size in this process and prints the result as its last line.
pub fn grow(clusters: usize, spread: Spread) {
    let (settings, own) = (Settings::default(), std::process::id());
    let (mut facts, before, mut reading_ms) =
        (rulebook().facts(&settings.adoption), child::resident(own), 0.0);
    let mut put = |facts: &mut Facts, kind, text: &str| {
        let begun = Instant::now();
        let object = Object::read(kind, text).expect("the fleet is made of readable objects");
        facts.put(object);
        reading_ms += begun.elapsed().as_secs_f64() * 1e3;
    };
    for (kind, object) in fleet::all(clusters, spread) {
        put(&mut facts, kind, &object.to_string());
    }
    let begun = Instant::now();
    let world = World::empty(&settings.adoption, Freshness::Current).after(&mut facts);
    let building_ms = begun.elapsed().as_secs_f64() * 1e3;
    assert_eq!(world.clusters().count(), clusters);
    let grown_kib = (child::resident(own) - before) * KIB;
    let published = ArcSwap::from_pointee(world);
    let [mut times, mut plans, mut audits] = [(); 3].map(|()| load::histogram());
    let (mut planner, mut auditor) = (IncrementalPlanner::default(), IncrementalAudit::default());
    let mut look = |world: &World| {
        let view = View::new(world, Timestamp::now(), &settings);
        let begun = Instant::now();
        black_box(planner.next(&view, Duration::ZERO));
        let (planning, begun) = (begun.elapsed(), Instant::now());
        black_box(auditor.next(rulebook(), &view, Duration::ZERO, usize::MAX, |_, _| {}, |_| {}));
        [planning, begun.elapsed()]
    };
    look(&published.load());
    for number in 0..CHANGES {
        let (cluster, ordinal) = (number * 7919 % clusters, number / clusters % fleet::MEMBERS);
        let mut pod = spread.moved(fleet::pod(cluster, ordinal), cluster);
        // The passes over all members make them not Ready and Ready in turn, so every write is a change.
        let ready = if (number / (clusters * fleet::MEMBERS)).is_multiple_of(2) { "False" } else { "True" };
        pod["status"]["conditions"][3]["status"] = json!(ready);
        let text = pod.to_string();
        let begun = Instant::now();
        put(&mut facts, Kind::Pod, &text);
        let next = published.load().after(&mut facts);
        drop(published.swap(next.into()));
        times.saturating_record(load::nanoseconds(begun.elapsed()));
        if number.is_multiple_of(CHANGES / LOOKS) {
            let [planning, auditing] = look(&published.load());
            plans.saturating_record(load::nanoseconds(planning));
            audits.saturating_record(load::nanoseconds(auditing));
        }
    }
    let growth = Growth {
        clusters,
        together: spread == Spread::Together,
        start_ms: reading_ms + building_ms,
        change: Percentiles::of(&times),
        looks: [plans, audits].each_ref().map(Percentiles::of),
        requests: times_to_answer(&Engine::of_world(published, settings), clusters, spread),
        #[allow(clippy::cast_precision_loss, reason = "ten thousand")]
        kib_per_cluster: grown_kib / clusters as f64,
    };
    println!("{}", serde_json::to_string(&growth).expect("figures are JSON"));
}

/// Returns the mean time in milliseconds to answer a request of each kind.
fn times_to_answer(engine: &Engine, clusters: usize, spread: Spread) -> Vec<(String, f64)> {
    let of = |shape: &Shape| {
        let requests: Vec<_> =
            (0..REQUESTS).map(|number| shape.moved(number * 7919 % clusters, spread)).collect();
        let begun = Instant::now();
        for request in &requests {
            black_box(engine.decide(shape.mutating(), request.body()));
        }
        #[allow(clippy::cast_precision_loss, reason = "a few dozen")]
        let mean = begun.elapsed().as_secs_f64() * 1e3 / REQUESTS as f64;
        (format!("{shape:?}"), mean)
    };
    MIX.iter().map(of).collect()
}
