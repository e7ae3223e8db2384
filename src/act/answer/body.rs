//! The body of a request: read within the budget and its deadlines, and checked for its number of values before it is parsed.
//!
//! Owns: deadlines, sizes, and how many values a JSON text may hold. Must not know: reviews. Data: body in, bytes and their share
//! of the budget out, or the reason for a refusal with a message for the client.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout_at;

use super::budget::{BudgetShare, ByteBudget, Full};

/// The maximum length of a body in bytes: an update carries the object twice, and the API server accepts 3 MiB for each.
pub const LARGEST_BODY: usize = 8 * 1024 * 1024;
/// The bytes of all bodies that are being read or judged: less than a fifth of the memory limit in the chart.
const BUDGET: usize = 24 * 1024 * 1024;
/// The time for a whole body to arrive. An API server gives up after 2 to 30 seconds; a client that sends more slowly is not an
/// API server.
const SLOWEST_BODY: Duration = Duration::from_secs(10);
/// The longest pause within a body; a packet that was lost twice is retransmitted within this time.
const SILENCE: Duration = Duration::from_secs(4);
/// The most bytes of the budget that a body takes before any of it has arrived.
const FIRST_PIECE: usize = 64 * 1024;
/// The number of JSON values above which only one body is judged at a time. A review of 17 KiB holds some 1,500 values; a list of
/// `{}` unfolds to a hundred times its length.
const MANY_VALUES: usize = 8 * 1024;
/// The number of JSON values above which a body is refused; no object that an API server stores comes near it.
const MOST_VALUES: usize = 48 * 1024;

/// The limits that all bodies share: the memory budget, and the permit for a body with many values.
#[derive(Debug)]
pub(super) struct Intake {
    budget: ByteBudget,
    heavy: Semaphore,
}

impl Default for Intake {
    fn default() -> Self {
        Self { budget: ByteBudget::new(BUDGET), heavy: Semaphore::new(1) }
    }
}

/// A body that was read completely. Its memory counts in the budget until this is dropped.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    pub(super) bytes: Vec<u8>,
    _share: BudgetShare<'a>,
    _heavy: Option<SemaphorePermit<'a>>,
}

/// The reasons why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The body is longer than [`LARGEST_BODY`].
    TooLong,
    /// The body holds more values than any review.
    TooMuch,
    /// The body arrived too slowly.
    TooSlow,
    /// The body or its connection ended before all of it had arrived.
    TooEarly,
    /// Other bodies need the room more, or another body with many values is being judged.
    NoRoom,
}

impl Refused {
    /// Returns the HTTP status, the metric label and the message for the client.
    pub(super) fn response(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::TooLong => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "malformed",
                "the request body is too large: gatera reads at most 8 MiB",
            ),
            Self::TooMuch => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "malformed",
                "the request body holds too many values: gatera reads at most 49152",
            ),
            Self::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "malformed", "the request body arrived too slowly")
            }
            Self::TooEarly => (StatusCode::BAD_REQUEST, "malformed", "the request body ended too early"),
            Self::NoRoom => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "gatera is not ready: too many request bodies at once",
            ),
        }
    }
}

impl From<Full> for Refused {
    fn from(_: Full) -> Self {
        Self::NoRoom
    }
}

impl Intake {
    /// Reads a body, unless it is too long or too slow or there is no room for it.
    pub(super) async fn whole(&self, mut body: Body) -> Result<Whole<'_>, Refused> {
        let now = Instant::now();
        let expected =
            body.size_hint().upper().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if expected > LARGEST_BODY {
            return Err(Refused::TooLong);
        }
        let deadline = now + SLOWEST_BODY;
        let mut share = self.budget.open(expected.min(FIRST_PIECE), now)?;
        let (mut length, mut last_bytes) = (0, now);
        loop {
            let patience = deadline.min(last_bytes + SILENCE);
            let frame = tokio::select! {
                biased;
                frame = timeout_at(patience.into(), body.frame()) => frame,
                () = share.evicted() => return Err(Refused::NoRoom),
            };
            let Some(frame) = frame.map_err(|_| Refused::TooSlow)? else { break };
            let Ok(piece) = frame.map_err(|_| Refused::TooEarly)?.into_data() else { continue };
            length += piece.len();
            if length > LARGEST_BODY {
                return Err(Refused::TooLong);
            }
            last_bytes = Instant::now();
            share.add(&piece, LARGEST_BODY, last_bytes)?;
        }
        let bytes = share.finish()?;
        let heavy = match values(&bytes) {
            few if few <= MANY_VALUES => None,
            many if many > MOST_VALUES => return Err(Refused::TooMuch),
            // A body that waited for its turn would hold room that others need.
            _ => Some(self.heavy.try_acquire().map_err(|_| Refused::NoRoom)?),
        };
        Ok(Whole { bytes, _share: share, _heavy: heavy })
    }
}

/// Returns an upper bound for the number of values in a JSON text, counted no further than it matters: every value but the first
/// follows `{`, `[` or `,`. Such characters in strings do not count, but strings are recognized only if there are many.
fn values(json: &[u8]) -> usize {
    let begins = |byte: &u8| u8::from(matches!(byte, b'{' | b'[' | b','));
    let mut rough = 0;
    // In pieces whose count fits into a byte, a processor compares many bytes at once.
    for piece in json.chunks(u8::MAX.into()) {
        rough += usize::from(piece.iter().map(begins).sum::<u8>());
        if rough > MANY_VALUES {
            return values_outside_texts(json);
        }
    }
    rough
}

fn values_outside_texts(json: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'{' | b'[' | b',' if !quoted => count += 1,
            _ => {}
        }
        if count > MOST_VALUES {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sent(bytes: Vec<u8>) -> Result<usize, Refused> {
        Intake::default().whole(Body::from(bytes)).await.map(|whole| whole.bytes.len())
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_last_byte_that_is_allowed() {
        for length in [0, 1, FIRST_PIECE + 1, LARGEST_BODY] {
            assert_eq!(sent(vec![b' '; length]).await, Ok(length));
        }
        assert_eq!(sent(vec![b' '; LARGEST_BODY + 1]).await, Err(Refused::TooLong));
    }

    /// Half a megabyte of `{},` would unfold to hundreds; the same in a text is one value.
    #[tokio::test]
    async fn a_body_that_unfolds_is_refused() {
        let many = "{},".repeat(200_000);
        assert_eq!(sent(format!("[{many}{{}}]").into_bytes()).await, Err(Refused::TooMuch));
        assert!(sent(format!(r#"["\"{many}"]"#).into_bytes()).await.is_ok());
        let escaped = format!(r#"["\\",{many}{{}}]"#);
        assert_eq!(sent(escaped.into_bytes()).await, Err(Refused::TooMuch), "the text had ended");
    }
}
