//! The simulator: a small model of a control plane, kubelets, Galera and users, in which the real rules, the real injection
//! and the real plan process thousands of events, and millions with `make sim`.
//!
//! Owns: which seeds are run, and for how long. Must not know: what happens in a run (`sim/stage.rs` is the entry point). The
//! story of a seed is everything that happens in its run, and depends only on the seed and the settings. A seed that breaks a law
//! is run again, and its story is printed.
//!
//! | variable | meaning |
//! |---|---|
//! | `GATERA_SIM_STEPS` | the number of events of all seeds together |
//! | `GATERA_SIM_FIRST` | the first seed, 1 if unset |
//! | `GATERA_SIM_SEED` | the seed whose story `one_seed` prints |
//! | `GATERA_SIM_SETTINGS` | the settings for that story, as YAML |

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

/// The number of events of all seeds together, unless `GATERA_SIM_STEPS` sets another.
const EVENTS: u64 = 20_000;

fn settings(yaml: &str) -> Settings {
    rulebook().settings(yaml).unwrap().with_own_user(OWN_USER)
}

fn env_number(variable: &str) -> Option<u64> {
    let number =
        |text: String| text.parse::<u64>().unwrap_or_else(|_| panic!("{variable}={text} is not a number"));
    env::var(variable).ok().map(number)
}

/// Runs the seed and returns its story, the result, and the command that repeats the run.
fn story_of(seed: u64, settings: Settings) -> String {
    let outcome = Sim::run(seed, settings, true);
    let law = outcome.broken.unwrap_or_else(|| "no law is broken".to_owned());
    format!(
        "{}\n\nseed {seed}: {} events, {}\nexcused: {:?}\n{law}\nto run it again: GATERA_SIM_SEED={seed} cargo test --test gatera -- \
         sim::one_seed --nocapture",
        outcome.story, outcome.events, outcome.tally, outcome.excused
    )
}

/// The totals over all seeds, which are printed at the end of `make sim`.
#[derive(Default)]
struct Totals {
    seeds: u64,
    events: u64,
    excused: BTreeMap<&'static str, u64>,
}

#[test]
fn no_seed_breaks_a_law() {
    let wanted = env_number("GATERA_SIM_STEPS").unwrap_or(EVENTS);
    let first = env_number("GATERA_SIM_FIRST").unwrap_or(1);
    let mut totals = Totals::default();
    for seed in first.. {
        let outcome = Sim::run(seed, settings(""), false);
        assert!(outcome.broken.is_none(), "{}", story_of(seed, settings("")));
        totals.seeds += 1;
        totals.events += outcome.events;
        outcome.excused.into_iter().for_each(|why| *totals.excused.entry(why).or_default() += 1);
        if totals.events >= wanted {
            break;
        }
    }
    println!("{} seeds, {} events; excused: {:#?}", totals.seeds, totals.events, totals.excused);
    assert!(
        totals.excused.values().sum::<u64>() * 3 < totals.seeds,
        "a third or more of {} stories are excused, so the simulation proves nothing: {:?}",
        totals.seeds,
        totals.excused
    );
}

/// Prints the story of the seed in `GATERA_SIM_SEED`; does nothing without that variable.
#[test]
fn one_seed() {
    if let Some(seed) = env_number("GATERA_SIM_SEED") {
        let story = story_of(seed, settings(&env::var("GATERA_SIM_SETTINGS").unwrap_or_default()));
        println!("{story}");
        assert!(
            story.contains("\nno law is broken\n"),
            "seed {seed} breaks a law, which is named at the end of its story above"
        );
    }
}

/// Proves that the simulation can break laws: with a rule turned off, some seed breaks the law that the rule enforces.
#[test]
fn without_a_rule_some_seed_breaks_its_law() {
    for (rule, law) in [
        ("G01", "and no other member serves"),
        ("G02", "both with the guard's permission"),
        ("G03", "both with the guard's permission"),
        ("G04", "founds a cluster with 0 of "),
    ] {
        let off = settings(&format!("modes: {{{rule}: off}}"));
        let breaks = |seed| Sim::run(seed, off.clone(), false).broken.filter(|broken| broken.contains(law));
        assert!(
            (1..=60).find_map(breaks).is_some(),
            "without {rule}, no seed from 1 to 60 breaks the law {law:?}: the model does not show what the rule prevents"
        );
    }
}

#[test]
fn a_seed_always_gives_the_same_story() {
    let story = || story_of(7, settings(""));
    assert_eq!(
        story(),
        story(),
        "two runs of seed 7 differ: something besides the seed decides what happens"
    );
}
