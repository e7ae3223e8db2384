//! How long a run takes: from the environment and from the arguments that cargo passes.
//!
//! | variable | meaning |
//! |---|---|
//! | `BENCH_SECONDS` | seconds of load per server and series, 5 if unset |
//! | `BENCH_LAB=1` | also measure the real program at a real API server, which takes some minutes |

use std::env;
use std::time::Duration;

/// The longest block in seconds: enough for hundreds of requests, but shorter than the waves of noise on a shared machine, and
/// so short that idle connections are not closed while the other servers have their turns.
const LONGEST_BLOCK: f64 = 0.5;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seconds: f64,
    /// Whether to make one tiny pass, only to see that everything runs; its figures are not kept.
    pub tiny: bool,
    pub lab: bool,
}

impl Plan {
    pub fn of_this_run() -> Self {
        let tiny = env::args().any(|argument| argument == "--test");
        let seconds = match env::var("BENCH_SECONDS") {
            _ if tiny => 0.1,
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("BENCH_SECONDS={text} is not a number")),
            Err(_) => 5.0,
        };
        assert!((0.1..=600.0).contains(&seconds), "BENCH_SECONDS must be between 0.1 and 600");
        let lab = !tiny && env::var("BENCH_LAB").is_ok_and(|text| text == "1");
        Self { seconds, tiny, lab }
    }

    /// Returns the number of blocks per server. It is even, so that every server runs early in a round as often as late.
    pub fn rounds(&self) -> u32 {
        let mut rounds = if self.tiny { 2 } else { 4 };
        while f64::from(rounds) * LONGEST_BLOCK < self.seconds {
            rounds += 2;
        }
        rounds
    }

    pub fn block(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds()))
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64((self.seconds / 10.0).min(0.3))
    }

    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
