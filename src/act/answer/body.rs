//! The body of a request: read within the budget and its deadlines. Its JSON values are counted before it is parsed.
//!
//! Owns: deadlines, sizes, and how many values a JSON text may hold; the result is the bytes of the body with their share of the
//! budget, or a refusal with a message for the client. Must not know: reviews.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use facts::review::value_count;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout_at;

use super::budget::{BudgetFull, BudgetShare, ByteBudget};

/// The maximum length of a body in bytes: an update carries the object twice, and the API server accepts 3 MiB for each.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The bytes of all bodies that are being read or judged: less than a fifth of the memory limit in the chart.
const BUDGET_BYTES: usize = 24 * 1024 * 1024;
/// The time for a whole body to arrive. An API server gives up after 2 to 30 seconds; a client that sends more slowly is not an
/// API server.
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// The longest pause within a body; a packet that was lost twice is retransmitted within this time.
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// The maximum number of bytes that a body takes from the budget before any of it has arrived.
const INITIAL_ROOM: usize = 64 * 1024;
/// The number of JSON values above which only one body is judged at a time. A review of 17 KiB holds some 1,500 values; once
/// parsed, a list of `{}` takes a hundred times its length in memory.
const MANY_VALUES: usize = 8 * 1024;
/// The number of JSON values above which a body is refused; in practice, no object of a watched kind has nearly as many.
const MAX_VALUES: usize = 48 * 1024;

/// The limits that all bodies share: the memory budget, and the permit for a body with many values.
#[derive(Debug)]
pub(super) struct Intake {
    budget: ByteBudget,
    heavy: Semaphore,
}

impl Default for Intake {
    fn default() -> Self {
        Self { budget: ByteBudget::new(BUDGET_BYTES), heavy: Semaphore::new(1) }
    }
}

/// A body that was read completely. Its memory counts in the budget until this is dropped.
#[derive(Debug)]
pub(super) struct WholeBody<'a> {
    pub(super) bytes: Vec<u8>,
    _share: BudgetShare<'a>,
    _heavy: Option<SemaphorePermit<'a>>,
}

/// Why a request is answered with an HTTP error instead of a verdict: the HTTP status, the metric label and the message for
/// the client.
pub(super) type Refusal = (StatusCode, &'static str, &'static str);

/// The body is longer than [`MAX_BODY_BYTES`].
const TOO_LONG: Refusal =
    (StatusCode::PAYLOAD_TOO_LARGE, "malformed", "the request body is too large: gatera reads at most 8 MiB");
/// The body holds more than [`MAX_VALUES`] JSON values.
const TOO_MANY_VALUES: Refusal = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "malformed",
    "the request body holds too many values: gatera reads at most 49152",
);
/// The body arrived too slowly.
const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, "malformed", "the request body arrived too slowly");
/// The body or its connection ended before all of it had arrived.
const TRUNCATED: Refusal = (StatusCode::BAD_REQUEST, "malformed", "the request body ended too early");
/// The budget has no room for the body, or another body with many values is being judged.
const NO_ROOM: Refusal =
    (StatusCode::SERVICE_UNAVAILABLE, "busy", "gatera is busy: too many request bodies at once");

impl Intake {
    /// Reads a body, unless it is too long or too slow or there is no room for it.
    pub(super) async fn read(&self, mut body: Body) -> Result<WholeBody<'_>, Refusal> {
        let now = Instant::now();
        let expected =
            body.size_hint().upper().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if expected > MAX_BODY_BYTES {
            return Err(TOO_LONG);
        }
        let deadline = now + BODY_DEADLINE;
        let mut share = self.budget.open(expected.min(INITIAL_ROOM), now).map_err(|BudgetFull| NO_ROOM)?;
        let (mut length, mut last_piece_at) = (0, now);
        loop {
            let limit = deadline.min(last_piece_at + MAX_PAUSE);
            let frame = tokio::select! {
                biased;
                frame = timeout_at(limit.into(), body.frame()) => frame,
                () = share.evicted() => return Err(NO_ROOM),
            };
            let Some(frame) = frame.map_err(|_| TOO_SLOW)? else { break };
            let Ok(piece) = frame.map_err(|_| TRUNCATED)?.into_data() else { continue };
            length += piece.len();
            if length > MAX_BODY_BYTES {
                return Err(TOO_LONG);
            }
            last_piece_at = Instant::now();
            share.add(&piece, MAX_BODY_BYTES, last_piece_at).map_err(|BudgetFull| NO_ROOM)?;
        }
        let bytes = share.finish().map_err(|BudgetFull| NO_ROOM)?;
        let heavy = match value_count(&bytes, MANY_VALUES, MAX_VALUES) {
            few if few <= MANY_VALUES => None,
            many if many > MAX_VALUES => return Err(TOO_MANY_VALUES),
            // The permit is not awaited: a body that waits would hold room that other bodies need.
            _ => Some(self.heavy.try_acquire().map_err(|_| NO_ROOM)?),
        };
        Ok(WholeBody { bytes, _share: share, _heavy: heavy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_length(bytes: Vec<u8>) -> Result<usize, Refusal> {
        Intake::default().read(Body::from(bytes)).await.map(|whole| whole.bytes.len())
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_last_byte_that_is_allowed() {
        for length in [0, 1, INITIAL_ROOM + 1, MAX_BODY_BYTES] {
            assert_eq!(read_length(vec![b' '; length]).await, Ok(length));
        }
        assert_eq!(read_length(vec![b' '; MAX_BODY_BYTES + 1]).await, Err(TOO_LONG));
    }

    /// Once parsed, 600 KB of `{},` would take a hundred times as much memory; the same characters in a string are one value.
    #[tokio::test]
    async fn a_body_with_too_many_values_is_refused() {
        let many = "{},".repeat(200_000);
        assert_eq!(read_length(format!("[{many}{{}}]").into_bytes()).await, Err(TOO_MANY_VALUES));
        assert!(read_length(format!(r#"["\"{many}"]"#).into_bytes()).await.is_ok());
        let escaped = format!(r#"["\\",{many}{{}}]"#);
        assert_eq!(
            read_length(escaped.into_bytes()).await,
            Err(TOO_MANY_VALUES),
            "the string ends after an escaped backslash"
        );
    }

    #[test]
    fn messages_name_the_limits() {
        assert!(TOO_LONG.2.ends_with(&format!(" {} MiB", MAX_BODY_BYTES / (1024 * 1024))));
        assert!(TOO_MANY_VALUES.2.ends_with(&format!(" {MAX_VALUES}")));
    }
}
