//! The open connections, and how long each may take for what it is doing.
//!
//! Owns: the table of open connections, the deadlines of each, and which one is closed when all slots are taken (see
//! [`EvictionRank`]). Must not know: sockets, TLS, HTTP. There is no limit per address: behind a Service, many API servers may
//! share one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::SetOnce;

/// The time for a TLS handshake; one with a client on the other side of the world takes a second.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The time for the headers of a request, from the end of the handshake or from their first byte.
const HEADERS: Duration = Duration::from_secs(10);
/// The time for which an idle connection stays open. API servers keep one for 90 seconds, and they must close it first: otherwise
/// a request may be lost on its way to a connection that is being closed.
const IDLE: Duration = Duration::from_secs(120);
/// The time from the headers to the end of the answer; the body of the request has a shorter deadline of its own.
const REQUEST: Duration = Duration::from_secs(20);
/// The time for which bytes of an answer wait for the client to read them.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The age from which a request or an unread answer counts as slow when a slot is needed. A real request ends long before, unless
/// it waits for a reservation; a longer wait protects no cluster.
const SLOW: Duration = Duration::from_secs(2);

/// The progress of a connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionProgress {
    /// Whether the handshake is complete.
    open: bool,
    /// When it reached its current state: connected, handshake complete, or last answered.
    since: Instant,
    /// When the headers that are being received began.
    begun: Option<Instant>,
    /// When the client stopped reading what is sent.
    unread_since: Option<Instant>,
    /// When the current request began.
    asked: Option<Instant>,
    /// The length of its answer in bytes.
    held: usize,
    /// Whether a request on this connection was answered with success.
    served: bool,
    /// Whether the client proved with a certificate that it is an API server.
    proven: bool,
}

impl ConnectionProgress {
    fn new(now: Instant) -> Self {
        Self {
            open: false,
            since: now,
            begun: None,
            unread_since: None,
            asked: None,
            held: 0,
            served: false,
            proven: false,
        }
    }

    /// Returns the reason to close the connection, if one of its deadlines has passed.
    fn overdue(&self, now: Instant) -> Option<&'static str> {
        let past =
            |since: Option<Instant>, limit| since.is_some_and(|since| now.duration_since(since) > limit);
        let waiting = Some(self.since).filter(|_| self.asked.is_none());
        if !self.open {
            return past(Some(self.since), HANDSHAKE).then_some("handshake");
        }
        let slow = past(self.unread_since, UNREAD_TIMEOUT)
            || past(self.asked, REQUEST)
            || past(self.begun, HEADERS)
            || !self.served && past(waiting, HEADERS);
        if slow {
            return Some("slow");
        }
        past(waiting, IDLE).then_some("idle")
    }

    /// Returns the rank and the time that orders equal ranks, oldest first; `None` for a connection that is never evicted.
    fn rank(&self, now: Instant) -> Option<(EvictionRank, Instant)> {
        let slow = [self.asked, self.unread_since].into_iter().flatten().min();
        let slow = slow.filter(|since| now.duration_since(*since) > SLOW);
        let rank = match slow {
            _ if self.proven => return None,
            _ if !self.served => EvictionRank::Unserved,
            Some(since) => return Some((EvictionRank::Slow, since)),
            None if self.asked.is_none() => EvictionRank::Idle,
            None => EvictionRank::Busy,
        };
        Some((rank, self.since))
    }
}

/// The order in which connections are evicted: the lowest rank first, and the oldest among equals. A connection with a client
/// certificate is never evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// No request was answered yet.
    Unserved,
    /// A request was answered before, and the current one takes suspiciously long.
    Slow,
    /// A request was answered before, and there is no other.
    Idle,
    /// A request was answered before, and another one is being answered. Such a connection is evicted when all others are busy,
    /// too: otherwise a client that sends small requests again and again in all slots would keep all others out.
    Busy,
}

/// One connection: its progress, and the means to end it.
#[derive(Debug)]
pub(super) struct Connection {
    progress: Mutex<ConnectionProgress>,
    /// The reason to end the connection; the first one counts.
    end_reason: SetOnce<&'static str>,
}

impl Connection {
    fn new(now: Instant) -> Self {
        Self { progress: Mutex::new(ConnectionProgress::new(now)), end_reason: SetOnce::new() }
    }

    fn progress(&self) -> MutexGuard<'_, ConnectionProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the handshake is complete.
    pub(super) fn open(&self, proven: bool) {
        let mut it = self.progress();
        (it.open, it.since, it.proven) = (true, Instant::now(), proven);
    }

    /// Records that bytes were received.
    pub(super) fn received(&self) {
        let mut it = self.progress();
        if it.open && it.asked.is_none() && it.begun.is_none() {
            it.begun = Some(Instant::now());
        }
    }

    /// Records whether the stream takes the bytes that are sent, which it does while the client reads.
    pub(super) fn wrote(&self, taken: bool) {
        let mut it = self.progress();
        match it.unread_since {
            None if !taken => it.unread_since = Some(Instant::now()),
            Some(_) if taken => it.unread_since = None,
            _ => {}
        }
    }

    /// Waits until the connection has to end, and returns the reason.
    pub(super) async fn over(&self) -> &'static str {
        self.end_reason.wait().await
    }

    /// Wakes the task that waits in [`Connection::over`].
    fn end(&self, why: &'static str) {
        let _ = self.end_reason.set(why);
    }

    /// Returns whether the connection is ending, which takes a moment.
    fn ends(&self) -> bool {
        self.end_reason.initialized()
    }
}

/// The connections of a port, and their limits.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_held: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Arc<Connection>>,
    held: usize,
}

/// A connection's slot in the table, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    all: Arc<Connections>,
    id: u64,
    pub(super) connection: Arc<Connection>,
}

/// A request, from its headers to the end of its answer.
#[derive(Debug)]
pub(super) struct InFlight {
    all: Arc<Connections>,
    connection: Arc<Connection>,
    held: usize,
    /// Whether the answer has a success status.
    pub(super) served: bool,
}

impl Connections {
    /// Creates a table for `most` connections, with `most_held` bytes of answers in all of them.
    pub(super) fn new(most: usize, most_held: usize) -> Arc<Self> {
        Arc::new(Self { most, most_held, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a connection that was just accepted. If all slots are taken, the one of the lowest rank is evicted;
    /// `None` if there is none to evict.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Option<Slot> {
        let mut table = self.table();
        if table.open.len() >= self.most {
            let ranks = table
                .open
                .iter()
                .filter_map(|(id, connection)| Some((connection.progress().rank(now)?, *id)));
            let (_, id) = ranks.min()?;
            if let Some(connection) = table.open.remove(&id) {
                connection.end("too_many");
            }
        }
        let (id, connection) = (table.next, Arc::new(Connection::new(now)));
        table.next += 1;
        table.open.insert(id, Arc::clone(&connection));
        Some(Slot { all: Arc::clone(self), id, connection })
    }

    /// Returns whether a new connection evicts another.
    pub(super) fn is_full(&self) -> bool {
        self.table().open.len() >= self.most
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().open.is_empty()
    }

    /// Ends the connections that are past a deadline.
    pub(super) fn sweep(&self, now: Instant) {
        for connection in self.table().open.values() {
            let overdue = connection.progress().overdue(now);
            if let Some(why) = overdue {
                connection.end(why);
            }
        }
    }

    /// Records that a request begins. Over HTTP/1.1 a connection has one at a time.
    pub(super) fn begin(self: &Arc<Self>, connection: &Arc<Connection>) -> InFlight {
        let mut it = connection.progress();
        (it.begun, it.asked) = (None, Some(Instant::now()));
        InFlight { all: Arc::clone(self), connection: Arc::clone(connection), held: 0, served: false }
    }
}

impl Table {
    /// Ends the connection that holds the most bytes, if answers hold more than `most` bytes and the connections that are already
    /// ending do not make up for it.
    fn end_largest_answer(&self, most: usize) {
        if self.held <= most {
            return;
        }
        let ending = self.open.values().filter(|connection| connection.ends());
        if self.held <= most + ending.map(|connection| connection.progress().held).sum::<usize>() {
            return;
        }
        let holds = |connection: &Arc<Connection>| {
            let it = connection.progress();
            (!it.proven).then_some((it.held, Reverse(it.asked)))
        };
        let stay = self.open.values().filter(|connection| !connection.ends());
        if let Some((_, connection)) =
            stay.filter_map(|connection| Some((holds(connection)?, connection))).max_by_key(|(held, _)| *held)
        {
            connection.end("slow");
        }
    }
}

impl InFlight {
    /// Sets the length of the answer. If all answers together exceed the limit, the connection that holds the most is ended: a
    /// client that reads its answers holds little.
    pub(super) fn holds(&mut self, bytes: usize) {
        self.held = bytes;
        self.connection.progress().held = bytes;
        let mut table = self.all.table();
        table.held += bytes;
        table.end_largest_answer(self.all.most_held);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.table().open.remove(&self.id);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        {
            let mut it = self.connection.progress();
            (it.asked, it.held, it.since) = (None, 0, Instant::now());
            it.served |= self.served;
        }
        self.all.table().held -= self.held;
    }
}

#[cfg(test)]
mod tests;
