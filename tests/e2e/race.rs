//! Two replicas of the guard, two kubectl processes, real members: of two removals at the same moment, at most one is allowed.
//! GATERA_ROUNDS sets the number of rounds (3). Part of `make drills`; `make test` sends many requests to three replicas
//! through a real API server (`reservations.rs`).

use std::thread;

use crate::chance::env_number;
use crate::galera::Galera;
use crate::guard::guarded;
use crate::install::formed;

#[test]
fn at_most_one_of_two_simultaneous_removals_is_allowed() {
    let galera = formed(guarded(), "race");
    galera.fill();
    let rounds = usize::try_from(env_number("GATERA_ROUNDS").unwrap_or(3)).unwrap();
    let mut left = 0;
    for round in 0..rounds {
        galera.until_synced(3, 3);
        left += usize::from(one_removal_is_allowed(&galera, round));
        galera.kubectl(&["scale", "statefulset", "race-galera", "--replicas=3"]);
        galera.until_ready(3);
    }
    assert!(left * 2 > rounds, "a member left in only {left} of {rounds} rounds, which tests too little");
    for ordinal in 0..3 {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }
    eprintln!("two removals at once: one member left in {left} of {rounds} rounds, never two");
}

/// Deletes a member, and at the same moment deletes another or lowers the replicas. Returns whether one request was allowed.
/// Panics if both were.
fn one_removal_is_allowed(galera: &Galera<'_>, round: usize) -> bool {
    let [first, second] = [[0, 1], [1, 2], [0, 2]][round % 3].map(|ordinal| galera.member(ordinal));
    let delete = |pod| vec!["delete", "pod", pod, "--wait=false"];
    let other = match round % 2 {
        0 => delete(&second),
        _ => vec!["scale", "statefulset", "race-galera", "--replicas=2"],
    };
    let outcomes = thread::scope(|scope| {
        let requests = [delete(&first), other].map(|command| scope.spawn(move || galera.kubectl(&command)));
        requests.map(|it| it.join().unwrap())
    });
    let allowed = outcomes.iter().filter(|outcome| outcome.status == 0).count();
    assert!(allowed < 2, "round {round}: both removals were allowed: {outcomes:#?}");
    for refused in outcomes.iter().filter(|outcome| outcome.status != 0) {
        let message = &refused.stderr;
        assert!(
            message.contains("[G02] Pod") || message.contains("[G01] StatefulSet"),
            "round {round}: neither G01 nor G02 refused it: {message}"
        );
    }
    allowed == 1
}
