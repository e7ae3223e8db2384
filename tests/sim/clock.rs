//! Time, order and chance: all three are values, so that a seed always gives the same story.
//!
//! Owns: the [`Agenda`] (the future events, ordered by time and then by the order in which they were added) and the [`Dice`].
//! Must not know: what the events are. Data: the other modules add events; the stage takes them off.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Virtual milliseconds since the beginning of the story.
pub type Millis = u64;

pub const SECOND: Millis = 1000;
pub const MINUTE: Millis = 60 * SECOND;

/// Returns the time as a timestamp, by a clock without an error.
pub fn timestamp(at: Millis) -> Timestamp {
    let begin: Timestamp = "2026-12-01T09:30:00Z".parse().unwrap();
    begin.checked_add(SignedDuration::from_millis(i64::try_from(at).unwrap())).unwrap()
}

/// Returns the time as kubelets and API servers write it: in whole seconds.
pub fn api_time(at: Millis) -> String {
    api_time_by(SignedDuration::ZERO, at)
}

/// Returns the time as a clock with this error shows it.
pub fn api_time_by(clock_error: SignedDuration, at: Millis) -> String {
    Timestamp::from_second((timestamp(at) + clock_error).as_second()).unwrap().to_string()
}

/// Returns the time as a story shows it: minutes, seconds, milliseconds.
pub fn clock_text(at: Millis) -> String {
    format!("{:03}:{:02}.{:03}", at / MINUTE, at / SECOND % 60, at % SECOND)
}

/// The future events, ordered by time and then by the order in which they were added.
pub struct Agenda<T> {
    pub now: Millis,
    /// The number of events added so far.
    added: u64,
    entries: BTreeMap<(Millis, u64), T>,
}

impl<T> Agenda<T> {
    pub fn empty() -> Self {
        Self { now: 0, added: 0, entries: BTreeMap::new() }
    }

    /// Adds an event that happens this long after now.
    pub fn put(&mut self, after: Millis, what: T) {
        self.added += 1;
        self.entries.insert((self.now + after, self.added), what);
    }

    /// Takes the next event and advances the time to it.
    pub fn take(&mut self) -> Option<T> {
        let ((at, _), what) = self.entries.pop_first()?;
        self.now = at;
        Some(what)
    }
}

/// A random number generator, splitmix64: small, and the same on every platform.
pub struct Dice(u64);

impl Dice {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to one less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// Returns a number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns true with this probability, in thousandths.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let index = self.below(all.len() as u64);
        all.get(usize::try_from(index).unwrap())
    }
}
