//! Whatever happened: servers are killed, members are made to leave, in an order and at moments that a seed chose, rows are written
//! between, until nobody serves. `gatera recover`, killed now and then, leads back, and every acknowledged row is there.
//!
//! Part of `make drills`; GATERA_ROUNDS says how many, GATERA_SEED which.

use std::env;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::galera::{Galera, patiently};
use crate::gate;
use crate::install::password;
use crate::power;
use crate::recover::{Cordoned, recover};
use crate::writer::Writer;

/// Numbers that look as if nobody had chosen them (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_millis(self.below(3000)));
    }

    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Another one each time, unless it is given.
pub fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    number("GATERA_SEED").unwrap_or_else(now)
}

/// Rounds of it, in a cluster of their own.
pub fn whatever_happens_no_acknowledged_row_is_lost() {
    let seed = seed();
    let (galera, cluster) = gate::known("chance");
    let writer = Writer::start(&galera, &password(&galera));
    rounds(&galera, &cluster, &writer, seed, number("GATERA_ROUNDS").unwrap_or(5));
    let (acknowledged, failed) = writer.finish(3);
    println!("chance: {acknowledged} rows acknowledged, none lost; {failed} were tried again");
}

/// So many, each from a seed of its own.
fn rounds(galera: &Galera<'_>, cluster: &str, writer: &Writer<'_>, seed: u64, rounds: u64) {
    for seed in seed..seed.wrapping_add(rounds) {
        let mut chance = Chance(seed);
        println!("GATERA_SEED={seed}");
        writer.until_writes();
        lights_out(galera, &mut chance);
        let began = Instant::now();
        led_back(galera, &mut chance);
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "its history goes on");
        let back = began.elapsed().as_secs_f64();
        power::members_agree(galera, "shop.t");
        let (acknowledged, _) = writer.counted(3);
        println!("GATERA_SEED={seed}: back after {back:.1} s; {acknowledged} rows acknowledged, none lost");
    }
}

/// Until nobody serves.
fn lights_out(galera: &Galera<'_>, chance: &mut Chance) {
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    // Nobody who leaves comes back meanwhile; whoever is killed does.
    let _cordoned = (chance.below(2) == 0).then(|| Cordoned::all(galera));
    for _ in 0..2 + chance.below(4) {
        let pod = chance.one(&pods);
        if chance.below(2) == 0 {
            println!("  kill {pod}: {}", power::killed_if_it_runs(pod));
        } else {
            println!("  {pod} leaves: {}", leaves(galera, pod));
        }
        chance.pause();
    }
    if chance.below(2) == 0 {
        println!("  kill all: {:?}", pods.each_ref().map(|pod| power::killed_if_it_runs(pod)));
    } else {
        for pod in &pods {
            println!("  {pod} leaves: {}", leaves(galera, pod));
        }
    }
}

/// Against every advice, if it is there.
fn leaves(galera: &Galera<'_>, pod: &str) -> bool {
    galera.overrule(&format!("pod/{pod}"), "G02");
    galera.kubectl(&["delete", "pod", pod, "--timeout=120s"]).status == 0
}

/// By the command, which is killed half of the time.
fn led_back(galera: &Galera<'_>, chance: &mut Chance) {
    while chance.below(2) == 0 {
        let mut child = recover(galera, &["--yes"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(chance.below(25_000)));
        // It may have come to its end.
        let _ = child.kill();
        println!("  killed, or done: {}", child.wait().unwrap());
    }
    // A moment after the lights went out kubelets may not have noticed, and a cluster that seems to serve is left alone.
    patiently("all members to be Ready", || {
        let output = recover(galera, &["--yes"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        println!("{text}");
        assert!(
            output.status.success(),
            "{}: {text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let all = (0..3).all(|ordinal| galera.is_ready(&galera.member(ordinal)));
        if all { Ok(()) } else { Err(text) }
    });
}
