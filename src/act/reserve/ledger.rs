//! The reservations that one replica knows: the member of each, and when it ends.
//!
//! Must not know: clients, or the clock of this machine. The age of another replica's reservation is measured by the API
//! server's clock alone: the writer of a note takes its time from the `Date` header of the previous answer, and the reader
//! compares that with the `Date` header of the answer that contains the note. Between two answers, time is counted by this
//! process, so that setting a clock changes nothing. Where a time is not exact, the reservation counts for longer.

use std::collections::HashMap;
use std::time::Duration;

use engine::rules::MemberRemoval;
use facts::view::{Reservation, Reservations};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::note::ReservationNote;
use super::{SHARDS, shard_of};

/// The time for which a reservation counts. It is as long as an API server can wait for another webhook after the guard has
/// allowed the request (10 s by default, 30 s at most), and longer than the age up to which a view counts as current.
pub(super) const RESERVATION_LIFETIME: Duration = Duration::from_secs(30);
/// The time within which another request to remove the same member needs no second note.
const SAME_REMOVAL_PERIOD: Duration = Duration::from_secs(2);
/// The tolerated difference between the clocks of two API servers, including the time that an answer takes.
pub(super) const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// The API server's clock, as read from the date of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    /// The `Date` of the answer, cut to whole seconds: the API server's clock showed this time, or up to a second more.
    pub(super) date: Timestamp,
    /// When the request was sent, which was before the API server wrote the date.
    pub(super) asked: Instant,
    /// When the answer arrived, which was after the API server wrote the date.
    pub(super) answered: Instant,
}

impl ServerClock {
    /// Returns the earliest time that the API server's clock may show now.
    fn earliest(&self, now: Instant) -> Timestamp {
        plus_seconds(self.date, now.duration_since(self.answered).as_secs())
    }

    /// Returns the latest time that the API server's clock may show now.
    fn latest(&self, now: Instant) -> Timestamp {
        plus_seconds(self.date, now.duration_since(self.asked).as_secs() + 2)
    }
}

fn plus_seconds(time: Timestamp, seconds: u64) -> Timestamp {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.checked_add(seconds).unwrap_or(Timestamp::MAX)
}

/// A note that this replica read or wrote.
#[derive(Debug)]
struct KnownNote {
    shard: usize,
    /// When the reservation ends. A note that has ended stays here while its Lease contains it, or it would count again.
    ends: Instant,
    /// Whether this replica wrote the note and allowed the removal.
    written_here: bool,
}

impl KnownNote {
    fn counts(&self, now: Instant) -> bool {
        self.ends > now
    }

    fn age(&self, now: Instant) -> Duration {
        RESERVATION_LIFETIME.saturating_sub(self.ends.duration_since(now))
    }
}

/// The next step of a reservation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LedgerStep {
    /// The removal is reserved: this replica wrote its note moments ago.
    Reserved,
    /// The member may not leave: its Lease was deleted or could not be read, so the reservations of other replicas are not known.
    Unsure,
    /// These notes are to be written; the first one reserves the removal.
    Write(Vec<ReservationNote>),
}

/// The notes that this replica knows, and the API server's clock by which they age.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    known: HashMap<ReservationNote, KnownNote>,
    clock: Option<ServerClock>,
    /// When each Lease was last requested.
    last_requests: [Option<Instant>; SHARDS as usize],
    /// When an answer last showed that the API server's clock was set, or came from an API server with another clock.
    clock_set: Option<Instant>,
}

impl Ledger {
    /// Returns all reservations that count now.
    pub(super) fn reservations(&self, now: Instant) -> Reservations {
        let counting = self.known.iter().filter(|(note, known)| known.counts(now) && !note.is_lost());
        counting
            .map(|(note, known)| Reservation {
                cluster: note.cluster(),
                pod: note.pod.clone(),
                uid: note.uid.clone(),
                age: known.age(now).as_secs(),
            })
            .collect()
    }

    /// Records the API server's clock, as an answer shows it; `None`: the answer has no date.
    pub(super) fn observe_clock(&mut self, clock: Option<ServerClock>) {
        if let (Some(before), Some(shown)) = (self.clock, clock) {
            let behind = before.earliest(shown.asked).duration_since(shown.date);
            let ahead = shown.date.duration_since(before.latest(shown.answered));
            if behind.max(ahead) > CLOCK_TOLERANCE {
                self.clock_set = Some(shown.answered);
            }
        }
        self.clock = clock;
    }

    /// Records the notes of a Lease that was requested at `asked`. A new note counts for the rest of its lifetime; one that
    /// has ended and is no longer in the Lease is forgotten. A note that the last read did not contain is not older than that
    /// read, even if the clocks show more.
    pub(super) fn learn(&mut self, shard: usize, notes: Vec<ReservationNote>, asked: Instant, now: Instant) {
        let last = self.last_requests.get_mut(shard).and_then(|request| request.replace(asked));
        let max_age = last.map_or(RESERVATION_LIFETIME, |last| now.duration_since(last));
        self.known.retain(|note, known| known.counts(now) || notes.contains(note) || known.shard != shard);
        for note in notes {
            let ends = now + RESERVATION_LIFETIME.saturating_sub(self.min_age(&note, now).min(max_age));
            self.known.entry(note).or_insert(KnownNote { shard, ends, written_here: false });
        }
    }

    /// Returns the lowest possible age of a note that was never seen before. A note without a time may have been written just
    /// now, and so may one whose time lies in the future, or one that was written before the clock was set.
    fn min_age(&self, note: &ReservationNote, now: Instant) -> Duration {
        if self.clock_set.is_some_and(|set| now.duration_since(set) < RESERVATION_LIFETIME) {
            return Duration::ZERO;
        }
        let times = note.at.zip(self.clock);
        let age = times.map(|(at, clock)| clock.earliest(now).duration_since(at) - CLOCK_TOLERANCE);
        age.and_then(|age| age.try_into().ok()).unwrap_or_default()
    }

    /// Returns the next step for this removal. `dated`: the API server's clock is reliable, so the note carries a time.
    pub(super) fn next(&self, member_removal: &MemberRemoval, dated: bool, now: Instant) -> LedgerStep {
        let shard = shard_of(&member_removal.cluster);
        let counts_in_shard = |known: &KnownNote| known.shard == shard && known.counts(now);
        if self.known.iter().any(|(note, known)| note.is_lost() && counts_in_shard(known)) {
            return LedgerStep::Unsure;
        }
        let of_member = self.known.iter().filter(|(note, _)| note.uid == member_removal.uid);
        let latest = of_member.max_by_key(|(note, _)| note.times);
        // A note of another replica, or one that this replica wrote with a wrong time, may have expired for other replicas.
        if latest.is_some_and(|(_, known)| known.written_here && known.age(now) < SAME_REMOVAL_PERIOD) {
            return LedgerStep::Reserved;
        }
        let times = latest.map_or(1, |(note, _)| note.times.saturating_add(1));
        let new_note =
            ReservationNote::of(member_removal, times, self.latest_server_time(now).filter(|_| dated));
        // The other notes come from memory and not from the Lease, which may have been deleted.
        let other_notes = self
            .known
            .iter()
            .filter(|(note, known)| counts_in_shard(known) && note.uid != member_removal.uid);
        LedgerStep::Write([new_note].into_iter().chain(other_notes.map(|(note, _)| note.clone())).collect())
    }

    /// Returns the notes for a Lease that replaces a deleted one: the known ones, and one for any others that it may have held.
    pub(super) fn notes_for_replacement(&self, shard: usize, now: Instant) -> Vec<ReservationNote> {
        let known = self.known.iter().filter(|(_, known)| known.shard == shard && known.counts(now));
        [ReservationNote::lost(self.latest_server_time(now))]
            .into_iter()
            .chain(known.map(|(note, _)| note.clone()))
            .collect()
    }

    /// Returns the latest time that the API server's clock may show now, if it is known.
    fn latest_server_time(&self, now: Instant) -> Option<Timestamp> {
        Some(self.clock?.latest(now))
    }

    /// Records notes that were written. Returns whether the time of the first one agrees with the date of the answer, so that
    /// its pod may leave: a process that was suspended before the write dates its note too early.
    pub(super) fn record_written(
        &mut self,
        shard: usize,
        notes: Vec<ReservationNote>,
        asked: Instant,
        now: Instant,
    ) -> bool {
        let first = notes.first().cloned();
        self.learn(shard, notes, asked, now);
        let Some(first) = first else { return false };
        let time_is_right = first
            .at
            .zip(self.clock)
            .is_none_or(|(at, clock)| at.duration_since(clock.date).abs() <= CLOCK_TOLERANCE);
        if let Some(known) = self.known.get_mut(&first).filter(|_| time_is_right) {
            known.written_here = true;
            known.ends = now + RESERVATION_LIFETIME;
        }
        time_is_right
    }
}
