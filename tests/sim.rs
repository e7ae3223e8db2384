//! The simulator: a small model of a control plane, kubelets, Galera and users, in which the real rules, the real injection
//! and the real plan go through millions of events.
//!
//! Owns: which stories are played, and for how long. Must not know: what happens in them (`sim/stage.rs` is the way in).
//! Every story follows from its seed; one that breaks a law is played again and printed. `GATERA_SIM_STEPS` is the number of
//! events of all stories together, and `GATERA_SIM_SEED` the seed of a story to print.

mod api;
pub mod asked;
mod clock;
mod controllers;
mod faults;
mod galera;
mod guard;
mod kubelet;
mod laws;
mod leader;
mod manifests;
mod people;
mod stage;
mod store;
mod story;

use gatera::rulebook;
use std::collections::BTreeMap;
use std::env;

use facts::settings::Settings;

use guard::OWN_USER;
use stage::Sim;

/// The number of events of all stories together, unless `GATERA_SIM_STEPS` sets another.
const EVENTS: u64 = 20_000;

fn settings(yaml: &str) -> Settings {
    rulebook().settings(yaml).unwrap().with_own_user(OWN_USER)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn aloud(seed: u64, settings: Settings) -> String {
    let ending = Sim::play(seed, settings, true);
    let law = ending.broken.unwrap_or_else(|| "no law is broken".to_owned());
    format!(
        "{}\n\nseed {seed}: {} events, {}\nexcused: {:?}\n{law}\nagain: GATERA_SIM_SEED={seed} cargo test --test gatera -- \
         sim::one_seed --nocapture",
        ending.story, ending.events, ending.tally, ending.excused
    )
}

/// The totals over all stories, which are printed at the end of `make sim`.
#[derive(Default)]
struct Sum {
    seeds: u64,
    events: u64,
    excused: BTreeMap<&'static str, u64>,
}

#[test]
fn many_seeds() {
    let (steps, first) =
        (number("GATERA_SIM_STEPS").unwrap_or(EVENTS), number("GATERA_SIM_FIRST").unwrap_or(1));
    let mut sum = Sum::default();
    for seed in first.. {
        let ending = Sim::play(seed, settings(""), false);
        assert!(ending.broken.is_none(), "{}", aloud(seed, settings("")));
        sum.seeds += 1;
        sum.events += ending.events;
        ending.excused.into_iter().for_each(|why| *sum.excused.entry(why).or_default() += 1);
        if sum.events >= steps {
            break;
        }
    }
    println!("{} seeds, {} events; excused: {:#?}", sum.seeds, sum.events, sum.excused);
    // If too many stories are excused, the simulation proves nothing.
    assert!(sum.excused.values().sum::<u64>() * 3 < sum.seeds, "{:?}", sum.excused);
}

/// Prints the story of the seed in `GATERA_SIM_SEED`.
#[test]
fn one_seed() {
    if let Some(seed) = number("GATERA_SIM_SEED") {
        let story = aloud(seed, settings(&env::var("GATERA_SIM_SETTINGS").unwrap_or_default()));
        println!("{story}");
        assert!(story.contains("\nno law is broken\n"));
    }
}

/// The simulator can fail: without a rule some story breaks the law that the rule enforces.
#[test]
fn it_finds_the_loss_when_a_rule_is_off() {
    for (rule, law) in [
        ("G01", "and nobody else serves"),
        ("G02", "both by our doing"),
        ("G03", "both by our doing"),
        ("G04", "founds a cluster with 0 of "),
    ] {
        let off = settings(&format!("modes: {{{rule}: off}}"));
        let breaks = |seed| Sim::play(seed, off.clone(), false).broken.filter(|broken| broken.contains(law));
        assert!((1..=60).find_map(breaks).is_some(), "without {rule} nothing is lost: the model is too kind");
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = || aloud(7, settings(""));
    assert_eq!(story(), story());
}
