//! Random failures: while rows are written, servers are killed and members are deleted, in an order and at moments chosen by a
//! seed, until no member serves. `gatera recover`, which is sometimes killed, brings the cluster back with every acknowledged
//! row.
//!
//! Part of `make drills`; GATERA_ROUNDS sets the number of rounds, GATERA_SEED the first seed.

use std::env;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::galera::{Galera, patiently};
use crate::gate;
use crate::install::password;
use crate::power;
use crate::recover::{Cordoned, recover};
use crate::writer::Writer;

/// A generator of pseudo-random numbers (splitmix64); the same seed gives the same numbers.
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number from 0 up to, but not including, `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_millis(self.below(3000)));
    }

    pub fn one<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }
}

/// Returns the number in an environment variable, or `None` if it holds no number.
pub fn env_number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns GATERA_SEED or, if it is not set, the time in seconds.
pub fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    env_number("GATERA_SEED").unwrap_or_else(now)
}

/// Runs GATERA_ROUNDS rounds of failures on a new cluster, and checks that no acknowledged row is lost.
pub fn random_failures_lose_no_acknowledged_row() {
    let seed = seed();
    let (galera, cluster) = gate::formed_with_identity("chance");
    let writer = Writer::start(&galera, &password(&galera));
    rounds(&galera, &cluster, &writer, seed, env_number("GATERA_ROUNDS").unwrap_or(5));
    writer.finish(3);
}

/// Runs this number of rounds, each with its own seed.
fn rounds(galera: &Galera<'_>, cluster: &str, writer: &Writer<'_>, seed: u64, rounds: u64) {
    for seed in seed..seed.wrapping_add(rounds) {
        let mut chance = Chance(seed);
        println!("GATERA_SEED={seed}");
        writer.until_writes();
        stop_all_members(galera, &mut chance);
        let began = Instant::now();
        recover_with_interruptions(galera, &mut chance);
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
        let back = began.elapsed().as_secs_f64();
        power::members_agree(galera, "shop.t");
        let (acknowledged, _) = writer.counted(3);
        println!("GATERA_SEED={seed}: back after {back:.1} s; {acknowledged} rows acknowledged, none lost");
    }
}

/// Kills or deletes some members, chosen at random, and then all of them.
fn stop_all_members(galera: &Galera<'_>, chance: &mut Chance) {
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    // On cordoned nodes, deleted members do not come back; killed servers do.
    let _cordoned = (chance.below(2) == 0).then(|| Cordoned::all(galera));
    for _ in 0..2 + chance.below(4) {
        let pod = chance.one(&pods);
        if chance.below(2) == 0 {
            println!("  kill {pod}: {}", power::kill_if_running(pod));
        } else {
            println!("  deleted {pod}: {}", try_delete_member(galera, pod));
        }
        chance.pause();
    }
    if chance.below(2) == 0 {
        println!("  kill all: {:?}", pods.each_ref().map(|pod| power::kill_if_running(pod)));
    } else {
        for pod in &pods {
            println!("  deleted {pod}: {}", try_delete_member(galera, pod));
        }
    }
}

/// Deletes a member with an override, against the guard's advice. Returns whether it was deleted.
fn try_delete_member(galera: &Galera<'_>, pod: &str) -> bool {
    galera.set_override(&format!("pod/{pod}"), "G02");
    galera.kubectl(&["delete", "pod", pod, "--timeout=120s"]).status == 0
}

/// Recovers the cluster with `gatera recover`. First starts and kills the command, a random number of times.
fn recover_with_interruptions(galera: &Galera<'_>, chance: &mut Chance) {
    while chance.below(2) == 0 {
        let mut child = recover(galera, &["--yes"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(chance.below(25_000)));
        // The command may have ended already.
        let _ = child.kill();
        println!("  killed, or ended before: {}", child.wait().unwrap());
    }
    // The command changes nothing while the cluster seems to serve, and kubelets may notice the failures only after a moment.
    patiently("all members are Ready", || {
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
