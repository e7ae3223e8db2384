//! What one replica knows of reservations: whose each is and when it ends.
//!
//! Must not know: clients, or the clock of this machine. The age of another replica's reservation is measured by
//! the API server's clock alone: its writer put the time into the note, as the `Date` of the answer before showed it, and the
//! reader compares that with the `Date` of the answer in which it found the note. Between two answers time is counted by
//! this process, which no step of a clock changes. What is not exact errs towards a reservation that counts longer.

use std::collections::HashMap;
use std::time::Duration;

use engine::rules::MemberRemoval;
use facts::view::{Reservation, Reservations};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::note::ReservationNote;
use super::{SHARDS, shard_of};

/// How long a reservation counts. Longer than an API server lets another webhook think after we said "allowed" (10 s by
/// default, 30 s at most), and than a view may be old that still counts as current.
pub(super) const LASTS: Duration = Duration::from_secs(30);
/// The same member again within this time needs no second note.
const AGAIN: Duration = Duration::from_secs(2);
/// So much may lie between the clocks of two API servers, an answer under way included.
pub(super) const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(5);

/// The API server's clock, as an answer showed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    /// The `Date` of the answer, in whole seconds: it was written then, or up to a second later.
    pub(super) date: Timestamp,
    /// When its question was sent: not after that date.
    pub(super) asked: Instant,
    /// When it was here: not before that date.
    pub(super) answered: Instant,
}

impl ServerClock {
    /// What that clock shows at least by now.
    fn at_least(&self, now: Instant) -> Timestamp {
        later(self.date, now.duration_since(self.answered).as_secs())
    }

    /// What it shows at most.
    fn at_most(&self, now: Instant) -> Timestamp {
        later(self.date, now.duration_since(self.asked).as_secs() + 2)
    }
}

fn later(time: Timestamp, seconds: u64) -> Timestamp {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.checked_add(seconds).unwrap_or(Timestamp::MAX)
}

/// A note that this replica read or wrote.
#[derive(Debug)]
struct KnownNote {
    shard: usize,
    /// What is over stays as long as it is in its Lease, or it would begin anew.
    ends: Instant,
    /// This replica wrote it, and said "allowed".
    own: bool,
}

impl KnownNote {
    fn counts(&self, now: Instant) -> bool {
        self.ends > now
    }

    fn age(&self, now: Instant) -> Duration {
        LASTS.saturating_sub(self.ends.duration_since(now))
    }
}

/// What comes next for a departure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LedgerStep {
    /// It is reserved: this replica wrote that moments ago.
    Reserved,
    /// It may not leave: a Lease was deleted, and with it what other replicas reserved.
    Unsure,
    /// These notes are to be written, the first of which reserves it.
    Write(Vec<ReservationNote>),
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    known: HashMap<ReservationNote, KnownNote>,
    shown: Option<ServerClock>,
    /// When each Lease was asked for last.
    seen: [Option<Instant>; SHARDS as usize],
    /// When the API server's clock was found to have been set, or another one answered.
    set: Option<Instant>,
}

impl Ledger {
    /// All that count now.
    pub(super) fn reservations(&self, now: Instant) -> Reservations {
        let counts = self.known.iter().filter(|(note, it)| it.counts(now) && !note.is_lost());
        counts
            .map(|(note, it)| Reservation {
                cluster: note.cluster(),
                pod: note.pod.clone(),
                uid: note.uid.clone(),
                age: it.age(now).as_secs(),
            })
            .collect()
    }

    /// The API server's clock showed this; `None`: its answer has no date.
    pub(super) fn hears(&mut self, shown: Option<ServerClock>) {
        if let (Some(before), Some(shown)) = (self.shown, shown) {
            let behind = before.at_least(shown.asked).duration_since(shown.date);
            let ahead = shown.date.duration_since(before.at_most(shown.answered));
            if behind.max(ahead) > CLOCKS_DIFFER {
                self.set = Some(shown.answered);
            }
        }
        self.shown = shown;
    }

    /// The notes of a Lease, requested at `asked`. A new note counts for the rest of its life; one that has ended and is gone is
    /// forgotten. A note that was missing at the last read is no older than that read, even if the clocks say otherwise.
    pub(super) fn learn(&mut self, shard: usize, notes: Vec<ReservationNote>, asked: Instant, now: Instant) {
        let before = self.seen.get_mut(shard).and_then(|seen| seen.replace(asked));
        let most = before.map_or(LASTS, |before| now.duration_since(before));
        self.known.retain(|note, it| it.counts(now) || notes.contains(note) || it.shard != shard);
        for note in notes {
            let ends = now + LASTS.saturating_sub(self.age(&note, now).min(most));
            self.known.entry(note).or_insert(KnownNote { shard, ends, own: false });
        }
    }

    /// How old a note is at least that was never seen before. One without a time may have been written just now, and so may one
    /// whose time has not come, or which was written before the clock was set.
    fn age(&self, note: &ReservationNote, now: Instant) -> Duration {
        if self.set.is_some_and(|set| now.duration_since(set) < LASTS) {
            return Duration::ZERO;
        }
        let known = note.at.zip(self.shown);
        let age = known.map(|(at, shown)| shown.at_least(now).duration_since(at) - CLOCKS_DIFFER);
        age.and_then(|age| age.try_into().ok()).unwrap_or_default()
    }

    /// What comes next for this departure; `dated`: the API server's clock can be relied on.
    pub(super) fn next(&self, member_removal: &MemberRemoval, dated: bool, now: Instant) -> LedgerStep {
        let shard = shard_of(&member_removal.cluster);
        let here = |it: &KnownNote| it.shard == shard && it.counts(now);
        if self.known.iter().any(|(note, it)| note.is_lost() && here(it)) {
            return LedgerStep::Unsure;
        }
        let same = self.known.iter().filter(|(note, _)| note.uid == member_removal.uid);
        let before = same.max_by_key(|(note, _)| note.times);
        // What another replica wrote, or this one before it was refused, may be over for others.
        if before.is_some_and(|(_, it)| it.own && it.age(now) < AGAIN) {
            return LedgerStep::Reserved;
        }
        let times = before.map_or(1, |(note, _)| note.times.saturating_add(1));
        let own = ReservationNote::of(member_removal, times, self.stamp(now).filter(|_| dated));
        // Not what the Lease holds: it may have been deleted.
        let others = self.known.iter().filter(|(note, it)| here(it) && note.uid != member_removal.uid);
        LedgerStep::Write([own].into_iter().chain(others.map(|(note, _)| note.clone())).collect())
    }

    /// What is written in place of a Lease that was deleted: what is known, and that more may have been in it.
    pub(super) fn remains(&self, shard: usize, now: Instant) -> Vec<ReservationNote> {
        let known = self.known.iter().filter(|(_, it)| it.shard == shard && it.counts(now));
        [ReservationNote::lost(self.stamp(now))]
            .into_iter()
            .chain(known.map(|(note, _)| note.clone()))
            .collect()
    }

    /// What the API server's clock shows now, at most.
    fn stamp(&self, now: Instant) -> Option<Timestamp> {
        Some(self.shown?.at_most(now))
    }

    /// These notes were written, and the answer showed the API server's clock: true if the first one's time is right by it, so
    /// that its pod may leave. A process that was stopped for a while counted too little.
    pub(super) fn wrote(
        &mut self,
        shard: usize,
        notes: Vec<ReservationNote>,
        asked: Instant,
        now: Instant,
    ) -> bool {
        let first = notes.first().cloned();
        self.learn(shard, notes, asked, now);
        let Some(first) = first else { return false };
        let right = first
            .at
            .zip(self.shown)
            .is_none_or(|(at, shown)| at.duration_since(shown.date).abs() <= CLOCKS_DIFFER);
        if let Some(known) = self.known.get_mut(&first).filter(|_| right) {
            known.own = true;
            known.ends = now + LASTS;
        }
        right
    }
}
