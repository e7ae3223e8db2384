//! Connections, and how long each may take for what it is doing.
//!
//! Owns: the table of open connections, the deadlines of each, and who has to make way when all places are taken: one
//! that never asked anything before one that did, the oldest first; one that has shown a client certificate never. Must
//! not know: sockets, TLS, HTTP. Nothing is limited per address: behind a Service many API servers may look like one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A handshake on the other side of the world takes one second.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From the end of the handshake, or from the first byte of the next headers, to their last.
const HEADERS: Duration = Duration::from_secs(10);
/// API servers keep an idle connection for 90 seconds. Whoever closes first must be they, or a request gets lost on the
/// way to a connection that is being closed.
const IDLE: Duration = Duration::from_secs(120);
/// From headers to the end of the answer; a body has a shorter deadline of its own.
const TURN: Duration = Duration::from_secs(20);
/// So long bytes of ours wait for somebody to take them.
const UNTAKEN: Duration = Duration::from_secs(5);
/// A turn this young is not yet suspicious.
const YOUNG: Duration = Duration::from_millis(500);

/// Where a connection is.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub(super) struct Progress {
    /// The end of the handshake.
    open: bool,
    /// When it got where it is: connected, open, last answered.
    since: Instant,
    /// When the headers that are on their way began.
    begun: Option<Instant>,
    /// When somebody stopped to take our bytes.
    untaken: Option<Instant>,
    /// When each turn that is not over began, by number.
    turns: Vec<(u64, Instant)>,
    /// It had an answer.
    served: bool,
    /// It has shown a client certificate.
    proven: bool,
    /// Many requests at once: bytes between them need not be headers.
    multiplexed: bool,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self {
            open: false,
            since: now,
            begun: None,
            untaken: None,
            turns: Vec::new(),
            served: false,
            proven: false,
            multiplexed: false,
        }
    }

    /// Why it has to go, if it has.
    fn overdue(&self, now: Instant) -> Option<&'static str> {
        let past =
            |since: Option<Instant>, limit| since.is_some_and(|since| now.duration_since(since) > limit);
        let waiting = Some(self.since).filter(|_| self.turns.is_empty());
        if !self.open {
            return past(Some(self.since), HANDSHAKE).then_some("handshake");
        }
        let slow = past(self.untaken, UNTAKEN)
            || past(self.turns.iter().map(|(_, began)| *began).min(), TURN)
            || past(self.begun, HEADERS)
            || !self.served && past(waiting, HEADERS);
        if slow {
            return Some("slow");
        }
        past(waiting, IDLE).then_some("idle")
    }

    /// The smallest makes way first; `None` never does.
    fn worth(&self) -> Option<(bool, Instant)> {
        let stays = self.proven || self.served && !self.turns.is_empty();
        (!stays).then_some((self.served, self.since))
    }
}

/// One connection: what is known of it, and the way to end it.
#[derive(Debug)]
pub(super) struct Life {
    progress: Mutex<Progress>,
    told: Mutex<Option<&'static str>>,
    go: Notify,
}

impl Life {
    fn new(now: Instant) -> Self {
        Self { progress: Mutex::new(Progress::new(now)), told: Mutex::default(), go: Notify::new() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake is over.
    pub(super) fn open(&self, multiplexed: bool, proven: bool) {
        let mut it = self.progress();
        (it.open, it.since, it.multiplexed, it.proven) = (true, Instant::now(), multiplexed, proven);
    }

    /// Bytes have come.
    pub(super) fn heard(&self) {
        let mut it = self.progress();
        if it.open && !it.multiplexed && it.turns.is_empty() && it.begun.is_none() {
            it.begun = Some(Instant::now());
        }
    }

    /// Our bytes were taken, or not.
    pub(super) fn wrote(&self, taken: bool) {
        let mut it = self.progress();
        match it.untaken {
            None if !taken => it.untaken = Some(Instant::now()),
            Some(_) if taken => it.untaken = None,
            _ => {}
        }
    }

    /// It had an answer.
    pub(super) fn served(&self) -> bool {
        self.progress().served
    }

    /// Ends when the connection has to.
    pub(super) async fn over(&self) -> &'static str {
        self.go.notified().await;
        self.told.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or("asked")
    }

    /// Wakes whoever waits in [`Life::over`].
    fn end(&self, why: &'static str) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.go.notify_one();
    }
}

/// All connections of a port.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_turns: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    lives: HashMap<u64, Arc<Life>>,
    turns: usize,
}

/// A connection's place in the table; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<Connections>,
    id: u64,
    /// What is known of the connection.
    pub(super) life: Arc<Life>,
}

/// From the headers of a request to the end of its answer.
#[derive(Debug)]
pub(super) struct Turn {
    all: Arc<Connections>,
    life: Arc<Life>,
    id: u64,
    /// It was answered as a request that we serve.
    pub(super) served: bool,
}

impl Connections {
    /// For so many at once, with so many requests under way in all of them.
    pub(super) fn new(most: usize, most_turns: usize) -> Arc<Self> {
        Arc::new(Self { most, most_turns, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that was just accepted. If all are taken, the one that is worth least makes way.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Option<Place> {
        let mut table = self.table();
        if table.lives.len() >= self.most {
            let worths = table.lives.iter().filter_map(|(id, life)| Some((life.progress().worth()?, *id)));
            let (_, id) = worths.min()?;
            if let Some(life) = table.lives.remove(&id) {
                life.end("too_many");
            }
        }
        let (id, life) = (table.next, Arc::new(Life::new(now)));
        table.next += 1;
        table.lives.insert(id, Arc::clone(&life));
        Some(Place { all: Arc::clone(self), id, life })
    }

    /// Nobody is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.table().lives.is_empty()
    }

    /// Ends those whose time is over.
    pub(super) fn sweep(&self, now: Instant) {
        for life in self.table().lives.values() {
            let overdue = life.progress().overdue(now);
            if let Some(why) = overdue {
                life.end(why);
            }
        }
    }

    /// A request begins. If too many are under way, the connection with the oldest makes way.
    pub(super) fn turn(self: &Arc<Self>, life: &Arc<Life>) -> Turn {
        let now = Instant::now();
        let id = {
            let mut table = self.table();
            table.turns += 1;
            if table.turns > self.most_turns {
                table.cut_the_slowest(now);
            }
            table.next += 1;
            table.next
        };
        let mut it = life.progress();
        it.begun = None;
        it.turns.push((id, now));
        Turn { all: Arc::clone(self), life: Arc::clone(life), id, served: false }
    }
}

impl Table {
    fn cut_the_slowest(&self, now: Instant) {
        let oldest = |life: &Arc<Life>| {
            let it = life.progress();
            it.turns.first().map(|(_, began)| *began).filter(|_| !it.proven)
        };
        let slowest = self.lives.values().filter_map(|life| Some((oldest(life)?, life)));
        let slowest = slowest.min_by_key(|(began, _)| *began);
        if let Some((_, life)) = slowest.filter(|(began, _)| now.duration_since(*began) > YOUNG) {
            life.end("slow");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.table().lives.remove(&self.id);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut it = self.life.progress();
            it.turns.retain(|(id, _)| *id != self.id);
            it.served |= self.served;
            if it.turns.is_empty() {
                it.since = Instant::now();
            }
        }
        self.all.table().turns -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn each_stage_has_its_time() {
        let now = Instant::now();
        let connected = Progress::new(now);
        let open = Progress { open: true, ..connected.clone() };
        let served = Progress { served: true, ..open.clone() };
        let begun = Progress { begun: Some(at(95, now)), ..served.clone() };
        let stuck = Progress { untaken: Some(at(30, now)), ..served.clone() };
        let turning = Progress { turns: vec![(1, at(90, now)), (2, at(100, now))], ..served.clone() };
        for (what, it, fine, over, why) in [
            ("a handshake", connected, 5, 6, "handshake"),
            ("the first headers", open, 10, 11, "slow"),
            ("an idle connection", served, 120, 121, "idle"),
            ("headers that have begun", begun, 105, 106, "slow"),
            ("an answer that nobody takes", stuck, 35, 36, "slow"),
            ("a request without end", turning, 110, 111, "slow"),
        ] {
            assert_eq!(it.overdue(at(fine, now)), None, "{what}");
            assert_eq!(it.overdue(at(over, now)), Some(why), "{what}");
        }
    }

    fn ended(place: &Place) -> bool {
        place.life.told.lock().unwrap().is_some()
    }

    #[test]
    fn when_all_places_are_taken_the_least_worth_makes_way() {
        let (all, start) = (Connections::new(4, 10), Instant::now());
        let places: Vec<_> = (0..4).map(|second| all.enter(at(second, start)).unwrap()).collect();
        for place in &places[..3] {
            place.life.open(false, false);
            all.turn(&place.life).served = true;
        }
        places[0].life.progress().proven = true;
        let _busy = all.turn(&places[1].life);
        let _newcomer = all.enter(at(10, start)).unwrap();
        assert!(ended(&places[3]), "it never asked anything");
        let next = all.enter(at(11, start)).unwrap();
        assert!(!ended(&places[2]) && !ended(&next), "the newcomer before it had asked nothing yet");
        next.life.open(false, false);
        all.turn(&next.life).served = true;
        let busy = all.turn(&next.life);
        let _last = all.enter(at(12, start)).unwrap();
        assert!(ended(&places[2]) && !ended(&places[0]) && !ended(&places[1]) && !ended(&next));
        drop(busy);
    }

    #[test]
    fn when_too_many_requests_are_under_way_the_slowest_connection_makes_way() {
        let all = Connections::new(4, 2);
        let [slow, young] = [(); 2].map(|()| all.enter(Instant::now()).unwrap());
        let _turns = [all.turn(&slow.life), all.turn(&young.life)];
        let third = all.turn(&young.life);
        assert!(!ended(&slow), "all of them have only begun");
        drop(third);
        slow.life.progress().turns[0].1 -= Duration::from_secs(2);
        let _third = all.turn(&young.life);
        assert!(ended(&slow) && !ended(&young));
    }
}
