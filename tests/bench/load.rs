//! The load: one thread per connection, in a closed loop (the next request follows the answer) or an open one (the next
//! request is sent when it is due). Every answer is checked.
//!
//! In an open loop the latency counts from the time at which the request was due, so that a server that stalls cannot hide
//! the requests that wait behind it.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::Connection;
use crate::reviews::Request;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each request is sent when the answer to the one before has arrived.
    Closed,
    /// This many requests per second are sent over all connections together, however slow the answers are.
    Open(f64),
}

/// One connection, and the requests that are sent over it in turn.
pub struct LoadConnection {
    connection: Connection,
    requests: Vec<Request>,
    expects: &'static [&'static str],
    sent: u64,
}

/// The result of a stretch of load. Latencies are in nanoseconds.
#[derive(Clone)]
pub struct Block {
    pub latencies: Histogram<u64>,
    /// How late the generator itself sent requests. Counts only requests that it waited for; a slow answer delays others.
    pub lateness: Histogram<u64>,
    pub elapsed: Duration,
}

impl LoadConnection {
    pub fn new(connection: Connection, requests: Vec<Request>, expects: &'static [&'static str]) -> Self {
        Self { connection, requests, expects, sent: 0 }
    }

    /// Sends one request and checks the answer. A wrong answer ends the benchmark, because its figures would mean nothing.
    pub fn ask(&mut self) {
        let turn = usize::try_from(self.sent).expect("a count") % self.requests.len();
        let request = &mut self.requests[turn];
        self.sent += 1;
        request.stamp(self.sent);
        let (status, body) = self.connection.ask(&request.bytes).expect("the server answers");
        let right = status == "HTTP/1.1 200 OK"
            && body.contains(request.uid())
            && self.expects.iter().all(|expected| body.contains(expected));
        assert!(right, "unexpected answer to {}: {status}\n{body}", request.uid());
    }
}

impl Block {
    fn new() -> Self {
        Self { latencies: histogram(), lateness: histogram(), elapsed: Duration::ZERO }
    }

    /// Adds the figures of another block to these.
    pub fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies).expect("histograms of one kind");
        self.lateness.add(&other.lateness).expect("histograms of one kind");
        self.elapsed += other.elapsed;
    }

    pub fn requests(&self) -> u64 {
        self.latencies.len()
    }

    pub fn per_second(&self) -> f64 {
        count(self.requests()) / self.elapsed.as_secs_f64()
    }
}

/// Returns an empty histogram with a precision of three digits, for times up to a minute.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are possible")
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a number for arithmetic. No benchmark sends more requests than a float can count exactly.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn count(number: u64) -> f64 {
    number as f64
}

/// Lets this thread wake within microseconds of the requested time; by default the kernel may be 50 microseconds late.
pub fn reduce_timer_slack() {
    // On a kernel that does not support this, the generator is later; its lateness is printed.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits until `moment`. Returns how much later than that it is.
pub fn wait_until(moment: Instant) -> Duration {
    let now = Instant::now();
    if let Some(left) = moment.checked_duration_since(now) {
        thread::sleep(left);
    }
    moment.elapsed()
}

/// Sends requests over all connections for this length of time, each connection in its own thread.
pub fn run(connections: &mut [LoadConnection], pace: Pace, length: Duration) -> Block {
    let started = Instant::now();
    let all = connections.len();
    let mut total = Block::new();
    thread::scope(|scope| {
        let threads: Vec<_> = connections
            .iter_mut()
            .enumerate()
            .map(|(index, connection)| {
                scope.spawn(move || match pace {
                    Pace::Closed => closed(connection, started + length),
                    Pace::Open(rate) => {
                        let first = started + Duration::from_secs_f64(float(index + 1) / rate);
                        let step = Duration::from_secs_f64(float(all) / rate);
                        open(connection, first, step, started + length)
                    }
                })
            })
            .collect();
        for thread in threads {
            total.add(&thread.join().expect("every answer was right"));
        }
    });
    total.elapsed = started.elapsed();
    total
}

/// Converts the number of a connection for arithmetic.
fn float(number: usize) -> f64 {
    count(u64::try_from(number).expect("a small number"))
}

fn closed(connection: &mut LoadConnection, end: Instant) -> Block {
    let mut block = Block::new();
    let mut now = Instant::now();
    while now < end {
        connection.ask();
        let then = Instant::now();
        block.latencies.saturating_record(nanoseconds(then - now));
        now = then;
    }
    block
}

fn open(connection: &mut LoadConnection, first: Instant, step: Duration, end: Instant) -> Block {
    reduce_timer_slack();
    let mut block = Block::new();
    let mut due = first;
    while due < end {
        let was_free = Instant::now() < due;
        let late = wait_until(due);
        if was_free {
            block.lateness.saturating_record(nanoseconds(late));
        }
        connection.ask();
        block.latencies.saturating_record(nanoseconds(due.elapsed()));
        due += step;
    }
    block
}
