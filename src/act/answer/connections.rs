//! Connections, and how long each may take for what it is doing.
//!
//! Owns: the table of open connections, the deadlines of each, and which is closed when all slots are taken (see
//! [`EvictionRank`]). Must not know: sockets, TLS, HTTP. Nothing is limited per address: behind a Service many API servers may look
//! like one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::SetOnce;

/// A handshake on the other side of the world takes one second.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From the end of the handshake, or from the first byte of the next headers, to their last.
const HEADERS: Duration = Duration::from_secs(10);
/// API servers keep an idle connection for 90 seconds. They must close first, or a request gets lost on the
/// way to a connection that is being closed.
const IDLE: Duration = Duration::from_secs(120);
/// From headers to the end of the answer; a body has a shorter deadline of its own.
const REQUEST: Duration = Duration::from_secs(20);
/// Our bytes wait this long for the client to take them.
const UNTAKEN: Duration = Duration::from_secs(5);
/// A real request is over long before, but for one that waits for a reservation. A longer wait protects no cluster.
const SLOW: Duration = Duration::from_secs(2);

/// Where a connection is.
#[derive(Clone, Debug)]
pub(super) struct ConnectionProgress {
    /// The end of the handshake.
    open: bool,
    /// When it got where it is: connected, open, last answered.
    since: Instant,
    /// When the headers that are on their way began.
    begun: Option<Instant>,
    /// When the client stopped taking our bytes.
    untaken: Option<Instant>,
    /// When the request began that is not over.
    asked: Option<Instant>,
    /// Bytes of its answer.
    held: usize,
    /// It had an answer.
    served: bool,
    /// It has shown a client certificate.
    proven: bool,
}

impl ConnectionProgress {
    fn new(now: Instant) -> Self {
        Self {
            open: false,
            since: now,
            begun: None,
            untaken: None,
            asked: None,
            held: 0,
            served: false,
            proven: false,
        }
    }

    /// Why it has to go, if it has.
    fn overdue(&self, now: Instant) -> Option<&'static str> {
        let past =
            |since: Option<Instant>, limit| since.is_some_and(|since| now.duration_since(since) > limit);
        let waiting = Some(self.since).filter(|_| self.asked.is_none());
        if !self.open {
            return past(Some(self.since), HANDSHAKE).then_some("handshake");
        }
        let slow = past(self.untaken, UNTAKEN)
            || past(self.asked, REQUEST)
            || past(self.begun, HEADERS)
            || !self.served && past(waiting, HEADERS);
        if slow {
            return Some("slow");
        }
        past(waiting, IDLE).then_some("idle")
    }

    /// What it is worth, and since when it is what it is; `None` never makes way.
    fn rank(&self, now: Instant) -> Option<(EvictionRank, Instant)> {
        let slow = [self.asked, self.untaken].into_iter().flatten().min();
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

/// Who makes way first; among equals the oldest does. One that has shown a client certificate never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It never had an answer.
    Unserved,
    /// It had one, and has taken suspiciously long for the next.
    Slow,
    /// It had one, and asks nothing.
    Idle,
    /// It is being answered. It makes way when all others are, too; otherwise a client that asks something small again and again in all
    /// slots would keep all others out.
    Busy,
}

/// One connection: what is known of it, and the way to end it.
#[derive(Debug)]
pub(super) struct Connection {
    progress: Mutex<ConnectionProgress>,
    /// Why it has to end. The first reason counts.
    end_reason: SetOnce<&'static str>,
}

impl Connection {
    fn new(now: Instant) -> Self {
        Self { progress: Mutex::new(ConnectionProgress::new(now)), end_reason: SetOnce::new() }
    }

    fn progress(&self) -> MutexGuard<'_, ConnectionProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake is over.
    pub(super) fn open(&self, proven: bool) {
        let mut it = self.progress();
        (it.open, it.since, it.proven) = (true, Instant::now(), proven);
    }

    /// Bytes have come.
    pub(super) fn received(&self) {
        let mut it = self.progress();
        if it.open && it.asked.is_none() && it.begun.is_none() {
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

    /// Ends when the connection has to.
    pub(super) async fn over(&self) -> &'static str {
        self.end_reason.wait().await
    }

    /// Wakes the task that waits in [`Connection::over`].
    fn end(&self, why: &'static str) {
        let _ = self.end_reason.set(why);
    }

    /// Whether it is ending, which takes a moment.
    fn ends(&self) -> bool {
        self.end_reason.initialized()
    }
}

/// All connections of a port.
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

/// A connection's slot in the table; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    all: Arc<Connections>,
    id: u64,
    /// What is known of the connection.
    pub(super) connection: Arc<Connection>,
}

/// A request, from its headers to the end of its answer.
#[derive(Debug)]
pub(super) struct InFlight {
    all: Arc<Connections>,
    connection: Arc<Connection>,
    held: usize,
    /// It was answered as a request that we serve.
    pub(super) served: bool,
}

impl Connections {
    /// For so many at once, with so many bytes of answers in all of them.
    pub(super) fn new(most: usize, most_held: usize) -> Arc<Self> {
        Arc::new(Self { most, most_held, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a connection that was just accepted. If all are taken, the one that is worth least makes way.
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

    /// Whether a new connection takes the place of another.
    pub(super) fn is_full(&self) -> bool {
        self.table().open.len() >= self.most
    }

    /// Whether there is no connection.
    pub(super) fn is_empty(&self) -> bool {
        self.table().open.is_empty()
    }

    /// Ends those whose time is over.
    pub(super) fn sweep(&self, now: Instant) {
        for connection in self.table().open.values() {
            let overdue = connection.progress().overdue(now);
            if let Some(why) = overdue {
                connection.end(why);
            }
        }
    }

    /// A request begins. Over HTTP/1.1 a connection has one at a time.
    pub(super) fn begin(self: &Arc<Self>, connection: &Arc<Connection>) -> InFlight {
        let mut it = connection.progress();
        (it.begun, it.asked) = (None, Some(Instant::now()));
        InFlight { all: Arc::clone(self), connection: Arc::clone(connection), held: 0, served: false }
    }
}

impl Table {
    /// If more bytes of answers are held than may be, and those of connections that are ending do not make up for it.
    fn cut_the_greediest(&self, most: usize) {
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
    /// Its answer has so many bytes. If that is too much, with all others, the connection that holds the most makes way:
    /// a client that takes its answers holds little.
    pub(super) fn holds(&mut self, bytes: usize) {
        self.held = bytes;
        self.connection.progress().held = bytes;
        let mut table = self.all.table();
        table.held += bytes;
        table.cut_the_greediest(self.all.most_held);
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
