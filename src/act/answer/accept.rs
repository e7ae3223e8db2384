//! The accept loop: TCP, TLS, HTTP, and a shutdown that loses no request.
//!
//! Owns: sockets, and the limits of HTTP on each connection. Must not know: what is served. A client that never completes its
//! handshake or its request holds one slot until a deadline, and blocks no other client; `connections.rs` defines the deadlines,
//! and which connection is closed to make room for a new one.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, header};
use futures_util::{TryStreamExt as _, stream};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::connections::{Connection, Connections, InFlight, Slot};
use super::router::MAX_ANSWER_BYTES;
use super::tls::Tls;
use crate::act::guard::Guard;
use crate::act::telemetry::chain;

/// The maximum number of open connections to the webhook port; the API servers of a large cluster hold a few dozen.
const MAX_CONNECTIONS: usize = 512;
/// The maximum number of open connections to the operations port: probes, and one or two scrapes of the metrics.
const MAX_OPERATIONS_CONNECTIONS: usize = 32;
/// The maximum number of bytes of answers that clients have not read yet, over all connections of a port: 256 answers of the
/// maximum length, a quarter of the memory limit in the chart. The last pieces, which wait in hyper and TLS, do not count.
const MAX_UNREAD_BYTES: usize = 256 * MAX_ANSWER_BYTES;
/// The maximum length of a request's headers in bytes; an API server sends some 500 bytes.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The bytes of an answer that are handed to hyper at a time, before the client has read them.
const PIECE_BYTES: usize = 4 * 1024;
/// The interval at which the deadlines of connections are checked.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause between two new connections while each of them evicts an open one. It leaves open connections time to be served,
/// even when this machine was busy for a moment and many connections arrive together.
const EVICTION_PAUSE: Duration = Duration::from_millis(1);
/// The pause after an accept error (for example, no free file descriptor), so that the loop does not spin.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(100);
/// The interval at which a drain looks at the table of connections, which does not report its changes.
const DRAIN_POLL: Duration = Duration::from_millis(50);

/// The stages of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownStage {
    /// No shutdown has begun.
    #[default]
    Serving,
    /// Requests are still served, but each answer closes its connection, so that the next request goes to another replica.
    Leaving,
    /// The requests in flight are answered; no new connection or request is accepted.
    Closing,
}

/// What TLS proves about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProof {
    /// The client was not asked for a certificate.
    NotRequested,
    /// The client was asked for a certificate and presented none.
    Missing,
    /// The client presented a certificate that was signed by a CA in the file of client CAs.
    Proven,
}

/// A listener, with the router and the limits of its connections.
#[derive(Debug)]
pub struct ServingPort {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    connections: Arc<Connections>,
}

impl ServingPort {
    /// Creates the port for webhooks, which is served over TLS.
    pub fn webhooks(listener: TcpListener, tls: Arc<Tls>, router: Router) -> Self {
        let connections = Connections::new(MAX_CONNECTIONS, MAX_UNREAD_BYTES);
        Self { listener, tls: Some(tls), router, connections }
    }

    /// Creates the port for probes and metrics, which is served without TLS and for few connections.
    pub fn operations(listener: TcpListener, router: Router) -> Self {
        let connections = Connections::new(MAX_OPERATIONS_CONNECTIONS, MAX_UNREAD_BYTES);
        Self { listener, tls: None, router, connections }
    }
}

/// The state that every connection of a port needs.
#[derive(Clone)]
struct ConnectionContext {
    tls: Option<Arc<Tls>>,
    router: Router,
    connections: Arc<Connections>,
    stage: watch::Receiver<ShutdownStage>,
}

/// Serves until the stage is [`ShutdownStage::Closing`], then lets requests in flight finish, for at most `drain`.
pub async fn accept(
    port: ServingPort,
    guard: Arc<Guard>,
    stage: watch::Receiver<ShutdownStage>,
    drain: Duration,
) {
    let ServingPort { listener, tls, router, connections } = port;
    let context =
        ConnectionContext { tls, router, connections: Arc::clone(&connections), stage: stage.clone() };
    let mut sweep = interval(DEADLINE_CHECK_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = sweep.tick() => { connections.sweep(Instant::now()); continue }
            () = closing(stage.clone()) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "a connection could not be accepted");
                sleep(ACCEPT_ERROR_PAUSE).await;
                continue;
            }
        };
        let was_full = connections.is_full();
        match connections.enter(Instant::now()) {
            Some(slot) => drop(tokio::spawn(serve_slot(context.clone(), Arc::clone(&guard), stream, slot))),
            None => guard.metrics.count_turned_away("too_many"),
        }
        if was_full {
            sleep(EVICTION_PAUSE).await;
        }
    }
    drop(listener);
    let finished = async {
        while !connections.is_empty() {
            connections.sweep(Instant::now());
            sleep(DRAIN_POLL).await;
        }
    };
    if timeout(drain, finished).await.is_err() {
        debug!("the drain time is over, and connections are still open");
    }
}

async fn serve_slot(context: ConnectionContext, guard: Arc<Guard>, stream: TcpStream, slot: Slot) {
    let _counted = context.tls.as_ref().map(|_| CountedConnection::new(&guard.metrics.connections));
    let reason = tokio::select! {
        biased;
        reason = slot.connection.ended() => Some(reason),
        outcome = handshake_and_serve(&context, &guard, stream, &slot.connection) => outcome.err(),
    };
    if let Some(reason) = reason.filter(|reason| *reason != "idle") {
        guard.metrics.count_turned_away(reason);
    }
}

/// A connection that counts in the metric of open connections until this value is dropped, however the connection ends.
struct CountedConnection<'a>(&'a Gauge);

impl<'a> CountedConnection<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Serves one connection from its first byte to its last. The error is the metric label for a failed handshake.
async fn handshake_and_serve(
    context: &ConnectionContext,
    guard: &Guard,
    stream: TcpStream,
    connection: &Arc<Connection>,
) -> Result<(), &'static str> {
    let failed = |error: io::Error| {
        debug!(%error, "a connection failed before or during its handshake");
        "handshake"
    };
    // Answers are small, and clients wait for them, so the kernel must not delay them to fill a packet.
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = &context.tls else {
        connection.open(false);
        serve_http(context, stream, connection, ClientProof::NotRequested).await;
        return Ok(());
    };
    let stream = TlsAcceptor::from(tls.current()).accept(stream).await.map_err(failed)?;
    let (_, session) = stream.get_ref();
    let proof = match session.peer_certificates() {
        Some([_, ..]) => ClientProof::Proven,
        _ if tls.requests_certificates() => ClientProof::Missing,
        _ => ClientProof::NotRequested,
    };
    guard.metrics.opened.inc();
    connection.open(proof == ClientProof::Proven);
    serve_http(context, stream, connection, proof).await;
    Ok(())
}

async fn serve_http<S>(
    context: &ConnectionContext,
    stream: S,
    connection: &Arc<Connection>,
    proof: ClientProof,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = TokioIo::new(stream);
    let router = TowerToHyperService::new(context.router.clone());
    let (connections, this_connection, stage) =
        (Arc::clone(&context.connections), Arc::clone(connection), context.stage.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut in_flight = connections.begin(&this_connection);
        request.extensions_mut().insert(proof);
        let (answer, stage) = (router.call(request), stage.clone());
        async move {
            let mut answer: Response<Body> = answer.await?;
            in_flight.served = answer.status().is_success();
            if *stage.borrow() != ShutdownStage::Serving {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(answer.map(|body| in_pieces(body, in_flight)))
        }
    });
    let mut http = http1::Builder::new();
    // The deadlines are in `connections.rs`, because hyper has a single one for both headers and idle connections.
    http.header_read_timeout(None).max_buf_size(MAX_HEADER_BYTES);
    let mut connection = pin!(http.serve_connection(stream, service));
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = closing(context.stage.clone()) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        debug!(error = chain(&error), "a connection ended with an error");
    }
}

/// Returns the body in pieces, so that hyper never holds a whole answer that its client does not read. The request is in flight
/// until hyper has taken the last piece.
fn in_pieces(body: Body, in_flight: InFlight) -> Body {
    let length = body.size_hint().exact().unwrap_or_default();
    in_flight.set_length(usize::try_from(length).unwrap_or(usize::MAX));
    in_flight.piece_taken();
    let whole = (body.into_data_stream(), Bytes::new(), in_flight);
    Body::from_stream(stream::try_unfold(whole, async |(mut body, mut rest, in_flight)| {
        if rest.is_empty() {
            let Some(data) = body.try_next().await? else { return Ok(None) };
            rest = data;
        }
        in_flight.piece_taken();
        let piece = rest.split_to(PIECE_BYTES.min(rest.len()));
        Ok::<_, axum::Error>(Some((piece, (body, rest, in_flight))))
    }))
}

/// Completes when no further connection or request should be accepted. An idle connection stays open until then, because a request
/// may be on its way to it. After [`ShutdownStage::Serving`], each answer announces that its connection closes.
async fn closing(mut stage: watch::Receiver<ShutdownStage>) {
    // Once its sender is dropped, the stage never changes again.
    if stage.wait_for(|stage| *stage == ShutdownStage::Closing).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use facts::settings::Settings;
    use jiff::Timestamp;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// However fast connections arrive, each one stays open for some time before it is evicted.
    #[tokio::test]
    async fn new_connections_evict_open_ones_at_a_limited_pace() {
        const SLOTS: usize = 4;
        const CROWD: usize = 60;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = ServingPort {
            connections: Connections::new(SLOTS, 8),
            ..ServingPort::operations(listener, Router::new())
        };
        let guard = Arc::new(Guard::new(Arc::default(), Settings::default(), Timestamp::now));
        let (_stage, stages) = watch::channel(ShutdownStage::Serving);
        let accepting = tokio::spawn(accept(port, guard, stages, Duration::ZERO));
        let begun = Instant::now();
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        // None of them sends anything, so each is evicted by the fourth connection after it.
        let last_evicted = &mut crowd[CROWD - SLOTS - 1];
        assert_eq!(last_evicted.read(&mut [0]).await.unwrap_or_default(), 0, "it is open");
        let took = begun.elapsed();
        assert!(took.as_millis() >= EVICTION_PAUSE.as_millis() * 50, "{took:?}");
        accepting.abort();
    }
}
