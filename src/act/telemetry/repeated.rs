//! Logging of failures that repeat: a line for the first one, and then, at growing intervals, how often it occurred.
//!
//! Must not know: what failed. A watch without permission is retried every few seconds, and the lines of thirty watches
//! would soon bury the first lines of a log.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The pause between the first line about a failure and the second; each later pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The limit to which the pause between two lines about a failure grows.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// The time after which a failure that has not occurred again counts as new.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The maximum number of failures that are remembered: their texts can name objects, so any number of them may occur.
const MAX_FAILURES: usize = 1000;

/// The failures of the whole process, because it has one log.
static FAILURES: LazyLock<Mutex<Failures>> = LazyLock::new(Mutex::default);

/// Returns how often this failure occurred since the last line about it, if another line is due. `operation` names what failed,
/// because different operations fail with the same text.
pub fn times(operation: &str, failure: &str) -> Option<u64> {
    let failure = format!("{operation}: {failure}");
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner).times(&failure, Instant::now())
}

#[derive(Default)]
struct Failures(HashMap<String, Failure>);

struct Failure {
    /// How often the failure occurred since the last line about it.
    times: u64,
    last: Instant,
    next_line: Instant,
    pause: Duration,
}

impl Failures {
    fn times(&mut self, failure: &str, now: Instant) -> Option<u64> {
        self.0.retain(|_, it| now.duration_since(it.last) < FORGET_AFTER);
        if let Some(known) = self.0.get_mut(failure) {
            (known.times, known.last) = (known.times + 1, now);
            if now < known.next_line {
                return None;
            }
            known.pause = (known.pause * 2).min(MAX_PAUSE);
            known.next_line = now + known.pause;
            return Some(std::mem::take(&mut known.times));
        }
        if self.0.len() < MAX_FAILURES {
            let known = Failure { times: 0, last: now, next_line: now + FIRST_PAUSE, pause: FIRST_PAUSE };
            self.0.insert(failure.to_owned(), known);
        }
        Some(1)
    }
}

#[test]
fn a_failure_is_logged_at_once_and_then_with_a_count_at_growing_intervals() {
    let (mut failures, begin) = (Failures::default(), Instant::now());
    let mut lines = Vec::new();
    for second in 0..600 {
        if let Some(times) = failures.times("no right", begin + Duration::from_secs(second)) {
            lines.push((second, times));
        }
    }
    assert_eq!(lines, [(0, 1), (60, 60), (180, 120), (420, 240)]);
    assert_eq!(failures.times("another", begin + Duration::from_secs(1)), Some(1));
    assert_eq!(failures.times("no right", begin + Duration::from_secs(1300)), Some(1), "it is new again");
}
