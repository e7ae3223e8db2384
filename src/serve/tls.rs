//! The accept loop: TCP in, TLS, HTTP, and a way out that loses no request.
//!
//! Owns: sockets, their limits, and the leaf that new handshakes get. Must not know: what is served. A connection that
//! never finishes its handshake costs a timeout, not the service.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::certs::Leaf;
use crate::guard::Guard;

/// A handshake on the other side of the world takes one second.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From the end of the handshake, or of the last answer on a busy connection, to the end of the next headers.
const HEADERS: Duration = Duration::from_secs(10);
/// The API servers of a large cluster hold a few dozen.
const MOST_CONNECTIONS: usize = 1024;
/// After an accept error (out of file descriptors) the loop must not spin.
const BREATH: Duration = Duration::from_millis(100);

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, whatever leaf is current.
pub fn config(leaf: Leaf) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(leaf));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Serves until `closing` turns true, then lets what is under way finish, for `drain` at most.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    guard: Arc<Guard>,
    mut closing: watch::Receiver<bool>,
    drain: Duration,
) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => break,
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "accept");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            guard.metrics.turn_away("too_many");
            continue;
        };
        let (acceptor, router, guard, watcher) =
            (acceptor.clone(), router.clone(), Arc::clone(&guard), graceful.watcher());
        tokio::spawn(async move {
            let _place = place;
            guard.metrics.connections.inc();
            match handshake(&acceptor, stream).await {
                Ok(stream) => {
                    let mut http = auto::Builder::new(TokioExecutor::new());
                    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
                    http.http2().timer(TokioTimer::new()).keep_alive_interval(Some(HEADERS));
                    let service = TowerToHyperService::new(router);
                    let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
                    if let Err(error) = watcher.watch(connection).await {
                        debug!(error, "connection");
                    }
                }
                Err(error) => {
                    debug!(%error, "handshake");
                    guard.metrics.turn_away("handshake");
                }
            }
            guard.metrics.connections.dec();
        });
    }
    drop(listener);
    if timeout(drain, graceful.shutdown()).await.is_err() {
        debug!("connections were still open when the time to drain was over");
    }
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    // Answers are small and waited for.
    stream.set_nodelay(true)?;
    timeout(HANDSHAKE, acceptor.accept(stream)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
