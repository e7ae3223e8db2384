//! The open connections, and how long each may stay in its stage.
//!
//! Owns: the table of open connections, the deadlines of each, and which one is closed when all slots are taken (see
//! [`EvictionRank`]). Must not know: sockets, TLS, HTTP. There is no limit per address: behind a Service, many API servers may
//! share one.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::SetOnce;

/// The time for a TLS handshake; one with a client on the other side of the world takes a second.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);
/// The time for the headers of a first request, from the end of the handshake.
const HEADERS_DEADLINE: Duration = Duration::from_secs(10);
/// The time for which a connection that was served waits for its next request. API servers keep an idle connection for 90
/// seconds, and they must close it first: otherwise a request may be lost on its way to a connection that is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The time from the headers of a request to the end of its answer: until hyper has taken the last piece, when the client has
/// read almost all of it. The body of the request has a shorter deadline of its own.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);
/// The time within which hyper must take the next piece of an answer; it takes pieces only while the client reads.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The age from which a request counts as slow when a slot is needed. A request of an API server usually ends long before: the
/// longest single wait, for a reservation, has a deadline of 1.2 seconds.
const SLOW_AGE: Duration = Duration::from_secs(2);

/// The current stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionStage {
    Handshake,
    /// The connection waits for a request, or for the end of its headers.
    Waiting,
    /// A request is being answered, or the client has not read its answer yet.
    Answering,
}

/// The stage of a connection, and the facts on which its deadline and its eviction depend.
#[derive(Clone, Debug)]
pub(super) struct ConnectionProgress {
    stage: ConnectionStage,
    /// When this stage began.
    since: Instant,
    /// When hyper last took a piece of the current answer; until then, when the first piece was offered. `None`: no answer yet.
    taken: Option<Instant>,
    /// The length of the current answer in bytes.
    held_bytes: usize,
    /// Whether a request on this connection was answered with success.
    served: bool,
    /// Whether the client proved with a certificate that it is an API server.
    proven: bool,
}

impl ConnectionProgress {
    fn new(now: Instant) -> Self {
        Self {
            stage: ConnectionStage::Handshake,
            since: now,
            taken: None,
            held_bytes: 0,
            served: false,
            proven: false,
        }
    }

    /// Returns the reason to close the connection, if its stage lasts too long.
    fn overdue(&self, now: Instant) -> Option<&'static str> {
        if self.taken.is_some_and(|taken| now.duration_since(taken) > UNREAD_TIMEOUT) {
            return Some("slow");
        }
        let (limit, reason) = match self.stage {
            ConnectionStage::Handshake => (HANDSHAKE_DEADLINE, "handshake"),
            ConnectionStage::Waiting if self.served => (IDLE_TIMEOUT, "idle"),
            ConnectionStage::Waiting => (HEADERS_DEADLINE, "slow"),
            ConnectionStage::Answering => (ANSWER_DEADLINE, "slow"),
        };
        (now.duration_since(self.since) > limit).then_some(reason)
    }

    /// Returns the rank and the time that orders equal ranks, oldest first; `None` for a connection that is never evicted.
    fn rank(&self, now: Instant) -> Option<(EvictionRank, Instant)> {
        let rank = match self.stage {
            _ if self.proven => return None,
            _ if !self.served => EvictionRank::Unserved,
            ConnectionStage::Answering if now.duration_since(self.since) > SLOW_AGE => EvictionRank::Slow,
            ConnectionStage::Answering => EvictionRank::Busy,
            _ => EvictionRank::Idle,
        };
        Some((rank, self.since))
    }
}

/// The order in which connections are evicted: the lowest rank first, and the oldest among equals. A connection with a client
/// certificate is never evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// No request was answered with success yet.
    Unserved,
    /// A request was answered before, and the current one takes suspiciously long.
    Slow,
    /// A request was answered before, and none is being answered now.
    Idle,
    /// A request was answered before, and another one is being answered. Such a connection is evicted if all others are busy,
    /// too: otherwise a client that sends small requests on all connections without a pause would keep other clients out.
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

    /// Records that the handshake is complete, and whether the client proved that it is an API server.
    pub(super) fn open(&self, proven: bool) {
        let mut progress = self.progress();
        (progress.stage, progress.since, progress.proven) =
            (ConnectionStage::Waiting, Instant::now(), proven);
    }

    /// Waits until the connection has to end, and returns the reason.
    pub(super) async fn ended(&self) -> &'static str {
        self.end_reason.wait().await
    }

    /// Wakes the task that waits in [`Connection::ended`].
    fn end(&self, reason: &'static str) {
        let _ = self.end_reason.set(reason);
    }
}

/// The connections of a port, and their limits.
#[derive(Debug)]
pub(super) struct Connections {
    max_open: usize,
    max_held_bytes: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    open: HashMap<u64, Arc<Connection>>,
    held_bytes: usize,
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
    begun: Instant,
    /// Whether the answer has a success status.
    pub(super) served: bool,
}

impl Connections {
    /// Creates a table for `max_open` connections, with `max_held_bytes` of answers in all of them.
    pub(super) fn new(max_open: usize, max_held_bytes: usize) -> Arc<Self> {
        Arc::new(Self { max_open, max_held_bytes, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a connection that was just accepted. If all slots are taken, the connection with the lowest rank is
    /// evicted. Returns `None` if none may be evicted.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Option<Slot> {
        let mut table = self.table();
        if table.open.len() >= self.max_open {
            let ranks = table
                .open
                .iter()
                .filter_map(|(id, connection)| Some((connection.progress().rank(now)?, *id)));
            let (_, id) = ranks.min()?;
            if let Some(connection) = table.open.remove(&id) {
                connection.end("too_many");
            }
        }
        let (id, connection) = (table.next_id, Arc::new(Connection::new(now)));
        table.next_id += 1;
        table.open.insert(id, Arc::clone(&connection));
        Some(Slot { all: Arc::clone(self), id, connection })
    }

    /// Returns whether all slots are taken, so that a new connection evicts another one or is refused.
    pub(super) fn is_full(&self) -> bool {
        self.table().open.len() >= self.max_open
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().open.is_empty()
    }

    /// Ends the connections that are past a deadline.
    pub(super) fn sweep(&self, now: Instant) {
        for connection in self.table().open.values() {
            let overdue = connection.progress().overdue(now);
            if let Some(reason) = overdue {
                connection.end(reason);
            }
        }
    }

    /// Records that a request begins. Over HTTP/1.1, a connection has one request at a time.
    pub(super) fn begin(self: &Arc<Self>, connection: &Arc<Connection>) -> InFlight {
        let (begun, mut progress) = (Instant::now(), connection.progress());
        (progress.stage, progress.since, progress.taken) = (ConnectionStage::Answering, begun, None);
        InFlight { all: Arc::clone(self), connection: Arc::clone(connection), begun, served: false }
    }

    /// Records the length of the answer that a connection holds. While all answers together exceed the limit, the connection with
    /// the largest product of bytes and age is ended: a client that reads its answers holds few bytes.
    fn hold(&self, connection: &Connection, bytes: usize) {
        let mut table = self.table();
        let before = mem::replace(&mut connection.progress().held_bytes, bytes);
        table.held_bytes = table.held_bytes + bytes - before;
        while table.held_bytes > self.max_held_bytes {
            let cost = |connection: &Connection| {
                let progress = connection.progress();
                let cost = progress.held_bytes as u128 * (progress.since.elapsed().as_micros() + 1);
                (cost > 0 && !progress.proven).then_some(cost)
            };
            let costs = table.open.iter().filter_map(|(id, connection)| Some((cost(connection)?, *id)));
            let Some((_, id)) = costs.max() else { return };
            if let Some(connection) = table.open.remove(&id) {
                table.held_bytes -= mem::take(&mut connection.progress().held_bytes);
                connection.end("slow");
            }
        }
    }
}

impl InFlight {
    /// Records that hyper takes a piece of the answer, or is offered the first one.
    pub(super) fn piece_taken(&self) {
        self.connection.progress().taken = Some(Instant::now());
    }

    /// Sets the length of the answer.
    pub(super) fn set_length(&self, bytes: usize) {
        self.all.hold(&self.connection, bytes);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.table().open.remove(&self.id);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.set_length(0);
        let mut progress = self.connection.progress();
        progress.served |= self.served;
        // hyper may read the next request before it drops the body of this answer.
        if progress.since == self.begun {
            (progress.stage, progress.since, progress.taken) =
                (ConnectionStage::Waiting, Instant::now(), None);
        }
    }
}

#[cfg(test)]
mod tests;
