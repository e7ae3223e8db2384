//! The pace at which the entries of one configuration are written.
//!
//! Owns: the pause while another writer undoes each write. Each write makes every API server compile all entries again, and
//! without a pause two writers that undo each other's work would write at full speed. Pure: the caller passes how long the
//! process has run, on a clock that never jumps. Must not know: entries, clients.

use std::collections::VecDeque;
use std::time::Duration;

/// The period in which writes are counted, and the longest pause.
const COUNTED_PERIOD: Duration = Duration::from_secs(60);
/// The number of writes within [`COUNTED_PERIOD`] that need no pause: a person who experiments does not wait, and two writers
/// that compete reach it within seconds.
const UNPAUSED_WRITES: usize = 100;
/// The first pause between two writes.
const FIRST_PAUSE: Duration = super::CHECK_INTERVAL;

/// The writes of the last minute, and the pause that follows from them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    writes: VecDeque<Duration>,
    pause: Duration,
    /// Whether an Event about the other writer was requested.
    announced: bool,
}

impl Pace {
    /// Returns how long the next write has to wait: at most [`FIRST_PAUSE`] if there are no entries, because then nothing is
    /// guarded.
    pub(super) fn remaining_pause(&self, now: Duration, empty: bool) -> Duration {
        let pause = if empty { self.pause.min(FIRST_PAUSE) } else { self.pause };
        let due = self.writes.back().map_or(Duration::ZERO, |last| *last + pause);
        due.saturating_sub(now)
    }

    /// Records a write. After [`UNPAUSED_WRITES`] writes within a minute the pause is [`FIRST_PAUSE`], and each further write
    /// doubles it.
    pub(super) fn record_write(&mut self, now: Duration) {
        self.reset_if_quiet(now);
        self.writes.retain(|write| now.saturating_sub(*write) < COUNTED_PERIOD);
        self.writes.push_back(now);
        if !self.pause.is_zero() || self.writes.len() >= UNPAUSED_WRITES {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, COUNTED_PERIOD);
        }
    }

    /// Resets the pace if the other writer has stopped: nothing had to be written for a minute after the pause.
    pub(super) fn reset_if_quiet(&mut self, now: Duration) {
        let over =
            self.writes.back().is_none_or(|last| now.saturating_sub(*last) > self.pause + COUNTED_PERIOD);
        if over {
            *self = Self::default();
        }
    }

    /// Returns whether another writer keeps undoing the leader's writes.
    pub(super) fn is_contested(&self) -> bool {
        !self.pause.is_zero()
    }

    /// Returns whether the contest has to be announced now, and records that it was announced.
    pub(super) fn take_announcement(&mut self) -> bool {
        self.is_contested() && !std::mem::replace(&mut self.announced, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The state of the entries.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum EntriesState {
        Ours,
        Empty,
        Foreign,
        Deleted,
    }

    fn foreign_change() -> impl Strategy<Value = EntriesState> {
        prop_oneof![Just(EntriesState::Empty), Just(EntriesState::Foreign), Just(EntriesState::Deleted)]
    }

    /// The other writer: what it does and how many milliseconds it waits.
    fn steps() -> impl Strategy<Value = Vec<(EntriesState, u64)>> {
        let calm = (foreign_change(), 0_u64..120_000);
        let fast = (foreign_change(), 0_u64..200);
        prop_oneof![
            proptest::collection::vec(fast, 50..400),
            proptest::collection::vec(prop_oneof![calm, (foreign_change(), 0_u64..3_000)], 1..100),
        ]
    }

    /// One comparison by the leader, as in `entries.rs`, and the write that follows from it.
    fn look(entries: &mut EntriesState, pace: &mut Pace, now: Duration, writes: &mut Vec<Duration>) {
        match *entries {
            EntriesState::Ours => pace.reset_if_quiet(now),
            EntriesState::Empty | EntriesState::Foreign
                if pace.remaining_pause(now, *entries == EntriesState::Empty).is_zero() =>
            {
                *entries = EntriesState::Ours;
                pace.record_write(now);
                writes.push(now);
            }
            EntriesState::Deleted | EntriesState::Empty | EntriesState::Foreign => {}
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against any behaviour of another writer, writes are few, and the entries come back once it stops.
        #[test]
        fn writes_are_few_and_entries_come_back(steps in steps()) {
            let (mut entries, mut pace, mut writes) = (EntriesState::Ours, Pace::default(), Vec::new());
            let mut now = Duration::ZERO;
            for (change, pause) in steps {
                entries = change;
                look(&mut entries, &mut pace, now, &mut writes);
                let next = now + Duration::from_millis(pause);
                while now + super::super::CHECK_INTERVAL < next {
                    now += super::super::CHECK_INTERVAL;
                    look(&mut entries, &mut pace, now, &mut writes);
                }
                now = next;
            }
            for first in &writes {
                let within = writes.iter().filter(|it| **it >= *first && **it < *first + COUNTED_PERIOD).count();
                let looks = usize::try_from(COUNTED_PERIOD.as_secs() / FIRST_PAUSE.as_secs()).unwrap();
                prop_assert!(within <= UNPAUSED_WRITES + looks, "{within} writes in the minute after {first:?}");
            }
            if entries == EntriesState::Deleted {
                entries = EntriesState::Empty;
            }
            let mut stopped = now;
            while stopped <= now + COUNTED_PERIOD + super::super::CHECK_INTERVAL && entries != EntriesState::Ours {
                look(&mut entries, &mut pace, stopped, &mut writes);
                stopped += super::super::CHECK_INTERVAL;
            }
            prop_assert_eq!(entries, EntriesState::Ours, "the entries do not come back");
        }
    }

    #[test]
    fn pauses_grow_to_a_minute_and_end_with_the_contest() {
        let (mut pace, mut now, mut waits) = (Pace::default(), Duration::from_secs(7), Vec::new());
        for _ in 1..UNPAUSED_WRITES + 6 {
            pace.record_write(now);
            waits.push(pace.remaining_pause(now, false).as_secs());
            assert!(pace.remaining_pause(now, true) <= FIRST_PAUSE, "nothing is guarded");
            now += pace.remaining_pause(now, false);
        }
        assert_eq!(waits[UNPAUSED_WRITES - 2..], [0, 5, 10, 20, 40, 60, 60]);
        assert!(pace.take_announcement() && !pace.take_announcement(), "it is announced once");
        pace.reset_if_quiet(now + COUNTED_PERIOD);
        assert!(pace.is_contested());
        pace.reset_if_quiet(now + COUNTED_PERIOD + Duration::from_secs(1));
        assert!(!pace.is_contested() && pace.remaining_pause(now, false).is_zero());
    }
}
