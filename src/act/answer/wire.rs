//! The adapters between hyper and a connection. They report bytes on their way in and out, and keep a request in flight until
//! hyper has taken the last piece of its answer. The last few pieces may wait in hyper's buffer, which is reported as bytes that
//! the client does not read.
//!
//! Owns: nothing; reports to `connections.rs`. Must not know: TLS, requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::{Connection, InFlight};

/// A stream that reports its progress to a connection.
#[derive(Debug)]
pub(super) struct Instrumented<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Instrumented<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.connection.received();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Instrumented<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.connection.wrote(outcome.is_ready());
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.connection.wrote(outcome.is_ready());
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.connection.wrote(outcome.is_ready());
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.connection.wrote(outcome.is_ready());
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of an answer, whose request is in flight until hyper has taken all of it. It is handed out in pieces, so that a
/// client that reads none of them cannot pile them up.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Body,
    rest: Bytes,
    piece: usize,
    _in_flight: InFlight,
}

impl TrackedBody {
    pub(super) fn new(body: Body, piece: usize, mut in_flight: InFlight) -> Self {
        let length = body.size_hint().exact().unwrap_or_default();
        in_flight.holds(usize::try_from(length).unwrap_or(usize::MAX));
        Self { body, rest: Bytes::new(), piece, _in_flight: in_flight }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = self.piece.min(self.rest.len());
        let piece = self.rest.split_to(piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}
