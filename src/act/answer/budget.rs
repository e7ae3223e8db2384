//! The memory for request bodies: one budget for all that are being read or judged.
//!
//! Owns: the bytes of unfinished bodies, and which body is dropped when there is no more room: the one that has held the most for
//! the longest. The request of an API server holds few bytes for about a millisecond, so slow or large bodies are dropped before
//! it. Must not know: HTTP, sockets, the clock. The memory of a dropped body is freed at once, so the budget is never exceeded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// The error of a body without room: either no other body should be dropped for it, or it was itself dropped for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BudgetFull;

/// The number of bytes that all bodies share.
#[derive(Debug)]
pub(super) struct ByteBudget(Mutex<Buffers>);

#[derive(Debug)]
struct Buffers {
    free: usize,
    next_id: u64,
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    bytes: Vec<u8>,
    since: Instant,
    evicted: Arc<Notify>,
}

/// One body's share of the budget, returned when this is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare<'a> {
    budget: &'a ByteBudget,
    id: u64,
    /// The bytes that a finished body holds; those of an unfinished one are in [`Buffers`].
    finished: usize,
    evicted: Arc<Notify>,
}

impl ByteBudget {
    /// Creates a budget of this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Buffers { free: bytes, next_id: 0, unfinished: BTreeMap::new() }))
    }

    /// Opens the share of a new body, with room for `expected` bytes at first.
    pub(super) fn open(&self, expected: usize, now: Instant) -> Result<BudgetShare<'_>, BudgetFull> {
        let mut all = self.buffers();
        let (id, evicted) = (all.next_id, Arc::<Notify>::default());
        all.next_id += 1;
        if !all.make_room(expected, expected, now, now) {
            return Err(BudgetFull);
        }
        let unfinished =
            Unfinished { bytes: Vec::with_capacity(expected), since: now, evicted: Arc::clone(&evicted) };
        all.free = all.free.saturating_sub(unfinished.bytes.capacity());
        all.unfinished.insert(id, unfinished);
        Ok(BudgetShare { budget: self, id, finished: 0, evicted })
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffers {
    /// Makes room for `more` bytes of a body that then holds `all` bytes, by dropping bodies with a higher [`cost`]. Returns
    /// whether there is room.
    fn make_room(&mut self, more: usize, all: usize, since: Instant, now: Instant) -> bool {
        while self.free < more {
            let others = self.unfinished.iter();
            let worst = others.map(|(id, it)| (cost(it.bytes.capacity(), it.since, now), *id)).max();
            let Some((_, id)) = worst.filter(|(theirs, _)| *theirs > cost(all, since, now)) else {
                return false;
            };
            if let Some(dropped) = self.unfinished.remove(&id) {
                self.free += dropped.bytes.capacity();
                dropped.evicted.notify_one();
            }
        }
        true
    }
}

/// Returns what a body has cost so far: its bytes times its age in milliseconds.
fn cost(bytes: usize, since: Instant, now: Instant) -> u128 {
    bytes as u128 * (now.duration_since(since).as_millis() + 1)
}

impl BudgetShare<'_> {
    /// Appends a piece of the body. `most` is the number of bytes that the whole body may hold.
    pub(super) fn add(&mut self, piece: &[u8], most: usize, now: Instant) -> Result<(), BudgetFull> {
        let mut all = self.budget.buffers();
        let mut own = all.unfinished.remove(&self.id).ok_or(BudgetFull)?;
        let (held, length) = (own.bytes.capacity(), own.bytes.len() + piece.len());
        if length > held {
            let wanted = length.max((held * 2).min(most));
            if !all.make_room(wanted - held, wanted, own.since, now) {
                all.free += held;
                return Err(BudgetFull);
            }
            own.bytes.reserve_exact(wanted - own.bytes.len());
            all.free = all.free.saturating_sub(own.bytes.capacity() - held);
        }
        own.bytes.extend_from_slice(piece);
        all.unfinished.insert(self.id, own);
        Ok(())
    }

    /// Returns the bytes of a body that has arrived completely. They still count, but are no longer dropped for another body.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, BudgetFull> {
        let own = self.budget.buffers().unfinished.remove(&self.id).ok_or(BudgetFull)?;
        self.finished = own.bytes.capacity();
        Ok(own.bytes)
    }

    /// Completes when this body has been dropped to make room for another one.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        let mut all = self.budget.buffers();
        let unfinished = all.unfinished.remove(&self.id).map_or(0, |it| it.bytes.capacity());
        all.free += unfinished + self.finished;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CAPACITY: usize = 1000;

    fn free(budget: &ByteBudget) -> usize {
        budget.buffers().free
    }

    #[test]
    fn returned_bytes_are_free_again() {
        let (budget, now) = (ByteBudget::new(CAPACITY), Instant::now());
        for _ in 0..3 {
            let mut share = budget.open(10, now).unwrap();
            share.add(&[1; 700], CAPACITY, now).unwrap();
            assert_eq!(free(&budget), 300);
            let whole = share.finish().unwrap();
            assert_eq!((whole.len(), free(&budget)), (700, 300), "a body that is being judged still counts");
            drop(share);
            assert_eq!(free(&budget), CAPACITY);
        }
    }

    #[test]
    fn the_body_that_held_most_for_longest_is_evicted() {
        let (budget, now) = (ByteBudget::new(CAPACITY), Instant::now());
        let later = now + Duration::from_secs(1);
        let mut large = budget.open(600, now).unwrap();
        let mut small = budget.open(300, now).unwrap();
        let mut newer = budget.open(200, later).unwrap();
        assert_eq!(large.add(b"x", CAPACITY, later), Err(BudgetFull), "its room is gone");
        assert_eq!(large.finish(), Err(BudgetFull));
        small.add(b"x", CAPACITY, later).unwrap();
        newer.add(b"x", CAPACITY, later).unwrap();
        drop(large);
        assert_eq!(free(&budget), CAPACITY - 500);
    }

    #[test]
    fn a_body_that_would_cost_the_most_is_refused_itself() {
        let (budget, now) = (ByteBudget::new(CAPACITY), Instant::now());
        let mut first = budget.open(200, now).unwrap();
        let mut growing = budget.open(100, now).unwrap();
        assert_eq!(growing.add(&[1; 900], CAPACITY, now), Err(BudgetFull));
        drop(growing);
        first.add(b"x", CAPACITY, now).unwrap();
        assert_eq!(free(&budget), CAPACITY - 200);
    }

    #[test]
    fn a_body_that_is_being_judged_is_not_evicted() {
        let (budget, now) = (ByteBudget::new(CAPACITY), Instant::now());
        let mut judged = budget.open(900, now).unwrap();
        judged.finish().unwrap();
        assert_eq!(budget.open(200, now + Duration::from_secs(60)).err(), Some(BudgetFull));
    }
}
